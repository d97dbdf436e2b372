"""What a workflow is told of its order, in each state of the operation."""

import json
from dataclasses import replace
from typing import Any

import pytest

from settled.activities.standing import RECHECK_SECONDS, Stands, failure_in, pause_before, stand
from settled.activities.toolkit import Absent
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import Intent, OperationState, Order, Standing
from settled.workflows.states import Event
from tests.protocol.stories import DEDUPES, KEY, SECONDS, Story, subject, told

S = OperationState
AFTER_A_CLAIM = [state for state in S if state is not S.NONE]
DECLINE = {"kind": "rejected", "phase": "refused", "text": "only 1 available"}


def ordered(generation: int = 1, permit: int = 1, fingerprint: str = "f1") -> Order:
    """The order of a workflow."""
    intent = Intent.model_construct(key=KEY, generation=generation, fingerprint=fingerprint, resources=())
    return Order.model_construct(head="0" * 64, slot=0, tool="reserve", intent=intent, permit=permit, seconds=SECONDS)


def shown(stands: Stands) -> dict[str, Any]:
    """What the model is told, where there is no stored result to show."""
    told_to_model: dict[str, Any] = json.loads(stands.text({}))
    return told_to_model


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        (S.DISPATCHED, Standing.WAIT),
        (S.UNKNOWN, Standing.WAIT),
        (S.RESENDABLE, Standing.SEND),
        (S.NEEDS_HUMAN, Standing.PERSON),
        (S.COMPLETED, Standing.SETTLED),
        (S.REJECTED, Standing.SETTLED),
        (S.NOT_EXECUTED, Standing.SETTLED),
        (S.UNDONE, Standing.SETTLED),
    ],
)
def test_what_can_be_done_in_each_state(state: OperationState, standing: Standing) -> None:
    assert stand(told(state).operation, ordered()).standing is standing


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
def test_only_a_settled_operation_has_a_result(state: OperationState) -> None:
    stands = stand(told(state).operation, ordered())
    assert (stands.standing is Standing.SETTLED) is state.settled
    if not state.settled:
        assert (stands.error, stands.shown) == (None, "")


def test_an_open_permit_is_to_be_spent_at_once_and_named() -> None:
    stands = stand(told(S.RESENDABLE).operation, ordered(permit=1))
    assert (stands.standing, stands.permit, stands.after) == (Standing.SEND, 2, 0.0)


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.NEEDS_HUMAN])
def test_whoever_waits_asks_again_after_a_while(state: OperationState) -> None:
    assert stand(told(state).operation, ordered()).after == RECHECK_SECONDS


