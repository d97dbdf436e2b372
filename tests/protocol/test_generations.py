"""Rules 2 and 3: which generation a proposal means, which permit a claim may spend, and what a journal folds to."""

from dataclasses import replace

import pytest

from settled.activities import protocol
from settled.activities.journal import Operation, fold
from settled.activities.toolkit import (
    Absent,
    InFlux,
)
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.errors import IllegalTransition
from settled.workflows.states import Event
from tests.protocol.stories import (
    KEY,
    PROMISE,
    Story,
    found,
    order,
    sent,
    subject,
    told,
)

S, E = OperationState, Event
AFTER_A_CLAIM = [state for state in S if state is not S.NONE]
OPEN_OR_DONE = [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED]
CLOSED = [S.REJECTED, S.NOT_EXECUTED, S.UNDONE]


# --- Generations and fingerprints ---


def test_rule_2_the_first_proposal_means_the_first_generation() -> None:
    assert protocol.next_generation(None) == 1


@pytest.mark.parametrize("state", OPEN_OR_DONE)
def test_rule_2_a_proposal_means_the_open_or_completed_generation(state: OperationState) -> None:
    assert protocol.next_generation(told(state).operation) == 1


@pytest.mark.parametrize("state", CLOSED)
def test_rule_2_after_a_closed_generation_a_proposal_means_the_next(state: OperationState) -> None:
    assert protocol.next_generation(told(state).operation) == 2


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
def test_rule_2_another_request_is_a_conflict_unless_the_generation_is_closed(state: OperationState) -> None:
    operation = told(state).operation
    assert protocol.conflicts(operation, 1, "f2") is (state not in CLOSED)
    assert not protocol.conflicts(operation, 1, "f1")
    assert not protocol.conflicts(operation, 2, "f2")


def test_rule_2_where_nothing_is_nothing_conflicts() -> None:
    assert not protocol.conflicts(None, 1, "f1")


def test_r65_another_request_cannot_spend_the_next_permit() -> None:
    story = told(S.RESENDABLE)
    assert story.claim(111.0, permit=2, about=subject("f2")) is None
    assert story.claim(111.0, permit=2) is E.CLAIMED


@pytest.mark.parametrize("state", CLOSED)
def test_r65_the_next_generation_may_carry_another_request(state: OperationState) -> None:
    story = told(state)
    assert story.claim(200.0, generation=2, about=subject("f2"), task="task-b") is E.CLAIMED
    now = story.now
    assert (now.generation, now.permit, now.subject.fingerprint, now.claimed_by) == (2, 1, "f2", "task-b")
    assert (now.opened_at, now.result, len(now.attempts)) == (200.0, None, 1)


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
def test_b53_the_fingerprint_stands_whatever_happens(state: OperationState) -> None:
    assert told(state).now.subject.fingerprint == "f1"


# --- Permits ---


def test_rule_3_a_claim_says_until_when_it_sends_by_the_stores_clock() -> None:
    entry = protocol.claim(None, order(seconds=10.0), 1_000.0)
    assert entry is not None
    assert (entry.event, entry.generation, entry.permit, entry.task) == (E.CLAIMED, 1, 1, "task-a")
    assert entry.body["deadline"] == 1_010.0
    assert entry.body["subject"]["fingerprint"] == "f1"


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
def test_rule_3_a_permit_that_was_spent_or_voided_is_refused(state: OperationState) -> None:
    assert told(state).claim(500.0, permit=1) is None


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
@pytest.mark.parametrize("permit", [2, 3])
def test_rule_3_a_permit_that_was_not_issued_is_refused(state: OperationState, permit: int) -> None:
    if (state, permit) != (S.RESENDABLE, 2):
        assert told(state).claim(500.0, permit=permit) is None


def test_rule_3_the_next_permit_is_good_once() -> None:
    story = told(S.RESENDABLE)
    assert story.claim(111.0, permit=2) is E.CLAIMED
    assert story.claim(111.0, permit=2) is None
    assert [attempt.permit for attempt in story.now.attempts] == [1, 2]


