"""What a settlement does next, and what a lookup's answer proves. Pure; time is handed in.

Rule 7 of the protocol is here. `dedupes` permits a resend and proves nothing. `lands_within` bounds how long an attempt
can still land; only after that does an absent lookup mean that nothing happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from settled.activities.canonical import canonical
from settled.activities.journal import Entry, Operation
from settled.activities.toolkit import Absent, Found, InFlux, LookupAnswer, Scope, Several, WriteTool
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a tool states about its service, in seconds."""

    dedupes: float | None
    """For how long there is one effect per key."""
    lands_within: float | None
    """After this time no attempt can land, and a lookup misses none."""
    seconds: float
    """The time budget of one attempt."""
    can_look_up: bool
    """Whether there is a lookup."""
    unique: tuple[str, ...] = ()
    """The arguments of which the service has one record each at the most: the key fields of a business scope."""

    @classmethod
    def of(cls, tool: WriteTool) -> Promise:
        """The promises of a tool whose declaration was checked at worker start."""
        dedupes, lands_within = tool.dedupes, tool.lands_within
        return cls(
            dedupes=dedupes.total_seconds() if dedupes else None,  # type: ignore[union-attr]  # checked by the registry
            lands_within=lands_within.total_seconds() if lands_within is not None else None,  # type: ignore[union-attr]
            seconds=tool.seconds,
            can_look_up=tool.lookup is not None,
            unique=tool.key if tool.scope is Scope.BUSINESS and isinstance(tool.key, tuple) else (),
        )


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How a settlement waits, in seconds."""

    first: float = 1.0
    """Between the first lookup and the second; doubles with each."""
    most: float = 300.0
    """Between two lookups at the most."""
    total: float = 86_400.0
    """From the generation's beginning until a person is asked."""

    def delay(self, lookups: int) -> float:
        """How long to wait after this many lookups that settled nothing."""
        return float(min(self.most, self.first * 2 ** min(lookups, 40)))


PERMIT_SECONDS = 600.0
"""A permit that nobody spends for so long is void: the task that waited may have forgotten it (a reset, say)."""


class Move(StrEnum):
    """What a settlement's step does."""

    DONE = "done"
    AWAIT_ATTEMPT = "await_attempt"
    EXPIRE = "expire"
    LOOK_UP = "look_up"
    CLOSE = "close"
    HAND_OVER = "hand_over"
    AWAIT_TASK = "await_task"
    VOID = "void"
    AWAIT_PERSON = "await_person"


def next_move(operation: Operation, promise: Promise, now: float, *, waiting: bool) -> Move:
    """What to do about an operation as it stands.

    Args:
        operation: as the journal has it.
        promise: what its tool states.
        now: the store's time.
        waiting: whether a living task waits for the result.
    """
    match operation.state:
        case OperationState.DISPATCHED:
            return Move.EXPIRE if now > operation.attempts[-1].deadline else Move.AWAIT_ATTEMPT
        case OperationState.UNKNOWN if promise.can_look_up:
            return Move.LOOK_UP
        case OperationState.UNKNOWN:
            return Move.HAND_OVER if operation.out else Move.CLOSE
        case OperationState.RESENDABLE:
            return Move.AWAIT_TASK if waiting and now - operation.changed_at < PERMIT_SECONDS else Move.VOID
        case OperationState.NEEDS_HUMAN:
            return Move.AWAIT_PERSON
        case _:
            return Move.DONE


def final_from(operation: Operation, promise: Promise) -> float | None:
    """The store's time from which an absent lookup proves that nothing happened; None: no lookup ever does."""
    if not operation.out:
        return 0.0
    if promise.lands_within is None:
        return None
    return max(attempt.deadline for attempt in operation.out) + promise.lands_within


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A lookup that came back."""

    answer: LookupAnswer | None
    """None: it failed."""
    asked_at: float
    """The store's time before the service was asked: what it says holds for then, not for later."""
    note: str = ""


def judge(
    operation: Operation,
    promise: Promise,
    lookup: Lookup,
    *,
    remote_key: str,
    arguments: Mapping[str, Any],
    waiting: bool,
    patience: Patience,
) -> Entry:
    """The row that a lookup's answer adds to the journal."""
    spent = lookup.asked_at - operation.opened_at > patience.total
    match lookup.answer:
        case Found() as found:
            return _found(operation, promise, found, remote_key, arguments)
        case Several(records):
            return _entry(operation, Event.HANDED_TO_PERSON, note="the lookup found several records", records=records)
        case Absent():
            return _absent(operation, promise, lookup.asked_at, waiting=waiting, spent=spent)
        case _ if spent:
            return _entry(operation, Event.HANDED_TO_PERSON, note=f"no lookup settled it in time; last: {lookup.note}")
        case InFlux(note):
            return _entry(operation, Event.IN_FLUX, note=note)
        case _:
            return _entry(operation, Event.LOOKUP_FAILED, note=lookup.note)


