"""The decisions of the operation protocol, rule by rule (the numbers are DESIGN's)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from settled.activities import protocol, settling
from settled.activities.journal import Operation, fold
from settled.activities.settling import Move, Patience, Promise
from settled.activities.toolkit import (
    FOREVER,
    Absent,
    Answer,
    Arguments,
    Call,
    Found,
    InFlux,
    LookupAnswer,
    Scope,
    Several,
    write,
)
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.errors import IllegalTransition
from settled.workflows.states import Event
from tests.protocol.stories import DEDUPES, KEY, PATIENCE, PROMISE, Story, ended, found, order, subject, told

S, E = OperationState, Event
AFTER_A_CLAIM = [state for state in S if state is not S.NONE]
OPEN_OR_DONE = [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED]
CLOSED = [S.REJECTED, S.NOT_EXECUTED, S.UNDONE]
SAID_NOT_TO_HAVE_HAPPENED = [S.REJECTED, S.NOT_EXECUTED]
UNBOUNDED = replace(PROMISE, lands_within=None)


# --- 2: generations and fingerprints ----------------------------------------------------------------------------------


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


# --- 3: permits -------------------------------------------------------------------------------------------------------


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


# --- 7: resending -----------------------------------------------------------------------------------------------------


def sent(promise: Promise, *, at: float = 0.0) -> Story:
    """One attempt is out, until 10 s after; its reply was lost."""
    story = Story(promise=promise)
    story.claim(at)
    story.report(at + 1.0, E.UNCLEAR)
    return story


@pytest.mark.parametrize(
    ("promise", "asked_at", "event"),
    [
        # dedupes for 1000 s from the first claim: the new deadline, 10 s after, must lie within
        pytest.param(DEDUPES, 2.0, E.ABSENT_RESEND, id="dedupes, at once"),
        pytest.param(DEDUPES, 990.0, E.ABSENT_RESEND, id="dedupes, just in time"),
        pytest.param(DEDUPES, 990.1, E.ABSENT_SO_FAR, id="dedupes, too late"),
        # and what is sent at that deadline lands within 100 s, which must lie within the window as well
        pytest.param(replace(PROMISE, dedupes=1_000.0), 2.0, E.ABSENT_RESEND, id="both, at once"),
        pytest.param(replace(PROMISE, dedupes=115.0), 5.0, E.ABSENT_RESEND, id="both, just in time"),
        pytest.param(replace(PROMISE, dedupes=115.0), 5.1, E.ABSENT_SO_FAR, id="both, could land too late"),
        pytest.param(replace(PROMISE, dedupes=115.0), 110.1, E.ABSENT_RESEND, id="both, proven absent"),
        # no dedupe: the deadline, 10 s, and 100 s more
        pytest.param(PROMISE, 2.0, E.ABSENT_SO_FAR, id="lands within, at once"),
        pytest.param(PROMISE, 110.0, E.ABSENT_SO_FAR, id="lands within, at its very end"),
        pytest.param(PROMISE, 110.1, E.ABSENT_RESEND, id="lands within, after it"),
        # neither: never, but by a person
        pytest.param(UNBOUNDED, 2.0, E.ABSENT_SO_FAR, id="neither, at once"),
        pytest.param(UNBOUNDED, 4_000.0, E.ABSENT_SO_FAR, id="neither, late"),
        pytest.param(UNBOUNDED, 5_000.1, E.HANDED_TO_PERSON, id="neither, patience spent"),
    ],
)
def test_rule_7_when_an_absent_lookup_permits_a_resend(promise: Promise, asked_at: float, event: Event) -> None:
    story = sent(promise)
    assert story.look(asked_at, Absent()) is event
    assert story.now.permit == (2 if event is E.ABSENT_RESEND else 1)


def test_rule_7_a_permit_issued_for_the_window_ends_with_it() -> None:
    """A dispatch that was slow to claim could send when the service has forgotten the first attempt's key."""
    for at, event, state in ((990.0, E.CLAIMED, S.DISPATCHED), (990.1, E.WITHDRAWN, S.UNKNOWN)):
        story = sent(DEDUPES)
        story.look(2.0, Absent())
        assert (story.claim(at, permit=2), story.state) == (event, state)
        assert story.claim(991.0, permit=2) is None


