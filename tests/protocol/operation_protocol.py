"""Exhaustive check of the operation protocol: all interleavings of tasks, attempts and settlements, in two generations.

    python -m tests.protocol.operation_protocol    # each kind of service, then what each broken rule leads to

What is modelled is the world outside of the ledger (dispatches that freeze, die, answer late or never; a service that
is slow, forgets keys, and whose lookups lag), and that things happen in any order. What is called, as it ships, are the
decisions (`activities.protocol`, `activities.settling`), the state table (`workflows.states`) and the journal's fold:
what is checked is what runs.

A dispatch that hasn't claimed is nothing but an order (generation, permit) that somebody knows, and orders are never
forgotten: a process that was frozen, a reset run, a second task may claim with any that was ever issued, at any time.

Times are a matter of the world, too. Claims are made at `NOW`, lookups at `LOOK`, just after the attempt's deadline. An
attempt that has grown old has its deadline in the far past, so that `lands_within` is over. A service that remembers
its keys for a while forgets them as early as the deadlines that were kept and its other promises allow.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

from settled.activities import protocol, settling
from settled.activities.journal import Entry, Operation, Row, Subject, advance
from settled.activities.keys import remote_key
from settled.activities.settling import Lookup, Move, Patience, Promise
from settled.activities.toolkit import Absent, Answer, Found, InFlux, LookupAnswer
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import IllegalTransition
from settled.workflows.states import TRANSITIONS, Event

T = TypeVar("T")

GENERATIONS = 2
MOST_PERMITS = 3
"""In all: three in the first generation, or two and one, or one and two."""

KEY = "0" * 64
SUBJECT = Subject(tool="t", tenant="t", principal="p", fingerprint="f", arguments="a", resources=())
SECONDS, LANDS_WITHIN, REMEMBERS = 10.0, 100.0, 10_000.0
NOW, LOOK = 1_000.0, 1_011.0
LONG_AGO = 0.0
"""The deadline of an attempt that has grown old."""
FORGOTTEN = NOW - 2 * REMEMBERS
"""When the first attempt was claimed, if the service has forgotten its key since."""
PATIENT, IMPATIENT = Patience(total=1e9), Patience(total=0.0)


class Kind(NamedTuple):
    """A kind of service, by what its tool states."""

    dedupes: str
    """For how long there is one effect per key: "never", "a while" or "always"."""
    bounded: bool
    """Whether it states `lands_within`."""
    looks_up: bool = True

    def __str__(self) -> str:
        if not self.looks_up:
            return "no lookup"
        return f"dedupes {self.dedupes:7} lands_within {'stated' if self.bounded else 'None'}"

    @property
    def promise(self) -> Promise:
        """The same, as the shipped decisions are told."""
        return Promise(
            dedupes={"never": None, "a while": REMEMBERS, "always": 1e12}[self.dedupes],
            lands_within=LANDS_WITHIN if self.bounded else None,
            seconds=SECONDS,
            can_look_up=self.looks_up,
        )


KINDS = [
    *(Kind(dedupes, bounded) for dedupes in ("always", "a while", "never") for bounded in (True, False)),
    Kind("never", bounded=False, looks_up=False),
]


class Attempt(NamedTuple):
    """An attempt of which something may still come; one that can do nothing more is left out of the world."""

    generation: int
    permit: int
    phase: str = "claimed"
    """claimed ─send▶ flying ─▶ done or declined, at the service; what the ledger is told is another matter."""
    old: bool = False
    """Whether `lands_within` has passed since its deadline: it can neither send nor land any more."""
    lives: bool = True
    """Whether its process will report what it hears."""
    until: float = 0.0
    """When its deadline had to lie at the latest, if its permit was issued because the service remembers the key."""

    @property
    def may_land(self) -> bool:
        """Whether it may still have an effect."""
        return self.phase in ("claimed", "flying") and not self.old

    @property
    def over(self) -> bool:
        """Whether nothing comes of it any more: no effect, no report, and no lookup that misses it."""
        return not self.lives and (self.old or self.phase in ("claimed", "declined"))


class Note(NamedTuple):
    """The row that a settlement is about to write; meanwhile, anything may happen."""

    event: Event
    generation: int
    permit: int
    until: float | None = None
    seen: str | None = None
    """What the lookup said, where it is judged when it is written, which is against the rules."""
    waiting: bool = False


class World(NamedTuple):
    """Everything there is."""

    ledger: int = 0
    """The operation as the ledger has it, by its number in `Model.operations`; 0: it has none."""
    attempts: tuple[Attempt, ...] = ()
    effects: tuple[int, ...] = (0,) * GENERATIONS
    """At the service, by generation: each has its own key there."""
    earlier: int = 0
    """The permits that earlier generations had."""
    proposed: int = 1
    """The newest generation that a proposal meant."""
    closed: int = 0
    """The newest generation of which was said that it has no effect."""
    forgets: bool = False
    """Whether the service has forgotten the current generation's key."""
    notes: tuple[Note, ...] = ()
    """What settlements are about to write."""


