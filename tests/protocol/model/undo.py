"""Two operations of which the second takes back the first one's first generation.

Each is an operation of its own, with the worlds that `model` gives it. What ties them together: the ledger's claim of
the undo looks at the target, a completed undo closes the target in the same transaction, and the service releases only
what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from settled.activities import protocol
from settled.activities.journal import Entry, Operation
from settled.activities.protocol import Around, Blocked, Refused
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.model.books import KEY, SUBJECT
from tests.protocol.model.model import Model
from tests.protocol.model.rules import Rules
from tests.protocol.model.world import Attempt, Kind, World

DONE, UNDONE = OperationState.COMPLETED, OperationState.UNDONE


class Pair(NamedTuple):
    """Everything there is about both operations."""

    target: World
    undo: World
    wrong: str = ""


class Target(Model):
    """What is taken back."""

    def misjudged(self, world: World, event: Event, attempt: Attempt, ledger: int, *, alarm: bool) -> str:
        """Whether an alarm says that there may be a second effect, where the first one was taken back."""
        operation = self.operations[world.ledger]
        passed = operation is not None and operation.generation > attempt.generation
        if passed and alarm and event is Event.SUCCEEDED:
            return "a late success of what was undone raises an alarm"
        return ""


class Undo(Model):
    """What takes it back."""

    key, generations = "1" * 64, 1
    subject = replace(SUBJECT, undoes_key=KEY, undoes_generation=1)
    there = False
    """Whether the service has what is to be released."""

    def may_take_effect(self, world: World) -> bool:
        """The service declines to release what isn't there."""
        return self.there

    def unsafe(self, around: Around) -> str:
        """What is wrong with releasing now."""
        target = around.target
        if target is None or target.generation != 1 or target.state is not DONE:
            return "an undo may be sent, though its target is not settled as done"
        return ""


class Undoing:
    """The worlds of both."""

    def __init__(self, target: Kind, undo: Kind, rules: Rules, most: int = 2) -> None:
        self.rules = rules
        self.target, self.undo = Target(target, rules, most), Undo(undo, rules, most)

    def start(self) -> Pair:
        """Nothing has happened yet."""
        return Pair(self.target.start(), self.undo.start())

    def steps(self, pair: Pair) -> Iterator[tuple[str, Pair]]:
        """Everything that may happen next."""
        for step, world in self.target.steps(pair.target):
            yield step, pair._replace(target=world)
        self.undo.there = pair.target.effects[0] > sum(pair.undo.effects)
        around = Around(target=self.target.operations[pair.target.ledger])
        for step, world in self.undo.orders(pair.undo, around):
            yield f"undo: {step}", self.both(pair, world)
        for attempt in sorted(set(pair.undo.attempts)):
            for step, world in self.undo.attempt(pair.undo, attempt):
                yield f"undo: {step}", self.both(pair, world)
        if pair.undo.ledger:
            for step, world in (*self.undo.time(pair.undo), *self.undo.settlement(pair.undo)):
                yield f"undo: {step}", self.both(pair, world)

    def both(self, pair: Pair, undo: World) -> Pair:
        """Both, after the undo has moved on: the ledger closes what a completed undo takes back, in the same breath."""
        after = pair._replace(undo=undo)
        operation = self.undo.operations[undo.ledger]
        if undo.ledger == pair.undo.ledger or operation is None or operation.state is not DONE:
            return after if not undo.ledger else self.eager(after)
        return after._replace(target=self.taken_back(pair.target, operation))

    def eager(self, pair: Pair) -> Pair:
        """Both, where a rule may take the target back before its undo is completed: the shipped one doesn't."""
        if self.rules.undone is protocol.undone:
            return pair
        return pair._replace(target=self.taken_back(pair.target, self.undo.row(pair.undo.ledger)))

    def taken_back(self, target: World, undo: Operation) -> World:
        """The target after the ledger was told of the undo."""
        operation = self.target.operations[target.ledger]
        entry = self.rules.undone(operation, undo)
        return target if entry is None else self.target.moved(target, self.target.after(operation, entry))

    def fault(self, pair: Pair) -> str | None:
        """What is wrong with these two, whatever happens next."""
        target, undo = self.target.operations[pair.target.ledger], self.undo.operations[pair.undo.ledger]
        if wrong := self.target.fault(pair.target) or self.undo.fault(pair.undo):
            return wrong
        if sum(pair.target.effects) - sum(pair.undo.effects) > 1:
            return "two effects, less what was released"
        completed = undo is not None and undo.state is DONE
        closed = target is not None and (target.state is UNDONE or target.generation > 1)
        if closed and target is not None and (target.state is UNDONE or 1 in target.undone_before) and not completed:
            return "undone, and its undo is not completed"
        if completed and not closed:
            return "the undo is completed, and its target is not undone"
        return None

    def questions(self, pair: Pair) -> set[tuple[int, bool]]:
        """What must come to an end: the undo; the target is one operation as any."""
        return self.undo.questions(pair.undo)

    def never_ends(self, questions: set[tuple[int, bool]]) -> str | None:
        """An undo that never ends."""
        return self.undo.never_ends(questions)


# --- What if a rule didn't hold? --------------------------------------------------------------------------------------


def undone_too_early(target: Operation | None, undoing: Operation) -> Entry | None:
    """The target counts as undone as soon as its undo was claimed."""
    if undoing.state in (OperationState.DISPATCHED, DONE):
        return protocol.undone(target, undoing)
    return None


def looks_only_at_first(
    operation: Operation | None, ask: protocol.Claim, now: float, around: Around
) -> Entry | Blocked | Refused | None:
    """The target is looked at only where a claim opens the undo, and not where it sends it again."""
    if protocol.opens(operation, ask.generation):
        return protocol.obstacle(operation, ask, around) or protocol.claim(operation, ask, now, around)
    return protocol.claim(operation, ask, now, around)


def looks_at_no_target(
    operation: Operation | None, ask: protocol.Claim, now: float, around: Around
) -> Entry | Blocked | Refused | None:
    """An undo may be sent whatever became of its target."""
    return protocol.claim(operation, ask, now, around)


def forgets_what_was_undone(operation: Operation | None, ended: protocol.Report, now: float) -> Entry | None:
    """The success of a generation that is over counts as one of a generation that had no effect."""
    return protocol.report(operation and replace(operation, undone_before=()), ended, now)