def test_rule_7_the_window_counts_from_the_first_attempt_for_every_permit() -> None:
    story = sent(DEDUPES)
    story.look(500.0, Absent())
    story.claim(501.0, permit=2)
    story.report(502.0, E.UNCLEAR, permit=2)
    assert story.look(990.1, Absent()) is E.ABSENT_SO_FAR
    assert story.look(989.0, Absent()) is E.ABSENT_RESEND
    assert story.now.permit_until == 1_000.0


def test_rule_7_a_proven_absence_issues_a_permit_that_does_not_end() -> None:
    story = sent(replace(PROMISE, dedupes=115.0))
    assert (story.look(5.0, Absent()), story.now.permit_until) == (E.ABSENT_RESEND, 15.0)
    assert (story.claim(6.0, permit=2), story.state) == (E.WITHDRAWN, S.UNKNOWN)
    assert (story.look(111.0, Absent()), story.now.permit_until) == (E.ABSENT_RESEND, None)
    assert story.claim(4_000.0, permit=3) is E.CLAIMED


def test_rule_7_the_longer_budget_of_the_claim_counts_not_that_of_the_tool_now() -> None:
    story = sent(DEDUPES)
    story.look(989.0, Absent())
    assert story.claim(989.5, permit=2, seconds=60.0) is E.WITHDRAWN


