"""The ledger on a real SQLite and a real PostgreSQL: what the store enforces, whoever writes and whoever dies."""

import ast
import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import journal, ledger, protocol, schema, settling, standing
from settled.activities.database import Database, unavailable
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.journal import Entry, Operation, Row, fold
from settled.activities.keys import remote_key
from settled.activities.ledger import Amended, Ledger, Waiter
from settled.activities.ledger_lists import Wanted
from settled.activities.ledger_rows import WaitsFor
from settled.activities.migrating import migrate
from settled.activities.settling import Lookup, Move, Patience
from settled.activities.toolkit import Absent, Answer, Found, InFlux, LookupAnswer, Several
from settled.workflows.contract.operation import Evidence, OperationState, Tally
from settled.workflows.errors import IllegalTransition, JournalConflict
from settled.workflows.states import Event
from tests.protocol.stories import DEDUPES, KEY, PROMISE, ended, order, subject

S, E = OperationState, Event
OTHER = "cd" * 32
RESOURCE = "acme/stock/A1"
NAMES = count()


@dataclass
class Clock:
    """The store's clock, as the test sets it."""

    at: float = 1_000.0

    async def __call__(self, connection: AsyncConnection) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def database(url: str, clock: Clock) -> AsyncIterator[Database]:
    opened = Database(url, clock=clock)
    await migrate(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def second(database: Database, clock: Clock) -> AsyncIterator[Database]:
    """The same database, as another worker has it open."""
    opened = Database(database.url, clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
def books(database: Database) -> Ledger:
    return Ledger(database)


def key(name: str) -> str:
    return sha256(name.encode()).hexdigest()


async def report(books: Ledger, event: Event, *, at: str = KEY, generation: int = 1, permit: int = 1) -> Amended:
    """An attempt says how it ended."""

    def decide(operation: Operation | None, now: float) -> Entry | None:
        assert operation is not None
        return protocol.report(operation, ended(event, generation, permit, result="r1"), now)

    return await books.amend(at, decide)


async def note(books: Ledger, event: Event, *, at: str = KEY, permit: int = 1, **body: Any) -> Amended:
    """A settlement writes a row."""
    entry = Entry(event=event, generation=1, permit=permit, body=body)
    return await books.amend(at, lambda _operation, _now: entry)


async def reach(books: Ledger, state: OperationState, at: str = KEY) -> None:
    """Bring an operation into the state."""
    if state is S.NOT_EXECUTED:
        await books.amend(at, lambda operation, now: protocol.withdraw(operation, order(), now, others_wait=False))
        return
    await books.claim(at, order())
    if state in (S.COMPLETED, S.UNDONE):
        await report(books, E.SUCCEEDED, at=at)
    elif state is S.REJECTED:
        await report(books, E.DECLINED, at=at)
    elif state is not S.DISPATCHED:
        await report(books, E.UNCLEAR, at=at)
    if state is S.RESENDABLE:
        await note(books, E.ABSENT_RESEND, at=at, permit=2, until=None)
    elif state is S.NEEDS_HUMAN:
        await note(books, E.HANDED_TO_PERSON, at=at)
    elif state is S.UNDONE:
        await note(books, E.UNDONE, at=at)
    operation = await books.read(at)
    assert operation is not None
    assert operation.state is state


async def rows_of(database: Database, query: Any) -> list[Any]:
    async with database.read() as connection:
        return list(await connection.execute(query))


async def holds(database: Database) -> dict[str, str]:
    return {row.resource: row.operation for row in await rows_of(database, select(schema.holds))}


async def everything(database: Database) -> list[list[Any]]:
    """All that the ledger's tables hold."""
    tables = (schema.journal, schema.operations, schema.holds, schema.interests)
    return [sorted(await rows_of(database, select(table))) for table in tables]


AFTER_A_CLAIM = [state for state in S if state is not S.NONE]
UNSETTLED = [state for state in AFTER_A_CLAIM if not state.settled]


# --- One claim ---


async def test_a_claim_is_committed_with_its_subject_and_its_deadline(books: Ledger, clock: Clock) -> None:
    amended = await books.claim(KEY, order(seconds=10.0))
    assert amended.operation is not None
    assert amended.operation == await books.read(KEY)
    assert (amended.operation.state, amended.operation.permit) == (S.DISPATCHED, 1)
    (row,) = await books.journal(KEY)
    assert (row.seq, row.at, row.event, row.state, row.task) == (1, clock.at, E.CLAIMED, S.DISPATCHED, "task-a")
    assert row.body["deadline"] == clock.at + 10.0
    assert row.body["subject"]["fingerprint"] == "f1"


@pytest.mark.parametrize("task", ["task-a", "task-b"])
async def test_r63_b52_a_second_claim_gets_what_stands_whoever_asks(books: Ledger, task: str) -> None:
    """A reset run is the same task with another run id, and no row knows run ids."""
    await books.claim(KEY, order(task="task-a"))
    amended = await books.claim(KEY, order(task=task))
    assert amended.entry is None
    assert amended.operation == await books.read(KEY)
    assert [row.event for row in await books.journal(KEY)] == [E.CLAIMED]


def test_r64_b52_no_row_of_the_ledger_holds_a_run_an_activity_or_a_call() -> None:
    for table in (schema.journal, schema.operations, schema.interests, schema.holds):
        assert not {column.name for column in table.c if column.name.startswith(("run", "activity", "call", "attempt"))}


async def test_r64_asking_about_a_key_leaves_no_trace(books: Ledger, database: Database) -> None:
    """A retried model request reads the ledger for a plan that no transcript holds."""
    assert await books.read(KEY) is None
    assert await books.journal(KEY) == []
    assert await everything(database) == [[], [], [], []]


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED])
async def test_r65_b53_another_request_changes_nothing_and_sees_what_was_stored(
    books: Ledger, database: Database, state: OperationState
) -> None:
    await reach(books, state)
    before = await everything(database)
    for permit in (1, 2):
        amended = await books.claim(KEY, order(permit=permit, about=subject("f2")))
        assert amended.entry is None
        assert amended.operation is not None
        assert amended.operation.subject.fingerprint == "f1"
    assert await everything(database) == before