def test_rule_3_a_permit_is_one_of_its_generation() -> None:
    story = told(S.NOT_EXECUTED)
    story.claim(1.0, generation=2)
    story.report(2.0, E.UNCLEAR, generation=2)
    story.look(112.0, Absent())
    assert (story.state, story.now.permit) == (S.RESENDABLE, 2)
    assert [story.claim(113.0, generation=generation, permit=2) for generation in (1, 3)] == [None, None]
    assert story.claim(113.0, generation=2, permit=2) is E.CLAIMED


@pytest.mark.parametrize("state", OPEN_OR_DONE)
def test_rule_3_no_generation_opens_before_the_last_one_is_closed(state: OperationState) -> None:
    assert told(state).claim(500.0, generation=2) is None


def test_rule_3_a_frozen_dispatch_of_a_closed_generation_is_refused() -> None:
    story = told(S.NOT_EXECUTED)
    assert story.claim(1.0, generation=1) is None
    assert story.claim(1.0, generation=2) is E.CLAIMED
    assert story.claim(2.0, generation=1) is None
    assert story.now.generation == 2


def test_rule_3_a_dispatch_that_left_no_trace_is_void() -> None:
    """It was frozen, or still queued, when its task asked what had become of it."""
    story = Story()
    assert story.miss(5.0) is E.MISSED
    assert (story.state, story.now.permit, story.now.attempts) == (S.UNKNOWN, 1, ())
    assert story.claim(6.0) is None
    assert story.look(7.0, Absent()) is E.ABSENT_RESEND
    assert story.claim(8.0, permit=1) is None
    assert story.claim(8.0, permit=2) is E.CLAIMED


def test_rule_3_asking_what_became_of_a_dispatch_that_did_claim_changes_nothing() -> None:
    for state in AFTER_A_CLAIM:
        assert told(state).miss(500.0) is None, state


def test_rule_3_the_next_generations_dispatch_can_be_missed_too() -> None:
    story = told(S.REJECTED)
    assert story.miss(5.0, generation=2) is E.MISSED
    assert (story.state, story.now.generation) == (S.UNKNOWN, 2)
    assert story.claim(6.0, generation=2) is None


def test_rule_3_a_withdrawn_permit_is_void_and_nothing_was_sent() -> None:
    story = Story()
    assert story.withdraw(0.0) is E.WITHDRAWN
    assert (story.state, story.now.view().sends) == (S.NOT_EXECUTED, 0)
    assert story.claim(1.0) is None


def test_rule_3_withdrawing_the_next_permit_leaves_what_was_sent_unknown() -> None:
    story = told(S.RESENDABLE)
    assert story.withdraw(111.0) is E.WITHDRAWN
    assert (story.state, story.rows[-1].permit) == (S.UNKNOWN, 2)
    assert story.claim(112.0, permit=2) is None
    assert story.look(113.0, Absent()) is E.ABSENT_RESEND
    assert (story.now.permit, story.claim(114.0, permit=2), story.claim(114.0, permit=3)) == (3, None, E.CLAIMED)


def test_rule_3_a_permit_that_another_task_waits_for_is_not_withdrawn() -> None:
    story = told(S.RESENDABLE)
    assert story.withdraw(111.0, others_wait=True) is None
    assert story.claim(112.0, permit=2) is E.CLAIMED


@pytest.mark.parametrize("state", [state for state in AFTER_A_CLAIM if state is not S.RESENDABLE])
def test_rule_3_there_is_nothing_to_withdraw_but_an_open_permit(state: OperationState) -> None:
    assert told(state).withdraw(500.0) is None


def test_rule_3_an_older_generation_is_not_withdrawn_from_the_newer() -> None:
    story = told(S.NOT_EXECUTED)
    story.claim(1.0, generation=2)
    story.report(2.0, E.UNCLEAR, generation=2)
    story.look(112.0, Absent())
    assert story.state is S.RESENDABLE
    assert story.withdraw(113.0, generation=1) is None
    assert story.withdraw(113.0, generation=2) is E.WITHDRAWN


