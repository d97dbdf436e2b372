"""A tool that writes to the ledger's own database: claim, effect and outcome are kept together, or not at all."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol, schema
from settled.activities.database import Database
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.journal import Operation
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.activities.protocol import Report
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import OutdatedWorker
from settled.workflows.states import Event
from tests.protocol.books import OTHER, RESOURCE, Clock, everything, holds, reach, rows_of
from tests.protocol.stories import KEY, ended, order, subject
from tests.protocol.test_epochs import open_epoch
from tests.protocol.test_undo import UNDO, state_of

S, E = OperationState, Event
TABLE = Table("notes", MetaData(), Column("number", Integer, primary_key=True, autoincrement=False))
ASK = replace(order(), own_store=True)


@pytest.fixture(autouse=True)
async def table(database: Database) -> None:
    """The tool's own table, in the ledger's database."""
    await make_table(database)


async def make_table(database: Database) -> None:
    async with database.write() as connection:
        await connection.run_sync(TABLE.metadata.create_all)


class Work:
    """What the tool does: it writes a number, and says how it went."""

    def __init__(self, event: Event = E.SUCCEEDED, number: int = 1) -> None:
        self.event, self.number, self.times = event, number, 0

    async def __call__(self, connection: AsyncConnection, _claimed: Operation) -> Report:
        self.times += 1
        await connection.execute(insert(TABLE).values(number=self.number))
        return ended(self.event, result="r1")


async def numbers(database: Database) -> list[int]:
    return [row.number for row in await rows_of(database, select(TABLE))]


async def test_claim_effect_and_outcome_are_there_together(books: Ledger, database: Database) -> None:
    amended = await books.transact(KEY, ASK, Work())
    assert amended.operation == await books.read(KEY)
    assert [row.event for row in await books.journal(KEY)] == [E.CLAIMED, E.SUCCEEDED]
    assert amended.entry is not None
    assert amended.entry.event is E.CLAIMED, "that is how its caller knows that it was its own"
    assert (await numbers(database), await holds(database)) == ([1], {})


async def test_what_is_rolled_back_leaves_nothing(books: Ledger, database: Database) -> None:
    before = await everything(database)

    async def fails(connection: AsyncConnection, claimed: Operation) -> Report:
        await Work()(connection, claimed)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await books.transact(KEY, ASK, fails)
    assert (await everything(database), await numbers(database)) == (before, [])
    assert (await books.transact(KEY, ASK, Work())).entry is not None, "and the permit is unspent"


async def test_what_is_noted_after_a_failure_is_that_nothing_came_of_it(books: Ledger, database: Database) -> None:
    async def nothing(_connection: AsyncConnection, _claimed: Operation) -> Report:
        return ended(E.NOT_SENT, failure={"kind": "unavailable", "phase": "before_send", "text": "it broke"})

    await books.transact(KEY, ASK, nothing)
    assert (await state_of(books), await holds(database)) == (S.NOT_EXECUTED, {})


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED, S.REJECTED])
async def test_without_the_permit_nothing_is_done(books: Ledger, database: Database, state: OperationState) -> None:
    await reach(books, state)
    work = Work()
    amended = await books.transact(KEY, ASK, work)
    assert (amended.entry, work.times, await numbers(database)) == (None, 0, [])


async def test_r63_a_resend_of_what_another_principal_has_opened_is_done_in_that_one_s_name(books: Ledger) -> None:
    """Its tool has sent to a service before a deploy made it a transactional one; whoever claims, it stays ann's."""
    await reach(books, S.RESENDABLE)
    names = []

    async def work(_connection: AsyncConnection, claimed: Operation) -> Report:
        names.append(claimed.subject.principal)
        return ended(E.SUCCEEDED, permit=2, result="r1")

    about = replace(subject(), principal="ben")
    amended = await books.transact(KEY, replace(order(permit=2, about=about, task="task-b"), own_store=True), work)
    assert amended.entry is not None
    assert (names, await state_of(books)) == (["ann"], S.COMPLETED)


async def test_where_another_operation_holds_the_resource_nothing_is_done(books: Ledger, database: Database) -> None:
    await books.claim(OTHER, order())
    work = Work()
    assert (await books.transact(KEY, ASK, work)).blocked_by == OTHER
    assert (work.times, await holds(database)) == (0, {RESOURCE: OTHER})