@pytest.mark.parametrize("state", [S.REJECTED, S.NOT_EXECUTED])
async def test_r65_after_a_decline_changed_arguments_are_a_new_generation(books: Ledger, state: OperationState) -> None:
    await reach(books, state)
    amended = await books.claim(KEY, order(generation=2, about=subject("f2"), task="task-b"))
    assert amended.operation is not None
    assert (amended.operation.generation, amended.operation.subject.fingerprint) == (2, "f2")
    assert (await books.claim(KEY, order(generation=1))).entry is None


async def test_b53_completing_leaves_the_fingerprint_the_arguments_and_the_opening_alone(
    books: Ledger, clock: Clock
) -> None:
    await books.claim(KEY, order())
    clock.at += 5
    completed = (await report(books, E.SUCCEEDED)).operation
    assert completed is not None
    assert (completed.subject, completed.opened_at, completed.changed_at) == (subject(), 1_000.0, 1_005.0)
    assert completed.result == {"result": "r1"}
    assert (await books.claim(KEY, order())).entry is None
    assert (await books.claim(KEY, order(about=subject("f2")))).entry is None


async def test_b38_an_attempt_whose_time_is_over_is_unknown_and_may_not_be_sent_again(
    books: Ledger, clock: Clock
) -> None:
    await books.claim(KEY, order(seconds=2.0))
    clock.at += 3
    operation = await books.read(KEY)
    assert operation is not None
    assert settling.next_move(operation, PROMISE, await books.now(), waiting=True) is Move.EXPIRE
    assert (await books.claim(KEY, order())).entry is None
    expired = (await note(books, E.EXPIRED)).operation
    assert expired is not None
    assert (expired.state, expired.evidence) == (S.UNKNOWN, Evidence.NO_ANSWER)
    assert [(await books.claim(KEY, order(permit=permit))).entry for permit in (1, 2)] == [None, None]


async def test_r67_a_found_effect_completes_it_with_one_send(books: Ledger) -> None:
    await reach(books, S.UNKNOWN)
    found = (await note(books, E.FOUND, result="r2")).operation
    assert found is not None
    view = found.view()
    assert (view.state, view.sends, view.evidence) == (S.COMPLETED, 1, Evidence.LOOKUP)
    assert (await books.claim(KEY, order(permit=2))).entry is None


async def test_an_event_that_the_table_refuses_changes_nothing(books: Ledger, database: Database) -> None:
    await reach(books, S.COMPLETED)
    before = await everything(database)
    with pytest.raises(IllegalTransition):
        await note(books, E.EXPIRED)
    assert await everything(database) == before


async def test_a_decision_that_fails_or_decides_nothing_changes_nothing(books: Ledger, database: Database) -> None:
    await reach(books, S.UNKNOWN)
    before = await everything(database)
    assert (await books.amend(KEY, lambda _operation, _now: None)).entry is None
    with pytest.raises(ZeroDivisionError):
        await books.amend(KEY, lambda _operation, now: now / 0)  # type: ignore[arg-type, return-value]
    assert await everything(database) == before
    assert (await note(books, E.IN_FLUX)).entry is not None, "and the lock is free again"


async def test_a_row_of_a_closed_generation_leaves_the_current_one_as_it_is(books: Ledger, database: Database) -> None:
    await reach(books, S.REJECTED)
    await books.claim(KEY, order(generation=2))
    before = (await books.read(KEY), await holds(database))
    assert before[0] is not None
    assert (await report(books, E.SUCCEEDED, generation=1)).entry is not None
    rows = await books.journal(KEY)
    assert [(row.event, row.generation, row.state) for row in rows[-1:]] == [(E.ALARM, 1, S.DISPATCHED)]
    noted = replace(before[0], seq=before[0].seq + 1, alarms=1)
    assert (await books.read(KEY), await holds(database)) == (noted, before[1])


