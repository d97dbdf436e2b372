"""The store goes away, comes back, and stands in the way: what is really raised then, and what waits for it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol
from settled.activities.database import ALL, WORK, Database, Terms, patiently, store_clock, unavailable
from settled.activities.journal import Entry, Operation
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.crash.processes import started
from tests.desk import until
from tests.postgres import PostgresServer, postgres_server
from tests.protocol.books import OTHER, key
from tests.protocol.store_faults import FAULTS, NOTED, Fault, run
from tests.protocol.stories import KEY, ended, order, subject

E = Event
HURRIED = Terms(connect=0.5, idle=0.5, lock=0.5, answer=0.5)


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[PostgresServer]:
    """A server that may be taken away: nobody else uses it."""
    async with postgres_server() as started:
        yield started


@pytest.fixture
async def database(server: PostgresServer) -> AsyncIterator[Database]:
    """A ledger on that server."""
    opened = Database(await server.new_database())
    await migrate(opened)
    yield opened
    await opened.close()
    await server.take_back(opened.url)


# --- What is raised ---


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_what_may_pass_is_told_from_what_is_wrong(
    server: PostgresServer, database: Database, fault: Fault
) -> None:
    """Whatever PostgreSQL, its driver, the network or the system raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one it is, is the driver's business
        await fault(server, database)
    error = caught.value
    if isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    assert unavailable(error), repr(error)
    await run(database, "SELECT 1")


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT * FROM nowhere", "SELECT 1 / 0"])
async def test_a_wrong_statement_is_no_outage(database: Database, statement: str) -> None:
    with pytest.raises(DBAPIError) as caught:
        await run(database, statement)
    assert not unavailable(caught.value)


# --- Who waits for it ---


async def work(books: Ledger, name: str, done: asyncio.Event) -> list[str]:
    """Claim operations, report that they succeeded, and read them, until it is enough; returns their keys."""
    keys: list[str] = []
    while not done.is_set():
        at = key(f"{name} {len(keys)}")
        keys.append(at)
        await patiently(partial(books.claim, at, order(about=subject(resources=()))), 30)
        await patiently(partial(books.amend, at, succeeded), 30)
        operation = await patiently(partial(books.read, at), 30)
        assert operation is not None
        assert operation.state is OperationState.COMPLETED
    return keys


def succeeded(operation: Operation | None, now: float) -> Entry | None:
    assert operation is not None
    return protocol.report(operation, ended(E.SUCCEEDED, result="r1"), now)


async def come_and_go(server: PostgresServer, how: str) -> None:
    """Take the server away for a moment."""
    match how:
        case "stop":
            await server.stop()
        case "kill":
            await server.kill()
        case "freeze":
            server.freeze()
            await asyncio.sleep(HURRIED.answer * 1.5)
            server.wake()
            return
    await server.start()


@pytest.mark.parametrize("how", ["stop", "kill", "freeze"])
async def test_claims_reports_and_reads_get_through_an_outage(
    server: PostgresServer, database: Database, how: str
) -> None:
    done, workers = asyncio.Event(), [Database(database.url, terms=HURRIED) for _ in range(3)]
    working = [asyncio.create_task(work(Ledger(each), str(n), done)) for n, each in enumerate(workers)]
    try:
        for _ in range(2):
            seen = await rows_in(database)
            await until(partial(more_rows_than, database, seen))
            await come_and_go(server, how)
        done.set()
        keys = await asyncio.gather(*working)
    finally:
        for task in working:
            task.cancel()
        for each in workers:
            await each.close()
    for at in chain.from_iterable(keys):
        assert [row.event for row in await Ledger(database).journal(at)] == [E.CLAIMED, E.SUCCEEDED]


async def rows_in(database: Database) -> int:
    """How many rows all journals have."""
    async with database.read() as connection:
        return int((await connection.execute(text("SELECT count(*) FROM journal"))).scalar_one())


async def more_rows_than(database: Database, number: int) -> bool:
    return await rows_in(database) > number


async def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    """SQLite has no server that could go; another process may hold on to its lock, as long as it likes."""
    path = tmp_path / "settled.db"
    database = Database(f"sqlite+aiosqlite:///{path}", terms=Terms(lock=0.1))
    await migrate(database)
    with closing(sqlite3.connect(path)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DBAPIError, match="locked") as caught:
            await Ledger(database).claim(KEY, order())
        assert unavailable(caught.value)
        claiming = asyncio.create_task(patiently(lambda: Ledger(database).claim(KEY, order()), 30))
        done, _ = await asyncio.wait({claiming}, timeout=0.5)
        assert not done, "it waits"
        other.execute("ROLLBACK")
    assert (await claiming).entry is not None
    await database.close()


async def test_a_claim_whose_commit_went_unanswered_stands_and_is_not_granted_again(
    server: PostgresServer, database: Database
) -> None:
    """The commit is on disk, and the connection is ended before the answer: the server waits for a replica's word."""
    books = Ledger(database)
    await books.now()
    await server.hold_commits()
    claiming = asyncio.create_task(books.claim(KEY, order()))
    await until(server.held_commits)
    await server.cut_held_commits()
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one it is, is the driver's business
        await claiming
    await server.answer_commits()
    assert unavailable(caught.value)
    again = await books.claim(KEY, order())
    assert again.entry is None
    assert again.operation is not None
    assert (again.operation.state, again.operation.permit) == (OperationState.DISPATCHED, 1)
    assert [row.event for row in await books.journal(KEY)] == [E.CLAIMED]


