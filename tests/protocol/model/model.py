"""One operation in all its worlds: what may happen next, and what must never be.

What is modelled is the world outside of the ledger (dispatches that freeze, die, answer late or never; a service that
is slow, forgets keys, and whose lookups lag), and that things happen in any order. What is called, as it ships, are the
decisions (`activities.protocol`, `activities.settling`, `activities.standing`), the state table (`workflows.states`)
and the journal's fold: what is checked is what runs.

A dispatch that hasn't claimed is nothing but an order (generation, permit) that somebody knows, and orders are never
forgotten: a process that was frozen, a reset run, a second task may claim with any that was ever issued, at any time.

Times are a matter of the world, too. Claims are made at `NOW`, lookups at `LOOK`, just after the attempt's deadline. An
attempt that has grown old has its deadline in the far past, so that `lands_within` is over. A service that remembers
its keys for a while forgets them as early as the deadlines that were kept and its other promises allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from settled.activities import protocol
from settled.activities.journal import Entry
from settled.activities.protocol import Around
from settled.activities.standing import stand
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import Intent, OperationState, Order
from settled.workflows.states import Event
from tests.protocol.model.service import Service
from tests.protocol.model.settlements import Settlements
from tests.protocol.model.world import GENERATIONS, NOW, SECONDS, Attempt, World, way_to

Step = tuple[str, int, Attempt | None, str]
"""What a task does: its name, the ledger after it, the attempt that it begins, and what is wrong with it."""
ALONE = Around()


class Model(Service, Settlements):
    """All worlds that one kind of service and one set of rules lead to."""

    generations = GENERATIONS

    def start(self) -> World:
        """Nothing has happened yet."""
        return World()

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Everything that may happen next."""
        yield from self.orders(world, ALONE)
        for attempt in sorted(set(world.attempts)):
            yield from self.attempt(world, attempt)
        if world.ledger:
            yield from self.time(world)
            yield from self.settlement(world)

    def orders(self, world: World, around: Around) -> Iterator[tuple[str, World]]:
        """What tasks propose, claim, ask about and give up."""
        meant = self.rules.next_generation(self.operations[world.ledger])
        if world.proposed < meant <= self.generations and world.earlier < self.most:
            yield "propose again", world._replace(proposed=meant)
        for step, ledger, attempt, wrong in self.once(self.tasks, world.ledger, world.proposed, around):
            if attempt is None:
                yield step, self.moved(world, ledger)
            elif len(world.attempts) < self.most:
                late = attempt._replace(lost=world.past is not None and not world.past.restored)
                begun = self.moved(world, ledger, attempts=tuple(sorted((*world.attempts, late))))
                yield step, begun._replace(wrong=wrong) if wrong else begun

    def tasks(self, ledger: int, proposed: int, around: Around) -> list[Step]:
        """Claims, questions and withdrawals, with every order that was ever given: what they leave behind."""
        operation, found_out = self.operations[ledger], list[Step]()
        for generation in range(1, proposed + 1):
            current = operation if operation and operation.generation == generation else None
            passed = operation is not None and operation.generation > generation
            newest = self.most if passed else current.permit if current else 1
            for permit in range(1, newest + 1):
                found_out += self.order(ledger, self.ask(generation, permit), around)
        return found_out

    def ask(self, generation: int, permit: int, *, known: bool = False) -> protocol.Claim:
        """An order, as the ledger is told of it."""
        return protocol.Claim(
            subject=self.subject, generation=generation, permit=permit, seconds=SECONDS, task="task", known=known
        )

    def order(self, ledger: int, ask: protocol.Claim, around: Around) -> Iterator[Step]:
        """What may be done with one order."""
        operation, name = self.operations[ledger], f"{ask.generation}.{ask.permit}{' (known)' if ask.known else ''}"
        claim = self.rules.claim(operation, ask, NOW, around)
        if isinstance(claim, Entry) and claim.event is Event.CLAIMED:
            until = (operation.permit_until or 0.0) if operation and operation.generation == ask.generation else 0.0
            attempt = Attempt(ask.generation, ask.permit, until=until)
            yield f"claim {name}", self.after(operation, claim), attempt, self.unsafe(around)
        elif isinstance(claim, Entry):
            yield f"claim {name}: void", self.after(operation, claim), None, ""
        missed = self.rules.miss(operation, ask, NOW, around)
        if missed is not None:
            yield f"no trace of {name}", self.after(operation, missed), None, ""
        if ask.permit == 1 and self.withdraws:
            withdrawn = self.rules.withdraw(operation, ask, NOW, others_wait=False, around=around)
            if withdrawn is not None:
                yield f"withdraw {name}", self.after(operation, withdrawn), None, ""

    withdraws = True
    """Whether each order may be withdrawn, whoever waits."""

    def unsafe(self, around: Around) -> str:
        """What is wrong with sending now."""
        return ""

    # --- What must never be -------------------------------------------------------------------------------------------

    def fault(self, world: World) -> str | None:
        """What is wrong with this world, whatever happens next."""
        operation = self.operations[world.ledger]
        if world.wrong:
            return world.wrong
        if max(world.effects) > 1:
            return "two effects"
        if any(world.effects[closed - 1] and closed not in world.said for closed in world.closed):
            return "closed without an effect, with an effect"
        if operation is not None:
            generation, effect = operation.generation, world.effects[operation.generation - 1]
            done = operation.state in (OperationState.COMPLETED, OperationState.UNDONE)
            if done and not effect and generation not in world.said:
                return "completed without an effect"
            if any(a.generation < generation and self.may_still_act(world, a) for a in world.attempts):
                return "the next generation is open while an attempt of this one may land"
            for told in self.once(self.told_no, world.ledger, world.proposed):
                if world.effects[told - 1] and told not in world.said:
                    return "a task is told that it was not executed, and it was"
        return None

    def may_still_act(self, world: World, attempt: Attempt) -> bool:
        """Whether an attempt of an earlier generation may have an effect that the ledger doesn't count with."""
        # What was done and undone is done no second time by a service that knows its keys.
        known = self.kind.dedupes != "never" and world.effects[attempt.generation - 1] > 0
        return attempt.may_land and attempt.generation not in world.said and not known

    def told_no(self, ledger: int, proposed: int) -> list[int]:
        """The generations of which a task that asks is told that they were not executed."""
        told = []
        for generation in range(1, proposed + 1):
            if self.operations[ledger] is None or protocol.opens(self.operations[ledger], generation):
                continue  # it is withdrawn, or noted as missed, before anybody is told anything
            intent = Intent(key=self.key, generation=generation, fingerprint=self.subject.fingerprint)
            order = Order(head="0" * 64, slot=0, tool="t", intent=intent, permit=1, seconds=SECONDS)
            if stand(self.operations[ledger], order).error is ErrorKind.NOT_EXECUTED:
                told.append(generation)
        return told

    def questions(self, world: World) -> set[tuple[int, bool]]:
        """What must come to an end: the ledger, and whether there is an effect to be found."""
        return {(world.ledger, any(world.effects))}

    def never_ends(self, questions: set[tuple[int, bool]]) -> str | None:
        """A question that nobody answers."""
        for ledger, effect in sorted(questions):
            if not self.ends(self.operations[ledger], effect=effect):
                return f"never ends: {self.operations[ledger]}"
        return None


