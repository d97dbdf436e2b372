"""Rule 8: outcomes are facts, whenever they come."""

from dataclasses import replace

import pytest

from settled.activities import protocol
from settled.activities.toolkit import (
    Absent,
)
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.states import Event
from tests.protocol.stories import (
    DEDUPES,
    PROMISE,
    Story,
    body_of_last,
    ended,
    found,
    sent,
    told,
)

S, E = OperationState, Event
AFTER_A_CLAIM = [state for state in S if state is not S.NONE]
SAID_NOT_TO_HAVE_HAPPENED = [S.REJECTED, S.NOT_EXECUTED]


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