def test_after_a_second_send_the_next_ones_come_more_slowly() -> None:
    """A service that fails at once would otherwise be sent to, and asked, as fast as it fails."""
    story, pauses = Story(promise=DEDUPES), []
    story.claim(0.0)
    for permit in range(1, 9):
        story.report(0.0, Event.UNCLEAR, permit=permit)
        story.look(0.0, Absent())
        pauses.append(stand(story.operation, ordered()).after)
        story.claim(0.0, permit=permit + 1)
    assert pauses == [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    many = replace(story.now, attempts=story.now.attempts * 1_000)
    assert pause_before(many) == RECHECK_SECONDS


def test_a_first_send_after_a_missed_dispatch_does_not_wait() -> None:
    story = Story()
    story.miss(0.0)
    story.look(1.0, Absent())
    assert stand(story.operation, ordered()).after == 0.0


@pytest.mark.parametrize("repeated", [False, True])
def test_r73_a_completed_operation_shows_its_stored_result_and_whose_it_was(repeated: bool) -> None:
    stands = stand(told(S.COMPLETED).operation, ordered(), repeated=repeated)
    assert (stands.error, stands.shown, stands.repeated) == (None, "", repeated)
    text = json.loads(stands.text({"source": "stock service", "data": {"id": 7}}))
    assert (text["status"], text["data"]) == ("completed", {"id": 7})
    assert ("repeated" in text) is repeated


def test_a_decline_is_told_in_the_services_own_words() -> None:
    story = told(S.DISPATCHED)
    story.report(1.0, Event.DECLINED, failure=DECLINE)
    stands = stand(story.operation, ordered())
    assert (stands.standing, stands.error) == (Standing.SETTLED, ErrorKind.REJECTED)
    assert shown(stands) == {"status": "rejected", "error": "rejected", "message": "only 1 available"}


def test_a_limiters_refusal_says_when_to_come_back() -> None:
    story = told(S.DISPATCHED)
    limited = {"kind": "rate_limited", "phase": "refused", "text": "slow down", "after": 7.0}
    story.report(1.0, Event.DECLINED, failure=limited)
    stands = stand(story.operation, ordered())
    assert stands.error is ErrorKind.RATE_LIMITED
    assert shown(stands)["retry_after_seconds"] == 7.0


def test_what_was_not_sent_is_told_as_not_executed() -> None:
    story = told(S.DISPATCHED)
    story.report(1.0, Event.NOT_SENT, failure={"kind": "unavailable", "phase": "before_send", "text": "no route"})
    stands = stand(story.operation, ordered())
    assert stands.error is ErrorKind.UNAVAILABLE
    assert shown(stands) == {"status": "not_executed", "error": "unavailable", "message": "no route"}


@pytest.mark.parametrize("how", ["withdrawn", "absent"])
def test_what_did_not_happen_is_told_so(how: str) -> None:
    story = told(S.NOT_EXECUTED) if how == "withdrawn" else told(S.UNKNOWN)
    if how == "absent":
        story.look(110.1, Absent(), waiting=False)
    stands = stand(story.operation, ordered())
    assert (stands.standing, stands.error) == (Standing.SETTLED, ErrorKind.NOT_EXECUTED)
    assert shown(stands)["status"] == "not_executed"
    # What somebody withdrew may be wanted by somebody else.
    said = "Propose it again" if how == "withdrawn" else "It did not happen and will not."
    assert said in shown(stands)["message"]


def test_a_stored_failure_is_found_only_where_there_is_one() -> None:
    assert failure_in(told(S.UNKNOWN).now) is None
    assert failure_in(told(S.NOT_EXECUTED).now) is None
    assert failure_in(told(S.REJECTED).now) is None


def answered_no_and_then_absent() -> Story:
    """A second send was declined while the first was still out; then a lookup found nothing."""
    story = Story(promise=replace(DEDUPES, lands_within=100.0))
    story.claim(0.0)
    story.report(1.0, Event.UNCLEAR)
    story.look(2.0, Absent())
    story.claim(3.0, permit=2)
    story.report(4.0, Event.DECLINED, permit=2, failure=DECLINE)
    story.look(120.0, Absent())
    return story


def test_why_it_was_declined_is_told_though_it_was_a_lookup_that_settled_it() -> None:
    story = answered_no_and_then_absent()
    assert (story.state, story.rows[-1].event) == (S.NOT_EXECUTED, Event.ABSENT_FINAL)
    failure = failure_in(story.now)
    assert failure is not None
    assert (failure.kind, failure.text) == (ErrorKind.REJECTED, "only 1 available")
    assert shown(stand(story.operation, ordered()))["message"] == "only 1 available"


def test_it_is_the_last_no_that_is_told() -> None:
    story = answered_no_and_then_absent()
    story.report(130.0, Event.DECLINED, permit=1, failure={**DECLINE, "text": "none available"})
    failure = failure_in(story.now)
    assert failure is not None
    assert failure.text == "none available"


def test_a_no_of_an_earlier_generation_is_not_the_answer_to_this_one() -> None:
    story = told(S.DISPATCHED)
    story.report(1.0, Event.DECLINED, failure=DECLINE)
    story.claim(2.0, generation=2)
    story.report(3.0, Event.UNCLEAR, generation=2)
    story.look(200.0, Absent(), waiting=False)
    assert (story.state, failure_in(story.now)) == (S.NOT_EXECUTED, None)


# --- Another request, another generation ---


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED])
@pytest.mark.parametrize("generation", [1, 2])
def test_r65_another_request_is_a_conflict_and_is_shown_what_stands(state: OperationState, generation: int) -> None:
    stands = stand(told(state).operation, ordered(generation=generation, fingerprint="f2"))
    assert (stands.standing, stands.error) == (Standing.SETTLED, ErrorKind.NOT_EXECUTED)
    told_to_model = shown(stands)
    assert told_to_model["status"] == "not_executed"
    assert f"already exists with other arguments, and is {state}: " in told_to_model["message"]


