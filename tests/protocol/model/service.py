"""Attempts and the service: what is sent, what lands, what is heard of it, and how time passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from settled.activities import protocol
from settled.activities.journal import UNSEEN
from settled.workflows.states import Event
from tests.protocol.model.books import Books
from tests.protocol.model.world import FORGOTTEN, LANDS_WITHIN, LONG_AGO, NOW, REMEMBERS, Attempt, World, changed


class Service(Books):
    """What becomes of the attempts that were made."""

    def attempt(self, world: World, attempt: Attempt) -> Iterator[tuple[str, World]]:
        """What an attempt, its request and its answer may come to."""
        name, place = f"{attempt.generation}.{attempt.permit}", attempt.generation - 1
        if attempt.lives:
            yield f"{name} dies", changed(world, attempt, attempt._replace(lives=False))
            answer = {"claimed": Event.NOT_SENT, "done": Event.SUCCEEDED, "declined": Event.DECLINED}.get(attempt.phase)
            if answer is not None:
                yield f"{name} reports {answer}", self.reported(world, attempt, answer, None)
            unclear = attempt._replace(lives=False)
            yield f"{name} reports unclear", self.reported(world, attempt, Event.UNCLEAR, unclear)
            if attempt.phase == "claimed" and not attempt.old:
                yield f"{name} sends", changed(world, attempt, attempt._replace(phase="flying"))
        if attempt.phase == "flying" and not attempt.old:
            # An earlier generation's key is remembered: what a permit demanded of its attempts goes on to hold.
            forgets = world.forgets and attempt.generation == self.row(world.ledger).generation
            remembers = self.kind.dedupes == "always" or (self.kind.dedupes == "a while" and not forgets)
            landed = changed(world, attempt, attempt._replace(phase="done"))
            if remembers and world.effects[place]:
                yield f"{name} lands again", landed
                return
            effects = tuple(count + (n == place) for n, count in enumerate(world.effects))
            if self.may_take_effect(world):
                yield f"{name} lands", landed._replace(effects=effects)
            yield f"{name} is declined", changed(world, attempt, attempt._replace(phase="declined"))

    def may_take_effect(self, world: World) -> bool:
        """Whether the service may do what it is asked to."""
        return True

    def reported(self, world: World, attempt: Attempt, event: Event, then: Attempt | None) -> World:
        """The world after the attempt told the ledger how it ended."""
        ledger, alarm = self.once(self.report, world.ledger, event, attempt.generation, attempt.permit)
        after = changed(world, attempt, then)
        if wrong := self.misjudged(world, event, attempt, ledger, alarm=alarm):
            return after._replace(wrong=wrong)
        return self.moved(after, ledger) if ledger else after

    def misjudged(self, world: World, event: Event, attempt: Attempt, ledger: int, *, alarm: bool) -> str:
        """What is wrong with the row that a report led to."""
        return ""

    def report(self, ledger: int, event: Event, generation: int, permit: int) -> tuple[int, bool]:
        """The ledger after a report, 0 if nothing was appended; and whether there was an alarm."""
        operation = self.operations[ledger]
        ended = protocol.Report(event=event, generation=generation, permit=permit, task="task", body={})
        entry = self.rules.report(operation, ended, NOW)  # type: ignore[arg-type]  # broken rules meet no lost ledger
        return (self.after(operation, entry), "alarm" in entry.body) if entry else (0, False)

    # --- Time ---------------------------------------------------------------------------------------------------------

    def time(self, world: World) -> Iterator[tuple[str, World]]:
        """Time passes: an attempt grows old, or the service forgets the key."""
        operation = self.row(world.ledger)
        for permit, ledger in self.once(self.older, world.ledger):
            aged: World = world._replace(ledger=ledger)
            for other in world.attempts:
                if (other.generation, other.permit) == (operation.generation, permit) and not self.unknown(
                    world, other
                ):
                    aged = changed(aged, other, other._replace(old=True))
            yield f"{operation.generation}.{permit} grows old", aged
        if self.kind.dedupes == "a while" and operation.attempts and not world.forgets and self.may_forget(world):
            over = FORGOTTEN + REMEMBERS
            notes = tuple(note if note.until is None else note._replace(until=over) for note in world.notes)
            ledger = self.once(self.forgotten, world.ledger)
            yield "the key is forgotten", world._replace(ledger=ledger, forgets=True, notes=notes)

    def older(self, ledger: int) -> list[tuple[int, int]]:
        """For each attempt that may grow old: its permit, and the ledger then."""
        operation, found_out = self.row(ledger), list[tuple[int, int]]()
        for attempt in operation.out if self.kind.bounded else ():
            if attempt.deadline > LONG_AGO and attempt.permit != UNSEEN:
                old = tuple(replace(a, deadline=LONG_AGO) if a is attempt else a for a in operation.attempts)
                found_out.append((attempt.permit, self.number(replace(operation, attempts=old))))
        return found_out

    def unknown(self, world: World, attempt: Attempt) -> bool:
        """Whether the ledger doesn't know the attempt any more: it was set back to a copy without it."""
        return attempt.lost and world.past is not None and world.past.restored

    def forgotten(self, ledger: int) -> int:
        """The ledger, seen from a time at which the service has forgotten the key."""
        operation = self.row(ledger)
        first = replace(operation.attempts[0], claimed_at=FORGOTTEN)
        until = None if operation.permit_until is None else FORGOTTEN + REMEMBERS
        return self.number(replace(operation, attempts=(first, *operation.attempts[1:]), permit_until=until))

    def may_forget(self, world: World) -> bool:
        """Whether the key may be forgotten now, by the deadlines that the permits demanded.

        Where a permit was issued because the key is remembered, every attempt must have landed by then, or grown old.
        Without `lands_within` nobody knows; that a request isn't on its way for longer than its key is remembered is
        taken for granted then, as in DESIGN's rule 7.
        """
        operation = self.row(world.ledger)
        own = [attempt for attempt in world.attempts if attempt.generation == operation.generation]
        lively = [attempt for attempt in own if attempt.may_land]
        promised = operation.permit_until is not None or any(note.until is not None for note in world.notes)
        if not promised and not any(attempt.until for attempt in own):
            return True
        overrun = [a for a in lively if self.kind.bounded and a.until + LANDS_WITHIN > NOW + REMEMBERS]
        return all(attempt in overrun and attempt.phase == "flying" for attempt in lively)
