"""The queue at a resource: who came first may go first once it is free, for a while; it is a courtesy and no lock."""

from typing import Any

import pytest
from sqlalchemy import select

from settled.activities import schema
from settled.activities.ledger import Amended, Ledger
from settled.activities.ledger_holds import GRACE_SECONDS, STALE_SECONDS
from settled.activities.ledger_rows import WaitsFor
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.books import Clock, holds, key, note, reach, report, rows_of
from tests.protocol.stories import order, subject

S, E = OperationState, Event
HOLDER, FIRST, SECOND, THIRD, LATE = (key(name) for name in ("holder", "first", "second", "third", "late"))


async def claim(books: Ledger, at: str, *resources: str, task: str = "") -> Amended:
    """An operation asks for resources, as its own task unless another is named."""
    about = subject(resources=tuple(sorted(resources or ("a",))))
    return await books.claim(at, order(about=about, task=task or f"task of {at[:4]}"))


async def line_up(books: Ledger, clock: Clock, *who: str, resources: tuple[str, ...] = ("a",)) -> None:
    """Somebody holds the resources; these wait, in this order; then it is settled."""
    await claim(books, HOLDER, *resources)
    for at in who:
        clock.at += 1
        assert (await claim(books, at, *resources)).blocked_by == HOLDER
    clock.at += 1
    await report(books, E.SUCCEEDED, at=HOLDER)


async def queue(books: Ledger) -> list[Any]:
    return await rows_of(books.database, select(schema.queue).order_by(schema.queue.c.since, schema.queue.c.resource))


async def test_while_it_is_held_everybody_waits_for_the_holder(books: Ledger, clock: Clock) -> None:
    await claim(books, HOLDER)
    for at in (FIRST, SECOND):
        amended = await claim(books, at)
        assert (amended.entry, amended.blocked_by, amended.turn_after) == (None, HOLDER, None)
    assert {row.operation for row in await queue(books)} == {FIRST, SECOND}


async def test_who_came_first_goes_first_though_another_asks_first(books: Ledger, clock: Clock) -> None:
    await line_up(books, clock, FIRST, SECOND)
    early = await claim(books, SECOND)
    assert (early.entry, early.blocked_by, early.turn_after) == (None, FIRST, GRACE_SECONDS)
    assert (await claim(books, FIRST)).entry is not None
    assert [row.operation for row in await queue(books)] == [SECOND]


async def test_who_was_not_in_line_waits_for_all_who_were(books: Ledger, clock: Clock) -> None:
    await line_up(books, clock, FIRST, SECOND)
    amended = await claim(books, LATE)
    assert (amended.blocked_by, amended.turn_after) == (FIRST, 2 * GRACE_SECONDS)


@pytest.mark.parametrize("place", [1, 2])
async def test_each_waits_a_while_for_each_who_came_before_and_no_longer(
    books: Ledger, clock: Clock, place: int
) -> None:
    """The first may be dead."""
    await line_up(books, clock, FIRST, SECOND, THIRD)
    at, freed = (FIRST, SECOND, THIRD)[place], clock.at
    clock.at = freed + place * GRACE_SECONDS - 0.5
    amended = await claim(books, at)
    assert (amended.entry, amended.turn_after) == (None, 0.5)
    clock.at = freed + place * GRACE_SECONDS
    assert (await claim(books, at)).entry is not None


async def test_who_was_passed_keeps_the_place(books: Ledger, clock: Clock) -> None:
    await line_up(books, clock, FIRST, SECOND, THIRD)
    clock.at += GRACE_SECONDS
    await claim(books, SECOND)
    assert (await claim(books, FIRST)).blocked_by == SECOND
    clock.at += 1
    await report(books, E.SUCCEEDED, at=SECOND)
    assert (await claim(books, THIRD)).blocked_by == FIRST
    assert (await claim(books, FIRST)).entry is not None


async def test_who_has_not_asked_for_long_has_no_place(books: Ledger, clock: Clock) -> None:
    await claim(books, HOLDER)
    await claim(books, FIRST)
    clock.at += STALE_SECONDS
    await claim(books, SECOND)
    await report(books, E.SUCCEEDED, at=HOLDER)
    assert (await claim(books, SECOND)).entry is not None


async def test_who_asks_again_keeps_the_place_and_is_not_stale(books: Ledger, clock: Clock) -> None:
    await claim(books, HOLDER)
    for _ in range(2):
        await claim(books, FIRST)
        clock.at += STALE_SECONDS - 1
    await claim(books, SECOND)
    await report(books, E.SUCCEEDED, at=HOLDER)
    first, _ = await queue(books)
    assert (first.operation, first.since, first.asked_at) == (FIRST, 1_000.0, 1_000.0 + STALE_SECONDS - 1)
    assert (await claim(books, SECOND)).blocked_by == FIRST


async def test_a_task_that_is_gone_leaves_every_line(books: Ledger, clock: Clock) -> None:
    await claim(books, HOLDER, "a", "b")
    await claim(books, FIRST, "a", task="gone")
    await claim(books, THIRD, "b", task="gone")
    clock.at += 1
    await claim(books, SECOND, "a", task="alive")
    await books.forget_task("gone")
    assert [row.task for row in await queue(books)] == ["alive"]
    await report(books, E.SUCCEEDED, at=HOLDER)
    assert (await claim(books, SECOND, "a", task="alive")).entry is not None


