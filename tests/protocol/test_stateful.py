"""The real ledger, on a real SQLite file, with the decisions that ship, in any order of events that hypothesis finds.

Dispatches freeze between any two steps and go on later; services dedupe always, for a while, or never, and say how late
a request may land, or don't; lookups lag; people are right or wrong; two tasks want the same; one operation undoes the
other; and the ledger is set back to a copy. `make stateful` runs it for minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete, insert, select

from settled.activities import protocol, schema, settling
from settled.activities.database import Database
from settled.activities.epochs import Epochs
from settled.activities.journal import Entry, Operation, Row, fold
from settled.activities.keys import remote_key
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.activities.settling import Lookup, Move, Patience, Promise
from settled.activities.standing import stand
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import Intent, OperationState, Order, Standing
from settled.workflows.states import Event
from tests.protocol.books import OTHER, Clock
from tests.protocol.model.people import WORDS
from tests.protocol.model.settlements import WRITTEN_AT_ONCE
from tests.protocol.stateful import A_WHILE, ALWAYS, LANDS_WITHIN, Phase, Process, Service
from tests.protocol.stories import KEY, SECONDS, SUBJECT

S, E = OperationState, Event
T = TypeVar("T")

LONG = "STATEFUL_EXAMPLES" in os.environ
"""Whether it is a long run, with a seed of its own; otherwise the same examples are tried each time."""
EXAMPLES = int(os.environ.get("STATEFUL_EXAMPLES", "30"))
STEPS = 50 if LONG else 30
TABLES = (schema.journal, schema.operations, schema.holds, schema.interests, schema.queue, schema.epochs)
KEYS = (KEY, OTHER)
"""The second one undoes the first one's first generation."""
SUBJECTS = {KEY: SUBJECT, OTHER: replace(SUBJECT, tool="release", undoes_key=KEY, undoes_generation=1)}
PATIENCE = Patience(total=5_000.0)
NO_EFFECT = (S.REJECTED, S.NOT_EXECUTED)

STATES: set[tuple[int, OperationState]] = set()
"""Generations and states that some example reached."""

WAYS = st.lists(st.integers(0, 3), min_size=1, max_size=4)
"""What a process does in turn, by its place among all that it may do."""
MOODS = ["answers", "answers", "answers", "lags", "fails", "is in flux"]
keys = st.sampled_from([KEY, KEY, OTHER])
tasks = st.sampled_from(["task-a", "task-b"])
which = st.integers(0, 11)