def judge(operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience) -> Entry:
    """The shipped judgement of a lookup."""
    key = remote_key(KEY, operation.generation)
    return settling.judge(operation, promise, lookup, remote_key=key, arguments={}, waiting=waiting, patience=patience)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The decisions: as they ship, unless a broken rule takes the place of one."""

    claim: Callable[[Operation | None, protocol.Claim, float], Entry | None] = protocol.claim
    report: Callable[[Operation, protocol.Report, float], Entry | None] = protocol.report
    miss: Callable[[Operation | None, protocol.Claim, float], Entry | None] = protocol.miss
    next_generation: Callable[[Operation | None], int] = protocol.next_generation
    judge: Callable[[Operation, Promise, Lookup, bool, Patience], Entry] = judge
    arrows: Mapping[tuple[OperationState, Event], OperationState] = field(default_factory=dict)
    """Arrows that the state table doesn't have."""
    judges_late: bool = False
    """Whether a lookup counts for the time at which its answer is written, instead of that before it was asked."""
    writes_stale: bool = False
    """Whether a row is written although the journal has moved on since it was decided."""


class Model:
    """All worlds that one kind of service and one set of rules lead to."""

    def __init__(self, kind: Kind, rules: Rules) -> None:
        self.kind, self.rules, self.promise = kind, rules, kind.promise
        self.operations: list[Operation | None] = [None]
        self._numbers: dict[Operation | None, int] = {None: 0}
        self._known: dict[tuple[Any, ...], Any] = {}

    def check(self) -> str:
        """Walk all worlds; the shortest way to a fault, or how many worlds hold."""
        start = World()
        came_from: dict[World, tuple[World, str] | None] = {start: None}
        queue, questions = deque([start]), set()
        while queue:
            world = queue.popleft()
            questions.add((world.ledger, any(world.effects)))
            for step, after in self.steps(world):
                if after in came_from:
                    continue
                came_from[after] = (world, step)
                if wrong := self.fault(after):
                    return f"{wrong}: {' > '.join(reversed(list(way_to(after, came_from))))}"
                queue.append(after)
        for ledger, effect in sorted(questions):
            if not self.ends(self.operations[ledger], effect=effect):
                return f"never ends: {self.operations[ledger]}"
        return f"holds ({len(came_from)} worlds)"

    def fault(self, world: World) -> str | None:
        """What is wrong with this world, whatever happens next."""
        operation = self.operations[world.ledger]
        if max(world.effects) > 1:
            return "two effects"
        if any(world.effects[: world.closed]):
            return "closed without an effect, with an effect"
        if operation is not None:
            effect = world.effects[operation.generation - 1]
            if operation.state is OperationState.COMPLETED and not effect:
                return "completed without an effect"
            if any(attempt.may_land and attempt.generation < operation.generation for attempt in world.attempts):
                return "the next generation is open while an attempt of this one may land"
        return None

    def ends(self, operation: Operation | None, *, effect: bool) -> bool:
        """Whether the question comes to an end, be it before a person, where everybody is dead but the settlement."""
        if operation is None:
            return True
        if self.kind.bounded:
            aged = tuple(replace(attempt, deadline=LONG_AGO) for attempt in operation.attempts)
            operation = replace(operation, attempts=aged)
        for _ in range(2 * MOST_PERMITS):
            move = settling.next_move(operation, self.promise, LOOK, waiting=False)
            if move in (Move.DONE, Move.AWAIT_PERSON):
                return True
            note = self.note_of(operation, move, found(operation) if effect else Absent(), False, IMPATIENT)
            if note is None:
                return False
            operation = advance(KEY, operation, row_of(note))
        return False

    # --- What may happen next -----------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Everything that may happen next."""
        meant = self.rules.next_generation(self.operations[world.ledger])
        if world.proposed < meant <= GENERATIONS and world.earlier < MOST_PERMITS:
            yield "propose again", world._replace(proposed=meant)
        for step, ledger, attempt in self.once(self.tasks, world.ledger, world.proposed):
            if attempt is None:
                yield step, self.moved(world, ledger)
            elif len(world.attempts) < MOST_PERMITS:
                yield step, self.moved(world, ledger, attempts=tuple(sorted((*world.attempts, attempt))))
        for attempt in sorted(set(world.attempts)):
            yield from self.attempt(world, attempt)
        if world.ledger:
            yield from self.time(world)
            yield from self.settlement(world)

    def tasks(self, ledger: int, proposed: int) -> list[tuple[str, int, Attempt | None]]:
        """Claims, questions and withdrawals, with every order that was ever given: what they leave behind."""
        operation, found_out = self.operations[ledger], list[tuple[str, int, Attempt | None]]()

        def note(step: str, entry: Entry | None, attempt: Attempt | None = None) -> None:
            if entry is not None:
                found_out.append((step, self.number(advance(KEY, operation, row_of(entry))), attempt))

        for generation in range(1, proposed + 1):
            current = operation if operation and operation.generation == generation else None
            passed = operation is not None and operation.generation > generation
            newest = MOST_PERMITS if passed else current.permit if current else 1
            for permit in range(1, newest + 1):
                ask = protocol.Claim(
                    subject=SUBJECT, generation=generation, permit=permit, seconds=SECONDS, task="task"
                )
                claim = self.rules.claim(operation, ask, NOW)
                if claim is not None and claim.event is Event.CLAIMED:
                    until = (current.permit_until or 0.0) if current else 0.0
                    note(f"claim {generation}.{permit}", claim, Attempt(generation, permit, until=until))
                else:
                    note(f"claim {generation}.{permit}: void", claim)
                note(f"no trace of {generation}.{permit}", self.rules.miss(operation, ask, NOW))
                if permit == 1:
                    note(f"withdraw {generation}", protocol.withdraw(operation, ask, NOW, others_wait=False))
        return found_out

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
            remembers = self.kind.dedupes == "always" or (self.kind.dedupes == "a while" and not world.forgets)
            landed = changed(world, attempt, attempt._replace(phase="done"))
            if remembers and world.effects[place]:
                yield f"{name} lands again", landed
                return
            effects = tuple(count + (n == place) for n, count in enumerate(world.effects))
            yield f"{name} lands", landed._replace(effects=effects)
            yield f"{name} is declined", changed(world, attempt, attempt._replace(phase="declined"))

    def reported(self, world: World, attempt: Attempt, event: Event, then: Attempt | None) -> World:
        """The world after the attempt told the ledger how it ended."""
        ledger = self.once(self.report, world.ledger, event, attempt.generation, attempt.permit)
        after = changed(world, attempt, then)
        return self.moved(after, ledger) if ledger else after

    def report(self, ledger: int, event: Event, generation: int, permit: int) -> int:
        """The ledger after a report; 0 if nothing was appended."""
        operation = self.row(ledger)
        ended = protocol.Report(event=event, generation=generation, permit=permit, task="task", body={})
        entry = self.rules.report(operation, ended, NOW)
        return self.number(advance(KEY, operation, row_of(entry))) if entry else 0

    def time(self, world: World) -> Iterator[tuple[str, World]]:
        """Time passes: an attempt grows old, or the service forgets the key."""
        operation = self.row(world.ledger)
        for permit, ledger in self.once(self.older, world.ledger):
            aged = world._replace(ledger=ledger)
            for other in world.attempts:
                if (other.generation, other.permit) == (operation.generation, permit):
                    aged = changed(aged, other, other._replace(old=True))
            yield f"{operation.generation}.{permit} grows old", aged
        if self.kind.dedupes == "a while" and operation.attempts and not world.forgets and self.may_forget(world):
            over = FORGOTTEN + REMEMBERS
            notes = tuple(note if note.until is None else note._replace(until=over) for note in world.notes)
            ledger = self.once(self.forgotten, world.ledger)
            yield "the key is forgotten", world._replace(ledger=ledger, forgets=True, notes=notes)

    def older(self, ledger: int) -> list[tuple[int, int]]:
        """For each attempt that may grow old: its permit, and the ledger then."""
        operation, found_out = self.row(ledger), []
        for attempt in operation.out if self.kind.bounded else ():
            if attempt.deadline > LONG_AGO:
                old = tuple(replace(a, deadline=LONG_AGO) if a is attempt else a for a in operation.attempts)
                found_out.append((attempt.permit, self.number(replace(operation, attempts=old))))
        return found_out

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
        issued = operation.permit_until is not None or any(note.until is not None for note in world.notes)
        if not issued and not any(attempt.until for attempt in own):
            return True
        overrun = [a for a in lively if self.kind.bounded and a.until + LANDS_WITHIN > NOW + REMEMBERS]
        return all(attempt in overrun and attempt.phase == "flying" for attempt in lively)

    def settlement(self, world: World) -> Iterator[tuple[str, World]]:
        """A settlement decides on a row, and writes it later, if the journal hasn't moved since."""
        for place, note in enumerate(world.notes):
            rest = world._replace(notes=world.notes[:place] + world.notes[place + 1 :])
            ledger = self.once(self.written, world.ledger, note, world.earlier)
            yield f"written: {note.event}", self.moved(rest, ledger) if ledger else rest
        if len(world.notes) < (2 if self.rules.writes_stale else 1):
            generation = self.row(world.ledger).generation
            effect = world.effects[generation - 1] > 0
            # Its index lags: an effect may be missed as long as its attempt isn't old.
            may_miss = not effect or any(
                attempt.generation == generation and attempt.phase == "done" and not attempt.old
                for attempt in world.attempts
            )
            for note in self.once(self.notes, world.ledger, world.earlier, effect, may_miss):
                yield (
                    f"decided: {note.event if note.seen is None else note.seen}",
                    world._replace(notes=tuple(sorted((*world.notes, note), key=str))),
                )

    def notes(self, ledger: int, earlier: int, effect: bool, may_miss: bool) -> list[Note]:
        """The rows that a settlement may decide on."""
        operation, found_out = self.row(ledger), list[Note]()
        answers: list[LookupAnswer] = [InFlux()]
        answers += [found(operation)] if effect else []
        answers += [Absent()] if may_miss else []
        for waiting in (True, False):
            move = settling.next_move(operation, self.promise, LOOK, waiting=waiting)
            for answer in answers if move is Move.LOOK_UP else answers[:1]:
                for patience in (PATIENT, IMPATIENT):
                    note = self.note_of(operation, move, answer, waiting, patience)
                    if note is not None and note not in found_out and earlier + note.permit <= MOST_PERMITS:
                        found_out.append(note)
        return found_out

    def written(self, ledger: int, note: Note, earlier: int) -> int:
        """The ledger after the row that was decided on was written; 0 if nothing was appended."""
        operation = self.row(ledger)
        if note.seen is not None:
            answers: dict[str, LookupAnswer] = {"found": found(operation), "absent": Absent()}
            answer = answers.get(note.seen, InFlux())
            late = self.note_of(operation, Move.LOOK_UP, answer, note.waiting, PATIENT)
            if late is None or earlier + late.permit > MOST_PERMITS:
                return 0
            note = late
        try:
            return self.number(advance(KEY, operation, row_of(note)))
        except IllegalTransition:
            assert self.rules.writes_stale, "a row that was decided on fits, as long as the journal hasn't moved"
            return 0

    def note_of(
        self, operation: Operation, move: Move, answer: LookupAnswer, waiting: bool, patience: Patience
    ) -> Note | None:
        """The row that a settlement's step leads to; None if it leaves everything as it is."""
        event = {
            Move.EXPIRE: Event.EXPIRED,
            Move.CLOSE: Event.NOTHING_OUT,
            Move.HAND_OVER: Event.HANDED_TO_PERSON,
            Move.VOID: Event.WITHDRAWN,
        }.get(move)
        if event is not None:
            return Note(event, operation.generation, operation.permit)
        if move is not Move.LOOK_UP:
            return None
        lookup = Lookup(answer=answer, asked_at=LOOK)
        entry = self.rules.judge(operation, self.promise, lookup, waiting, patience)
        note = Note(entry.event, entry.generation, entry.permit, entry.body.get("until"))
        if self.rules.judges_late:
            return note._replace(seen=type(answer).__name__.lower(), waiting=waiting)
        return None if TRANSITIONS[operation.state][entry.event] is operation.state else note

    @property
    def reached(self) -> set[tuple[int, OperationState]]:
        """Generations and states that some world reached."""
        return {(operation.generation, operation.state) for operation in self.operations if operation is not None}

    # --- The ledger ---------------------------------------------------------------------------------------------------

    def once(self, make: Callable[..., T], *of: Any) -> T:
        """What the function makes of this; made once."""
        known = (make.__name__, *of)
        if known not in self._known:
            self._known[known] = make(*of)
        return cast("T", self._known[known])

    def moved(self, world: World, ledger: int, **changes: Any) -> World:
        """The world after a row was appended."""
        before, after = self.operations[world.ledger], self.row(ledger)
        if before is not None and after.generation > before.generation:
            changes |= {"forgets": False, "earlier": world.earlier + before.permit}
        if after.state.closed:
            changes["closed"] = max(world.closed, after.generation)
        notes = world.notes if self.rules.writes_stale else ()
        return world._replace(ledger=ledger, notes=notes, **changes)

    def row(self, ledger: int) -> Operation:
        """The operation of that number."""
        operation = self.operations[ledger]
        assert operation is not None, "there is a row"
        return operation

    def number(self, operation: Operation) -> int:
        """The operation's number, less everything in it that no decision looks at."""
        settled = operation.state.settled
        attempts = tuple(
            replace(a, sent=True, deadline=LONG_AGO if a.answered_no else a.deadline) for a in operation.attempts
        )
        plain = replace(
            operation,
            seq=0,
            lookups=0,
            result=None,
            evidence=None,
            opened_at=NOW,
            changed_at=NOW,
            attempts=() if settled else attempts,
            permit_until=None if settled else operation.permit_until,
        )
        if plain not in self._numbers:
            self._numbers[plain] = len(self.operations)
            self.operations.append(plain)
        return self._numbers[plain]