async def test_where_there_is_nothing_to_undo_nothing_is_done(books: Ledger) -> None:
    work = Work()
    amended = await books.transact(OTHER, replace(ASK, subject=UNDO), work)
    assert ("nothing to undo" in amended.refused, work.times) == (True, 0)


async def test_an_undo_in_a_transaction_marks_its_target_in_the_same_one(books: Ledger) -> None:
    await books.transact(KEY, ASK, Work())

    async def fails(_connection: AsyncConnection, _claimed: Operation) -> Report:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await books.transact(OTHER, replace(ASK, subject=UNDO), fails)
    assert await state_of(books) is S.COMPLETED
    await books.transact(OTHER, replace(ASK, subject=UNDO), Work(number=2))
    assert await state_of(books) is S.UNDONE


async def test_it_is_done_once_however_often_it_is_asked_for(books: Ledger, database: Database) -> None:
    work = Work()
    for _ in range(3):
        await books.transact(KEY, ASK, work)
    assert (work.times, await numbers(database)) == (1, [1])


class Meddling(Clock):
    """A clock at which another writer's row is suddenly there, the n-th time that somebody asks."""

    def __init__(self, strikes: int) -> None:
        super().__init__()
        self.asked, self.strikes = 0, strikes

    async def __call__(self, connection: AsyncConnection) -> float:
        self.asked += 1
        if self.asked == self.strikes:
            other = {"operation": KEY, "seq": self.strikes, "at": 1.0, "generation": 1, "permit": 1, "event": "claimed"}
            await connection.execute(insert(schema.journal).values(**other, state="dispatched", task="", body="{}"))
        return self.at


@pytest.mark.parametrize("strikes", [1, 2])
async def test_a_conflict_repeats_all_of_it_and_its_effect_is_there_once(url: str, strikes: int) -> None:
    """The other writer was there before the claim, or before the outcome was noted: all of the first try is undone."""
    database = Database(url, clock=Meddling(strikes))
    await migrate(database)
    await make_table(database)
    work = Work()
    amended = await Ledger(database).transact(KEY, ASK, work)
    assert amended.entry is not None
    assert (work.times, await numbers(database)) == (strikes, [1])
    assert [row.event for row in await Ledger(database).journal(KEY)] == [E.CLAIMED, E.SUCCEEDED]
    await database.close()


async def test_a_tool_whose_own_row_is_there_already_is_no_conflict_for_ever(books: Ledger, database: Database) -> None:
    """The dispatch turns what a tool raises into an outcome; what reaches the ledger is tried again, and then told."""
    async with database.write() as connection:
        await connection.execute(insert(TABLE).values(number=1))
    work = Work()
    with pytest.raises(Exception, match="other writers were faster") as caught:
        await books.transact(KEY, ASK, work)
    assert not isinstance(caught.value, IntegrityError)
    assert (await numbers(database), await books.journal(KEY)) == ([1], [])


async def test_an_outdated_worker_does_nothing_in_a_transaction_either(books: Ledger, database: Database) -> None:
    await DeclaredKeys(database).note({"reserve": "order, sku"})
    work = Work()
    with pytest.raises(OutdatedWorker):
        await books.transact(KEY, replace(ASK, declaration="order"), work)
    assert (work.times, await numbers(database)) == (0, [])


async def test_in_an_epoch_it_is_done_at_once_since_what_was_lost_was_lost_as_a_whole(
    books: Ledger, database: Database
) -> None:
    await open_epoch(books)
    await books.transact(KEY, ASK, Work())
    assert (await numbers(database), await state_of(books)) == ([1], S.COMPLETED)


async def test_an_order_that_the_ledger_has_lost_is_closed_without_an_attempt(books: Ledger) -> None:
    """Its effect was lost with its rows; nobody has to look it up."""
    work = Work()
    amended = await books.transact(KEY, replace(ASK, known=True), work)
    assert amended.operation is not None
    assert (work.times, amended.operation.state, amended.operation.out) == (0, S.UNKNOWN, ())
    again: Any = protocol.withdraw(None, replace(ASK, known=True, subject=subject()), 1.0, others_wait=False)
    assert (again.event, "unseen" in again.body) == (E.MISSED, False)
