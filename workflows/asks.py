"""Every activity that the workflows ask, with its type, its timeouts and its retries: the only place that does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

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
    opened: Opened = await workflow.execute_activity(
        names.OPEN_TASK,
        args=list(inputs),
        result_type=Opened,
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )
    return opened


async def request_model(ask: Ask, conduct: Conduct) -> Turn:
    """Make one model request.

    Raises:
        ActivityError: it failed for good, or was cancelled.
    """
    turn: Turn = await workflow.execute_activity(
        names.REQUEST_MODEL,
        ask,
        result_type=Turn,
        start_to_close_timeout=timedelta(seconds=conduct.model_seconds),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=60), maximum_attempts=conduct.model_attempts),
    )
    return turn


def attempts_of(error: ActivityError) -> int | None:
    """The attempts of a model request that failed, as its last one counted them; none: all that it may have."""
    cause = error.cause
    said = cause.details[0] if isinstance(cause, ApplicationError) and cause.details else None
    if isinstance(said, int):
        return said
    return None if error.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED else 1


async def run_read(head: str, call: Proposal, conduct: Conduct) -> CallResult:
    """Run a read; a read that fails for good is a result, too.

    Raises:
        ActivityError: it was cancelled.
    """
    read = Read(head=head, slot=call.slot, tool=call.tool, seconds=call.seconds, attempts=conduct.read_attempts)
    try:
        result: CallResult = await workflow.execute_activity(
            names.RUN_READ,
            read,
            result_type=CallResult,
            start_to_close_timeout=timedelta(seconds=call.seconds) + ATTEMPT_MARGIN,
            heartbeat_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30), maximum_attempts=conduct.read_attempts),
            summary=call.tool,
        )
    except ActivityError as error:
        if isinstance(error.cause, asyncio.CancelledError) or workflow.cancellation_reason() is not None:
            raise
        return CallResult(
            slot=call.slot, error=ErrorKind.UNAVAILABLE, note=f"{call.tool} gave no answer: {error.cause}"[:300]
        )
    return result


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
        with suppress(ValidationError):  # an operator may have completed the activity, with anything
            return Outcome.model_validate(sending.result())
    sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return await reconcile(order)


async def reconcile(order: Order) -> Outcome:
    """Ask how an operation stands; void a dispatch that left no trace."""
    outcome: Outcome = await workflow.execute_activity(
        names.RECONCILE,
        order,
        result_type=Outcome,
        summary=order.tool,
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )
    return outcome


async def review() -> LedgerView:
    """Ask how the task's operations stand, with a settlement at work on each that isn't settled."""
    view: LedgerView = await workflow.execute_activity(
        names.REVIEW,
        result_type=LedgerView,
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )
    return view


async def close_task(ending: Ending) -> TaskResult:
    """Withdraw, answer, judge, and say how it ended."""
    result: TaskResult = await workflow.execute_activity(
        names.CLOSE_TASK,
        ending,
        result_type=TaskResult,
        start_to_close_timeout=timedelta(minutes=10),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30)),
    )
    return result


async def resolve(asked: Resolve) -> ResolveAnswer:
    """Take a person's word."""
    answer: ResolveAnswer = await workflow.execute_activity(
        names.RESOLVE,
        asked,
        result_type=ResolveAnswer,
        summary=f"{asked.resolution.outcome}, says {asked.resolution.who}"[:200],
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )
    return answer


async def settle(question: Question) -> SettlementStep:
    """Take one step of a settlement."""
    step: SettlementStep = await workflow.execute_activity(
        names.SETTLE,
        question,
        result_type=SettlementStep,
        start_to_close_timeout=timedelta(seconds=60),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=60)),
    )
    return step