def changed(world: World, attempt: Attempt, to: Attempt | None) -> World:
    """The world with this attempt changed, or done with."""
    rest = list(world.attempts)
    rest.remove(attempt)
    if to is not None and not to.over:
        rest.append(to)
    return world._replace(attempts=tuple(sorted(rest)))


def row_of(entry: Entry | Note) -> Row:
    """The entry as a row."""
    body = entry.body if isinstance(entry, Entry) else {"until": entry.until}
    return Row(
        event=entry.event,
        generation=entry.generation,
        permit=entry.permit,
        task="task",
        body=body | {"subject": asdict(SUBJECT)},
        seq=1,
        at=NOW,
        state=OperationState.NONE,
    )


def found(operation: Operation) -> Found:
    """The lookup's answer that shows the current generation's effect."""
    return Found(key=remote_key(KEY, operation.generation), request=None, answer=Answer(data=None, source=""))


def way_to(world: World, came_from: Mapping[World, tuple[World, str] | None]) -> Iterator[str]:
    """The steps that led to the world, the last one first."""
    while (came := came_from[world]) is not None:
        world, step = came
        yield step


# --- What if a rule didn't hold? --------------------------------------------------------------------------------------


def claimed(ask: protocol.Claim, now: float) -> Entry:
    """The row of a claim that ought to be refused."""
    body = {"deadline": now + ask.seconds, "subject": asdict(ask.subject)}
    return Entry(event=Event.CLAIMED, generation=ask.generation, permit=ask.permit, task=ask.task, body=body)


