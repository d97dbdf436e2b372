"""Undo: an operation that takes another one back. What was taken back may be done again, and taken back again."""

from dataclasses import replace

import pytest

from settled.activities import protocol, settling
from settled.activities.journal import Operation
from settled.activities.ledger import Ledger
from settled.activities.ledger_rows import WaitsFor
from settled.activities.protocol import Around, Blocked, Refused
from settled.activities.settling import Move
from settled.activities.standing import stand
from settled.activities.toolkit import Absent
from settled.activities.waking import WORTH_WAKING
from settled.workflows.contract.operation import Evidence, OperationState, Standing
from settled.workflows.states import Event
from tests.protocol.books import OTHER, Clock, holds, note, reach, report
from tests.protocol.stories import KEY, PROMISE, Story, order, subject, told
from tests.protocol.test_standing import ordered, shown

S, E = OperationState, Event
CLOSED = [S.REJECTED, S.NOT_EXECUTED, S.UNDONE]
UNSETTLED = [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN]
UNDO = subject("u1", undoes_key=KEY, undoes_generation=1)


def in_the_way(target: Operation | None, undoing: Operation | None = None, permit: int = 1) -> object:
    """What stands in the way of an undo of this target."""
    return protocol.obstacle(undoing, order(permit=permit, about=UNDO), Around(target=target))


# --- The claim ---


def test_what_was_done_may_be_undone() -> None:
    assert in_the_way(told(S.COMPLETED).operation) is None


@pytest.mark.parametrize("state", CLOSED)
def test_what_is_not_done_or_undone_already_is_not_undone(state: OperationState) -> None:
    obstacle = in_the_way(told(state).operation)
    assert isinstance(obstacle, Refused)
    assert "nothing to undo" in obstacle.text


def test_what_was_never_proposed_is_not_undone() -> None:
    assert isinstance(in_the_way(None), Refused)


@pytest.mark.parametrize("generation", [2, 3])
def test_another_generation_than_the_one_that_was_meant_is_not_undone(generation: int) -> None:
    target = replace(told(S.COMPLETED).now, generation=generation)
    assert isinstance(in_the_way(target), Refused)


@pytest.mark.parametrize("state", UNSETTLED)
def test_an_undo_waits_until_it_is_known_whether_there_is_something_to_undo(state: OperationState) -> None:
    assert in_the_way(told(state).operation) == Blocked(KEY)


def test_what_undoes_nothing_is_in_nobodys_way() -> None:
    assert protocol.obstacle(None, order(), Around(target=None)) is None


def resendable_undo() -> Operation:
    """An undo whose dispatch left no trace, and that may be sent by now."""
    story = Story()
    story.miss(0.0)
    story.look(1.0, Absent())
    assert story.state is S.RESENDABLE
    return replace(story.now, key=OTHER, subject=UNDO)


@pytest.mark.parametrize("state", CLOSED)
def test_an_undo_that_was_missed_is_not_sent_either_where_there_is_nothing_to_undo(state: OperationState) -> None:
    assert isinstance(in_the_way(told(state).operation, resendable_undo(), permit=2), Refused)
    assert in_the_way(told(S.COMPLETED).operation, resendable_undo(), permit=2) is None


def test_a_claim_that_spends_nothing_is_answered_with_what_stands() -> None:
    """Its undo is done: that its target is undone by now is no reason to say that there is nothing to undo."""
    undoing = replace(told(S.COMPLETED).now, key=OTHER, subject=UNDO)
    assert in_the_way(told(S.UNDONE).operation, undoing) is None


# --- What an undo changes ---


def test_a_completed_undo_is_noted_in_its_targets_journal() -> None:
    story = told(S.COMPLETED)
    assert story.undo(2.0) is E.UNDONE
    assert (story.state, story.now.evidence) == (S.UNDONE, Evidence.UNDO)
    assert story.rows[-1].body["generation_of_by"] == 1
    assert story.now.result == {"result": "r1"}, "the result that it had stays"


@pytest.mark.parametrize("state", [state for state in S if state not in (S.NONE, S.COMPLETED)])
def test_only_what_was_done_is_marked(state: OperationState) -> None:
    assert told(state).undo(900.0) is None


def test_another_generation_of_the_target_is_not_marked() -> None:
    undoing = replace(told(S.COMPLETED).now, key=OTHER, subject=replace(UNDO, undoes_generation=2))
    assert protocol.undone(told(S.COMPLETED).operation, undoing) is None
    assert protocol.undone(None, undoing) is None


def test_what_was_undone_may_be_done_again() -> None:
    story = told(S.UNDONE)
    assert protocol.next_generation(story.operation) == 2
    assert story.claim(10.0, generation=1) is None
    assert story.claim(10.0, generation=2) is E.CLAIMED


def test_a_late_success_of_what_was_undone_is_no_news_and_no_alarm() -> None:
    story = told(S.UNDONE)
    assert story.report(10.0, E.SUCCEEDED, result="late") is E.SUCCEEDED
    assert (story.state, story.now.alarms, story.now.result) == (S.UNDONE, 0, {"result": "r1"})


def test_that_it_was_done_and_undone_is_not_forgotten_when_it_is_done_again() -> None:
    """A late success of the first one is no alarm then, and its task isn't told that it was never executed."""
    story = told(S.UNDONE)
    story.claim(10.0, generation=2)
    assert story.report(11.0, E.SUCCEEDED) is E.SUCCEEDED
    assert (story.state, story.now.generation, story.now.alarms) == (S.DISPATCHED, 2, 0)
    stands = stand(story.operation, ordered(generation=1))
    assert (stands.standing, stands.error, stands.undone) == (Standing.SETTLED, None, True)
    assert shown(stands)["status"] == "completed"


