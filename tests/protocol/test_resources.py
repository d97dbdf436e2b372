"""Who holds a resource keeps others from it, until his operation is settled."""

import pytest

from settled.activities import protocol
from settled.activities.database import Database
from settled.activities.journal import Entry, Operation
from settled.activities.ledger import Ledger, Waiter
from settled.activities.ledger_rows import WaitsFor
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.books import OTHER, RESOURCE, UNSETTLED, everything, holds, key, note, reach, report
from tests.protocol.stories import KEY, order, subject

S, E = OperationState, Event


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