async def test_what_a_tool_or_a_lookup_put_into_a_row_is_stored_whatever_it_is(books: Ledger) -> None:
    """A service's text may hold half a surrogate pair, a lookup's record a date: the row is written all the same."""
    await reach(books, S.UNKNOWN)
    at = datetime(2026, 1, 2, tzinfo=UTC)
    records = [{"at": at, "amount": Decimal("0.10"), "text": "\ud83d\x00"}]
    amended = await note(books, E.HANDED_TO_PERSON, records=records)
    assert amended.operation is not None
    assert amended.operation == await books.read(KEY)
    assert amended.operation.result == {"records": [{"at": str(at), "amount": "0.10", "text": "\ud83d\x00"}]}


# --- Many at once ---


@pytest.mark.parametrize("permit", [1, 2])
async def test_of_many_claims_on_one_permit_exactly_one_wins(database: Database, second: Database, permit: int) -> None:
    workers = [Ledger(database), Ledger(second)]
    if permit == 2:
        await reach(workers[0], S.RESENDABLE)
    asks = [workers[n % 2].claim(KEY, order(permit=permit, task=f"task-{n}")) for n in range(20)]
    entries = [amended.entry for amended in await asyncio.gather(*asks)]
    won = [entry for entry in entries if entry is not None]
    assert len(won) == 1
    rows = [row for row in await workers[1].journal(KEY) if row.event is E.CLAIMED and row.permit == permit]
    assert [row.task for row in rows] == [won[0].task]


@pytest.mark.parametrize("rival", ["miss", "withdraw"])
async def test_a_claim_and_its_voiding_exclude_each_other(database: Database, second: Database, rival: str) -> None:
    """A dispatch that wakes up while its task asks what became of it, or gives up."""
    mine, theirs = Ledger(database), Ledger(second)

    def void(operation: Operation | None, now: float) -> Entry | None:
        if rival == "miss":
            return protocol.miss(operation, order(), now)
        return protocol.withdraw(operation, order(), now, others_wait=False)

    for n in range(10):
        at = key(f"race {n}")
        claim, other = mine.claim(at, order(about=subject(resources=()))), theirs.amend(at, void)
        amended = await asyncio.gather(*((claim, other) if n % 2 else (other, claim)))
        written = [one.entry.event for one in amended if one.entry is not None]
        assert len(written) == 1, written
        assert [row.event for row in await mine.journal(at)] == written


async def test_of_many_operations_on_one_resource_exactly_one_is_claimed(database: Database, second: Database) -> None:
    workers = [Ledger(database), Ledger(second)]
    asked = await asyncio.gather(*(workers[n % 2].claim(key(str(n)), order(task=f"task-{n}")) for n in range(12)))
    claimed = [amended for amended in asked if amended.entry is not None]
    assert len(claimed) == 1
    assert claimed[0].operation is not None
    winner = claimed[0].operation.key
    assert {amended.blocked_by for amended in asked if amended.entry is None} == {winner}
    assert await holds(database) == {RESOURCE: winner}


class Interrupting(Clock):
    """A clock at which another writer's row is suddenly there: between what was read and what is written."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    async def __call__(self, connection: AsyncConnection) -> float:
        if self.left:
            self.left -= 1
            other = {"operation": KEY, "seq": 1, "at": 1.0, "generation": 1, "permit": 1, "event": "claimed"}
            await connection.execute(
                insert(schema.journal).values(**other, state="dispatched", task="", body='{"deadline": 1}')
            )
        return self.at


async def test_a_writer_that_finds_its_place_taken_looks_again(url: str) -> None:
    database = Database(url, clock=Interrupting(3))
    await migrate(database)
    assert (await Ledger(database).claim(KEY, order())).entry is not None
    assert [row.seq for row in await Ledger(database).journal(KEY)] == [1]
    await database.close()


async def test_a_writer_that_is_always_too_slow_says_so_and_changes_nothing(url: str) -> None:
    database = Database(url, clock=Interrupting(1_000_000))
    await migrate(database)
    with pytest.raises(JournalConflict, match="other writers were faster"):
        await Ledger(database).claim(KEY, order())
    assert await everything(database) == [[], [], [], []]
    await database.close()


PROGRAM = """
import asyncio, json, sys
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.database import Database
from settled.activities.journal import Subject
from settled.activities.ledger import Ledger
from settled.activities.protocol import Claim

def order(task, resources=()):
    subject = Subject(tool="reserve", tenant="acme", principal="ann", fingerprint="f1", arguments="a1",
                      resources=resources)
    return Claim(subject=subject, generation=1, permit=1, seconds=10.0, task=task)

