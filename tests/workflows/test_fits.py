"""Answers of the right form that would hang a task don't fit."""

from __future__ import annotations

from typing import Any

import pytest

from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.task import Conduct, Limits, Opened
from settled.workflows.contract.turn import Effect, End, Proposal, RunBatches, Turn
from settled.workflows.fits import opened_fits, turn_fits

D = "a" * 64
LIMITS = Limits(turns=1, requests=1, wall_seconds=1.0)


def turn(*calls: Proposal, batches: tuple[tuple[int, ...], ...] = ((0,),)) -> Turn:
    return Turn(head=D, next=RunBatches(calls=calls, batches=batches))


def call(slot: int = 0, **more: Any) -> Proposal:
    return Proposal(slot=slot, call_id="c", tool="t", **({"effect": Effect.READ} | more))


@pytest.mark.parametrize(
    ("opened", "fit"),
    [
        (Opened(), False),
        (Opened(head=D), False),
        (Opened(limits=LIMITS), False),
        (Opened(head=D, limits=LIMITS), True),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(model_seconds=0.0)), False),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(model_seconds=1e300)), False),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(cut_events=-1)), False),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(model_seconds=float("nan"))), False),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(recheck_seconds=float("inf"))), False),
        (Opened(head=D, limits=LIMITS.model_copy(update={"wall_seconds": 1e300})), False),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(model_attempts=-1)), False),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(model_attempts=2**31 - 1, read_attempts=2**31 - 1)), True),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(model_attempts=2**31)), False),
        (Opened(head=D, limits=LIMITS, conduct=Conduct(read_attempts=3_000_000_000)), False),
        (Opened(faults=("goal: say it",)), True),
    ],
    ids=str,
)
def test_a_task_is_opened_whole_or_refused_with_a_reason(opened: Opened, fit: bool) -> None:
    assert opened_fits(opened) is fit


@pytest.mark.parametrize(
    ("given", "fit"),
    [
        (turn(call()), True),
        (turn(call(answer=CallResult(slot=0)), batches=()), True),
        (Turn(head=D, next=End()), True),
        (turn(call(), batches=()), False),
        (turn(call(), call(1)), False),
        (turn(call(effect=Effect.WRITE)), False),
        (turn(call(seconds=0)), False),
        (turn(call(seconds=1e300)), False),
        (turn(call(answer=CallResult(slot=3)), batches=()), False),
        (turn(call(seconds=-20.0)), False),
    ],
    ids=str,
)
def test_each_call_of_a_turn_is_answered_or_has_its_place_and_its_terms(given: Turn, fit: bool) -> None:
    """A call without a batch would be looked for in every batch, for ever."""
    assert turn_fits(given) is fit
