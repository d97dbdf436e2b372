"""A person's word on an operation: where it counts, once, and what it does not change."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from settled.activities import protocol
from settled.activities.database import Database
from settled.activities.ledger import Ledger
from settled.activities.resolving import ResolvingActivities, why_not
from settled.activities.standing import stand
from settled.activities.stores import Stores
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import (
    Evidence,
    OperationState,
    Resolution,
    Resolve,
    ResolveAnswer,
    Resolved,
)
from settled.workflows.states import Event
from tests.protocol.books import AFTER_A_CLAIM, OTHER, holds, note, reach, report
from tests.protocol.stories import KEY, order, subject, told
from tests.protocol.test_standing import ordered, shown
from tests.protocol.test_undo import state_of, undo_is_out

S, E = OperationState, Event
WORD = Resolution(outcome=Resolved.NOT_EXECUTED, because="the bank has no such payment", who="ann")
DONE = WORD.model_copy(update={"outcome": Resolved.COMPLETED})
Say = Callable[..., Awaitable[ResolveAnswer]]

# --- The decision ---


@pytest.mark.parametrize(
    ("event", "state"), [(E.RESOLVED_COMPLETED, S.COMPLETED), (E.RESOLVED_NOT_EXECUTED, S.NOT_EXECUTED)]
)
def test_where_a_person_was_asked_the_word_settles_it(event: Event, state: OperationState) -> None:
    story = told(S.NEEDS_HUMAN)
    assert story.resolve(3.0, event, who="ann") is event
    assert (story.state, story.now.evidence, story.now.result) == (state, Evidence.PERSON, {"who": "ann"})


@pytest.mark.parametrize("state", [state for state in AFTER_A_CLAIM if state is not S.NEEDS_HUMAN])
@pytest.mark.parametrize("event", [E.RESOLVED_COMPLETED, E.RESOLVED_NOT_EXECUTED])
def test_where_nobody_was_asked_a_word_changes_nothing(state: OperationState, event: Event) -> None:
    story = told(state)
    assert story.resolve(900.0, event) is None
    assert story.state is state


@pytest.mark.parametrize(("generation", "counts"), [(1, True), (2, False), (None, True)])
def test_a_word_on_another_generation_than_the_one_that_is_asked_about_changes_nothing(
    generation: int | None, counts: bool
) -> None:
    """It was looked up a while ago, or by somebody else; by now another one may need a person."""
    operation = told(S.NEEDS_HUMAN).now
    assert (protocol.resolve(operation, E.RESOLVED_COMPLETED, {}, generation) is not None) is counts


def test_of_an_undo_nobody_can_say_that_it_was_undone() -> None:
    """What it took back would stand again then, and the ledger would have it done once more."""
    undoing = told(S.COMPLETED).now
    undoing = replace(undoing, subject=subject(undoes_key=OTHER, undoes_generation=1))
    assert protocol.resolve(undoing, E.UNDONE, {}) is None
    word = WORD.model_copy(update={"outcome": Resolved.UNDONE})
    assert "takes another one back" in why_not(undoing, word)


def test_after_a_word_that_it_did_not_happen_the_next_generation_may_be_opened() -> None:
    story = told(S.NEEDS_HUMAN)
    story.resolve(3.0, E.RESOLVED_NOT_EXECUTED)
    assert story.claim(4.0, generation=1, permit=2) is None
    assert story.claim(4.0, generation=2) is E.CLAIMED


def test_a_success_after_a_word_that_it_did_not_happen_is_a_fact_and_an_alarm() -> None:
    story = told(S.NEEDS_HUMAN)
    story.resolve(3.0, E.RESOLVED_NOT_EXECUTED)
    assert story.report(4.0, E.SUCCEEDED) is E.SUCCEEDED
    assert (story.state, story.now.alarms) == (S.COMPLETED, 1)


def test_a_success_after_a_word_that_it_happened_is_no_alarm() -> None:
    story = told(S.NEEDS_HUMAN)
    story.resolve(3.0, E.RESOLVED_COMPLETED)
    assert story.report(4.0, E.SUCCEEDED) is E.SUCCEEDED
    assert (story.state, story.now.alarms) == (S.COMPLETED, 0)


def test_the_model_is_told_who_said_that_it_did_not_happen_and_why() -> None:
    story = told(S.NEEDS_HUMAN)
    story.resolve(3.0, E.RESOLVED_NOT_EXECUTED, who="ann", because="I asked them")
    stands = stand(story.operation, ordered())
    assert stands.error is ErrorKind.NOT_EXECUTED
    assert "I asked them (ann)" in shown(stands)["message"]


# --- The activity ---


@pytest.fixture
def stores(database: Database) -> Stores:
    return Stores.over(database)


@pytest.fixture
def say(stores: Stores, temporal: Client) -> Say:
    """Say a person's word, as the settlement's update does."""
    resolve = ResolvingActivities(stores).resolve

    async def heard(word: Resolution, update: str = "u-1", at: str = KEY) -> ResolveAnswer:
        asked = Resolve(key=at, resolution=word, update=update)
        answer: ResolveAnswer = await ActivityEnvironment(client=temporal).run(resolve, asked)
        return answer

    return heard


async def test_a_word_is_a_row_with_who_and_why(say: Say, books: Ledger) -> None:
    await reach(books, S.NEEDS_HUMAN)
    answer = await say(WORD)
    assert answer.view is not None
    assert (answer.refused, answer.view.state, answer.view.evidence) == ("", S.NOT_EXECUTED, Evidence.PERSON)
    row = (await books.journal(KEY))[-1]
    assert row.event is E.RESOLVED_NOT_EXECUTED
    assert row.body == {"who": "ann", "because": "the bank has no such payment", "update": "u-1"}
    assert await holds(books.database) == {}


async def test_what_a_person_says_was_done_has_a_result_that_says_so(say: Say, books: Ledger, stores: Stores) -> None:
    await reach(books, S.NEEDS_HUMAN)
    await say(DONE)
    operation = await books.read(KEY)
    assert operation is not None
    assert operation.result is not None
    text = (await stores.artifacts.get(operation.result["result"])).decode()
    assert "ann, a person" in text
    assert "the bank has no such payment" in text


@pytest.mark.parametrize("state", [state for state in AFTER_A_CLAIM if state is not S.NEEDS_HUMAN])
async def test_a_word_that_nobody_asked_for_is_refused_and_says_why(
    say: Say, books: Ledger, state: OperationState
) -> None:
    await reach(books, state)
    before = await books.journal(KEY)
    answer = await say(DONE)
    assert answer.refused.startswith(f"operation {KEY[:12]} is {state}")
    *rows, last = await books.journal(KEY)
    assert rows == before
    assert (last.event, last.state, last.body["who"]) == (E.WORD_REFUSED, state, "ann")


async def test_a_word_on_nothing_is_refused(say: Say) -> None:
    assert "no such operation" in (await say(WORD)).refused


async def test_two_people_are_not_both_right_and_the_second_is_told_who_was_first(say: Say, books: Ledger) -> None:
    await reach(books, S.NEEDS_HUMAN)
    await say(WORD, "u-1")
    answer = await say(DONE, "u-2")
    assert answer.refused.endswith("is not_executed already, says ann")
    assert await state_of(books) is S.NOT_EXECUTED


async def test_a_word_that_is_heard_twice_counts_once(say: Say, books: Ledger) -> None:
    """Its activity is tried again after a lost completion: the answer is that it counts, not that it came too late."""
    await reach(books, S.NEEDS_HUMAN)
    first, second = await say(WORD), await say(WORD)
    assert (second.refused, second.view) == ("", first.view)
    assert [row.event for row in await books.journal(KEY)][-2:] == [E.HANDED_TO_PERSON, E.RESOLVED_NOT_EXECUTED]


async def test_a_word_that_a_reset_settlement_hears_again_says_nothing_of_the_next_generation(
    say: Say, books: Ledger
) -> None:
    await reach(books, S.NEEDS_HUMAN)
    await say(WORD)
    await books.claim(KEY, order(generation=2))
    await report(books, E.UNCLEAR, generation=2)
    await note(books, E.HANDED_TO_PERSON, generation=2)
    answer = await say(WORD)
    assert answer.view is not None
    assert (answer.view.state, answer.view.generation) == (S.NEEDS_HUMAN, 2)
    assert (await say(WORD, "u-2")).refused == ""
    assert await state_of(books) is S.NOT_EXECUTED


async def test_a_person_who_says_that_an_undo_was_done_says_that_its_target_is_undone(say: Say, books: Ledger) -> None:
    await undo_is_out(books)
    await report(books, E.UNCLEAR, at=OTHER)
    await note(books, E.HANDED_TO_PERSON, at=OTHER)
    await say(DONE, at=OTHER)
    assert (await state_of(books), await state_of(books, OTHER)) == (S.UNDONE, S.COMPLETED)


async def test_a_word_that_was_refused_stays_refused_when_it_is_heard_again(books: Ledger, say: Say) -> None:
    """A settlement that is reset hears it again, and by then a person is asked: that is not what it was said of."""
    await reach(books, S.UNKNOWN)
    first = await say(WORD, update="u1")
    assert first.refused
    await note(books, E.HANDED_TO_PERSON)
    again = await say(WORD, update="u1")
    assert again.refused == first.refused
    assert await state_of(books, KEY) is S.NEEDS_HUMAN
    assert (await say(WORD, update="u2")).refused == ""


async def test_an_update_that_counted_for_an_earlier_generation_is_refused_and_not_answered_with_a_yes(
    books: Ledger, say: Say
) -> None:
    """Two words under one id, a ticket's number say: the second one would be lost without a word."""
    await reach(books, S.NEEDS_HUMAN)
    assert (await say(WORD, update="ticket-77")).refused == ""
    await books.claim(KEY, order(2))
    await report(books, E.UNCLEAR, generation=2)
    await note(books, E.HANDED_TO_PERSON, generation=2)
    assert "heard for generation 1" in (await say(WORD, update="ticket-77")).refused