async def main(url, how, *given):
    database = Database(url)
    ledger = Ledger(database)
    await ledger.now()
    if how == "claim many":
        print("ready", flush=True)
        sys.stdin.readline()
        claims = [await ledger.claim(key, order(given[0])) for key in given[1:]]
        print(json.dumps([claim.entry is not None for claim in claims]), flush=True)
    elif how == "claim and hang":
        await ledger.claim(given[0], order("task-a", ("acme/stock/A1",)))
        print("ready", flush=True)
        sys.stdin.readline()
    elif how == "hang in the claim":
        def hang(operation, now):
            print("ready", flush=True)
            sys.stdin.readline()
        await ledger.amend(given[0], hang)

asyncio.run(main(*sys.argv[1:]))
"""


async def start(url: str, *given: str) -> asyncio.subprocess.Process:
    """A process of its own, up to the point where it waits for a line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, url, *given, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def test_of_two_processes_one_claims_each_operation(url: str, database: Database) -> None:
    keys = [key(str(n)) for n in range(40)]
    processes = await asyncio.gather(*(start(url, "claim many", task, *keys) for task in ("task-a", "task-b")))
    answers = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    mine, theirs = (json.loads(out) for out, _ in answers)
    assert [a + b for a, b in zip(mine, theirs, strict=True)] == [1] * len(keys)
    winners = {at: (await Ledger(database).journal(at))[0].task for at in keys}
    assert [winners[at] == "task-a" for at in keys] == mine


async def test_r70_a_claim_outlives_the_process_that_made_it(url: str, database: Database, books: Ledger) -> None:
    process = await start(url, "claim and hang", KEY)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    operation = await books.read(KEY)
    assert operation is not None
    assert (operation.state, operation.permit, len(operation.out)) == (S.DISPATCHED, 1, 1)
    assert (await books.claim(KEY, order())).entry is None
    assert await holds(database) == {RESOURCE: KEY}
    assert (await books.claim(OTHER, order())).blocked_by == KEY
    view = await books.view("task-a")
    assert [unsettled.state for unsettled in view.unsettled] == [S.DISPATCHED]


async def test_r70_a_process_that_dies_before_its_commit_has_claimed_nothing(
    url: str, database: Database, books: Ledger
) -> None:
    process = await start(url, "hang in the claim", KEY)
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    assert await everything(database) == [[], [], [], []]
    assert (await books.claim(KEY, order())).entry is not None


# --- Resources ---


@pytest.mark.parametrize("state", UNSETTLED)
async def test_rule_11_r74_an_unsettled_operation_keeps_others_from_its_resource(
    books: Ledger, database: Database, state: OperationState
) -> None:
    await reach(books, state)
    before = await everything(database)
    busy = await books.claim(OTHER, order(task="task-b"))
    assert (busy.entry, busy.operation, busy.blocked_by) == (None, None, KEY)
    *ledger, interests = await everything(database)
    assert ledger == before[:-1], "a busy claim writes no row: the same permit is asked for again"
    waits = Waiter(task="task-b", waits_for=WaitsFor.RESULT, woken_seq=0)
    assert (len(interests), await books.waiters(OTHER)) == (len(before[-1]) + 1, [waits]), "but that it waits is noted"
    assert (await books.claim(OTHER, order(about=subject(resources=("acme/stock/B2",))))).entry is not None


@pytest.mark.parametrize("event", [E.SUCCEEDED, E.DECLINED, E.NOT_SENT])
async def test_rule_11_a_settled_operation_frees_its_resources(books: Ledger, database: Database, event: Event) -> None:
    await books.claim(KEY, order())
    assert (await books.claim(OTHER, order())).blocked_by == KEY
    await report(books, event)
    assert await holds(database) == {}
    assert (await books.claim(OTHER, order())).entry is not None
    assert await holds(database) == {RESOURCE: OTHER}


async def test_rule_11_a_late_success_of_another_operation_takes_nothing_from_the_holder(
    books: Ledger, database: Database
) -> None:
    await reach(books, S.REJECTED)
    await books.claim(OTHER, order())
    await report(books, E.SUCCEEDED)
    assert await holds(database) == {RESOURCE: OTHER}


async def test_rule_11_one_busy_resource_of_several_is_enough(books: Ledger, database: Database) -> None:
    await books.claim(KEY, order(about=subject(resources=("a", "b"))))
    assert (await books.claim(OTHER, order(about=subject(resources=("b", "c"))))).blocked_by == KEY
    assert await holds(database) == {"a": KEY, "b": KEY}
    await report(books, E.SUCCEEDED)
    await books.claim(OTHER, order(about=subject(resources=("b", "c"))))
    assert await holds(database) == {"b": OTHER, "c": OTHER}


async def test_rule_11_an_operation_is_not_in_its_own_way(books: Ledger) -> None:
    await reach(books, S.RESENDABLE)
    assert (await books.claim(KEY, order(permit=2))).entry is not None


async def test_rule_11_what_touches_nothing_is_in_nobodys_way(books: Ledger, database: Database) -> None:
    free = order(about=subject(resources=()))
    assert (await books.claim(KEY, free)).entry is not None
    assert (await books.claim(OTHER, free)).entry is not None
    assert await holds(database) == {}