@pytest.mark.parametrize("state", [S.REJECTED, S.NOT_EXECUTED])
def test_another_request_that_was_closed_speaks_for_itself_only(state: OperationState) -> None:
    """Two proposals of one generation; the other one was sent and closed. This one was not sent."""
    stands = stand(told(state).operation, ordered(fingerprint="f2"))
    assert stands.error is ErrorKind.NOT_EXECUTED
    assert "propose it again" in shown(stands)["message"]


@pytest.mark.parametrize("fingerprint", ["f1", "f2"])
@pytest.mark.parametrize("closed", [S.REJECTED, S.NOT_EXECUTED])
def test_the_next_generations_result_is_not_this_ones(closed: OperationState, fingerprint: str) -> None:
    story = told(closed)
    story.claim(200.0, generation=2, about=subject(fingerprint))
    story.report(201.0, Event.SUCCEEDED, generation=2, result="r2")
    stands = stand(story.operation, ordered(generation=1))
    assert (stands.standing, stands.error) == (Standing.SETTLED, ErrorKind.NOT_EXECUTED)
    assert "closed without an effect" in shown(stands)["message"]


def test_a_generation_that_a_late_success_overtook_gets_the_stored_result() -> None:
    """It was admitted as the second one while the first was closed; then the first turned out to be done."""
    story = told(S.REJECTED)
    story.report(900.0, Event.SUCCEEDED, result="late")
    stands = stand(story.operation, ordered(generation=2), repeated=True)
    assert (stands.standing, stands.error, stands.repeated) == (Standing.SETTLED, None, True)


@pytest.mark.parametrize("before", [None, S.REJECTED, S.NOT_EXECUTED])
def test_an_order_that_nobody_claimed_was_not_sent(before: OperationState | None) -> None:
    operation = told(before).operation if before else None
    stands = stand(operation, ordered(generation=2 if before else 1))
    assert (stands.standing, stands.error) == (Standing.SETTLED, ErrorKind.NOT_EXECUTED)
    assert shown(stands) == {"status": "not_executed", "error": "not_executed", "message": "It was not sent."}


# --- A worker that can't send ---


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE])
def test_a_worker_that_cannot_send_waits_for_what_was_sent(state: OperationState) -> None:
    stands = stand(told(state).operation, ordered(), refused="this worker has no such tool")
    assert (stands.standing, stands.error) == (Standing.WAIT, None)


def test_a_worker_that_cannot_send_still_shows_what_was_done() -> None:
    assert stand(told(S.COMPLETED).operation, ordered(), refused="this worker has no such tool").error is None


@pytest.mark.parametrize("state", [None, S.NOT_EXECUTED, S.REJECTED])
def test_a_worker_that_cannot_send_says_why(state: OperationState | None) -> None:
    operation = told(state).operation if state else None
    stands = stand(operation, ordered(), refused="this worker has no such tool")
    assert (stands.standing, stands.error) == (Standing.SETTLED, ErrorKind.NOT_EXECUTED)
    assert shown(stands)["message"] == "this worker has no such tool"


def test_a_worker_that_cannot_send_does_not_hide_a_decline() -> None:
    story = told(S.DISPATCHED)
    story.report(1.0, Event.DECLINED, failure=DECLINE)
    stands = stand(story.operation, ordered(), refused="this worker has no such tool")
    assert stands.error is ErrorKind.REJECTED