def test_rule_7_every_send_deadline_counts() -> None:
    story = sent(PROMISE)
    story.look(110.1, Absent())
    story.claim(200.0, permit=2)
    story.report(201.0, E.UNCLEAR, permit=2)
    assert settling.final_from(story.now, PROMISE) == 310.0
    assert story.look(310.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(310.1, Absent()) is E.ABSENT_RESEND


def test_rule_7_an_attempt_that_was_answered_no_is_not_waited_for() -> None:
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(500.0, permit=2)
    story.report(501.0, E.UNCLEAR, permit=2)
    story.report(502.0, E.DECLINED, permit=1)
    assert settling.final_from(story.now, PROMISE) == 610.0
    story.report(503.0, E.DECLINED, permit=2)
    assert settling.final_from(story.now, PROMISE) == 0.0


def test_rule_7_without_lands_within_no_lookup_proves_anything_while_an_attempt_is_out() -> None:
    story = sent(UNBOUNDED)
    assert settling.final_from(story.now, UNBOUNDED) is None
    assert story.look(1e9, Absent(), waiting=False) is E.HANDED_TO_PERSON


def test_rule_7_dedupe_proves_nothing() -> None:
    """The first attempt may still land, once: nobody waits, so it is looked at again, and not closed."""
    story = sent(DEDUPES)
    assert story.look(2.0, Absent(), waiting=False) is E.ABSENT_SO_FAR
    assert story.look(4_999.0, Absent(), waiting=False) is E.ABSENT_SO_FAR


def test_rule_7_not_executed_comes_only_from_a_lookup_asked_after_the_last_landing() -> None:
    story = sent(PROMISE)
    assert story.look(110.0, Absent(), waiting=False) is E.ABSENT_SO_FAR
    assert story.look(110.1, Absent(), waiting=False) is E.ABSENT_FINAL
    assert (story.state, story.now.evidence) == (S.NOT_EXECUTED, Evidence.LOOKUP)


def test_rule_7_a_lookup_is_as_old_as_its_question() -> None:
    """Asked in time, answered late, written later still: it speaks for the time before it was asked."""
    story = sent(PROMISE)
    entry = story.judged(109.9, Absent(), waiting=False)
    assert story.write(entry, at=500.0) is E.ABSENT_SO_FAR


def test_rule_7_a_decline_speaks_for_its_own_attempt_only() -> None:
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    assert story.report(4.0, E.DECLINED, permit=2) is E.DECLINED_WHILE_OTHERS_OUT
    assert story.state is S.UNKNOWN
    assert [attempt.answered_no for attempt in story.now.attempts] == [False, True]


def test_rule_7_rejected_once_every_other_attempt_was_answered_no() -> None:
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    assert story.report(4.0, E.DECLINED, permit=1) is E.LATE_NO
    assert story.state is S.DISPATCHED
    assert story.report(5.0, E.DECLINED, permit=2) is E.DECLINED
    assert (story.state, story.now.evidence) == (S.REJECTED, Evidence.ANSWER)


def test_rule_7_old_is_not_as_good_as_answered() -> None:
    """The first attempt can't land any more, but it may have landed: only a lookup can say."""
    story = sent(replace(PROMISE, dedupes=1_000.0))
    story.look(2.0, Absent())
    story.claim(500.0, permit=2)
    assert story.report(501.0, E.DECLINED, permit=2) is E.DECLINED_WHILE_OTHERS_OUT
    assert story.look(502.0, found()) is E.FOUND


def test_rule_7_not_sent_is_a_no_as_well() -> None:
    story = Story()
    story.claim(0.0)
    assert story.report(1.0, E.NOT_SENT) is E.NOT_SENT
    assert (story.state, story.now.view().sends) == (S.NOT_EXECUTED, 0)
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    assert story.report(4.0, E.NOT_SENT, permit=2) is E.NOT_SENT_WHILE_OTHERS_OUT
    assert (story.state, story.now.view().sends) == (S.UNKNOWN, 1)


def test_rule_7_what_was_answered_no_is_not_sent_once_more() -> None:
    """A resend exists to learn an answer. After a "no", it would be declined, and sent, for ever."""
    story = sent(replace(PROMISE, dedupes=1_000.0))
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    story.report(4.0, E.DECLINED, permit=2)
    assert story.look(5.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(110.1, Absent()) is E.ABSENT_FINAL
    assert story.state is S.NOT_EXECUTED


def test_rule_7_a_resend_that_sent_nothing_may_be_tried_again() -> None:
    """Nobody answered it: the service could not be reached."""
    story = sent(replace(PROMISE, dedupes=1_000.0))
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    story.report(4.0, E.NOT_SENT, permit=2)
    assert story.look(5.0, Absent()) is E.ABSENT_RESEND
    assert story.now.permit == 3


def test_rule_7_after_a_no_and_without_lands_within_a_person_is_asked_in_the_end() -> None:
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    story.report(4.0, E.DECLINED, permit=2)
    assert story.look(5.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(5_000.1, Absent()) is E.HANDED_TO_PERSON


def test_rule_7_a_late_no_of_the_only_attempt_that_was_out_makes_absence_final() -> None:
    story = sent(UNBOUNDED)
    story.write(story.judged(2.0, InFlux()), 2.0)
    assert story.report(3.0, E.DECLINED) is E.DECLINED
    assert story.state is S.REJECTED


# --- 8: outcomes are facts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in AFTER_A_CLAIM if state is not S.UNDONE])
def test_rule_8_a_late_success_completes_whatever_was_said(state: OperationState) -> None:
    story = told(state)
    assert story.report(900.0, E.SUCCEEDED, result="late") is E.SUCCEEDED
    assert story.state is S.COMPLETED
    assert story.claim(901.0, permit=2) is None
    assert story.claim(901.0, generation=2) is None
    assert story.now.result is not None
    assert story.now.result["result"] == ("r1" if state is S.COMPLETED else "late")


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
@pytest.mark.parametrize("answer", [E.DECLINED, E.NOT_SENT, E.UNCLEAR])
def test_rule_8_a_late_no_of_an_attempt_that_is_not_current_changes_nothing(
    state: OperationState, answer: Event
) -> None:
    if state in (S.DISPATCHED, S.UNKNOWN):
        return
    story = told(state)
    expected = None if answer is E.UNCLEAR else E.LATE_NO
    assert story.report(900.0, answer) is expected
    assert story.state is state


def test_rule_8_the_answer_of_the_current_attempt_counts_as_long_as_it_is_unknown() -> None:
    for event, state in ((E.DECLINED, S.REJECTED), (E.NOT_SENT, S.NOT_EXECUTED), (E.SUCCEEDED, S.COMPLETED)):
        story = Story()
        story.claim(0.0)
        story.expire(10.1)
        assert story.report(11.0, event) is event
        assert story.state is state


def test_rule_8_a_late_success_voids_the_open_permit() -> None:
    story = told(S.RESENDABLE)
    story.report(111.0, E.SUCCEEDED)
    assert story.claim(112.0, permit=2) is None


def body_of_last(story: Story) -> dict[str, object]:
    return story.rows[-1].body


def test_rule_8_a_success_with_another_attempt_out_raises_the_alarm() -> None:
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    story.report(4.0, E.SUCCEEDED, permit=1)
    assert "another attempt" in str(body_of_last(story)["alarm"])
    story.report(5.0, E.SUCCEEDED, permit=2)
    assert "another attempt" in str(body_of_last(story)["alarm"])


@pytest.mark.parametrize("state", SAID_NOT_TO_HAVE_HAPPENED)
def test_rule_8_a_success_after_it_was_said_not_to_have_happened_raises_the_alarm(state: OperationState) -> None:
    story = told(state)
    story.report(900.0, E.SUCCEEDED)
    assert "settled as not done" in str(body_of_last(story)["alarm"])


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.NEEDS_HUMAN, S.RESENDABLE, S.COMPLETED])
def test_rule_8_the_only_attempts_success_is_no_alarm(state: OperationState) -> None:
    story = told(state)
    story.report(900.0, E.SUCCEEDED)
    assert "alarm" not in body_of_last(story)


def test_rule_8_the_reply_that_was_lost_and_comes_late_is_no_alarm() -> None:
    """The product's own main case: one send, found by the lookup, and then its reply arrives after all."""
    story = sent(PROMISE)
    assert story.look(2.0, found()) is E.FOUND
    story.report(3.0, E.SUCCEEDED)
    assert "alarm" not in body_of_last(story)
    assert (story.state, story.now.evidence) == (S.COMPLETED, Evidence.LOOKUP)


def test_rule_8_where_the_service_dedupes_the_success_of_two_attempts_is_one_effect_and_no_alarm() -> None:
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    for permit in (1, 2):
        entry = protocol.report(story.now, replace(ended(E.SUCCEEDED, permit=permit), dedupes=True), 4.0)
        assert story.write(entry, 4.0) is E.SUCCEEDED
        assert "alarm" not in body_of_last(story)


def test_rule_8_dedupe_does_not_silence_the_alarm_of_what_was_said_not_to_have_happened() -> None:
    """What was done instead has another key."""
    for story, generation in ((told(S.NOT_EXECUTED), 1), (told(S.REJECTED), 2)):
        story.claim(5.0, generation=generation)
        entry = protocol.report(story.now, replace(ended(E.SUCCEEDED), dedupes=True), 6.0)
        assert entry is not None
        assert "alarm" in entry.body


def test_rule_8_an_attempt_that_was_shown_absent_raises_no_alarm_until_it_succeeds_after_all() -> None:
    """A process that was frozen for longer than an attempt can take to land: the one case that remains."""
    story = sent(PROMISE)
    story.look(110.1, Absent())
    story.claim(111.0, permit=2)
    story.report(112.0, E.SUCCEEDED, permit=2)
    assert "alarm" not in body_of_last(story)
    story.report(900.0, E.SUCCEEDED, permit=1)
    assert "another attempt" in str(body_of_last(story)["alarm"])


def test_rule_8_an_attempt_that_was_not_shown_absent_may_have_had_an_effect() -> None:
    """A resend that rests on dedupe proves nothing of the first attempt."""
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    assert [attempt.absent for attempt in story.now.attempts] == [False]


def test_rule_8_an_attempt_that_was_answered_no_raises_no_alarm() -> None:
    story = sent(DEDUPES)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    story.report(4.0, E.DECLINED, permit=1)
    story.report(5.0, E.SUCCEEDED, permit=2)
    assert "alarm" not in body_of_last(story)


def test_rule_8_a_late_success_of_a_closed_generation_is_an_alarm_and_nothing_else() -> None:
    story = told(S.REJECTED)
    story.claim(5.0, generation=2)
    before = story.now
    assert story.report(6.0, E.SUCCEEDED, generation=1) is E.ALARM
    assert "closed generation" in str(body_of_last(story)["alarm"])
    assert story.now == replace(before, seq=before.seq + 1, alarms=1)


@pytest.mark.parametrize(("answer", "event"), [(E.DECLINED, E.LATE_NO), (E.NOT_SENT, E.LATE_NO), (E.UNCLEAR, None)])
def test_rule_8_a_late_no_of_a_closed_generation_says_nothing_of_the_next(answer: Event, event: Event | None) -> None:
    story = told(S.NOT_EXECUTED)
    story.claim(5.0, generation=2)
    assert story.report(6.0, answer, generation=1) is event
    assert story.state is S.DISPATCHED
    assert len(story.now.out) == 1


def test_rule_8_a_report_keeps_what_it_was_given() -> None:
    given = ended(E.NOT_SENT, failure={"kind": "unavailable"})
    entry = protocol.report(told(S.DISPATCHED).now, given, 1.0)
    assert entry is not None
    assert entry.body == {"failure": {"kind": "unavailable"}, "sent": False}
    assert given.body == {"failure": {"kind": "unavailable"}}, "the report itself is as it was"


# --- 10: settlement ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "can_look_up", "waiting", "move"),
    [
        (S.UNKNOWN, True, True, Move.LOOK_UP),
        (S.UNKNOWN, True, False, Move.LOOK_UP),
        (S.UNKNOWN, False, True, Move.HAND_OVER),
        (S.RESENDABLE, True, True, Move.AWAIT_TASK),
        (S.RESENDABLE, True, False, Move.VOID),
        (S.NEEDS_HUMAN, True, True, Move.AWAIT_PERSON),
        (S.NEEDS_HUMAN, True, False, Move.AWAIT_PERSON),
        (S.COMPLETED, True, True, Move.DONE),
        (S.REJECTED, True, True, Move.DONE),
        (S.NOT_EXECUTED, True, True, Move.DONE),
    ],
)
def test_rule_10_what_a_settlement_does_next(
    state: OperationState, can_look_up: bool, waiting: bool, move: Move
) -> None:
    promise = replace(PROMISE, can_look_up=can_look_up)
    now = told(state).now
    assert settling.next_move(now, promise, now.changed_at + 1.0, waiting=waiting) is move