async def test_rule_11_the_next_generation_holds_its_own_resources(books: Ledger, database: Database) -> None:
    await reach(books, S.REJECTED)
    await books.claim(OTHER, order(about=subject(resources=("b",))))
    second = order(generation=2, about=subject("f2", resources=("b",)))
    assert (await books.claim(KEY, second)).blocked_by == OTHER
    await report(books, E.SUCCEEDED, at=OTHER)
    assert (await books.claim(KEY, second)).entry is not None
    assert await holds(database) == {"b": KEY}


def missed(operation: Operation | None, now: float) -> Entry | None:
    return protocol.miss(operation, order(about=subject(resources=("a", "b"))), now)


async def test_rule_11_a_missed_operation_holds_what_it_would_touch(books: Ledger, database: Database) -> None:
    await books.amend(KEY, missed)
    assert await holds(database) == {"a": KEY, "b": KEY}
    assert (await books.claim(OTHER, order(about=subject(resources=("a",))))).blocked_by == KEY


async def test_rule_11_a_missed_operation_holds_all_of_it_or_nothing(books: Ledger, database: Database) -> None:
    """Two that were never sent, each with half of what both need, would wait for each other for ever."""
    third = key("third")
    await books.claim(third, order(about=subject(resources=("b",))))
    await books.amend(KEY, missed)
    assert await holds(database) == {"b": third}
    await report(books, E.SUCCEEDED, at=third)
    await books.amend(OTHER, missed)
    assert await holds(database) == {"a": OTHER, "b": OTHER}
    for at in (KEY, OTHER):
        await note(books, E.ABSENT_RESEND, at=at, permit=2, until=None)
    both = subject(resources=("a", "b"))
    assert (await books.claim(KEY, order(permit=2, about=both))).blocked_by == OTHER
    assert (await books.claim(OTHER, order(permit=2, about=both))).entry is not None
    await report(books, E.SUCCEEDED, at=OTHER, permit=2)
    assert (await books.claim(KEY, order(permit=2, about=both))).entry is not None
    assert await holds(database) == {"a": KEY, "b": KEY}


async def test_rule_11_a_resend_needs_what_the_operation_touches_whoever_asks(
    books: Ledger, database: Database
) -> None:
    """After a deploy, a second task may name other resources for the same action."""
    await books.claim(OTHER, order(about=subject(resources=("a", "b"))))
    await books.amend(KEY, missed)
    await note(books, E.ABSENT_RESEND, permit=2, until=None)
    assert (await books.claim(KEY, order(permit=2, about=subject(resources=())))).blocked_by == OTHER


# --- The store's clock ---


async def test_the_stores_clock_tells_the_time(url: str, database: Database) -> None:
    real = Database(url)
    before = time.time()
    told = [await Ledger(real).now() for _ in range(3)]
    await Ledger(real).claim(KEY, order(seconds=10.0))
    (row,) = await Ledger(real).journal(KEY)
    after = time.time()
    assert before - 0.01 <= told[0] <= told[1] <= told[2] <= row.at <= after + 0.01
    assert row.body["deadline"] == row.at + 10.0
    await real.close()


def test_nothing_in_the_ledger_has_a_clock_of_its_own() -> None:
    for module in (journal, ledger, protocol, settling, standing):
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not names & {"time", "datetime"}, module.__name__


