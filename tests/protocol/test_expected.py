"""A generation that earlier calls of the same response were to lead to: it may come out otherwise."""

from dataclasses import replace
from typing import Any

import pytest

from settled.activities import protocol
from settled.activities.keys import remote_key
from settled.activities.protocol import Around, Epoch, Refused
from settled.activities.settle import _keys_of_a_lost_past
from settled.activities.standing import stand
from settled.workflows.contract.operation import Intent, OperationState, Order, Standing
from settled.workflows.states import Event
from tests.protocol.stories import KEY, Story, order, told

S, E = OperationState, Event
D, F = "d" * 64, "f" * 64
IN_EPOCH = Around(epoch=Epoch(number=1, since=5.0, opened_at=8.0))


@pytest.mark.parametrize("before", [None, S.REJECTED, S.NOT_EXECUTED, S.UNDONE])
def test_a_generation_that_did_not_come_about_as_expected_is_refused_without_a_row(
    before: OperationState | None,
) -> None:
    """A release and a new reservation in one response, and nothing was released: nothing is lost, nothing was sent."""
    operation = told(before).now if before else None
    ask = replace(order(generation=3), expected=True)
    refused = protocol.obstacle(operation, ask, Around())
    assert isinstance(refused, Refused)
    assert "has not come about" in refused.text
    assert protocol.claim(operation, ask, 9.0) is None
    assert protocol.miss(operation, ask, 9.0) is None
    assert protocol.withdraw(operation, ask, 9.0, others_wait=False) is None


def test_a_generation_that_came_about_as_expected_is_claimed() -> None:
    operation = told(S.UNDONE).now
    ask = replace(order(generation=2), expected=True)
    assert protocol.obstacle(operation, ask, Around()) is None
    entry = protocol.claim(operation, ask, 9.0)
    assert entry is not None
    assert entry.event is E.CLAIMED


@pytest.mark.parametrize("knows", [{"known": True}, {"permit": 2}], ids=["seen", "a later permit"])
def test_what_a_workflow_has_seen_is_no_expectation(knows: dict[str, Any]) -> None:
    ask = replace(order(generation=3), expected=True, **knows)
    entry = protocol.claim(None, ask, 9.0)
    assert entry is not None
    assert entry.event is E.MISSED


@pytest.mark.parametrize("before", [None, S.REJECTED, S.UNDONE])
def test_in_an_epoch_too_what_did_not_come_about_is_refused(before: OperationState | None) -> None:
    """Taken for lost, it would be looked up under its own key alone, past what was done in the generations before."""
    operation = told(before).now if before else None
    ask = replace(order(generation=3), expected=True)
    assert isinstance(protocol.obstacle(operation, ask, IN_EPOCH), Refused)


def test_in_an_epoch_what_a_dispatch_left_without_a_trace_is_looked_up_all_the_same() -> None:
    """It may have been sent in the time that is lost."""
    entry = protocol.miss(None, replace(order(generation=3), expected=True), 9.0, IN_EPOCH)
    assert entry is not None
    assert "unseen" in entry.body


def test_generations_that_the_journal_skips_are_looked_for_too() -> None:
    story = Story()
    story.write(protocol.miss(None, replace(order(generation=3), known=True), 9.0, IN_EPOCH), 9.0)
    assert story.now.skipped == (1, 2)
    asked = _keys_of_a_lost_past(story.now)
    assert asked[:3] == [remote_key(KEY, 1), remote_key(KEY, 2), remote_key(KEY, 4)]


# --- What comes before it ---


def test_a_permit_of_the_generation_before_is_not_spent_by_it() -> None:
    """It waits for that one; told to send, it would be refused, and ask again at once."""
    ahead = Order(
        head=D, slot=0, tool="reserve", intent=Intent(key=KEY, generation=2, fingerprint=F), permit=1, seconds=1.0
    )
    operation = told(S.RESENDABLE).now
    operation = replace(operation, subject=replace(operation.subject, fingerprint=F))
    assert stand(operation, ahead).standing is Standing.WAIT
    same = ahead.model_copy(update={"intent": ahead.intent.model_copy(update={"generation": 1})})
    assert stand(operation, same).standing is Standing.SEND