def claims_without_permit(operation: Operation | None, ask: protocol.Claim, now: float) -> Entry | None:
    if operation and operation.generation == ask.generation and operation.state is OperationState.UNKNOWN:
        return claimed(ask, now)
    return protocol.claim(operation, ask, now)


def claims_in_closed_generation(operation: Operation | None, ask: protocol.Claim, now: float) -> Entry | None:
    if operation and operation.generation > ask.generation:
        return claimed(ask, now)
    return protocol.claim(operation, ask, now)


def claims_with_missed_permit(operation: Operation | None, ask: protocol.Claim, now: float) -> Entry | None:
    if operation and operation.generation == ask.generation and operation.state is not OperationState.NONE:
        unspent = all(attempt.permit != ask.permit for attempt in operation.attempts)
        if unspent and operation.state in (UNKNOWN, DISPATCHED, RESENDABLE):
            return claimed(ask, now)
    return protocol.claim(operation, ask, now)


def claims_after_the_window(operation: Operation | None, ask: protocol.Claim, now: float) -> Entry | None:
    return protocol.claim(operation and replace(operation, permit_until=None), ask, now)


def claims_the_next_while_unknown(operation: Operation | None, ask: protocol.Claim, now: float) -> Entry | None:
    if operation and operation.state is OperationState.UNKNOWN and operation.generation == ask.generation - 1:
        return claimed(ask, now)
    return protocol.claim(operation, ask, now)


