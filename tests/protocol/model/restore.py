"""A ledger that is set back, at any time, to any earlier state of its journal; everything else stays as it is.

What stays: the service, the attempts that are out, the orders that workflows know, and what they have seen. An epoch is
opened with it. What was told before, and is lost, isn't held against the ledger; that the action has one effect, is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from settled.activities import protocol
from settled.activities.journal import UNSEEN, Entry, Operation
from settled.activities.protocol import Around, Blocked, Epoch, Refused
from settled.workflows.contract.operation import OperationState
from tests.protocol.model.books import issued
from tests.protocol.model.model import ALONE, Model, Step
from tests.protocol.model.world import LONG_AGO, NOW, SECONDS, Past, World, changed

YOUNG = Epoch(number=1, since=NOW, opened_at=NOW - 1.0)
OLD = Epoch(number=1, since=NOW, opened_at=LONG_AGO - SECONDS)
"""The same epoch, seen from a time at which nothing that was lost can land any more."""


class Restored(Model):
    """The worlds in which the ledger is set back once."""

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Everything that may happen next."""
        past = world.past
        if past is None:
            yield "a copy is made", world._replace(past=Past(world.ledger, world.earlier, world.closed))
        elif not past.restored:
            yield "the ledger is set back", self.set_back(world, past)
        elif self.kind.bounded and (not past.old or self.once(self.aged, world.ledger) != world.ledger):
            yield "what was lost grows old", self.grown_old(world, past)
        yield from super().steps(world)

    def set_back(self, world: World, past: Past) -> World:
        """The world after the ledger was set back to the copy, and an epoch was opened."""
        now, ledger = self.operations[world.ledger], past.copy
        copy = self.operations[ledger]
        if copy is not None and self.rules.opens_epoch:
            noted = self.rules.restored(copy, YOUNG, SECONDS)
            ledger = self.after(copy, noted) if noted else ledger
        opened = now.generation if now else 0
        newest = issued(now.permit) if now else 0
        # Of earlier generations there were as many permits as there may be: too many is on the safe side.
        permits = tuple(self.most if n < opened else newest if n == opened else 1 for n in range(1, world.proposed + 1))
        then = past._replace(restored=True, opened=opened, permits=permits)
        return world._replace(ledger=ledger, earlier=past.earlier, closed=past.closed, notes=(), past=then)

    def grown_old(self, world: World, past: Past) -> World:
        """The world when nothing can land any more of what the ledger has lost."""
        aged: World = world._replace(past=past._replace(old=True), ledger=self.once(self.aged, world.ledger))
        for attempt in world.attempts:
            if attempt.lost:
                aged = changed(aged, attempt, attempt._replace(old=True))
        return aged

    def aged(self, ledger: int) -> int:
        """The ledger then."""
        operation = self.operations[ledger]
        if operation is None or not any(attempt.permit == UNSEEN for attempt in operation.out):
            return ledger
        attempts = tuple(replace(a, deadline=LONG_AGO) if a.permit == UNSEEN else a for a in operation.attempts)
        return self.number(replace(operation, attempts=attempts))

    def orders(self, world: World, around: Around) -> Iterator[tuple[str, World]]:
        """What tasks do with the orders that they know."""
        past = world.past
        if past is None or not past.restored:
            yield from super().orders(world, ALONE)
            return
        meant = self.rules.next_generation(self.operations[world.ledger])
        if world.proposed < meant <= self.generations and world.earlier < self.most:
            yield "propose again", world._replace(proposed=meant)
        epoch = (OLD if past.old else YOUNG) if self.rules.opens_epoch else None
        done = self.once(self.known, world.ledger, world.proposed, past.opened, past.permits, Around(epoch=epoch))
        for step, ledger, attempt, _ in done:
            if attempt is None:
                yield step, self.moved(world, ledger)
            elif len(world.attempts) <= self.most:  # one more than without lost ones
                yield step, self.moved(world, ledger, attempts=tuple(sorted((*world.attempts, attempt))))

    def known(self, ledger: int, proposed: int, opened: int, permits: tuple[int, ...], around: Around) -> list[Step]:
        """What may be done with every order that a workflow knows, of the lost past and of today."""
        operation, found_out = self.operations[ledger], list[Step]()
        for generation in range(1, proposed + 1):
            before = permits[generation - 1] if generation <= len(permits) else 1
            orders = set(range(1, before + 1))
            if operation is not None and operation.generation == generation == proposed:
                # A workflow that means a later generation has gone on: nobody asks for permits of this one any more.
                orders.add(operation.permit)
            for permit in sorted(orders):
                for known in (False, True) if generation <= opened else (False,):
                    found_out += self.order(ledger, self.ask(generation, permit, known=known), around)
        return found_out

    def fault(self, world: World) -> str | None:
        """What is wrong with this world: the action, besides, has one effect in all of its generations."""
        return "two effects" if sum(world.effects) > 1 else super().fault(world)


# --- What if a rule didn't hold? --------------------------------------------------------------------------------------


def copy_is_all(operation: Operation, epoch: Epoch, seconds: float) -> Entry | None:
    """What wasn't settled in the copy is taken for what it was."""
    return None


def permits_are_given_again(operation: Operation, epoch: Epoch, seconds: float) -> Entry | None:
    """The permits that may be lost aren't skipped."""
    entry = protocol.restored(operation, epoch, seconds)
    return entry and replace(entry, permit=operation.permit)


def claims_at_once(
    operation: Operation | None, ask: protocol.Claim, now: float, around: Around
) -> Entry | Blocked | Refused | None:
    """A restored ledger claims at once."""
    return protocol.claim(operation, ask, now, replace(around, epoch=None))


def missed_is_nothing_out(operation: Operation | None, ask: protocol.Claim, now: float, around: Around) -> Entry | None:
    """What was missed in a restored ledger counts as never sent."""
    entry = protocol.miss(operation, ask, now, around)
    return entry and replace(entry, body={name: value for name, value in entry.body.items() if name != "unseen"})


def withdrawn_is_not_sent(
    operation: Operation | None, ask: protocol.Claim, now: float, *, others_wait: bool, around: Around
) -> Entry | None:
    """What is given up in a restored ledger counts as never sent."""
    return protocol.withdraw(operation, replace(ask, known=False), now, others_wait=others_wait)


def one_no_for_all(operation: Operation | None, ended: protocol.Report, now: float) -> Entry | None:
    """The "no" of one lost attempt counts for all of them."""
    if operation is not None and operation.state is OperationState.UNKNOWN:
        seen = tuple(attempt for attempt in operation.attempts if attempt.permit != UNSEEN)
        operation = replace(operation, attempts=seen, permit=ended.permit)
    return protocol.report(operation, ended, now)