class Walkable(Protocol):
    """What can be walked."""

    def start(self) -> Any: ...
    def steps(self, world: Any, /) -> Iterator[tuple[str, Any]]: ...
    def fault(self, world: Any, /) -> str | None: ...
    def questions(self, world: Any, /) -> set[tuple[int, bool]]: ...
    def never_ends(self, questions: set[tuple[int, bool]], /) -> str | None: ...


def walk(model: Walkable, until: Callable[[], bool] = lambda: False) -> str:
    """Walk all worlds: "holds (n worlds)", or the shortest way to a fault.

    Args:
        model: the worlds.
        until: asked at each new world; once it says so, the walk ends early, with "reached".
    """
    start: Hashable = model.start()
    came_from: dict[Any, tuple[Any, str] | None] = {start: None}
    queue, questions = deque([start]), set[tuple[int, bool]]()
    while queue:
        world = queue.popleft()
        questions |= model.questions(world)
        for step, after in model.steps(world):
            if after in came_from:
                continue
            came_from[after] = (world, step)
            if wrong := model.fault(after):
                return f"{wrong}: {' > '.join(reversed(list(way_to(after, came_from))))}"
            if until():
                return "reached"
            queue.append(after)
    return model.never_ends(questions) or f"holds ({len(came_from)} worlds)"