class Store:
    """One database for all examples, emptied after each, and the loop that it lives on."""

    def __init__(self, url: str) -> None:
        self.runner, self.clock = asyncio.Runner(), Clock()
        self.database = Database(url, clock=self.clock)
        self.books, self.epochs = Ledger(self.database), Epochs(self.database)
        self.run(migrate(self.database))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it now."""
        return self.runner.run(work)

    def close(self) -> None:
        """Give everything back."""
        self.run(self.database.close())
        self.runner.close()

    async def copy(self) -> list[list[dict[str, Any]]]:
        """Everything that the ledger has."""
        async with self.database.read() as connection:
            return [[dict(row._mapping) for row in await connection.execute(select(table))] for table in TABLES]

    async def set_back(self, copy: list[list[dict[str, Any]]]) -> None:
        """Make the ledger what it was when the copy was made."""
        async with self.database.write() as connection:
            for table, rows in zip(TABLES, copy, strict=True):
                await connection.execute(delete(table))
                if rows:
                    await connection.execute(insert(table), rows)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store(f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('stateful') / 'settled.db'}")
    yield made
    made.close()


class Machine(RuleBasedStateMachine):
    """What may happen, one thing after another."""

    store: ClassVar[Store]

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[tuple[str, Order]] = []
        """Every order that a workflow ever knew, with its task."""
        self.processes: list[Process] = []
        self.lookups: list[tuple[int, Entry, str]] = []
        """What settlements are about to write: the journal's last row then, the entry, and the operation."""
        self.said: set[tuple[str, int]] = set()
        """The generations of which a person has spoken."""
        self.none: set[tuple[str, int]] = set()
        """The generations of which was said that they have no effect."""
        self.spent: set[tuple[str, int, int]] = set()
        self.waiting: dict[str, set[str]] = {key: set() for key in KEYS}
        self.copied: list[list[dict[str, Any]]] | None = None
        self.copied_none: set[tuple[str, int]] = set()
        self.restored = False
        self.stored: list[list[dict[str, Any]]] = []
        self.journals: dict[str, list[Row]] = {}
        self.operations: dict[str, Operation | None] = dict.fromkeys(KEYS)
        self.service = Service(Promise(dedupes=None, lands_within=None, seconds=SECONDS, can_look_up=False))

    def teardown(self) -> None:
        """Empty the ledger."""
        self.store.run(self.store.set_back([[] for _ in TABLES]))

    @initialize(
        dedupes=st.sampled_from([None, A_WHILE, ALWAYS]),
        lands_within=st.sampled_from([None, LANDS_WITHIN, LANDS_WITHIN]),
        can_look_up=st.sampled_from([True, True, True, False]),
        ways=WAYS,
    )
    def begin(self, dedupes: float | None, lands_within: float | None, can_look_up: bool, ways: list[int]) -> None:
        """What the service promises; and a task that acts."""
        promise = Promise(dedupes=dedupes, lands_within=lands_within, seconds=SECONDS, can_look_up=can_look_up)
        self.service = Service(promise)
        self.act(KEY, "task-a", ways)

    # --- Tasks --------------------------------------------------------------------------------------------------------

    def propose(self, key: str, task: str) -> None:
        """A task proposes the action: it means the generation that the ledger says."""
        generation = protocol.next_generation(self.read(key))
        if generation <= (2 if key == KEY else 1):
            self.learn(task, ordered(key, generation, 1))

    @rule(n=which, how=st.sampled_from(["dispatch", "dispatch", "reconcile", "give_up"]))
    def use_an_order(self, n: int, how: str) -> None:
        """Somebody does something with an order that was ever given."""
        getattr(self, how)(n)

    def dispatch(self, n: int) -> None:
        """Somebody who knows an order claims with it: a task, or a process that was frozen before its claim."""
        task, order = self.orders[n % len(self.orders)]
        key = order.intent.key
        before = self.read(key)
        amended = self.store.run(self.store.books.claim(key, asked(task, order)))
        self.waiting[key].add(task)
        if amended.entry is not None and amended.entry.event is E.CLAIMED:
            self.check_send(order, before)
            claimed = Process(key, order.intent.generation, order.permit, self.now)
            self.service.first_claims.setdefault(claimed.remote, self.now)
            self.processes.append(claimed)

    def check_send(self, order: Order, before: Operation | None) -> None:
        """Whether the claim that was granted may have been."""
        key, generation = order.intent.key, order.intent.generation
        spent = (key, generation, order.permit)
        assert spent not in self.spent, "no permit is spent twice, even where the ledger has lost that it was"
        self.spent.add(spent)
        sent = [one.claimed_at for one in self.processes if (one.key, one.generation) == spent[:2]]
        if sent:
            absent_at = self.service.absent_at.get(remote_key(key, generation), -1.0)
            assert absent_at >= max(sent), "before a second send, and after the first one, a lookup said absent"
        if key == OTHER:
            target = self.read(KEY)
            assert target is not None
            assert (target.state, target.generation) == (S.COMPLETED, 1), "only what is done is undone"
        assert before is None or before.generation <= generation

    def reconcile(self, n: int) -> None:
        """A task asks how its order stands, and learns of the next permit."""
        task, order = self.orders[n % len(self.orders)]
        if self.restored and order.intent.generation < self.newest(order.intent.key):
            return  # its workflow has gone on; a run that is reset to before that is beyond what a copy can tell
        amended = self.store.run(self.store.books.miss(order.intent.key, asked(task, order)))
        stands = stand(amended.operation, order)
        if stands.standing is not Standing.SETTLED:
            self.waiting[order.intent.key].add(task)
            self.learn(task, order.model_copy(update={"permit": stands.permit, "known": True}))
        elif stands.error is ErrorKind.NOT_EXECUTED:
            self.none.add((order.intent.key, order.intent.generation))

    def give_up(self, n: int) -> None:
        """A task gives up, as it would be after a cancel."""
        task, order = self.orders[n % len(self.orders)]
        others_wait = bool(self.waiting[order.intent.key] - {task})
        before = self.read(order.intent.key)
        amended = self.store.run(
            self.store.books.withdraw(order.intent.key, asked(task, order), others_wait=others_wait)
        )
        self.waiting[order.intent.key].discard(task)
        if others_wait and amended.entry is not None:
            assert amended.entry.event is E.MISSED, "what another task waits for is left to it, unless it was lost"
            assert protocol.lost(before, asked(task, order))

    @rule(key=keys, task=tasks)
    def terminate(self, key: str, task: str) -> None:
        """A task is terminated: it waits no more, and says nothing."""
        self.waiting[key].discard(task)

    # --- Processes and the service ------------------------------------------------------------------------------------

    @rule(n=which, choice=which)
    def go_on(self, n: int, choice: int) -> None:
        """A process goes on where it was frozen, or its request does without it."""
        if not self.processes:
            return
        one = self.processes[n % len(self.processes)]
        if steps := list(self.next_of(one)):
            steps[choice % len(steps)]()

    @rule(key=keys, task=tasks, ways=WAYS)
    def act(self, key: str, task: str, ways: list[int]) -> None:
        """A task that is not disturbed for a while: it proposes, claims, and its process goes on for some steps."""
        self.look()
        generation = protocol.next_generation(self.read(key))
        if not self.orders_of(key, generation):
            self.propose(key, task)
        if mine := self.orders_of(key, generation):
            self.learn_of_permits(mine[-1])
        before = len(self.processes)
        if mine := self.orders_of(key, generation):
            self.dispatch(mine[-1])
        for choice in ways if len(self.processes) > before else ():
            self.look()
            self.go_on(-1, choice)

    def learn_of_permits(self, n: int) -> None:
        """A workflow asks, unless nothing was ever sent: it would be told that its dispatch left no trace."""
        order = self.orders[n][1]
        if not protocol.opens(self.read(order.intent.key), order.intent.generation):
            self.reconcile(n)

    @rule(moods=st.lists(st.sampled_from(MOODS), min_size=1, max_size=4), task=st.sampled_from(["", "task-a"]))
    def follow_up(self, moods: list[str], task: str) -> None:
        """A settlement that is not disturbed for a while, for the operation that needs it, each step when it is due."""
        for mood in moods:
            self.look()
            key = next((key for key, one in self.operations.items() if one and not one.state.settled), None)
            if key is None or (operation := self.operations[key]) is None:
                return
            self.waiting[key] = {task} - {""}  # nobody: every task is gone by then
            patience = settling.wait_after(operation, self.service.promise, PATIENCE, self.now)
            self.wait(min(patience, 200.0))
            self.settle(key, mood, at_once=True)

    def next_of(self, one: Process) -> Iterator[Callable[[], None]]:
        """What it may do next; what goes further comes more often than what ends it."""
        there = one.key == KEY or self.service.count(KEY, 1) > self.service.count(OTHER, 1)
        if one.phase is Phase.CLAIMED and one.lives and self.now < one.deadline:
            yield from [partial(setattr, one, "phase", Phase.SENT)] * 3
        if self.service.may_land(one, self.now) and there:
            yield partial(self.service.land, one, self.now)
        if self.service.may_decline(one, self.now):
            yield partial(setattr, one, "phase", Phase.DECLINED)
        if one.lives and one.phase is not Phase.SENT:
            event = {Phase.CLAIMED: E.NOT_SENT, Phase.DONE: E.SUCCEEDED}.get(one.phase, E.DECLINED)
            yield partial(self.report, one, event)
        if one.lives and one.phase is not Phase.CLAIMED:
            yield from [partial(self.report, one, E.UNCLEAR)] * 2

    def report(self, one: Process, event: Event) -> None:
        """The process tells the ledger how its attempt ended."""
        one.lives = False
        ended = protocol.Report(
            event=event,
            generation=one.generation,
            permit=one.permit,
            task="task-a",
            body={"result": "r"} if event is E.SUCCEEDED else {},
            dedupes=self.service.promise.dedupes is not None,
        )
        before = self.read(one.key)
        amended = self.store.run(
            self.store.books.amend(one.key, lambda operation, now: protocol.report(operation, ended, now))
        )
        if event is E.SUCCEEDED and before is not None and before.generation >= one.generation:
            assert amended.entry is not None, "a success is a fact, and recorded"
            believed = before.state in NO_EFFECT and before.generation == one.generation
            assert not believed or "alarm" in amended.entry.body

    @rule(seconds=st.sampled_from([1.0, 1.0, 9.0, 11.0, 120.0, 700.0, 2_000.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.store.clock.at += seconds

    # --- Settlements and people ---------------------------------------------------------------------------------------

    @rule(key=keys, mood=st.sampled_from(MOODS), at_once=st.booleans())
    def settle(self, key: str, mood: str, at_once: bool) -> None:
        """A settlement takes a step; what it decided on may be written much later."""
        operation = self.read(key)
        if operation is None:
            return
        waiting = bool(self.waiting[key])
        move = settling.next_move(operation, self.service.promise, self.now, waiting=waiting)
        if move in WRITTEN_AT_ONCE:
            permit = operation.permit
            entry = Entry(event=WRITTEN_AT_ONCE[move], generation=operation.generation, permit=permit, body={})
            if move is Move.VOID:
                self.waiting[key].clear()
        elif move is Move.LOOK_UP:
            answer = self.service.look_up(key, operation.generation, mood, self.now)
            entry = settling.judge(
                operation,
                self.service.promise,
                Lookup(answer=answer, asked_at=self.now),
                remote_key=remote_key(key, operation.generation),
                arguments={},
                waiting=waiting,
                patience=PATIENCE,
            )
            assert waiting or entry.event is not E.ABSENT_RESEND, "a permit is issued only for somebody"
        else:
            return
        self.lookups.append((operation.seq, entry, key))
        if at_once:
            self.write(-1)

    @precondition(lambda self: self.lookups)
    @rule(n=which)
    def write(self, n: int) -> None:
        """A settlement writes what it has decided on, if the journal hasn't moved since."""
        seq, entry, key = self.lookups.pop(n % len(self.lookups) if n >= 0 else n)
        self.store.run(
            self.store.books.amend(key, lambda now, _: entry if now is not None and now.seq == seq else None)
        )

    @rule(key=keys, word=st.sampled_from(WORDS), n=st.integers(1, 2))
    def person(self, key: str, word: Event, n: int) -> None:
        """A person says what became of a generation, rightly or wrongly."""
        amended = self.store.run(
            self.store.books.amend(
                key, lambda operation, _: protocol.resolve(operation, word, {"who": "ann"}, n) if operation else None
            )
        )
        if amended.entry is not None:
            self.said.add((key, n))

    # --- The copy -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.copied is None)
    @rule()
    def copy(self) -> None:
        """Somebody makes a backup."""
        self.copied, self.copied_none = self.store.run(self.store.copy()), set(self.none)

    @precondition(lambda self: self.copied is not None and not self.restored and len(self.orders) > 1)
    @rule()
    def restore(self) -> None:
        """The ledger is set back to the backup, and somebody says so."""
        assert self.copied is not None
        self.store.clock.at += 1.0
        self.store.run(self.store.set_back(self.copied))
        self.store.run(self.store.epochs.open("ann", "restored"))
        self.restored, self.none, self.lookups = True, set(self.copied_none), []
        self.orders = [(task, order.model_copy(update={"known": self.was_sent(order)})) for task, order in self.orders]

    # --- What must never be -------------------------------------------------------------------------------------------

    @invariant()
    def everything_holds(self) -> None:
        """All that is checked after every step, on one look at the store."""
        self.look()
        self.every_action_has_one_effect_at_most()
        self.what_is_settled_is_true()
        self.what_is_undone_has_a_completed_undo()
        self.the_current_rows_are_the_folds_and_the_unsettled_hold()

    def look(self) -> None:
        """Read all that the store has."""
        self.stored = self.store.run(self.store.copy())
        self.journals = {key: [row_of(row) for row in self.stored[0] if row["operation"] == key] for key in KEYS}
        self.operations = {key: fold(key, rows) for key, rows in self.journals.items()}
        STATES.update((one.generation, one.state) for one in self.operations.values() if one is not None)

    def every_action_has_one_effect_at_most(self) -> None:
        """In each generation; and in all of them, less what was released, unless a person has said otherwise."""
        counts = {(key, n): self.service.count(key, n) for key in KEYS for n in (1, 2)}
        assert max(counts.values()) <= 1
        if not self.said:
            assert counts[KEY, 1] + counts[KEY, 2] - counts[OTHER, 1] <= 1

    def what_is_settled_is_true(self) -> None:
        """And stays true."""
        for key in KEYS:
            operation = self.read(key)
            if operation is None:
                continue
            which_one = (key, operation.generation)
            if operation.state in NO_EFFECT:
                self.none.add(which_one)
            if operation.state in (S.COMPLETED, S.UNDONE) and which_one not in self.said:
                assert self.service.count(*which_one) == 1, "completed implies an effect"
        assert [one for one in self.none - self.said if self.service.count(*one)] == [], "and these imply none"

    def what_is_undone_has_a_completed_undo(self) -> None:
        """And only that."""
        target, undo = self.read(KEY), self.read(OTHER)
        if target is None:
            return
        is_undone = target.undone or 1 in target.undone_before
        assert is_undone == (undo is not None and undo.state is S.COMPLETED) or (KEY, 1) in self.said or self.restored

    def the_current_rows_are_the_folds_and_the_unsettled_hold(self) -> None:
        """What lists show is what the journals say."""
        _, current, holds, *_ = self.stored
        held = {row["operation"] for row in holds}
        assert {row["key"] for row in current} == {key for key in KEYS if self.operations[key] is not None}
        for row in current:
            journal, operation = self.journals[row["key"]], self.operations[row["key"]]
            assert operation is not None
            view = operation.view()
            assert (row["state"], row["generation"], row["sends"], row["evidence"]) == (
                view.state, view.generation, view.sends, view.evidence,
            )  # fmt: skip
            assert (row["seq"], row["alarms"]) == (operation.seq, operation.alarms)
            assert [one.seq for one in journal] == list(range(1, len(journal) + 1))
            assert all(one.state is then.state or not one.state.settled or then.generation > one.generation
                       or then.event in (E.SUCCEEDED, E.UNDONE) for one, then in pairwise(journal))  # fmt: skip
            assert not operation.state.settled or operation.key not in held
            sent = any(attempt.permit for attempt in operation.attempts)
            assert operation.state.settled or not sent or operation.key in held

    # --- Small helps --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The store's time."""
        return self.store.clock.at

    def read(self, key: str) -> Operation | None:
        """The operation as the ledger has it."""
        return self.operations[key]

    def newest(self, key: str) -> int:
        """The newest generation that a proposal meant."""
        return max(order.intent.generation for _, order in self.orders if order.intent.key == key)

    def was_sent(self, order: Order) -> bool:
        """Whether its workflow has seen that its generation was opened, at the latest when it was told of a permit."""
        return order.known

    def orders_of(self, key: str, generation: int) -> list[int]:
        """Where the orders of this generation stand in the list."""
        meant = [(order.intent.key, order.intent.generation) for _, order in self.orders]
        return [n for n, one in enumerate(meant) if one == (key, generation)]

    def learn(self, task: str, order: Order) -> None:
        """A workflow knows an order from now on."""
        if (task, order) not in self.orders:
            self.orders.append((task, order))


def row_of(stored: dict[str, Any]) -> Row:
    """A journal's row as it is stored."""
    columns = {name: value for name, value in stored.items() if name != "operation"}
    typed = {"event": Event(stored["event"]), "state": S(stored["state"]), "body": json.loads(stored["body"])}
    return Row(**columns | typed)


def ordered(key: str, generation: int, permit: int) -> Order:
    """What a workflow knows."""
    intent = Intent.model_construct(key=key, generation=generation, fingerprint=SUBJECT.fingerprint, resources=())
    return Order.model_construct(
        head="0" * 64, slot=0, tool="reserve", intent=intent, permit=permit, seconds=SECONDS, known=False
    )


def asked(task: str, order: Order) -> protocol.Claim:
    """The same, as the ledger is told of it."""
    return protocol.Claim(
        subject=SUBJECTS[order.intent.key],
        generation=order.intent.generation,
        permit=order.permit,
        seconds=SECONDS,
        task=task,
        known=order.known,
    )


def test_whatever_happens_nothing_is_done_twice_and_nothing_untrue_is_said(store: Store) -> None:
    Machine.store = store
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=not LONG,
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
    assert {(1, state) for state in (S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.COMPLETED, S.NOT_EXECUTED)} <= STATES
