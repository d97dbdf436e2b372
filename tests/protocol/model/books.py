"""The ledger of a model: each state of an operation by a number, and what comes of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, TypeVar, cast

from settled.activities.journal import UNSEEN, Entry, Operation, Row, Subject, advance
from settled.activities.keys import remote_key
from settled.activities.protocol import LOST_PERMITS
from settled.activities.toolkit import Answer, Found
from settled.workflows.contract.operation import Evidence, OperationState
from tests.protocol.model.rules import Rules
from tests.protocol.model.world import LONG_AGO, NOW, Kind, Note, World

T = TypeVar("T")

KEY = "0" * 64
SUBJECT = Subject(tool="t", tenant="t", principal="p", fingerprint="f" * 64, arguments="a", resources=())
NO_EFFECT = (OperationState.REJECTED, OperationState.NOT_EXECUTED)


def issued(permit: int) -> int:
    """How many permits of a generation were issued, whatever was skipped."""
    return permit % LOST_PERMITS


class Books:
    """The states that an operation was in."""

    key, subject = KEY, SUBJECT

    def __init__(self, kind: Kind, rules: Rules, most: int = 3) -> None:
        self.kind, self.rules, self.promise = kind, rules, kind.promise
        self.most = most
        """Permits in all: three in the first generation, say, or two and one, or one and two."""
        self.operations: list[Operation | None] = [None]
        self._numbers: dict[Operation | None, int] = {None: 0}
        self._known: dict[tuple[Any, ...], Any] = {}

    def once(self, make: Callable[..., T], *of: Any) -> T:
        """What the function makes of this; made once."""
        known = (make.__name__, *of)
        if known not in self._known:
            self._known[known] = make(*of)
        return cast("T", self._known[known])

    def row(self, ledger: int) -> Operation:
        """The operation of that number."""
        operation = self.operations[ledger]
        assert operation is not None, "there is a row"
        return operation

    def moved(self, world: World, ledger: int, **changes: Any) -> World:
        """The world after a row was appended."""
        before, after = self.operations[world.ledger], self.row(ledger)
        if before is not None and after.generation > before.generation:
            changes |= {"forgets": False, "earlier": world.earlier + issued(before.permit)}
        if after.state in NO_EFFECT and after.generation not in world.closed:
            changes["closed"] = (*world.closed, after.generation)
        notes = world.notes if self.rules.writes_stale else ()
        return world._replace(ledger=ledger, notes=notes, **changes)

    def after(self, operation: Operation | None, entry: Entry | Note) -> int:
        """The number of the operation after the entry was appended."""
        return self.number(advance(self.key, operation, self.row_of(entry)))

    def row_of(self, entry: Entry | Note) -> Row:
        """The entry as a row."""
        if isinstance(entry, Note):
            body: dict[str, Any] = {"until": entry.until, "proven": entry.proven}
        else:
            body = entry.body
        return Row(
            event=entry.event,
            generation=entry.generation,
            permit=entry.permit,
            task="task",
            body=body | {"subject": asdict(self.subject)},
            seq=1,
            at=NOW,
            state=OperationState.NONE,
        )

    def number(self, operation: Operation) -> int:
        """The operation's number, less everything in it that no decision looks at."""
        settled = operation.state.settled
        attempts = tuple(
            replace(a, sent=True, absent=False, deadline=LONG_AGO if a.answered_no else a.deadline)
            for a in operation.attempts
        )
        plain = replace(
            operation,
            seq=0,
            lookups=0,
            result=None,
            evidence=Evidence.PERSON if operation.evidence is Evidence.PERSON else None,
            opened_at=NOW,
            changed_at=NOW,
            attempts=() if settled else attempts,
            permit_until=None if settled else operation.permit_until,
            alarms=0,
        )
        if plain not in self._numbers:
            self._numbers[plain] = len(self.operations)
            self.operations.append(plain)
        return self._numbers[plain]

    def found(self, operation: Operation) -> Found:
        """The lookup's answer that shows the current generation's effect."""
        answer = Answer(data=None, source="")
        return Found(key=remote_key(self.key, operation.generation), request=None, answer=answer)

    @property
    def reached(self) -> set[tuple[int, OperationState]]:
        """Generations and states that some world reached."""
        return {(operation.generation, operation.state) for operation in self.operations if operation is not None}


def has_unseen(operation: Operation | None) -> bool:
    """Whether the ledger counts with attempts that it doesn't know."""
    return operation is not None and any(attempt.permit == UNSEEN for attempt in operation.attempts)
