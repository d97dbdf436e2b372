"""Which operations are whose, who waits for what, and what the lists show."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.ledger import Ledger, Waiter
from settled.activities.ledger_lists import Wanted
from settled.activities.ledger_rows import WaitsFor
from settled.workflows.contract.operation import OperationState, Tally
from settled.workflows.states import Event
from tests.protocol.books import OTHER, UNSETTLED, Clock, key, note, reach, report
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
    await books.wait(KEY, "task-b", WaitsFor.RESOURCE)
    assert await books.of_task("task-b") == []
    assert (await books.view("task-b")).tally == Tally()
    assert await books.waiters(KEY) == [Waiter(task="task-b", waits_for=WaitsFor.RESOURCE, woken_seq=0)]


async def test_whoever_waits_with_a_claim_under_a_key_does_not_own_what_will_stand_there(books: Ledger) -> None:
    """Another request may open it meanwhile; only who opens or joins an operation counts it as its own."""
    await books.claim(OTHER, order(task="task-a"))
    assert (await books.claim(KEY, order(task="task-b"))).blocked_by == OTHER
    await report(books, E.SUCCEEDED, at=OTHER)
    await books.claim(KEY, order(task="task-c"))
    assert (await books.of_task("task-b"), await books.unsettled("task-b")) == ([], [])
    assert (await books.view("task-b")).tally == Tally()
    assert [one.task for one in await books.waiters(KEY)] == ["task-b"]
    await books.leave(KEY, "task-b")
    assert await books.waiters(KEY) == []
    assert [key for key, _tool in await books.unsettled("task-c")] == [KEY]


async def test_who_leaves_waits_no_more_and_what_belongs_to_it_stays_its_own(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    await books.join(KEY, "task-b", WaitsFor.RESULT)
    for task in ("task-a", "task-b", "task-c"):
        await books.leave(KEY, task)
    assert await books.waiters(KEY) == []
    assert [len(await books.of_task(task)) for task in ("task-a", "task-b", "task-c")] == [1, 1, 0]


async def test_the_owner_of_an_operation_stays_it_whatever_it_waits_for(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    for waits_for in (WaitsFor.RESULT, WaitsFor.RESOURCE, WaitsFor.NOTHING):
        await books.wait(KEY, "task-a", waits_for)
        assert [view.key for view in await books.of_task("task-a")] == [KEY]


async def test_who_has_left_while_it_was_told_does_not_wait_again(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    operation = await books.read(KEY)
    assert operation is not None
    await books.wait(KEY, "task-b", WaitsFor.RESULT)
    (waiter,) = await books.waiters(KEY)
    await books.leave(KEY, "task-b")
    await books.woken(operation, waiter)
    assert await books.waiters(KEY) == []


async def test_only_those_who_wait_are_waiters_and_they_are_noted_once(books: Ledger) -> None:
    await books.claim(KEY, order(task="task-a"))
    assert await books.waiters(KEY) == []
    await books.join(KEY, "task-a", WaitsFor.RESULT)
    await books.wait(KEY, "task-a", WaitsFor.RESULT)
    operation = await books.read(KEY)
    assert operation is not None
    (waiter,) = await books.waiters(KEY)
    await books.woken(replace(operation, seq=7), waiter)
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


# --- What is wanted of the list ---


async def listed(books: Ledger, **wanted: Any) -> list[str]:
    return sorted(one.view.key for one in await books.listed(Wanted(**wanted)))


async def three(books: Ledger) -> tuple[str, str, str]:
    """One that is done, one that is open, and one with an alarm."""
    done, open_, alarming = (f"{name}{KEY[2:]}" for name in ("00", "11", "1_"))
    for at, tool, task in ((done, "reserve", "task-a"), (open_, "pay", "task-a"), (alarming, "pay", "task-b")):
        await books.claim(at, order(task=task, about=subject(tool=tool, resources=(), shown=f"of {tool}")))
    await report(books, E.SUCCEEDED, at=done)
    for event in (E.DECLINED, E.SUCCEEDED):
        await report(books, event, at=alarming, task="task-b")
    return done, open_, alarming


async def test_all_are_listed_where_nothing_is_said(books: Ledger) -> None:
    all_of_them = await three(books)
    assert await listed(books) == sorted(all_of_them)


async def test_those_in_a_state_are_listed(books: Ledger) -> None:
    done, open_, alarming = await three(books)
    assert await listed(books, states=(S.DISPATCHED,)) == [open_]
    assert await listed(books, states=(S.DISPATCHED, S.COMPLETED)) == sorted([done, open_, alarming])
    assert await listed(books, states=(S.REJECTED,)) == []


async def test_those_of_a_tool_are_listed(books: Ledger) -> None:
    done, open_, alarming = await three(books)
    assert (await listed(books, tool="reserve"), await listed(books, tool="res")) == ([done], [])
    assert await listed(books, tool="pay") == sorted([open_, alarming])


async def test_those_that_a_task_has_opened_or_joined_are_listed_and_not_those_whose_resource_it_waits_for(
    books: Ledger,
) -> None:
    done, open_, alarming = await three(books)
    await books.join(alarming, "task-a", WaitsFor.RESULT)
    await books.wait(done, "task-c", WaitsFor.RESOURCE)
    assert await listed(books, task="task-a") == sorted([done, open_, alarming])
    assert (await listed(books, task="task-b"), await listed(books, task="task-c")) == ([alarming], [])


async def test_those_whose_key_begins_so_are_listed_and_no_letter_stands_for_another(books: Ledger) -> None:
    done, open_, alarming = await three(books)
    assert await listed(books, key="00") == [done]
    assert await listed(books, key="1") == sorted([open_, alarming])
    assert (await listed(books, key="1_"), await listed(books, key="%")) == ([alarming], [])


async def test_those_with_an_alarm_are_listed_and_counted(books: Ledger) -> None:
    _, _, alarming = await three(books)
    assert await listed(books, alarms=True) == [alarming]
    assert {one.view.key: one.alarms for one in await books.listed()}[alarming] == 1


async def test_an_alarm_of_an_earlier_generation_is_not_forgotten(books: Ledger) -> None:
    await reach(books, S.REJECTED)
    await books.claim(KEY, order(generation=2))
    await report(books, E.SUCCEEDED, generation=1)
    assert await listed(books, alarms=True) == [KEY]


async def test_all_that_is_said_must_hold(books: Ledger) -> None:
    _, open_, _ = await three(books)
    assert await listed(books, task="task-a", tool="pay", key="1", states=(S.DISPATCHED,)) == [open_]
    assert await listed(books, task="task-a", alarms=True) == []


async def test_it_is_the_current_generations_opening_that_is_shown(books: Ledger) -> None:
    await books.claim(KEY, order(about=subject(shown="first")))
    await report(books, E.DECLINED)
    await books.claim(KEY, order(generation=2, task="task-b", about=subject("f2", shown="second")))
    await report(books, E.SUCCEEDED, generation=1)
    (one,) = await books.listed()
    assert (one.shown, one.task, one.view.generation) == ("second", "task-b", 2)


# --- What nobody looks after ---


async def test_what_is_unsettled_and_has_not_changed_for_long_is_forsaken(books: Ledger, clock: Clock) -> None:
    for n, state in enumerate([*UNSETTLED, S.COMPLETED, S.REJECTED, S.UNDONE]):
        at = key(str(n))
        await books.claim(at, order(about=subject(resources=())))
        if state is not S.DISPATCHED:
            await report(books, E.UNCLEAR if not state.settled else E.SUCCEEDED, at=at)
        if state is S.RESENDABLE:
            await note(books, E.ABSENT_RESEND, at=at, permit=2, until=None)
        elif state is S.NEEDS_HUMAN:
            await note(books, E.HANDED_TO_PERSON, at=at)
    unsettled = sorted(key(str(n)) for n in range(len(UNSETTLED)))
    assert await books.forsaken(clock.at + 1, ["reserve"], "", 100) == unsettled
    assert await books.forsaken(clock.at, ["reserve"], "", 100) == [], "somebody is at work on what has just changed"
    assert await books.forsaken(clock.at + 1, ["pay"], "", 100) == [], "nobody here has its tool"


async def test_forsaken_operations_come_in_pages_by_key_and_each_is_in_one(books: Ledger, database: Database) -> None:
    await fill(database, [S.UNKNOWN] * 7)
    pages, after = [], ""
    while page := await books.forsaken(2_000.0, ["pay", "reserve"], after, 3):
        pages.append(page)
        after = page[-1]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [at for page in pages for at in page] == sorted(key(str(n)) for n in range(7))


@pytest.mark.long
async def test_r30_a_task_is_told_of_the_operation_that_it_forgot_however_many_it_knows(books: Ledger) -> None:
    """The newest one of more than any list of the task's operations shows."""
    keys = [key(f"operation {number}") for number in range(205)]
    for at in [*keys, KEY]:
        await books.claim(at, order(about=subject(resources=())))
        await report(books, E.SUCCEEDED, at=at)
    await books.claim(OTHER, order(about=subject(resources=())))
    await report(books, E.NOT_SENT, at=OTHER)
    assert [view.key for view in await books.of_task_besides("task-a", keys)] == [KEY]
    assert await books.of_task_besides("task-a", [*keys, KEY]) == []
    assert len(await books.of_task_besides("task-a", [])) == 206
    assert await books.of_task_besides("task-b", []) == []
