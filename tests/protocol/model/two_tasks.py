"""Two tasks that know orders for the same operation: they wait, give up, are terminated, or are reset.

A task that is reset is the same task: its wait stands in the ledger, and its old orders are good for what they were.
Whether it ever asks again, nobody knows. Orders are never forgotten anyway (see `model`); so what is modelled here is
who waits, by the ledger and in truth, and what follows from that for permits and withdrawals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from settled.activities import protocol
from settled.activities.journal import Entry, Operation
from settled.activities.settling import Lookup, Move, Patience, Promise
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.model.model import Model
from tests.protocol.model.rules import judge
from tests.protocol.model.world import LATER, LOOK, NOW, Note, World

NEW, WAITS, GONE = "new", "waits", "gone"


class TwoTasks(Model):
    """The worlds of two tasks."""

    withdraws = False  # not whoever waits: see `give_up`
    times = (LOOK, LATER)

    def start(self) -> World:
        """Two tasks that have asked for nothing yet."""
        return World(tasks=(NEW, NEW))

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Everything that may happen next."""
        for step, after in super().steps(world):
            issues = len(after.notes) > len(world.notes) and any(n.event is Event.ABSENT_RESEND for n in after.notes)
            for_nobody = "a permit is issued, though no task waits" if issues and WAITS not in world.tasks else ""
            yield step, after._replace(wrong=for_nobody or after.wrong)
        for place, task in enumerate(world.tasks):
            name = f"task {'AB'[place]}"

            def becomes(state: str, at: int = place) -> World:
                return world._replace(tasks=tuple(state if n == at else t for n, t in enumerate(world.tasks)))

            if task == NEW:
                yield f"{name} waits", becomes(WAITS)
            if task != GONE:
                yield f"{name} is terminated", becomes(GONE)
                yield from self.give_up(becomes(GONE), name)

    def give_up(self, world: World, name: str) -> Iterator[tuple[str, World]]:
        """A task gives up the newest proposal. Whether others wait is read from the ledger and from Temporal."""
        others = WAITS in world.tasks
        ledger = self.once(self.given_up, world.ledger, world.proposed, others)
        if not ledger:
            yield f"{name} gives up", world
        elif others:
            yield f"{name} gives up", world._replace(wrong="withdrawn, though another task waits")
        else:
            yield f"{name} gives up", self.moved(world, ledger)

    def given_up(self, ledger: int, generation: int, others_wait: bool) -> int:
        """The ledger after a task gave up; 0 if nothing was appended."""
        operation = self.operations[ledger]
        entry = self.rules.withdraw(operation, self.ask(generation, 1), NOW, others_wait=others_wait)
        return self.after(operation, entry) if entry else 0

    def waiting(self, world: World) -> tuple[bool, ...]:
        """Whether a living task waits."""
        return (WAITS in world.tasks,)

    def noted(self, world: World, note: Note, ledger: int) -> World:
        """The world after a settlement's row: a void permit's waits are taken back; a living task asks again."""
        if note.event is Event.WITHDRAWN:
            world = world._replace(tasks=tuple(NEW if task == WAITS else task for task in world.tasks))
        return self.moved(world, ledger)

    def never_ends(self, questions: set[tuple[int, bool]]) -> str | None:
        """A question that nobody answers; a task that waits for ever, and has forgotten its order, is no excuse."""
        for ledger, _ in sorted(questions):
            operation = self.operations[ledger]
            if operation is None or operation.state is not OperationState.RESENDABLE:
                continue
            if self.move(operation, LATER, waiting=True) is not Move.VOID:
                return f"a permit that nobody spends stays open: {operation}"
        return super().never_ends(questions)


# --- What if a rule didn't hold? --------------------------------------------------------------------------------------


def withdrawn_under_others(operation: Operation | None, ask: protocol.Claim, now: float, **around: Any) -> Entry | None:
    """A task's withdrawal counts, whoever else waits."""
    return protocol.withdraw(operation, ask, now, **around | {"others_wait": False})


def issued_for_nobody(
    operation: Operation, promise: Promise, lookup: Lookup, _waiting: bool, patience: Patience
) -> Entry:
    """A permit is issued, though no task waits."""
    return judge(operation, promise, lookup, True, patience)