def names_our_request(found: Found, remote_key: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the record carries our key and shows our request."""
    return found.key == remote_key and (found.request is None or _same(found.request, arguments))


def _same(request: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether they agree, in canonical form: a service may write the same text, number or time in another way."""
    return all(name in arguments and canonical(arguments[name]) == canonical(value) for name, value in request.items())


def _is_the_only_one(operation: Operation, promise: Promise, found: Found, arguments: Mapping[str, Any]) -> bool:
    """Whether a record without a key can only be ours, by the business scope's unique fields.

    Not in a later generation: the record may be the earlier one's.
    """
    if found.key is not None or found.request is None or operation.generation > 1 or not promise.unique:
        return False
    return set(promise.unique) <= found.request.keys() and _same(found.request, arguments)


def _found(
    operation: Operation, promise: Promise, found: Found, remote_key: str, arguments: Mapping[str, Any]
) -> Entry:
    event, since = (Event.FOUND, "") if found.stands else (Event.FOUND_UNDONE, ", and that it was taken back since")
    if names_our_request(found, remote_key, arguments):
        return _entry(operation, event, note=f"the lookup found it{since}")
    if found.stands and _is_the_only_one(operation, promise, found, arguments):
        return _entry(operation, event, note="the lookup found it, by the fields of which there is only one")
    return _entry(
        operation,
        Event.HANDED_TO_PERSON,
        note=f"the lookup found a record that {_what_is_odd(operation, found, remote_key)}",
        found={"key": found.key, "request": found.request},
    )


def _what_is_odd(operation: Operation, found: Found, remote_key: str) -> str:
    if found.key == remote_key:
        return "shows another request under our key"
    if not found.stands:
        return "doesn't carry our key, and was taken back: there may be others"
    ours, _, number = (found.key or "").rpartition("-")
    if ours != remote_key.rpartition("-")[0] or not number.isdecimal():
        return "doesn't carry our key"
    if int(number) < operation.generation:
        return f"is of generation {number} of this operation, an earlier one"
    return (
        f"is of generation {number} of this operation, which this ledger has lost: say that generation "
        f"{operation.generation} was not executed; the record is found once the action is proposed again"
    )


def _absent(operation: Operation, promise: Promise, asked_at: float, *, waiting: bool, spent: bool) -> Entry:
    final = final_from(operation, promise)
    proven = final is not None and asked_at > final
    # An answer of "no" to the newest attempt would be the answer to the next one, too: there is no point in sending it.
    answered = bool(operation.attempts) and operation.attempts[-1].answered_no and operation.attempts[-1].sent
    wanted = waiting and not spent and not answered
    if proven and not wanted:
        return _entry(operation, Event.ABSENT_FINAL, note="absent, and nothing can land any more")
    if proven:
        return _resend(operation, None, proven=True)
    if wanted and operation.attempts and promise.dedupes is not None:
        # What is sent last must also land while the service still knows the key.
        until = operation.attempts[0].claimed_at + promise.dedupes - (promise.lands_within or 0.0)
        if asked_at + promise.seconds <= until:
            return _resend(operation, until, proven=False)
    if spent and final is None:
        return _entry(operation, Event.HANDED_TO_PERSON, note="absent, but nobody knows whether it can still land")
    return _entry(operation, Event.ABSENT_SO_FAR, note="absent so far, but an attempt may still land")


def _resend(operation: Operation, until: float | None, *, proven: bool) -> Entry:
    return Entry(
        event=Event.ABSENT_RESEND,
        generation=operation.generation,
        permit=operation.permit + 1,
        body={"note": "absent, and a resend is safe", "until": until, "proven": proven},
    )


def _entry(operation: Operation, event: Event, **body: Any) -> Entry:
    return Entry(event=event, generation=operation.generation, permit=operation.permit, body=body)


def wait_after(operation: Operation, promise: Promise, patience: Patience, now: float) -> float:
    """Seconds until the next step, for an operation that isn't settled."""
    match operation.state:
        case OperationState.DISPATCHED:
            return max(0.05, operation.attempts[-1].deadline - now + 0.05)
        case OperationState.UNKNOWN:
            if not operation.lookups:
                return 0.0
            backed_off, final = patience.delay(operation.lookups - 1), final_from(operation, promise)
            # Just past the time from which absence proves something is the best time to look.
            return min(backed_off, final - now + 0.05) if final is not None and final > now else backed_off
        case OperationState.RESENDABLE:
            return patience.delay(4)
        case _:
            return 3600.0