def next_while_unknown(operation: Operation | None) -> int:
    opens = operation is not None and operation.state is OperationState.UNKNOWN
    return protocol.next_generation(operation) + opens


def decline_settles_all(operation: Operation, ended: protocol.Report, now: float) -> Entry | None:
    entry = protocol.report(operation, ended, now)
    if entry and entry.event is Event.DECLINED_WHILE_OTHERS_OUT:
        return replace(entry, event=Event.DECLINED)
    return entry


def old_is_as_good_as_answered(operation: Operation, ended: protocol.Report, now: float) -> Entry | None:
    young = tuple(a for a in operation.attempts if a.deadline > LONG_AGO or a.permit == ended.permit)
    return protocol.report(replace(operation, attempts=young), ended, now)


def absent_permits_a_resend(
    operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience
) -> Entry:
    if isinstance(lookup.answer, Absent) and waiting:
        promise = replace(promise, dedupes=1e12)
    return judge(operation, promise, lookup, waiting, patience)


def absent_means_not_executed(
    operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience
) -> Entry:
    return judge(replace(operation, attempts=()), promise, lookup, waiting, patience)


def window_counts_sends(
    operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience
) -> Entry:
    entry = judge(operation, promise, lookup, waiting, patience)
    if entry.body.get("until") is not None and promise.lands_within is not None:
        return replace(entry, body=entry.body | {"until": entry.body["until"] + promise.lands_within})
    return entry