async def test_each_resource_has_a_line_of_its_own(books: Ledger, clock: Clock) -> None:
    """The first ones of each are woken when it is free."""
    await claim(books, HOLDER, "a", "b")
    for n in range(4):
        clock.at += 1
        await claim(books, key(str(n)), "a", task=f"a{n}")
        await claim(books, key(f"b{n}"), "b", task="one task")
    holder = await books.read(HOLDER)
    assert holder is not None
    assert await books.in_line(holder) == [["a0", "a1", "a2", "a3"], ["one task"] * 4]


# --- Several resources ---


async def test_a_claim_of_several_resources_waits_in_each_line_since_it_first_waited(
    books: Ledger, clock: Clock
) -> None:
    await claim(books, HOLDER, "a")
    await claim(books, FIRST, "a", "b")
    assert [(row.resource, row.since) for row in await queue(books)] == [("a", 1_000.0), ("b", 1_000.0)]
    clock.at += 10
    await claim(books, FIRST, "a", "b", "c")
    assert {(row.resource, row.since, row.asked_at) for row in await queue(books)} == {
        (name, 1_000.0, 1_010.0) for name in "abc"
    }


async def test_in_two_lines_it_is_the_one_that_is_longer_to_wait_for_that_counts_in_the_end(
    books: Ledger, clock: Clock
) -> None:
    await line_up(books, clock, FIRST, resources=("a", "b"))
    assert (await claim(books, SECOND, "b", "c")).blocked_by == FIRST
    clock.at += GRACE_SECONDS
    assert (await claim(books, SECOND, "b", "c")).entry is not None
    assert await holds(books.database) == {"b": SECOND, "c": SECOND}


async def test_a_resource_that_is_free_is_not_kept_for_one_who_waits_for_another_one_too(
    books: Ledger, clock: Clock
) -> None:
    """Nobody holds what it can't use: who waits for a and b leaves b to others while a is held."""
    await claim(books, HOLDER, "a")
    await claim(books, FIRST, "a", "b")
    assert (await claim(books, SECOND, "b")).entry is not None


# --- When it was freed ---


async def test_the_grace_counts_from_when_the_resource_was_freed(books: Ledger, clock: Clock) -> None:
    await line_up(books, clock, FIRST, SECOND)
    assert {row.freed_at for row in await queue(books)} == {clock.at}


@pytest.mark.parametrize("state", [S.NOT_EXECUTED, S.COMPLETED])
async def test_who_held_nothing_frees_nothing(books: Ledger, clock: Clock, state: OperationState) -> None:
    """A withdrawal of what was never sent, or one more row of what is settled, doesn't start the grace anew."""
    other = key("settled")
    if state is S.COMPLETED:
        await reach(books, S.COMPLETED, other)
    await claim(books, HOLDER, "acme/stock/A1")
    await claim(books, FIRST, "acme/stock/A1")
    clock.at += 100
    if state is S.COMPLETED:
        await report(books, E.SUCCEEDED, at=other)
    else:
        await reach(books, S.NOT_EXECUTED, other)
    assert [row.freed_at for row in await queue(books)] == [0.0]


async def test_what_is_freed_is_what_was_held_and_nothing_else(books: Ledger, clock: Clock) -> None:
    await claim(books, HOLDER, "a")
    await claim(books, THIRD, "b")
    await claim(books, FIRST, "a")
    await claim(books, SECOND, "b")
    clock.at += 100
    await report(books, E.SUCCEEDED, at=HOLDER)
    assert {row.resource: row.freed_at for row in await queue(books)} == {"a": clock.at, "b": 0.0}


async def test_a_resource_that_was_never_held_since_is_free_at_once(books: Ledger, clock: Clock) -> None:
    """Who came first has had its time long ago."""
    await line_up(books, clock, FIRST)
    clock.at += GRACE_SECONDS
    assert (await claim(books, LATE)).entry is not None


# --- Who is in line at all ---


async def test_a_resend_has_its_resources_already_and_waits_in_no_line(books: Ledger, clock: Clock) -> None:
    """Though the grace of those who wait has not passed since the resource was freed for the first send."""
    await line_up(books, clock, FIRST, SECOND)
    await claim(books, FIRST)
    await report(books, E.UNCLEAR, at=FIRST)
    await note(books, E.ABSENT_RESEND, at=FIRST, permit=2, until=None)
    again = order(permit=2, about=subject(resources=("a",)))
    assert (await books.claim(FIRST, again)).entry is not None
    assert [row.operation for row in await queue(books)] == [SECOND]


async def test_who_is_withdrawn_leaves_the_line(books: Ledger, clock: Clock) -> None:
    await line_up(books, clock, FIRST, SECOND)
    await books.withdraw(FIRST, order(about=subject(resources=("a",))), others_wait=False)
    assert (await claim(books, SECOND)).entry is not None


async def test_who_waits_in_line_waits_for_its_own_result_too(books: Ledger) -> None:
    """Another task that wants the same must not give it up for both."""
    await claim(books, HOLDER)
    await claim(books, FIRST, task="task-b")
    assert [(one.task, one.waits_for) for one in await books.waiters(FIRST)] == [("task-b", WaitsFor.RESULT)]
    await report(books, E.SUCCEEDED, at=HOLDER)
    await claim(books, FIRST, task="task-b")
    assert await books.waiters(FIRST) == []
