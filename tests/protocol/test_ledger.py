"""The ledger on a real SQLite and a real PostgreSQL: what one claim leaves behind, and when."""

import ast
import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import insert

from settled.activities import journal, ledger, protocol, schema, settling, standing
from settled.activities.database import Database
from settled.activities.ledger import Ledger
from settled.activities.settling import Move
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.errors import IllegalTransition
from settled.workflows.states import Event
from tests.protocol.books import (
    OTHER,
    Clock,
    everything,
    holds,
    note,
    reach,
    report,
)
from tests.protocol.stories import KEY, PROMISE, order, subject

S, E = OperationState, Event


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