def test_nothing_is_left_to_find_out_about_what_was_undone() -> None:
    assert settling.next_move(told(S.UNDONE).now, PROMISE, 900.0, waiting=True) is Move.DONE


def test_whoever_waits_for_a_result_is_told_in_every_state_that_has_one() -> None:
    assert {state for state in S if state.settled} <= WORTH_WAKING


# --- In the ledger ---


async def undo_is_out(books: Ledger) -> None:
    """What was done is being undone."""
    await reach(books, S.COMPLETED)
    assert (await books.claim(OTHER, order(about=UNDO))).entry is not None


async def state_of(books: Ledger, at: str = KEY) -> OperationState:
    operation = await books.read(at)
    assert operation is not None
    return operation.state


@pytest.mark.parametrize("state", [None, *CLOSED])
async def test_a_refused_undo_leaves_nothing(books: Ledger, state: OperationState | None) -> None:
    if state:
        await reach(books, state)
    amended = await books.claim(OTHER, order(about=UNDO))
    assert (amended.entry, amended.blocked_by, "nothing to undo" in amended.refused) == (None, None, True)
    assert await books.journal(OTHER) == []


async def test_an_undo_that_waits_is_told_when_its_target_is_settled(books: Ledger) -> None:
    """It waits for another operation, as for one that holds a resource, and doesn't own it."""
    free = replace(UNDO, resources=())
    await reach(books, S.UNKNOWN)
    amended = await books.claim(OTHER, order(about=free, task="task-b"))
    assert (amended.entry, amended.blocked_by) == (None, KEY)
    assert [(one.task, one.waits_for) for one in await books.waiters(KEY)] == [("task-b", WaitsFor.RESOURCE)]
    assert await books.of_task("task-b") == []
    await note(books, E.FOUND)
    assert (await books.claim(OTHER, order(about=free, task="task-b"))).entry is not None


@pytest.mark.parametrize("how", ["answered", "found", "late", "by a person"])
async def test_an_undo_that_is_done_marks_its_target_however_that_becomes_known(books: Ledger, how: str) -> None:
    await undo_is_out(books)
    match how:
        case "found":
            await report(books, E.UNCLEAR, at=OTHER)
            assert await state_of(books) is S.COMPLETED
            await note(books, E.FOUND, at=OTHER)
        case "late":
            await report(books, E.UNCLEAR, at=OTHER)
            await note(books, E.ABSENT_FINAL, at=OTHER)
            assert await state_of(books) is S.COMPLETED
            await report(books, E.SUCCEEDED, at=OTHER)
        case "by a person":
            await report(books, E.UNCLEAR, at=OTHER)
            await note(books, E.HANDED_TO_PERSON, at=OTHER)
            await note(books, E.RESOLVED_COMPLETED, at=OTHER)
        case _:
            await report(books, E.SUCCEEDED, at=OTHER)
    assert await state_of(books) is S.UNDONE
    assert (await books.journal(KEY))[-1].body == {"by": OTHER, "generation_of_by": 1}


@pytest.mark.parametrize("event", [E.DECLINED, E.NOT_SENT, E.UNCLEAR])
async def test_an_undo_that_is_not_done_changes_nothing(books: Ledger, event: Event) -> None:
    await undo_is_out(books)
    await report(books, event, at=OTHER)
    assert await state_of(books) is S.COMPLETED


async def test_an_undo_and_its_mark_are_kept_together_or_not_at_all(books: Ledger, clock: Clock) -> None:
    """Whoever dies in between leaves neither: here the clock dies that the mark asks for the time."""
    await undo_is_out(books)
    clock.breaks_after = 1
    with pytest.raises(ZeroDivisionError):
        await report(books, E.SUCCEEDED, at=OTHER)
    clock.breaks_after = None
    assert (await state_of(books), await state_of(books, OTHER)) == (S.COMPLETED, S.DISPATCHED)


async def test_a_target_is_marked_once_whatever_else_its_undo_is_told(books: Ledger) -> None:
    await undo_is_out(books)
    await report(books, E.SUCCEEDED, at=OTHER)
    await report(books, E.SUCCEEDED, at=OTHER)
    assert [row.event for row in await books.journal(KEY)] == [E.CLAIMED, E.SUCCEEDED, E.UNDONE]


async def test_a_late_success_of_the_target_leaves_it_undone_and_frees_nothing_twice(books: Ledger) -> None:
    await undo_is_out(books)
    await report(books, E.SUCCEEDED, at=OTHER)
    await report(books, E.SUCCEEDED)
    assert await state_of(books) is S.UNDONE
    assert await holds(books.database) == {}


async def test_done_undone_done_and_undone_again_are_four_operations_generations(books: Ledger) -> None:
    third = "ef" * 32
    await undo_is_out(books)
    await report(books, E.SUCCEEDED, at=OTHER)
    assert (await books.claim(KEY, order(generation=2))).entry is not None
    await report(books, E.SUCCEEDED, generation=2)
    again = order(about=replace(UNDO, undoes_generation=2))
    assert (await books.claim(third, again)).entry is not None
    await report(books, E.SUCCEEDED, at=third)
    now = await books.read(KEY)
    assert now is not None
    assert (now.state, now.generation) == (S.UNDONE, 2)
    assert [row.state for row in await books.journal(KEY) if row.event is E.UNDONE] == [S.UNDONE, S.UNDONE]
