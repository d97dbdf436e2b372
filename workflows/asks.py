"""Every activity that the workflows ask, with its type, its timeouts and its retries: the only place that does.

What it answers is read in `answers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from settled.workflows import fits
from settled.workflows.answers import LEAST_SECONDS, LONGEST_PAUSE, answer_of, ran_out_of_time, read_answer
from settled.workflows.contract import names
from settled.workflows.contract.calls import CallResult, ErrorKind
from settled.workflows.contract.loop import Ending
from settled.workflows.contract.operation import (
    LedgerView,
    Order,
    Outcome,
    Question,
    Resolve,
    ResolveAnswer,
    SettlementStep,
)
from settled.workflows.contract.result import TaskResult
from settled.workflows.contract.task import Conduct, Opened
from settled.workflows.contract.turn import Ask, Proposal, Read, Turn

STORE_TIMEOUT = timedelta(seconds=60)
STORE_RETRIES = RetryPolicy(maximum_interval=timedelta(seconds=30))
"""For activities that only talk to our own store: they are retried until the store is back."""

ATTEMPT_MARGIN = timedelta(seconds=15)
"""On top of a write's own time budget: for the claim, and for storing the outcome."""
LONGEST_QUEUE = timedelta(minutes=10)
"""How long a dispatch may stay without an end (queued, paused, with a dead worker) before its permit is voided."""


async def open_task(inputs: Sequence[Any]) -> Opened:
    """Validate the task's inputs, and freeze what holds for the whole task."""
    return await answer_of(
        Opened,
        names.OPEN_TASK,
        *inputs,
        fit=fits.opened_fits,
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )


async def request_model(ask: Ask, conduct: Conduct, left: float) -> Turn:
    """Make one model request.

    Args:
        ask: what is asked.
        conduct: the task's settings.
        left: seconds until the task's deadline, at which the request is over, too, with all its attempts.

    Raises:
        ActivityError: it failed for good, ran out of time, or was cancelled.
    """
    return await answer_of(
        Turn,
        names.REQUEST_MODEL,
        ask,
        fit=fits.turn_fits,
        meant=_in_the_end,
        left=left,
        start_to_close_timeout=timedelta(seconds=conduct.model_seconds),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_interval=LONGEST_PAUSE, maximum_attempts=conduct.model_attempts),
    )


async def run_read(head: str, call: Proposal, conduct: Conduct, left: float) -> CallResult:
    """Run a read; a read that fails for good is a result, too.

    Args:
        head: the assistant message that holds the call.
        call: what is read.
        conduct: the task's settings.
        left: seconds until the task's deadline, at which the read is over, too, with all its attempts.

    Raises:
        ActivityError: it was cancelled, or ran out of the task's time; neither says anything of what is read.
    """
    most = timedelta(seconds=max(LEAST_SECONDS, left))
    read = Read(head=head, slot=call.slot, tool=call.tool, seconds=call.seconds, attempts=conduct.read_attempts)
    try:
        return await answer_of(
            CallResult,
            names.RUN_READ,
            read,
            meant=_in_the_end,
            left=left,
            start_to_close_timeout=min(most, timedelta(seconds=call.seconds) + ATTEMPT_MARGIN),
            heartbeat_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30), maximum_attempts=conduct.read_attempts),
            summary=call.tool,
        )
    except ActivityError as error:
        cancelled = isinstance(error.cause, asyncio.CancelledError) or workflow.cancellation_reason() is not None
        if cancelled or ran_out_of_time(error):
            raise
        return CallResult(
            slot=call.slot, error=ErrorKind.UNAVAILABLE, note=f"{call.tool} gave no answer: {error.cause}"[:300]
        )


async def dispatch(order: Order) -> Outcome:
    """Spend a permit. A dispatch that ends without an outcome, or not in time, is followed up by the ledger.

    Never retried by Temporal: the permit is spent once, whatever happens.
    """
    seconds = timedelta(seconds=order.seconds)
    sending = workflow.start_activity(
        names.DISPATCH,
        order,
        start_to_close_timeout=seconds + ATTEMPT_MARGIN,
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=workflow.ActivityCancellationType.ABANDON,
        summary=f"{order.tool}, permit {order.permit}",
    )
    # A paused activity has no timeouts, so the wait has one of its own.
    done, _ = await workflow.wait([sending], timeout=(seconds + LONGEST_QUEUE).total_seconds())
    if done and sending.exception() is None:
        outcome = read_answer(Outcome, sending.result())
        if outcome is not None:
            return outcome
    sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return await reconcile(order)


async def reconcile(order: Order) -> Outcome:
    """Ask how an operation stands; void a dispatch that left no trace."""
    return await answer_of(
        Outcome,
        names.RECONCILE,
        order,
        summary=order.tool,
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )


async def review() -> LedgerView:
    """Ask how the task's operations stand, with a settlement at work on each that isn't settled.

    Raises:
        ActivityError: the task was cancelled, and there is nothing to wait for any more.
    """
    return await answer_of(
        LedgerView,
        names.REVIEW,
        meant=lambda _: workflow.cancellation_reason() is not None,
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )


async def close_task(ending: Ending) -> TaskResult:
    """Withdraw, answer, judge, and say how it ended.

    Raises:
        ActivityError: it can't be done, now or later.
    """
    return await answer_of(
        TaskResult,
        names.CLOSE_TASK,
        ending,
        fit=fits.task_result_fits,
        meant=_by_name,
        start_to_close_timeout=timedelta(minutes=10),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30)),
    )


async def resolve(asked: Resolve) -> ResolveAnswer:
    """Take a person's word. Asked again, it is the same word: it goes by the update's id."""
    return await answer_of(
        ResolveAnswer,
        names.RESOLVE,
        asked,
        summary=f"{asked.resolution.outcome}, says {asked.resolution.who}"[:200],
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )


async def settle(question: Question) -> SettlementStep:
    """Take one step of a settlement."""
    return await answer_of(
        SettlementStep,
        names.SETTLE,
        question,
        start_to_close_timeout=timedelta(seconds=60),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=60)),
    )


def _in_the_end(_: ActivityError) -> bool:
    """A model request or a read that fails for good, by itself or at an operator's hand, has its place in the loop."""
    return True


def _by_name(error: ActivityError) -> bool:
    """Closing says by a type of its own that it can't be done."""
    return isinstance(error.cause, ApplicationError) and error.cause.type in (names.TASK_LOST, names.CANNOT_CLOSE)
