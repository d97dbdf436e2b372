"""Many writers at once, in one process and in several: one wins, whoever writes and whoever dies."""

import asyncio
import json
import signal
import sys

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol, schema
from settled.activities.database import Database, unavailable
from settled.activities.journal import Entry, Operation
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import JournalConflict
from settled.workflows.states import Event
from tests.protocol.books import OTHER, RESOURCE, Clock, everything, holds, key, reach
from tests.protocol.stories import KEY, order, subject

S, E = OperationState, Event


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


@pytest.mark.long
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
