"""A generation that earlier calls of the same response were to lead to: it may come out otherwise."""

from dataclasses import replace
from typing import Any

import pytest

from settled.activities import protocol
from settled.activities.protocol import Around, Epoch, Refused
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.stories import order, told

S, E = OperationState, Event


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


def test_in_an_epoch_what_was_expected_may_have_come_about_in_the_time_that_is_lost() -> None:
    ask = replace(order(generation=3), expected=True)
    around = Around(epoch=Epoch(number=1, since=5.0, opened_at=8.0))
    assert protocol.obstacle(None, ask, around) is None
    entry = protocol.claim(None, ask, 9.0, around)
    assert entry is not None
    assert entry.event is E.MISSED
