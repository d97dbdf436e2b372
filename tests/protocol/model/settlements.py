"""Settlements: a row is decided on, and written later if the journal hasn't moved since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from settled.activities import settling
from settled.activities.journal import Operation
from settled.activities.settling import Lookup, Move, Patience
from settled.activities.toolkit import Absent, InFlux, LookupAnswer
from settled.workflows.errors import IllegalTransition
from settled.workflows.states import TRANSITIONS, Event
from tests.protocol.model.books import Books, issued
from tests.protocol.model.world import IMPATIENT, LONG_AGO, LOOK, PATIENT, Note, World

WRITTEN_AT_ONCE = {
    Move.EXPIRE: Event.EXPIRED,
    Move.CLOSE: Event.NOTHING_OUT,
    Move.HAND_OVER: Event.HANDED_TO_PERSON,
    Move.VOID: Event.WITHDRAWN,
}


class Settlements(Books):
    """What settlements do."""

    def settlement(self, world: World) -> Iterator[tuple[str, World]]:
        """A settlement decides on a row, or writes it."""
        for place, note in enumerate(world.notes):
            rest = world._replace(notes=world.notes[:place] + world.notes[place + 1 :])
            ledger = self.once(self.written, world.ledger, note, world.earlier)
            yield f"written: {note.event}", self.noted(rest, note, ledger) if ledger else rest
        if len(world.notes) < (2 if self.rules.writes_stale else 1):
            generation = self.row(world.ledger).generation
            effect = world.effects[generation - 1] > 0
            # Its index lags: an effect may be missed as long as its attempt isn't old.
            may_miss = not effect or any(
                attempt.generation == generation and attempt.phase == "done" and not attempt.old
                for attempt in world.attempts
            )
            for note in self.once(self.notes, world.ledger, world.earlier, effect, may_miss, self.waiting(world)):
                yield (
                    f"decided: {note.event if note.seen is None else note.seen}",
                    world._replace(notes=tuple(sorted((*world.notes, note), key=str))),
                )

    def waiting(self, world: World) -> tuple[bool, ...]:
        """Whether a task waits: both, where nobody keeps count of tasks."""
        return True, False

    def noted(self, world: World, note: Note, ledger: int) -> World:
        """The world after a settlement's row."""
        return self.moved(world, ledger)

    def notes(self, ledger: int, earlier: int, effect: bool, may_miss: bool, waiting: tuple[bool, ...]) -> list[Note]:
        """The rows that a settlement may decide on."""
        operation, found_out = self.row(ledger), list[Note]()
        answers: list[LookupAnswer] = [InFlux()]
        answers += [self.found(operation)] if effect else []
        answers += [Absent()] if may_miss else []
        for waits in waiting:
            for move in {self.move(operation, now, waits) for now in self.times}:
                for answer in answers if move is Move.LOOK_UP else answers[:1]:
                    for patience in (PATIENT, IMPATIENT):
                        note = self.note_of(operation, move, answer, waits, patience)
                        if note is not None and note not in found_out and earlier + issued(note.permit) <= self.most:
                            found_out.append(note)
        return found_out

    times: tuple[float, ...] = (LOOK,)
    """When settlements look: just after an attempt's deadline."""

    def move(self, operation: Operation, now: float, waiting: bool) -> Move:
        """What a settlement does."""
        return settling.next_move(operation, self.promise, now, waiting=waiting)

    def written(self, ledger: int, note: Note, earlier: int) -> int:
        """The ledger after the row that was decided on was written; 0 if nothing was appended."""
        operation = self.row(ledger)
        if note.seen is not None:
            answers: dict[str, LookupAnswer] = {"found": self.found(operation), "absent": Absent()}
            answer = answers.get(note.seen, InFlux())
            late = self.note_of(operation, Move.LOOK_UP, answer, note.waiting, PATIENT)
            if late is None or earlier + issued(late.permit) > self.most:
                return 0
            note = late
        try:
            return self.after(operation, note)
        except IllegalTransition:
            assert self.rules.writes_stale, "a row that was decided on fits, as long as the journal hasn't moved"
            return 0

    def note_of(
        self, operation: Operation, move: Move, answer: LookupAnswer, waiting: bool, patience: Patience
    ) -> Note | None:
        """The row that a settlement's step leads to; None if it leaves everything as it is."""
        if move in WRITTEN_AT_ONCE:
            return Note(WRITTEN_AT_ONCE[move], operation.generation, operation.permit)
        if move is not Move.LOOK_UP:
            return None
        lookup = Lookup(answer=answer, asked_at=LOOK)
        entry = self.rules.judge(operation, self.promise, lookup, waiting, patience)
        until, proven = entry.body.get("until"), bool(entry.body.get("proven"))
        note = Note(entry.event, entry.generation, entry.permit, until, proven)
        if self.rules.judges_late:
            return note._replace(seen=type(answer).__name__.lower(), waiting=waiting)
        return None if TRANSITIONS[operation.state][entry.event] is operation.state else note

    def ends(self, operation: Operation | None, *, effect: bool) -> bool:
        """Whether the question comes to an end, be it before a person, where everybody is dead but the settlement."""
        if operation is None:
            return True
        if self.kind.bounded:
            aged = tuple(replace(attempt, deadline=LONG_AGO) for attempt in operation.attempts)
            operation = replace(operation, attempts=aged)
        for _ in range(2 * self.most):
            move = self.move(operation, LOOK, waiting=False)
            if move in (Move.DONE, Move.AWAIT_PERSON):
                return True
            note = self.note_of(operation, move, self.found(operation) if effect else Absent(), False, IMPATIENT)
            if note is None:
                return False
            operation = self.row(self.after(operation, note))
        return False
