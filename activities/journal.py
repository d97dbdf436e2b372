"""The journal of an operation, and its fold: what the rows say, as one frozen value. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from settled.workflows.contract.operation import Evidence, OperationState, OperationView
from settled.workflows.states import ANSWERED_NO, EVIDENCE, Event, after

UNSEEN = 0
"""The permit of an attempt that stands for all that a lost part of the past may have sent. It is nobody's: a "no" of
one of them doesn't speak for the others."""

MOST_SKIPPED = 20
"""Generations without a row that are remembered of one gap; no honest order leaves a larger one."""
STILL_UNKNOWN = frozenset({Event.ABSENT_SO_FAR, Event.IN_FLUX, Event.LOOKUP_FAILED})


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an operation's generation is about; stands in the row that opens it."""

    tool: str
    tenant: str
    principal: str
    fingerprint: str
    """Digest of the validated arguments."""
    arguments: str
    """The artifact with the validated arguments."""
    resources: tuple[str, ...]
    """What the action touches."""
    shown: str = ""
    """The arguments as JSON, cut: what is shown of them where another request meets this one."""
    undoes_key: str = ""
    """The operation that this one takes back, where its tool undoes another one."""
    undoes_generation: int = 0
    """Which generation of it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row to be appended."""

    event: Event
    generation: int
    permit: int
    task: str = ""
    """The task that caused it; none if a settlement did."""
    body: dict[str, Any]
    """What belongs to the event: the subject, a deadline, a result, a note."""


@dataclass(frozen=True, kw_only=True)
class Row(Entry):
    """A row as it stands in the journal."""

    seq: int
    """Its place, from 1, without gaps."""
    at: float
    """When it was written, by the store's clock."""
    state: OperationState
    """The state after it."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One claim, and what became of it."""

    permit: int
    claimed_at: float
    deadline: float
    """After this time, by the store's clock, the attempt sends nothing."""
    answered_no: bool = False
    """Whether it is known to have no effect."""
    sent: bool = True
    """Whether it may have sent anything."""
    absent: bool = False
    """Whether a lookup has shown, when it could not land any more, that it had no effect."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An operation's current generation, as its journal tells it."""

    key: str
    seq: int
    """The journal's last row."""
    subject: Subject
    state: OperationState
    generation: int
    permit: int
    """The highest permit that was issued: spent, open (`NONE`, `RESENDABLE`) or void."""
    permit_until: float | None = None
    """By the store's clock, when a claim's send deadline must lie at the latest; None: no limit."""
    attempts: tuple[Attempt, ...] = ()
    claimed_by: str = ""
    """The task that spent the last permit; none while nothing was claimed."""
    opened_at: float
    """When this generation began."""
    changed_at: float
    evidence: Evidence | None = None
    lookups: int = 0
    """Lookups in a row that left it unknown."""
    result: dict[str, Any] | None = None
    """The body of the row that settled it, or handed it to a person."""
    declined: dict[str, Any] | None = None
    """What was said with the last "no" of an attempt."""
    undone_before: tuple[int, ...] = ()
    """The earlier generations that were done and undone; the others had no effect."""
    skipped: tuple[int, ...] = ()
    """The earlier generations of which the journal has no row: a lost part of the past has opened and closed them."""
    alarms: int = 0
    """Rows of the whole journal that say that there may be a second effect."""
    heard: tuple[str, ...] = ()
    """The ids of the updates by which people have said something, in the whole journal."""

    @property
    def undone(self) -> bool:
        """Whether it was done, and taken back since."""
        return self.state is OperationState.UNDONE

    @property
    def out(self) -> tuple[Attempt, ...]:
        """The attempts that may still have, or may have had, an effect."""
        return tuple(attempt for attempt in self.attempts if not attempt.answered_no)

    def view(self) -> OperationView:
        """The operation in one line."""
        return OperationView(
            key=self.key,
            tool=self.subject.tool,
            state=self.state,
            generation=self.generation,
            sends=sum(attempt.sent for attempt in self.attempts),
            evidence=self.evidence,
        )


def fold(key: str, rows: Sequence[Row]) -> Operation | None:
    """The current generation of the operation whose journal these are; None if there are none.

    Raises:
        IllegalTransition: the rows are not a journal that our state table could have written.
    """
    operation: Operation | None = None
    for row in rows:
        operation = advance(key, operation, row)
    return operation


def advance(key: str, operation: Operation | None, row: Row) -> Operation:
    """The operation after one more row.

    Raises:
        IllegalTransition: the state table has no arrow for it.
    """
    if operation is None or row.generation > operation.generation:
        operation = Operation(
            key=key,
            seq=row.seq,
            subject=Subject(**row.body["subject"] | {"resources": tuple(row.body["subject"]["resources"])}),
            state=OperationState.NONE,
            generation=row.generation,
            permit=row.permit,
            opened_at=row.at,
            changed_at=row.at,
            alarms=operation.alarms if operation else 0,
            heard=operation.heard if operation else (),
            undone_before=_undone_by_now(operation) if operation else (),
            skipped=_skipped(operation, row.generation),
        )
    changes: dict[str, Any] = {"seq": row.seq, "alarms": operation.alarms + ("alarm" in row.body)}
    if "update" in row.body:
        changes["heard"] = (*operation.heard, row.body["update"])
    if row.generation == operation.generation:
        changes |= _effect(operation, row)
    return replace(operation, **changes)


def _undone_by_now(operation: Operation) -> tuple[int, ...]:
    return (*operation.undone_before, operation.generation) if operation.undone else operation.undone_before


def _skipped(operation: Operation | None, generation: int) -> tuple[int, ...]:
    before, last = (operation.skipped, operation.generation) if operation else ((), 0)
    return (*before, *range(max(last + 1, generation - MOST_SKIPPED), generation))


def _effect(operation: Operation, row: Row) -> dict[str, Any]:
    state = after(operation.state, row.event)
    changed = state is not operation.state
    changes: dict[str, Any] = {"state": state, "attempts": _attempts(operation, row)}
    changes["permit"] = max(operation.permit, row.permit)
    changes["lookups"] = operation.lookups + 1 if not changed and row.event in STILL_UNKNOWN else 0
    if changed:
        by_person = Evidence.PERSON if "who" in row.body else None
        changes |= {"changed_at": row.at, "evidence": by_person or EVIDENCE.get(row.event, operation.evidence)}
    if changed and (state.settled or state is OperationState.NEEDS_HUMAN) and row.event is not Event.UNDONE:
        changes["result"] = row.body  # of what was undone, the result that it had stays
    if row.event in ANSWERED_NO and "failure" in row.body:
        changes["declined"] = row.body["failure"]
    if row.event is Event.CLAIMED:
        changes["claimed_by"] = row.task
    if row.event is Event.ABSENT_RESEND:
        changes["permit_until"] = row.body.get("until")
    return changes


def _attempts(operation: Operation, row: Row) -> tuple[Attempt, ...]:
    if row.event is Event.CLAIMED:
        return (
            *operation.attempts,
            Attempt(permit=row.permit, claimed_at=row.at, deadline=row.body["deadline"]),
        )
    if "unseen" in row.body:
        return (*operation.attempts, Attempt(permit=UNSEEN, **row.body["unseen"]))
    if row.event is Event.ABSENT_RESEND and row.body.get("proven"):
        return tuple(replace(attempt, absent=True) for attempt in operation.attempts)
    if row.event in ANSWERED_NO:
        return tuple(
            replace(attempt, answered_no=True, sent=row.body.get("sent", True))
            if attempt.permit == row.permit
            else attempt
            for attempt in operation.attempts
        )
    return operation.attempts
