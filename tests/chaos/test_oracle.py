"""The oracle sees what is wrong: each of its counts is non-zero where it should be, and only there."""

from __future__ import annotations

import pytest

from settled.workflows.contract.operation import OperationState
from tests.chaos.oracle import Effect, Ended, Fault, Judgement, Known, judge
from tests.chaos.plan import Name

KEY = "0123456789abcdef0123456789abcdef"
ACTION: Name = ("O1", "S1", 1)
OTHER: Name = ("O1", "S2", 1)
COMPLETED = Known(key=KEY, action=ACTION, state=OperationState.COMPLETED)
EFFECT = Effect(ACTION, f"{KEY[:30]}-1")
SAYS_DONE = Ended("task-1", frozenset({ACTION}), done=frozenset({ACTION}))


def counts(judgement: Judgement) -> dict[Fault, int]:
    """The counts that aren't zero."""
    return {fault: judgement.count(fault) for fault in Fault if judgement.count(fault)}


def test_one_effect_of_a_completed_operation_is_right() -> None:
    judgement = judge([EFFECT], [COMPLETED], [SAYS_DONE])
    assert counts(judgement) == {}
    assert judgement.counts == "operations=1 effects=1 duplicates=0 lost=0 wrong_state=0 unresolved=0"


def test_two_effects_of_one_action_are_a_duplicate_under_whatever_keys() -> None:
    second = Effect(ACTION, f"{KEY[:30]}-2")
    assert counts(judge([EFFECT, second], [COMPLETED], [SAYS_DONE])) == {Fault.DUPLICATE: 1}
    assert counts(judge([EFFECT, EFFECT, EFFECT], [COMPLETED], [SAYS_DONE])) == {Fault.DUPLICATE: 1}


def test_two_effects_on_different_lines_are_no_duplicate() -> None:
    line: Name = ("O1", "S1", 2)
    other = Known(key="f" * 64, action=line, state=OperationState.COMPLETED)
    assert counts(judge([EFFECT, Effect(line, f"{'f' * 30}-1")], [COMPLETED, other], [])) == {}


def test_a_completed_operation_without_an_effect_is_lost_and_in_a_wrong_state() -> None:
    assert counts(judge([], [COMPLETED], [])) == {Fault.LOST: 1, Fault.WRONG_STATE: 1}


@pytest.mark.parametrize("state", [OperationState.REJECTED, OperationState.NOT_EXECUTED])
def test_an_effect_of_an_operation_that_was_not_done_is_a_wrong_state(state: OperationState) -> None:
    known = Known(key=KEY, action=ACTION, state=state)
    assert counts(judge([EFFECT], [known], [])) == {Fault.WRONG_STATE: 1}
    assert counts(judge([], [known], [])) == {}


def test_an_effect_that_no_operation_stands_for_is_a_wrong_state() -> None:
    assert counts(judge([EFFECT], [], [])) == {Fault.WRONG_STATE: 1}


def test_an_effect_under_another_key_than_its_operations_is_a_wrong_state() -> None:
    assert counts(judge([Effect(ACTION, "somebody-else-1")], [COMPLETED], [])) == {Fault.WRONG_STATE: 1}


@pytest.mark.parametrize(
    "state",
    [
        OperationState.DISPATCHED,
        OperationState.UNKNOWN,
        OperationState.RESENDABLE,
        OperationState.NEEDS_HUMAN,
    ],
)
def test_an_operation_that_is_not_settled_is_unresolved(state: OperationState) -> None:
    assert counts(judge([], [Known(key=KEY, action=ACTION, state=state)], [])) == {Fault.UNRESOLVED: 1}


def test_a_task_that_is_not_closed_is_unresolved_and_lost_nothing_yet() -> None:
    open_task = Ended("task-1", frozenset({ACTION}), closed=False)
    assert counts(judge([], [], [open_task])) == {Fault.UNRESOLVED: 1}


def test_what_a_task_says_is_done_without_an_effect_is_lost() -> None:
    not_done = Known(key=KEY, action=ACTION, state=OperationState.NOT_EXECUTED)
    assert counts(judge([], [not_done], [SAYS_DONE])) == {Fault.LOST: 1}


def test_what_a_task_neither_did_nor_told_is_lost() -> None:
    silent = Ended("task-1", frozenset({ACTION, OTHER}), done=frozenset({ACTION}))
    assert counts(judge([EFFECT], [COMPLETED], [silent])) == {Fault.LOST: 1}
    told = Ended("task-1", frozenset({ACTION, OTHER}), done=frozenset({ACTION}), told=frozenset({OTHER}))
    assert counts(judge([EFFECT], [COMPLETED], [told])) == {}


def test_a_task_that_was_ended_from_outside_owes_nothing() -> None:
    cancelled = Ended("task-1", frozenset({ACTION}), normally=False)
    assert counts(judge([], [], [cancelled])) == {}


def test_one_lost_action_counts_once_whoever_misses_it() -> None:
    second = Ended("task-2", frozenset({ACTION}), done=frozenset({ACTION}))
    judgement = judge([], [COMPLETED], [SAYS_DONE, second])
    assert counts(judgement) == {Fault.LOST: 1, Fault.WRONG_STATE: 1}
    assert "task-1, task-2" in " ".join(finding.what for finding in judgement.findings)