async def test_a_claim_is_on_disk_before_anybody_is_told_of_it(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'settled.db'}")
    for mode in (database.read, database.write, database.read):
        async with mode() as connection:
            pragmas = [
                (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
        assert pragmas == ["wal", 2, 1]
    await database.close()


async def test_a_reader_does_not_wait_for_a_writer(database: Database, second: Database) -> None:
    await Ledger(second).claim(OTHER, order(about=subject(resources=())))
    async with database.write() as connection:
        await connection.execute(insert(schema.holds).values(resource="x", operation=KEY))
        async with asyncio.timeout(5):
            assert await holds(second) == {}
            assert await Ledger(second).read(OTHER) is not None
    assert await holds(second) == {"x": KEY}


# --- Tasks ---


async def test_an_operation_belongs_to_the_tasks_that_wrote_in_its_journal(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    await report(books, E.SUCCEEDED)
    assert [view.key for view in await books.of_task("task-a")] == [KEY]
    assert await books.of_task("task-b") == []
    await books.join(KEY, "task-b")
    assert [view.key for view in await books.of_task("task-b")] == [KEY]


async def test_whoever_waits_for_a_resource_does_not_own_the_operation_that_holds_it(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    await books.join(KEY, "task-b", WaitsFor.RESOURCE)
    assert await books.of_task("task-b") == []
    assert (await books.view("task-b")).tally == Tally()
    assert await books.waiters(KEY) == [Waiter(task="task-b", waits_for=WaitsFor.RESOURCE, woken_seq=0)]


async def test_the_owner_of_an_operation_stays_it_whatever_it_waits_for(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    for waits_for in (WaitsFor.RESULT, WaitsFor.RESOURCE, WaitsFor.NOTHING):
        await books.join(KEY, "task-a", waits_for)
        assert [view.key for view in await books.of_task("task-a")] == [KEY]


async def test_only_those_who_wait_are_waiters_and_they_are_noted_once(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    assert await books.waiters(KEY) == []
    await books.join(KEY, "task-a", WaitsFor.RESULT)
    await books.join(KEY, "task-a", WaitsFor.RESULT, woken_seq=7)
    await books.join(KEY, "task-a")
    assert await books.waiters(KEY) == [Waiter(task="task-a", waits_for=WaitsFor.RESULT, woken_seq=7)]
    assert await books.waiters(OTHER) == []
    await books.join(KEY, "task-a", WaitsFor.NOTHING)
    assert await books.waiters(KEY) == []


async def test_whoever_claims_is_about_to_send_and_waits_for_nothing(books: Ledger) -> None:
    await reach(books, S.RESENDABLE)
    for task in ("task-a", "task-b"):
        await books.join(KEY, task, WaitsFor.RESULT)
    await books.claim(KEY, order(permit=2, task="task-a"))
    assert [waiter.task for waiter in await books.waiters(KEY)] == ["task-b"]
    await report(books, E.SUCCEEDED, permit=2)
    assert [waiter.task for waiter in await books.waiters(KEY)] == ["task-b"], "a report changes no wait"


async def test_two_calls_of_a_task_may_join_at_once(database: Database, second: Database) -> None:
    workers = [Ledger(database), Ledger(second)]
    await asyncio.gather(*(workers[n % 2].join(KEY, "task-a", WaitsFor.RESULT) for n in range(10)))
    assert await workers[0].waiters(KEY) == [Waiter(task="task-a", waits_for=WaitsFor.RESULT, woken_seq=0)]


async def test_a_tasks_view_counts_and_shows_what_is_unsettled_oldest_first(books: Ledger, clock: Clock) -> None:
    states = [S.COMPLETED, S.UNKNOWN, S.REJECTED, S.NEEDS_HUMAN, S.DISPATCHED, S.NOT_EXECUTED, S.RESENDABLE]
    for n, state in enumerate(states):
        clock.at += 1
        about = subject(resources=())
        at = key(str(n))
        await books.join(at, "task-a")
        await books.claim(at, order(about=about))
        await report(books, E.UNCLEAR, at=at)
        match state:
            case S.COMPLETED:
                await note(books, E.FOUND, at=at)
            case S.REJECTED:
                await report(books, E.DECLINED, at=at)
            case S.NOT_EXECUTED:
                await note(books, E.ABSENT_FINAL, at=at)
            case S.NEEDS_HUMAN:
                await note(books, E.HANDED_TO_PERSON, at=at)
            case S.RESENDABLE | S.DISPATCHED:
                await note(books, E.ABSENT_RESEND, at=at, permit=2, until=None)
        if state is S.DISPATCHED:
            await books.claim(at, order(permit=2, about=about))
    await books.claim(key("another task's"), order(task="task-b", about=subject(resources=())))
    view = await books.view("task-a")
    assert view.tally == Tally(operations=7, completed=1, unsettled=4)
    assert [one.state for one in view.unsettled] == [S.UNKNOWN, S.NEEDS_HUMAN, S.DISPATCHED, S.RESENDABLE]
    assert [one.sends for one in view.unsettled] == [1, 1, 2, 1]
    assert [one.state for one in await books.of_task("task-a")] == states
    assert [one.state for one in await books.of_task("task-a", [S.UNKNOWN, S.REJECTED])] == [S.UNKNOWN, S.REJECTED]
    assert [one.state for one in await books.of_task("task-a", limit=2)] == states[:2]


async def fill(database: Database, states: Sequence[OperationState]) -> None:
    """Many operations of one task, straight into the tables: it is the lists that are tested."""
    values = {"seq": 1, "tool": "reserve", "tenant": "acme", "principal": "ann", "generation": 1, "sends": 1}
    async with database.write() as connection:
        for n, state in enumerate(states):
            own = {"key": key(str(n)), "state": state, "evidence": None, "opened_at": n, "changed_at": 1_000 - n}
            await connection.execute(insert(schema.operations).values(values | own))
            await connection.execute(
                insert(schema.interests).values(
                    operation=own["key"], task="task-a", member=True, waits_for="nothing", woken_seq=0
                )
            )


async def test_at_most_twenty_unsettled_operations_are_shown_and_all_are_counted(
    books: Ledger, database: Database
) -> None:
    await fill(database, [S.UNKNOWN] * 25)
    view = await books.view("task-a")
    assert view.tally == Tally(operations=25, unsettled=25)
    assert [one.key for one in view.unsettled] == [key(str(n)) for n in range(20)]


async def test_an_unsettled_operation_is_shown_however_many_came_before_it(books: Ledger, database: Database) -> None:
    """Else nobody would settle it: what is shown is what is followed up."""
    await fill(database, [S.COMPLETED] * 250 + [S.NEEDS_HUMAN])
    view = await books.view("task-a")
    assert view.tally == Tally(operations=251, completed=250, unsettled=1)
    assert [one.key for one in view.unsettled] == [key("250")]


async def test_the_list_of_operations_begins_with_the_latest_change(books: Ledger, clock: Clock) -> None:
    for state in (S.UNKNOWN, S.COMPLETED, S.DISPATCHED):
        clock.at += 10
        at = key(state)
        await books.claim(at, order(about=subject(resources=())))
        if state is not S.DISPATCHED:
            await report(books, E.UNCLEAR if state is S.UNKNOWN else E.SUCCEEDED, at=at)
    clock.at = 2_000.0
    await note(books, E.IN_FLUX, at=key(S.UNKNOWN))
    listed = await books.listed()
    assert [(one.view.state, one.changed_at) for one in listed] == [
        (S.DISPATCHED, 1_030.0),
        (S.COMPLETED, 1_020.0),
        (S.UNKNOWN, 1_010.0),
    ]
    assert {(one.task, one.shown) for one in listed} == {("task-a", "")}
    assert [one.view.state for one in await books.listed(Wanted(states=(S.UNKNOWN, S.COMPLETED)))] == [
        S.COMPLETED,
        S.UNKNOWN,
    ]
    assert [one.view.state for one in await books.listed(limit=1)] == [S.DISPATCHED]
    assert await books.listed(Wanted(states=(S.NEEDS_HUMAN,))) == []


# --- Declared keys ---


async def test_r75c_the_first_declaration_of_a_tools_key_stands(database: Database) -> None:
    declared = DeclaredKeys(database)
    assert await declared.all() == {}
    await declared.note({"reserve": "order, sku"})
    await declared.note({"reserve": "order", "release": "order"})
    assert await declared.all() == {"reserve": "order, sku", "release": "order"}


async def test_r75c_of_workers_that_start_at_once_one_declares(database: Database, second: Database) -> None:
    workers = [DeclaredKeys(database), DeclaredKeys(second)]
    await asyncio.gather(*(workers[n % 2].note({"reserve": str(n), "release": str(n)}) for n in range(8)))
    declared = await workers[0].all()
    assert set(declared) == {"reserve", "release"}


# --- Whatever happens ---

ANSWERS: dict[str, LookupAnswer | None] = {
    "absent": Absent(),
    "in flux": InFlux(),
    "failed": None,
    "several": Several([{"id": 1}]),
}
STEPS = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 3), st.sampled_from("fg")),
    st.tuples(st.just("claim next"), st.sampled_from("ab")),
    st.tuples(
        st.just("report"),
        st.sampled_from("ab"),
        st.sampled_from([E.SUCCEEDED, E.DECLINED, E.NOT_SENT, E.UNCLEAR]),
        st.integers(0, 3),
    ),
    st.tuples(st.just("miss"), st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("withdraw"), st.sampled_from("ab"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from("ab"), st.sampled_from(["found", *ANSWERS, "absent"]), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 11.0, 120.0, 2_000.0])),
)


@dataclass
class Player:
    """Takes steps on two operations that share a resource, and checks the store after each."""

    books: Ledger
    clock: Clock
    example: int

    def key(self, name: str) -> str:
        return key(f"{self.example} {name}")

    @property
    def resource(self) -> str:
        return f"shared by example {self.example}"

    async def take(self, step: tuple[Any, ...]) -> None:
        what, *given_ = step
        if what == "wait":
            self.clock.at += given_[0]
            return
        at, rest = self.key(given_[0]), given_[1:]
        before = await self.books.read(at)
        match what:
            case "claim":
                generation, permit, fingerprint = rest
                await self.books.claim(at, self.order(generation, permit, fingerprint))
            case "claim next":
                generation = protocol.next_generation(before)
                current = before is not None and before.generation == generation
                permit = before.permit if before is not None and current else 1
                await self.books.claim(at, self.order(generation, permit, "f"))
            case "report":
                await self.report(at, rest[0], rest[1])
            case "miss":
                ask = self.order(rest[0], rest[1], "f")
                await self.books.amend(at, lambda operation, now: protocol.miss(operation, ask, now))
            case "withdraw":
                ask = self.order(rest[0], 1, "f")
                await self.books.amend(
                    at, lambda operation, now: protocol.withdraw(operation, ask, now, others_wait=rest[1])
                )
            case "settle":
                await self.settle(before, rest[0], waiting=rest[1])

    def order(self, generation: int, permit: int, fingerprint: str) -> protocol.Claim:
        return order(generation, permit, about=subject(fingerprint, resources=(self.resource,)))

    async def report(self, at: str, event: Event, which: int) -> None:
        """One of the attempts that were ever made speaks up, perhaps not for the first time."""
        claims = [row for row in await self.books.journal(at) if row.event is E.CLAIMED]
        if claims:
            claim = claims[which % len(claims)]
            await report(self.books, event, at=at, generation=claim.generation, permit=claim.permit)

    async def settle(self, operation: Operation | None, answer: str, *, waiting: bool) -> None:
        """A settlement's step, as the activity takes it."""
        if operation is None:
            return
        now = await self.books.now()
        event = {
            Move.EXPIRE: E.EXPIRED,
            Move.CLOSE: E.NOTHING_OUT,
            Move.HAND_OVER: E.HANDED_TO_PERSON,
            Move.VOID: E.WITHDRAWN,
        }.get(move := settling.next_move(operation, PROMISE, now, waiting=waiting))
        if event is not None:
            entry = Entry(event=event, generation=operation.generation, permit=operation.permit, body={})
        elif move is Move.LOOK_UP:
            ours = remote_key(operation.key, operation.generation)
            record = Found(key=ours, request=None, answer=Answer(data=None, source="stock service"))
            promise = replace(PROMISE, dedupes=DEDUPES.dedupes)
            entry = settling.judge(
                operation,
                promise,
                Lookup(answer=record if answer == "found" else ANSWERS[answer], asked_at=now),
                remote_key=ours,
                arguments={},
                waiting=waiting,
                patience=Patience(total=5_000.0),
            )
        else:
            return
        await self.books.amend(operation.key, lambda current, _: entry if current == operation else None)

    async def check(self) -> None:
        held = {
            resource: by for resource, by in (await holds(self.books.database)).items() if resource == self.resource
        }
        for name in "ab":
            rows = await self.books.journal(self.key(name))
            stored = await rows_of(
                self.books.database, select(schema.operations).where(schema.operations.c.key == self.key(name))
            )
            if not rows:
                assert stored == []
                continue
            operation = fold(self.key(name), rows)
            assert operation is not None
            (current,) = stored
            view = operation.view()
            assert (current.state, current.generation, current.sends, current.evidence, current.tool) == (
                view.state, view.generation, view.sends, view.evidence, view.tool,
            )  # fmt: skip
            assert (current.seq, current.opened_at, current.changed_at) == (
                operation.seq, operation.opened_at, operation.changed_at,
            )  # fmt: skip
            holds_it = held.get(self.resource) == operation.key
            if operation.state.settled:
                assert not holds_it
            elif any(row.event is E.CLAIMED and row.generation == operation.generation for row in rows):
                assert holds_it, "what was claimed holds its resource"
            # What was never claimed, as far as the ledger knows, holds its resource only if that was free when its last
            # row was written.
            check_journal(rows)


def check_journal(rows: list[Row]) -> None:
    """What no journal may say."""
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    generations = [row.generation for row in rows if row.event in (E.CLAIMED, E.MISSED, E.WITHDRAWN)]
    assert generations == sorted(generations), "no row but a late report belongs to a generation that is over"
    claims = [(row.generation, row.permit) for row in rows if row.event is E.CLAIMED]
    assert len(claims) == len(set(claims)), "no permit is spent twice"
    for first, then in pairwise(row for row in rows if row.event is E.CLAIMED):
        between = [row.event for row in rows[first.seq : then.seq - 1] if row.generation == then.generation]
        if first.generation == then.generation:
            assert E.ABSENT_RESEND in between, "R68: before a second send there was a lookup that said absent"
    for row, then in pairwise(rows):
        if row.state.settled and not then.state.settled:
            assert then.generation > row.generation
            assert row.state.closed
    for generation in {row.generation for row in rows}:
        mine = [
            row.body["subject"]["fingerprint"] for row in rows if row.generation == generation and "subject" in row.body
        ]
        assert len(mine) == 1, "one row opens a generation, and its fingerprint stands"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=25))
async def test_r66_r68_the_fold_the_current_row_and_the_holds_agree_whatever_happens(
    books: Ledger, clock: Clock, steps: list[tuple[Any, ...]]
) -> None:
    player = Player(books, clock, next(NAMES))
    for step in steps:
        await player.take(step)
        await player.check()


class DriversError(Exception):
    """What a driver raises: its SQLSTATE, where it has one."""

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (DriversError("the database system is shutting down", "57P03"), True),
        (DriversError("sorry, too many clients already", "53300"), True),
        (DriversError("connection was closed in the middle of operation"), True),
        (DriversError("could not serialize access", "40001"), True),
        (DriversError("syntax error", "42601"), False),
        (DriversError("duplicate key", "23505"), False),
    ],
    ids=str,
)
def test_a_server_on_its_way_is_waited_for_and_a_wrong_statement_is_not(error: DriversError, passes: bool) -> None:
    """PostgreSQL's driver raises errors of its own, which come as plain `DBAPIError`."""
    assert unavailable(DBAPIError("SELECT 1", {}, error)) is passes
