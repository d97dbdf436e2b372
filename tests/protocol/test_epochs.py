"""Rule 14: a ledger that lost a part of its past. While an epoch is open, "no row" does not mean "nothing was sent"."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from settled.activities import protocol, schema, settling
from settled.activities.epochs import Epochs, Opened
from settled.activities.journal import UNSEEN, Attempt, Operation
from settled.activities.ledger import Ledger
from settled.activities.protocol import LOST_PERMITS, Around, Claim, Epoch
from settled.activities.toolkit import Absent
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.books import OTHER, Clock, holds, note, reach, report, rows_of
from tests.protocol.stories import DEDUPES, KEY, PROMISE, SECONDS, Story, ended, found, order, subject, told

S, E = OperationState, Event
EPOCH = Epoch(number=1, since=500.0, opened_at=900.0)
LOST = Around(epoch=EPOCH)


def asks(step: str, story: Story, at: float, ask: Claim, around: Around = LOST) -> Event | None:
    """One of the three ways of asking about an order, while an epoch is open."""
    if step == "claim":
        return story.write(protocol.claim(story.operation, ask, at, around), at)
    if step == "miss":
        return story.write(protocol.miss(story.operation, ask, at, around), at)
    return story.write(protocol.withdraw(story.operation, ask, at, around, others_wait=False), at)


every_way = pytest.mark.parametrize("step", ["claim", "miss", "withdraw"])


# --- First claims ---


@every_way
@pytest.mark.parametrize("before", [None, S.REJECTED, S.NOT_EXECUTED, S.UNDONE])
def test_in_an_epoch_what_would_open_a_generation_is_looked_up_first(step: str, before: OperationState | None) -> None:
    """A withdrawal, too: to close a generation that may have had an effect would open the way for a second one."""
    story, generation = (told(before), 2) if before else (Story(), 1)
    assert asks(step, story, 950.0, order(generation)) is E.MISSED
    assert (story.state, story.now.generation) == (S.UNKNOWN, generation)
    assert story.look(951.0, found(generation)) is E.FOUND


@every_way
def test_what_was_in_the_ledgers_own_database_was_lost_with_it_and_needs_no_lookup(step: str) -> None:
    story = Story()
    event = asks(step, story, 950.0, replace(order(), own_store=True))
    assert event is {"claim": E.CLAIMED, "miss": E.MISSED, "withdraw": E.WITHDRAWN}[step]
    assert len(story.now.attempts) == (step == "claim"), "nothing is out that nobody sees"


def test_what_another_task_waits_for_is_left_to_it_in_an_epoch_too() -> None:
    assert protocol.withdraw(None, order(), 950.0, LOST, others_wait=True) is None


# --- The attempt that nobody sees ---


def test_the_attempt_that_may_be_out_was_claimed_in_the_lost_time() -> None:
    """At the earliest when the copy was made, at the latest when workers began to use it."""
    story = Story()
    asks("claim", story, 5_000.0, order())
    assert story.now.attempts == (Attempt(permit=UNSEEN, claimed_at=500.0, deadline=900.0 + SECONDS),)
    assert story.now.view().sends == 1


def test_a_lookup_proves_absence_once_the_unseen_attempt_can_land_no_more() -> None:
    story = Story()
    asks("claim", story, 950.0, order())
    assert settling.final_from(story.now, PROMISE) == 900.0 + SECONDS + 100.0
    assert story.look(1_010.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(1_010.1, Absent()) is E.ABSENT_RESEND
    assert story.claim(1_011.0, permit=2) is None, "it may be the one that was lost"
    assert story.claim(1_011.0, permit=LOST_PERMITS + 2) is E.CLAIMED


def test_an_epoch_long_past_makes_nobody_wait() -> None:
    story = Story()
    asks("claim", story, 5_000.0, order())
    assert story.look(5_000.0, Absent()) is E.ABSENT_RESEND


@pytest.mark.parametrize(("asked_at", "event"), [(1_490.0, E.ABSENT_RESEND), (1_490.1, E.ABSENT_SO_FAR)])
def test_the_dedupe_window_counts_from_the_beginning_of_the_lost_time(asked_at: float, event: Event) -> None:
    """500 + 1000 s, less the budget of the new attempt."""
    story = Story(promise=DEDUPES)
    asks("claim", story, 950.0, order())
    assert story.look(asked_at, Absent()) is event
    if event is E.ABSENT_RESEND:
        assert story.now.permit_until == 1_500.0


def test_a_success_after_the_unseen_attempt_was_shown_absent_is_no_alarm() -> None:
    story = Story()
    asks("claim", story, 950.0, order())
    story.look(1_010.1, Absent())
    story.claim(1_011.0, permit=LOST_PERMITS + 2)
    story.report(1_012.0, E.SUCCEEDED, permit=LOST_PERMITS + 2)
    assert (story.state, story.now.alarms) == (S.COMPLETED, 0)


# --- Permits from before the loss ---


def test_a_permit_from_before_the_loss_may_have_been_spent_in_it() -> None:
    """It is void, and the attempt that may have spent it is waited for like any other."""
    story = told(S.RESENDABLE)
    assert asks("claim", story, 950.0, order(permit=2)) is E.WITHDRAWN
    assert (story.state, story.now.attempts[-1].deadline) == (S.UNKNOWN, 900.0 + SECONDS)
    assert story.look(1_010.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(1_010.1, Absent()) is E.ABSENT_RESEND
    assert asks("claim", story, 1_011.0, order(permit=3)) is E.CLAIMED


def test_a_permit_from_before_the_loss_that_is_withdrawn_may_have_been_spent_as_well() -> None:
    story = told(S.RESENDABLE)
    assert asks("withdraw", story, 950.0, order()) is E.WITHDRAWN
    assert len(story.now.out) == 2


def test_a_permit_that_was_issued_after_the_loss_is_good() -> None:
    story = told(S.RESENDABLE)
    early = Around(epoch=replace(EPOCH, since=50.0, opened_at=story.now.changed_at - 1.0))
    assert asks("claim", story, 950.0, order(permit=2), early) is E.CLAIMED


# --- Orders from the lost time ---

LOST_ORDERS = [
    pytest.param(None, order(), id="known, and no row"),
    pytest.param(None, order(permit=2), id="a later permit, and no row"),
    pytest.param(S.REJECTED, order(generation=2), id="known, and only an earlier generation"),
    pytest.param(S.REJECTED, order(generation=2, permit=2), id="a later permit, and only an earlier generation"),
    pytest.param(S.REJECTED, order(generation=3), id="known, and a generation too far ahead"),
]


@every_way
@pytest.mark.parametrize(("before", "ask"), LOST_ORDERS)
def test_without_an_epoch_an_order_that_was_seen_in_the_ledger_is_looked_up_too(
    step: str, before: OperationState | None, ask: Claim
) -> None:
    story = told(before) if before else Story()
    known = ask if ask.permit > 1 else replace(ask, known=True)
    assert asks(step, story, 950.0, known, Around()) is E.MISSED
    assert story.now.attempts == (Attempt(permit=UNSEEN, claimed_at=0.0, deadline=950.0 + SECONDS),)
    assert story.now.generation == ask.generation


def test_a_lost_order_is_withdrawn_by_looking_it_up_though_another_task_waits() -> None:
    entry = protocol.withdraw(None, replace(order(), known=True), 950.0, others_wait=True)
    assert entry is not None
    assert entry.event is E.MISSED


def test_an_unknown_order_of_a_generation_too_far_ahead_is_given_up_without_a_row() -> None:
    """Its task has never sent it."""
    assert protocol.withdraw(None, order(generation=2), 950.0, others_wait=False) is None


@pytest.mark.parametrize("before", [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED])
def test_what_stands_in_the_ledger_is_not_lost(before: OperationState) -> None:
    for ask in (replace(order(), known=True), order(generation=2), order(permit=2)):
        assert not protocol.lost(told(before).operation, ask)


def test_of_a_lost_past_without_an_epoch_the_dedupe_window_is_over() -> None:
    """Nobody knows when it began."""
    story = Story(promise=DEDUPES)
    asks("claim", story, 5_000.0, replace(order(), known=True), Around())
    assert story.look(5_001.0, Absent()) is E.ABSENT_SO_FAR


# --- In the ledger ---


async def open_epoch(books: Ledger) -> Epochs:
    epochs = Epochs(books.database)
    await epochs.open("ann", "restored from last night's copy")
    return epochs


async def test_an_epoch_begins_with_the_last_row_that_the_copy_has(books: Ledger, clock: Clock) -> None:
    await reach(books, S.COMPLETED)
    clock.at = 1_500.0
    epochs = Epochs(books.database)
    opened = await epochs.open("ann", "restored")
    assert opened == Opened(epoch=Epoch(number=1, since=1_000.0, opened_at=1_500.0))
    (row,) = await rows_of(books.database, select(schema.epochs))
    assert (row.opened_by, row.because, row.closed_at) == ("ann", "restored", None)


async def test_the_epoch_of_an_empty_ledger_begins_with_time_itself(books: Ledger) -> None:
    assert (await Epochs(books.database).open("ann", "restored")).epoch.since == 0.0


async def test_a_ledger_that_is_restored_again_has_lost_what_either_time_has_lost(books: Ledger, clock: Clock) -> None:
    epochs = Epochs(books.database)
    assert await epochs.close("ann") is None
    first = await epochs.open("ann", "restored")
    clock.at += 100
    second = await epochs.open("ben", "restored, I think")
    assert (second.epoch.number, second.before) == (2, first.epoch)
    assert (second.epoch.since, second.epoch.opened_at) == (first.epoch.since, 1_100.0)
    assert await epochs.close("ben") == second.epoch
    assert await epochs.close("ben") is None
    assert (await epochs.open("ann", "restored again")).epoch.number == 3
    rows = await rows_of(books.database, select(schema.epochs).order_by(schema.epochs.c.number))
    assert [(row.opened_by, row.closed_by, row.closed_at) for row in rows] == [
        ("ann", "ben", 1_100.0),
        ("ben", "ben", 1_100.0),
        ("ann", None, None),
    ]


@every_way
async def test_the_ledger_looks_for_an_open_epoch_whenever_a_generation_would_be_opened(
    books: Ledger, step: str
) -> None:
    async def ask(at: str) -> Any:
        free = order(about=subject(resources=()))
        if step == "withdraw":
            return await books.withdraw(at, free, others_wait=False)
        return await (books.claim(at, free) if step == "claim" else books.miss(at, free))

    epochs = await open_epoch(books)
    amended = await ask(KEY)
    assert (amended.entry.event, len(amended.operation.out)) == (E.MISSED, 1)
    await epochs.close("ann")
    amended = await ask(OTHER)
    assert amended.entry.event is {"claim": E.CLAIMED, "miss": E.MISSED, "withdraw": E.WITHDRAWN}[step]
    assert len(amended.operation.out) == (step == "claim")


async def test_an_unseen_attempt_survives_the_way_through_the_store(books: Ledger) -> None:
    await open_epoch(books)
    amended = await books.claim(KEY, order())
    assert amended.operation == await books.read(KEY)
    assert isinstance(amended.operation, Operation)
    assert [attempt.permit for attempt in amended.operation.out] == [UNSEEN]


async def test_what_may_have_been_sent_in_the_lost_time_holds_its_resource_where_that_is_free(books: Ledger) -> None:
    """Two that may both have been sent can't both hold it; but neither is sent again while the other is unsettled."""
    await open_epoch(books)
    for at in (KEY, OTHER):
        await books.claim(at, order())
        await note(books, E.ABSENT_RESEND, at=at, permit=LOST_PERMITS + 2, until=None, proven=True)
    assert set((await holds(books.database)).values()) == {KEY}
    await Epochs(books.database).close("ann")
    assert (await books.claim(OTHER, order(permit=LOST_PERMITS + 2))).blocked_by == KEY
    await report(books, E.SUCCEEDED)
    assert (await books.claim(OTHER, order(permit=LOST_PERMITS + 2))).entry is not None


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN])
async def test_what_was_not_settled_in_the_copy_may_have_been_sent_again_since(
    books: Ledger, clock: Clock, state: OperationState
) -> None:
    """An attempt that nobody sees may take as long as those that were seen."""
    await reach(books, state)
    clock.at += 1_000
    await Epochs(books.database).open("ann", "restored")
    operation = await books.read(KEY)
    assert operation is not None
    assert operation.state is (S.NEEDS_HUMAN if state is S.NEEDS_HUMAN else S.UNKNOWN)
    assert operation.out[-1] == Attempt(permit=UNSEEN, claimed_at=1_000.0, deadline=2_000.0 + SECONDS)
    assert settling.final_from(operation, PROMISE) == 2_100.0 + SECONDS
    (current,) = await rows_of(books.database, select(schema.operations.c.state, schema.operations.c.seq))
    assert tuple(current) == (operation.state, operation.seq)
    assert [(await books.claim(KEY, order(permit=permit))).entry for permit in (1, 2, 3)] == [None] * 3
    assert KEY in (await holds(books.database)).values()


