"""People: what somebody says of an operation, at any time, about any of its generations, rightly or wrongly.

A word, like an order, is never forgotten: it may be heard late, when the operation has gone on. A person may be wrong.
So where one was heard, it is not held against the ledger that a generation was settled wrongly; but what contradicts
the person afterwards must be recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from settled.activities import protocol
from settled.activities.journal import Entry, Operation
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.states import Event
from tests.protocol.model.model import Model
from tests.protocol.model.world import Attempt, Note, World

WORDS = (Event.RESOLVED_COMPLETED, Event.RESOLVED_NOT_EXECUTED, Event.UNDONE)
"""It was done; it was not done; what the ledger says was done has been taken back."""


class Peopled(Model):
    """The worlds in which people speak."""

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Everything that may happen next."""
        yield from super().steps(world)
        if world.ledger:
            for generation in range(1, self.row(world.ledger).generation + 1):
                yield from self.words(world, generation)

    def words(self, world: World, generation: int) -> Iterator[tuple[str, World]]:
        """Somebody who has looked at this generation says what became of it."""
        for word in WORDS:
            ledger = self.once(self.word, world.ledger, word, generation)
            if ledger:
                said = tuple(sorted({*world.said, generation}))
                heard = self.moved(world, ledger, said=said)
                yield f"a person on {generation}: {word}", heard._replace(wrong=self.too_early(world, word))

    def word(self, ledger: int, word: Event, generation: int) -> int:
        """The ledger after a person's word; 0 if it isn't taken."""
        operation = self.row(ledger)
        entry = self.rules.resolve(operation, word, {}, generation)
        return self.after(operation, entry) if entry else 0

    def too_early(self, world: World, word: Event) -> str:
        """What is wrong with hearing a person now."""
        if word is Event.UNDONE and self.kind.dedupes != "never":
            return ""  # what is done is done no second time, whatever is yet to be sent
        current = self.row(world.ledger).generation
        own = [attempt for attempt in world.attempts if attempt.generation == current]
        if any(a.lives and a.phase == "claimed" and not a.old and not a.late for a in own):
            return "a person is heard of what is yet to be sent"
        return ""

    def noted(self, world: World, note: Note, ledger: int) -> World:
        """The world after a settlement's row: of an attempt that expired, it is noted that it is late."""
        if note.event is Event.EXPIRED:
            late = [
                a._replace(late=True) if (a.generation, a.permit) == (note.generation, note.permit) else a
                for a in world.attempts
            ]
            world = world._replace(attempts=tuple(sorted(late)))
        return self.moved(world, ledger)

    def misjudged(self, world: World, event: Event, attempt: Attempt, ledger: int, *, alarm: bool) -> str:
        """Whether a fact that contradicts a person was swallowed."""
        before = self.operations[world.ledger]
        if attempt.generation not in world.said or before is None or event is Event.UNCLEAR:
            return ""
        current = before.generation == attempt.generation
        if not ledger:
            return "a fact that came after a person's word is not recorded"
        if event is not Event.SUCCEEDED:
            return ""
        counted = OperationState.UNDONE if before.undone else OperationState.COMPLETED
        if current and self.row(ledger).state is not counted:
            return "a success that came after a person's word doesn't count"
        believed = current and before.state is OperationState.NOT_EXECUTED and before.evidence is Evidence.PERSON
        passed = not current and attempt.generation not in before.undone_before
        if (passed or believed) and not alarm:
            return "a success that contradicts a person raises no alarm"
        return ""


# --- What if a rule didn't hold? --------------------------------------------------------------------------------------


def heard_while_out(operation: Operation, event: Event, body: dict[str, Any], generation: int) -> Entry | None:
    """A person's word counts while an attempt is out, too."""
    out = operation.state is OperationState.DISPATCHED and operation.generation == generation
    if out and event is not Event.UNDONE:
        return Entry(event=event, generation=generation, permit=operation.permit, body=body)
    return protocol.resolve(operation, event, body, generation)


def heard_of_any_generation(operation: Operation, event: Event, body: dict[str, Any], _generation: int) -> Entry | None:
    """A person's word counts for the generation that happens to be open."""
    return protocol.resolve(operation, event, body)


def believes_people(operation: Operation | None, ended: protocol.Report, now: float) -> Entry | None:
    """What comes after a person's word is recorded, and nobody is told that it contradicts it."""
    entry = protocol.report(operation, ended, now)
    return entry and replace(entry, body={name: value for name, value in entry.body.items() if name != "alarm"})