UNKNOWN, DISPATCHED = OperationState.UNKNOWN, OperationState.DISPATCHED
RESENDABLE, NOT_EXECUTED = OperationState.RESENDABLE, OperationState.NOT_EXECUTED

ALWAYS, A_WHILE, NEVER = KINDS[0], KINDS[2], KINDS[4]

BROKEN: dict[str, tuple[Kind, Rules]] = {
    "no permit": (NEVER, Rules(claim=claims_without_permit, arrows={(UNKNOWN, Event.CLAIMED): DISPATCHED})),
    "a decline settles all": (ALWAYS, Rules(report=decline_settles_all)),
    "old is as good as answered": (ALWAYS, Rules(report=old_is_as_good_as_answered)),
    "withdrawn means not executed": (ALWAYS, Rules(arrows={(RESENDABLE, Event.WITHDRAWN): NOT_EXECUTED})),
    "absent permits a resend": (NEVER, Rules(judge=absent_permits_a_resend)),
    "absent means not executed": (NEVER, Rules(judge=absent_means_not_executed)),
    "a closed generation's permit still claims": (NEVER, Rules(claim=claims_in_closed_generation)),
    "a missed dispatch keeps its permit": (
        NEVER,
        Rules(
            claim=claims_with_missed_permit,
            arrows={(UNKNOWN, Event.CLAIMED): DISPATCHED, (DISPATCHED, Event.CLAIMED): DISPATCHED},
        ),
    ),
    "the next generation opens while unknown": (
        NEVER,
        Rules(claim=claims_the_next_while_unknown, next_generation=next_while_unknown),
    ),
    "a permit outlives the key": (A_WHILE, Rules(claim=claims_after_the_window)),
    "the window counts sends, not landings": (A_WHILE, Rules(judge=window_counts_sends)),
    "a lookup speaks for the time of its answer": (NEVER, Rules(judges_late=True)),
    "a row is written though the journal has moved": (NEVER, Rules(writes_stale=True)),
}
"""Rules, each broken in one place, with a kind of service for which that leads to a fault."""


@contextmanager
def table_with(arrows: Mapping[tuple[OperationState, Event], OperationState]) -> Iterator[None]:
    """The state table with more, or other, arrows."""
    before = {state: dict(row) for state, row in TRANSITIONS.items()}
    try:
        for (state, event), to in arrows.items():
            TRANSITIONS[state][event] = to
        yield
    finally:
        for state, row in before.items():
            TRANSITIONS[state].clear()
            TRANSITIONS[state].update(row)


def check(kind: Kind, rules: Rules | None = None) -> str:
    """ "holds (n worlds)", or the shortest way to a fault."""
    rules = rules or Rules()
    with table_with(rules.arrows):
        return Model(kind, rules).check()


def main() -> int:
    """Print what holds, and what each broken rule leads to."""
    results = [(str(kind), check(kind)) for kind in KINDS]
    lines = [f"{name:40} {result}" for name, result in results]
    lines += [f"broken rule '{name}' ({kind}): {check(kind, rules)}" for name, (kind, rules) in BROKEN.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(any(not result.startswith("holds") for _, result in results))


if __name__ == "__main__":
    sys.exit(main())