# --- Many at once ---


@pytest.mark.parametrize("about", ["one key", "one resource"])
async def test_of_many_claims_from_many_connections_exactly_one_is_granted(database: Database, about: str) -> None:
    workers = [Database(database.url) for _ in range(3)]
    asks = [
        Ledger(workers[n % 3]).claim(KEY if about == "one key" else key(str(n)), order(task=f"task-{n}"))
        for n in range(30)
    ]
    asked = await asyncio.gather(*asks)
    (granted,) = [each for each in asked if each.entry is not None]
    assert granted.operation is not None
    if about == "one key":
        assert {each.operation for each in asked} == {granted.operation}
    else:
        assert {each.blocked_by for each in asked if each is not granted} == {granted.operation.key}
    for each in workers:
        await each.close()


class Meeting:
    """A clock at which transactions wait for each other for a moment, so that each has read before any has written."""

    def __init__(self, number: int) -> None:
        self.barrier = asyncio.Barrier(number)

    async def __call__(self, connection: AsyncConnection) -> float:
        with suppress(TimeoutError, asyncio.BrokenBarrierError):
            async with asyncio.timeout(0.5):
                await self.barrier.wait()
        return await store_clock(connection)


async def test_what_a_claim_has_seen_still_holds_when_it_is_committed(url: str) -> None:
    """One action under two keys, after its tool's declaration changed: neither claim writes what the other reads."""
    clock = Meeting(2)
    workers = [Database(url, clock=clock) for _ in range(2)]
    await migrate(workers[0])
    asks = [
        Ledger(worker).claim(mine, replace(order(about=subject(resources=())), namesakes=(other,)))
        for worker, mine, other in zip(workers, (KEY, OTHER), (OTHER, KEY), strict=True)
    ]
    asked = await asyncio.gather(*asks)
    assert len([each for each in asked if each.entry is not None]) == 1, asked
    for each in workers:
        await each.close()


class Crossing:
    """A clock that wants, inside its writer's transaction, what somebody else has locked who waits for the writer."""

    def __init__(self) -> None:
        self.asked = 0
        self.entered = asyncio.Event()

    async def __call__(self, connection: AsyncConnection) -> float:
        self.asked += 1
        if self.asked == 1:
            self.entered.set()
            await connection.execute(text(NOTED.format("a")))
        return await store_clock(connection)


async def test_a_writer_that_the_server_ended_in_a_deadlock_gets_through(
    server: PostgresServer, database: Database
) -> None:
    clock = Crossing()
    worker = Database(database.url, clock=clock)
    async with database.write() as somebody:
        await somebody.execute(text("SET LOCAL deadlock_timeout = '20s'"))  # so that it isn't the one that is ended
        await somebody.execute(text(NOTED.format("a")))
        claiming = asyncio.create_task(Ledger(worker).claim(KEY, order()))
        await clock.entered.wait()
        await somebody.execute(select(func.pg_advisory_xact_lock(ALL)))
    assert (await claiming).entry is not None
    assert clock.asked == 2, "it has begun again"
    assert "deadlock detected" in server.log()
    await worker.close()


# --- Frozen inside a transaction ---

PROGRAM = """
import asyncio, os, signal, sys
from settled.activities import protocol
from settled.activities.database import Database, Terms, unavailable
from settled.activities.ledger import Ledger
from tests.mortal import die_with
from tests.protocol.stories import KEY, order

def freeze(operation, now):
    os.kill(os.getpid(), signal.SIGSTOP)
    return protocol.claim(operation, order(), now)

async def main(url):
    try:
        await Ledger(Database(url, terms=Terms(idle=0.5))).amend(KEY, freeze)
    except Exception as error:
        print("out of reach" if unavailable(error) else repr(error), flush=True)
    else:
        print("committed", flush=True)

die_with(int(sys.argv[2]))
asyncio.run(main(sys.argv[1]))
"""


async def test_a_process_that_is_frozen_in_its_claim_does_not_keep_others_waiting_for_ever(
    database: Database, tmp_path: Path
) -> None:
    """The server ends its session; when it is woken, its claim is not granted, and was never there."""
    command = (sys.executable, "-c", PROGRAM, database.url, str(os.getpid()))
    holder = await started(command, tmp_path / "holder.log")
    try:
        await holder.is_frozen()
        claiming = asyncio.create_task(Ledger(database).claim(KEY, order(task="task-b")))
        done, _ = await asyncio.wait({claiming}, timeout=0.2)
        assert not done, "it waits for the frozen one"
        async with asyncio.timeout(10):
            assert (await claiming).entry is not None
        holder.wake()
        await holder.says("out of reach")
        assert [row.task for row in await Ledger(database).journal(KEY)] == ["task-b"]
    finally:
        await holder.kill()


async def test_our_connections_ask_for_what_frees_others(database: Database) -> None:
    async with database.read() as connection:
        idle, lock = [
            (await connection.execute(text(f"SHOW {name}"))).scalar_one()
            for name in ("idle_in_transaction_session_timeout", "lock_timeout")
        ]
    assert (idle, lock) == (f"{WORK.idle:.0f}s", f"{WORK.lock:.0f}s")
    assert WORK.idle < WORK.lock < WORK.answer, "the frozen one goes first"