@pytest.mark.parametrize("state", [S.COMPLETED, S.REJECTED, S.NOT_EXECUTED])
async def test_what_was_settled_in_the_copy_stays_as_it_is(books: Ledger, state: OperationState) -> None:
    await reach(books, state)
    before = await books.journal(KEY)
    await open_epoch(books)
    assert await books.journal(KEY) == before


def test_the_no_of_a_lost_attempt_speaks_for_no_other_one() -> None:
    """The second permit was lost with the first: its attempt is declined, and the first one may still land."""
    story = Story(promise=DEDUPES)
    asks("claim", story, 950.0, order())
    assert story.write(protocol.report(story.operation, ended(E.DECLINED, permit=2), 951.0), 951.0) is E.LATE_NO
    assert (story.state, len(story.now.out)) == (S.UNKNOWN, 1)


def test_an_answer_of_an_attempt_whose_generation_is_lost_writes_nothing() -> None:
    assert protocol.report(None, ended(E.SUCCEEDED), 1.0) is None
    for event in (E.SUCCEEDED, E.DECLINED):
        assert protocol.report(told(S.REJECTED).operation, ended(event, generation=2), 1.0) is None


async def test_what_was_open_in_the_copy_goes_on_as_it_stands(books: Ledger, clock: Clock) -> None:
    await reach(books, S.UNKNOWN)
    clock.at += 100
    await open_epoch(books)
    await report(books, E.SUCCEEDED)
    operation = await books.read(KEY)
    assert operation is not None
    assert operation.state is S.COMPLETED