def test_a_permit_that_nobody_spends_is_void_after_a_while() -> None:
    """The task that waited may have forgotten it: after a reset, say."""
    now = told(S.RESENDABLE).now
    late = now.changed_at + settling.PERMIT_SECONDS
    assert settling.next_move(now, PROMISE, late - 1.0, waiting=True) is Move.AWAIT_TASK
    assert settling.next_move(now, PROMISE, late, waiting=True) is Move.VOID


def test_rule_10_an_attempt_is_waited_for_until_its_deadline() -> None:
    now = told(S.DISPATCHED).now
    assert settling.next_move(now, PROMISE, 10.0, waiting=True) is Move.AWAIT_ATTEMPT
    assert settling.next_move(now, PROMISE, 10.1, waiting=True) is Move.EXPIRE


def test_rule_10_it_is_the_newest_attempts_deadline_that_is_waited_for() -> None:
    story = told(S.RESENDABLE)
    story.claim(200.0, permit=2)
    assert settling.next_move(story.now, PROMISE, 209.0, waiting=True) is Move.AWAIT_ATTEMPT
    assert settling.next_move(story.now, PROMISE, 210.1, waiting=True) is Move.EXPIRE


def test_rule_10_without_a_lookup_what_cannot_be_out_is_closed() -> None:
    story = Story()
    story.miss(0.0)
    promise = replace(PROMISE, can_look_up=False)
    assert settling.next_move(story.now, promise, 1.0, waiting=True) is Move.CLOSE


