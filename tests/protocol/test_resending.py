"""Rule 7: when a resend is safe, and when it is known that nothing happened."""

from dataclasses import replace

import pytest

from settled.activities import settling
from settled.activities.settling import Promise
from settled.activities.toolkit import (
    Absent,
    InFlux,
)
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.states import Event
from tests.protocol.stories import (
    DEDUPES,
    PROMISE,
    Story,
    found,
    sent,
)

S, E = OperationState, Event
UNBOUNDED = replace(PROMISE, lands_within=None)


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