# --- A journal that lost its past ---


@pytest.mark.parametrize(
    ("before", "generation", "permit"),
    [
        pytest.param(None, 1, 2, id="a later permit, and no row"),
        pytest.param(None, 2, 1, id="a later generation, and no row"),
        pytest.param(S.REJECTED, 2, 3, id="a later permit of a generation that isn't open"),
        pytest.param(S.NOT_EXECUTED, 3, 1, id="a generation after one that isn't there"),
    ],
)
def test_rule_14_an_order_from_a_lost_past_is_looked_up_and_not_sent(
    before: OperationState | None, generation: int, permit: int
) -> None:
    for ask in ("claim", "miss"):
        story = told(before) if before else Story()
        step = story.claim if ask == "claim" else story.miss
        assert step(900.0, generation=generation, permit=permit) is E.MISSED, ask
        assert (story.state, story.now.generation) == (S.UNKNOWN, generation)
        assert story.now.permit == protocol.LOST_PERMITS + permit, "its own may have been spent"
        assert story.look(901.0, found(generation)) is E.FOUND


def test_rule_14_the_permits_of_a_lost_past_are_void() -> None:
    """What was sent with them may still land: until that is over, no permit is issued."""
    story = Story()
    story.miss(900.0, permit=3)
    assert story.look(1_010.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(1_010.1, Absent()) is E.ABSENT_RESEND
    issued = story.now.permit
    assert issued == protocol.LOST_PERMITS + 4
    assert [story.claim(1_011.0, permit=permit) for permit in (1, 2, 3)] == [None, None, None]
    assert story.claim(1_011.0, permit=issued) is E.CLAIMED


@pytest.mark.parametrize("state", OPEN_OR_DONE)
def test_rule_14_a_proposal_that_a_late_success_overtook_is_no_lost_past(state: OperationState) -> None:
    """It was admitted as the next generation when this one was closed; then this one turned out to be done."""
    story = told(state)
    assert story.claim(900.0, generation=2) is None
    assert story.miss(900.0, generation=2) is None
    assert story.withdraw(900.0, generation=2) is None
    assert story.state is state


# --- The fold ---


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
def test_the_fold_of_all_rows_is_the_operation(state: OperationState) -> None:
    story = told(state)
    assert fold(KEY, story.rows) == story.operation
    assert [row.state for row in story.rows][-1] is state


def test_the_fold_of_no_rows_is_nothing() -> None:
    assert fold(KEY, []) is None


def test_a_journal_that_no_table_could_have_written_is_refused() -> None:
    story = told(S.COMPLETED)
    claimed, succeeded = story.rows
    with pytest.raises(IllegalTransition):
        fold(KEY, [claimed, succeeded, replace(claimed, seq=3, permit=2)])


def test_the_fold_says_when_it_last_changed_and_on_what_that_rests() -> None:
    story = sent(PROMISE)
    story.look(2.0, InFlux())
    assert (story.now.changed_at, story.now.evidence) == (1.0, Evidence.NO_ANSWER)
    story.look(3.0, found())
    assert (story.now.changed_at, story.now.evidence, story.now.opened_at) == (3.0, Evidence.LOOKUP, 0.0)


def test_sends_are_counted_unless_known_not_to_have_been() -> None:
    story = told(S.RESENDABLE)
    assert story.now.view().sends == 1
    story.claim(111.0, permit=2)
    assert story.now.view().sends == 2
    story.report(112.0, E.NOT_SENT, permit=2)
    assert story.now.view().sends == 1


def attempts_of(operation: Operation) -> list[tuple[int, float, float]]:
    return [(attempt.permit, attempt.claimed_at, attempt.deadline) for attempt in operation.attempts]


def test_the_fold_keeps_each_attempts_own_times() -> None:
    story = told(S.RESENDABLE)
    story.claim(200.0, permit=2, seconds=30.0)
    assert attempts_of(story.now) == [(1, 0.0, 10.0), (2, 200.0, 230.0)]