def test_rule_10_a_permit_is_issued_only_while_a_task_waits() -> None:
    assert sent(DEDUPES).look(2.0, Absent(), waiting=False) is E.ABSENT_SO_FAR
    assert sent(PROMISE).look(110.1, Absent(), waiting=False) is E.ABSENT_FINAL
    missed = Story()
    missed.miss(0.0)
    assert missed.look(1.0, Absent(), waiting=False) is E.ABSENT_FINAL


def test_rule_10_once_patience_is_spent_no_permit_is_issued() -> None:
    assert sent(PROMISE).look(5_000.0, Absent()) is E.ABSENT_RESEND
    assert sent(PROMISE).look(5_000.1, Absent()) is E.ABSENT_FINAL
    assert sent(replace(DEDUPES, dedupes=1e12)).look(5_000.0, Absent()) is E.ABSENT_RESEND
    assert sent(replace(DEDUPES, dedupes=1e12)).look(5_000.1, Absent()) is E.HANDED_TO_PERSON


def test_rule_10_patience_does_not_shorten_what_will_be_proven() -> None:
    """An attempt that may land for longer than patience lasts: it is waited for, since waiting will tell."""
    story = sent(replace(PROMISE, lands_within=6_000.0))
    assert story.look(5_500.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(6_010.1, Absent()) is E.ABSENT_FINAL


@pytest.mark.parametrize("answer", [InFlux("working"), None])
def test_rule_10_a_lookup_that_settles_nothing_is_made_again_until_patience_is_spent(
    answer: LookupAnswer | None,
) -> None:
    story = sent(PROMISE)
    again = E.LOOKUP_FAILED if answer is None else E.IN_FLUX
    note = "timed out" if answer is None else "working"
    assert story.look(2.0, answer) is again
    assert body_of_last(story)["note"] == note
    assert story.look(5_000.0, answer) is again
    assert story.look(5_000.1, answer) is E.HANDED_TO_PERSON
    assert story.state is S.NEEDS_HUMAN


def test_rule_10_patience_counts_from_the_generations_beginning() -> None:
    story = told(S.NOT_EXECUTED)
    story.claim(10_000.0, generation=2)
    story.report(10_001.0, E.UNCLEAR, generation=2)
    assert story.look(14_999.0, None) is E.LOOKUP_FAILED
    assert story.look(15_000.1, None) is E.HANDED_TO_PERSON


def test_r67_what_is_found_is_completed_at_any_time() -> None:
    for at in (2.0, 110.0, 6_000.0):
        for waiting in (True, False):
            story = sent(PROMISE)
            assert story.look(at, found(), waiting=waiting) is E.FOUND
            assert (story.state, story.now.evidence) == (S.COMPLETED, Evidence.LOOKUP)


@pytest.mark.parametrize(
    ("key", "request_shown", "note"),
    [
        ("somebody else's", {"sku": "A1"}, "doesn't carry our key"),
        (None, {"sku": "A1"}, "doesn't carry our key"),
        ("ours", {"sku": "A1", "quantity": 3}, "shows another request"),
        ("ours", {"sku": "A1", "warehouse": 1}, "shows another request"),
    ],
)
def test_a_record_that_is_not_ours_or_shows_another_request_goes_to_a_person(
    key: str | None, request_shown: dict[str, object], note: str
) -> None:
    story = sent(PROMISE)
    ours = found().key if key == "ours" else key
    record = Found(key=ours, request=request_shown, answer=Answer(data=None, source="stock service"))
    assert story.look(2.0, record) is E.HANDED_TO_PERSON
    assert note in str(body_of_last(story)["note"])
    assert body_of_last(story)["found"] == {"key": ours, "request": request_shown}
    assert story.state is S.NEEDS_HUMAN


@pytest.mark.parametrize("request_shown", [None, {}, {"quantity": 2}, {"sku": "A1", "quantity": 2}])
def test_a_record_under_our_key_may_show_less_than_was_asked(request_shown: dict[str, object] | None) -> None:
    record = Found(key=found().key, request=request_shown, answer=Answer(data=None, source="stock service"))
    assert sent(PROMISE).look(2.0, record) is E.FOUND


def test_the_record_of_an_older_generation_is_not_ours() -> None:
    story = told(S.NOT_EXECUTED)
    story.claim(1.0, generation=2)
    story.report(2.0, E.UNCLEAR, generation=2)
    assert story.look(3.0, found(generation=1)) is E.HANDED_TO_PERSON
    assert str(body_of_last(story)["note"]).endswith("is of generation 1 of this operation, an earlier one")


def test_the_record_of_a_generation_that_the_ledger_has_lost_is_named_with_the_word_that_helps() -> None:
    """The natural word would be "completed"; but what is done is the other generation, under another key."""
    story = sent(PROMISE)
    assert story.look(3.0, found(generation=2)) is E.HANDED_TO_PERSON
    note = str(body_of_last(story)["note"])
    assert "is of generation 2 of this operation, which this ledger has lost" in note
    assert "say that generation 1 was not executed" in note


def test_what_a_lookup_finds_taken_back_was_done_and_is_undone() -> None:
    """It is told as such, and may be proposed anew; "done" alone would be half of the truth."""
    story = sent(PROMISE)
    assert story.look(2.0, replace(found(), stands=False)) is E.FOUND_UNDONE
    assert (story.state, story.now.evidence) == (S.UNDONE, Evidence.LOOKUP)
    assert str(body_of_last(story)["note"]).endswith("and that it was taken back since")
    assert story.claim(3.0, generation=2) is E.CLAIMED
    assert story.now.undone_before == (1,)


def test_a_record_without_a_key_that_was_taken_back_excludes_no_other_one() -> None:
    """It may be an older one of the same order; ours may still land."""
    story = sent(replace(PROMISE, unique=("sku",)))
    record = Found(key=None, request={"sku": "A1"}, answer=found().answer, stands=False)
    assert story.look(2.0, record) is E.HANDED_TO_PERSON
    assert "there may be others" in str(body_of_last(story)["note"])
    assert sent(replace(PROMISE, unique=("sku",))).look(2.0, replace(record, stands=True)) is E.FOUND


def test_several_records_go_to_a_person_with_the_records() -> None:
    story = sent(PROMISE)
    assert story.look(2.0, Several([{"id": 1}, {"id": 2}])) is E.HANDED_TO_PERSON
    assert body_of_last(story)["records"] == [{"id": 1}, {"id": 2}]


def test_a_person_is_waited_for_and_a_late_answer_helps() -> None:
    story = told(S.NEEDS_HUMAN)
    assert (story.report(3.0, E.DECLINED), story.state) == (E.LATE_NO, S.NEEDS_HUMAN)
    assert (story.report(4.0, E.SUCCEEDED), story.state) == (E.SUCCEEDED, S.COMPLETED)


# --- 10: how long to wait ---------------------------------------------------------------------------------------------


def test_lookups_back_off_up_to_a_limit() -> None:
    patience = Patience(first=1.0, most=300.0, total=1e9)
    assert [patience.delay(n) for n in (0, 1, 2, 8, 9, 1_000_000)] == [1.0, 2.0, 4.0, 256.0, 300.0, 300.0]


def test_the_first_lookup_is_made_at_once_and_the_next_ones_later_each_time() -> None:
    story = sent(UNBOUNDED)
    waits = [settling.wait_after(story.now, UNBOUNDED, PATIENCE, 2.0)]
    for n in range(3):
        story.look(3.0 + n, InFlux())
        waits.append(settling.wait_after(story.now, UNBOUNDED, PATIENCE, 3.0 + n))
    assert waits == [0.0, 1.0, 2.0, 4.0]


def test_the_time_from_which_absence_proves_something_is_not_slept_through() -> None:
    story = sent(PROMISE)
    for _ in range(8):
        story.look(50.0, Absent())
    assert PATIENCE.delay(7) == 128.0
    assert settling.wait_after(story.now, PROMISE, PATIENCE, 50.0) == pytest.approx(60.05)
    assert settling.wait_after(story.now, PROMISE, PATIENCE, 111.0) == 128.0


def test_a_claimed_attempt_is_looked_at_just_after_its_deadline() -> None:
    now = told(S.DISPATCHED).now
    wait = settling.wait_after(now, PROMISE, PATIENCE, 4.0)
    assert settling.next_move(now, PROMISE, 4.0 + wait, waiting=True) is Move.EXPIRE
    assert wait == pytest.approx(6.05)
    assert settling.wait_after(now, PROMISE, PATIENCE, 1e6) == pytest.approx(0.05)


def test_a_task_or_a_person_is_not_asked_every_moment() -> None:
    assert settling.wait_after(told(S.RESENDABLE).now, PROMISE, PATIENCE, 111.0) == 16.0
    assert settling.wait_after(told(S.NEEDS_HUMAN).now, PROMISE, PATIENCE, 111.0) == 3_600.0


def test_a_change_starts_the_lookups_afresh() -> None:
    story = sent(UNBOUNDED)
    story.look(2.0, InFlux())
    story.look(3.0, None)
    assert story.now.lookups == 2
    story.report(4.0, E.UNCLEAR)
    assert story.now.lookups == 0


# --- 14: a journal that lost its past ---------------------------------------------------------------------------------


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


# --- The fold ---------------------------------------------------------------------------------------------------------


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


# --- What a tool promises ---------------------------------------------------------------------------------------------


class Reserve(Arguments):
    """The arguments of a tool."""

    order: str


async def look_it_up(reserve: Reserve, call: Call) -> Absent:
    """A lookup."""
    return Absent()


@pytest.mark.parametrize(
    ("dedupes", "lands_within", "lookup", "promise"),
    [
        (None, None, None, Promise(dedupes=None, lands_within=None, seconds=7.0, can_look_up=False)),
        (
            timedelta(hours=1),
            timedelta(seconds=30),
            look_it_up,
            Promise(dedupes=3600.0, lands_within=30.0, seconds=7.0, can_look_up=True),
        ),
        (timedelta(0), timedelta(0), None, Promise(dedupes=None, lands_within=0.0, seconds=7.0, can_look_up=False)),
    ],
)
def test_a_tools_declaration_is_its_promise(
    dedupes: timedelta | None, lands_within: timedelta | None, lookup: object, promise: Promise
) -> None:
    @write(
        key=("order",),
        scope=Scope.TASK,
        lookup=lookup,  # type: ignore[arg-type]
        dedupes=dedupes,
        lands_within=lands_within,
        timeout=timedelta(seconds=7),
    )
    async def reserve(reserve: Reserve, call: Call) -> Answer:
        """Reserve."""
        raise NotImplementedError

    assert Promise.of(reserve) == promise


def test_forever_outlasts_any_clock() -> None:
    promise = replace(DEDUPES, dedupes=FOREVER.total_seconds())
    story = sent(promise, at=4e9)
    story.patience = Patience(total=1e12)
    assert story.look(8e9, Absent()) is E.ABSENT_RESEND
    assert story.claim(9e9, permit=2) is E.CLAIMED
