"""Which operations are whose, who waits for what, and what the lists show."""

import asyncio
from collections.abc import Sequence

from sqlalchemy import insert

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.ledger import Ledger, Waiter
from settled.activities.ledger_lists import Wanted
from settled.activities.ledger_rows import WaitsFor
from settled.workflows.contract.operation import OperationState, Tally
from settled.workflows.states import Event
from tests.protocol.books import OTHER, Clock, key, note, reach, report
from tests.protocol.stories import KEY, order, subject

S, E = OperationState, Event


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
