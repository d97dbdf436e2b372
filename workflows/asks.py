"""Every activity that the workflows ask, with its type, its timeouts and its retries: the only place that does.

An operator may complete an activity with any value (`temporal activity complete`), or fail it (`temporal activity
fail`). So every answer is taken as plain JSON, and then read as its value: what doesn't fit is asked for again, and so
is what failed in a way that the activity doesn't mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as TimedOut

from settled.workflows import fits
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
from settled.workflows.contract.values import Value
from settled.workflows.loop import UnknownCommand, recheck_after

STORE_TIMEOUT = timedelta(seconds=60)
STORE_RETRIES = RetryPolicy(maximum_interval=timedelta(seconds=30))
"""For activities that only talk to our own store: they are retried until the store is back."""

ATTEMPT_MARGIN = timedelta(seconds=15)
"""On top of a write's own time budget: for the claim, and for storing the outcome."""
LONGEST_QUEUE = timedelta(minutes=10)
"""How long a dispatch may stay without an end (queued, paused, with a dead worker) before its permit is voided."""
AGAIN_SECONDS = 1.0
"""Until an activity is first asked again; the wait doubles up to an hour."""
LEAST_SECONDS = 1.0
"""That a model request is given, however near the deadline is."""
Answer = TypeVar("Answer", bound=Value)


async def _answer(
    shape: type[Answer],
    kind: str,
    *args: Any,
    fit: Callable[[Answer], bool] = lambda _: True,
    meant: Callable[[ActivityError], bool] = lambda _: False,
    **terms: Any,
) -> Answer:
    """An activity's answer; asked for again, after a wait, until there is one that fits.

    Args:
        shape: the value that is expected.
        kind: the activity's type.
        args: its arguments.
        fit: whether a value of that shape can be acted on.
        meant: whether a failure is one that the activity itself decided on, for the caller to deal with.
        terms: its timeouts, and so on.

    Raises:
        ActivityError: it failed as it meant to, or was cancelled.
    """
    again = 0
    while True:
        try:
            given = await workflow.execute_activity(kind, args=args, **terms)
        except ActivityError as error:
            if is_cancelled_exception(error) or meant(error):
                raise
            wrong = f"failed: {error.cause}"
        else:
            if (answer := _read(shape, given, fit)) is not None:
                return answer
            wrong = f"was completed with what is no {shape.__name__}"
        pause = recheck_after(AGAIN_SECONDS, again)
        workflow.logger.warning("%s %s; it is asked again in %s", kind, wrong[:300], pause)
        await workflow.sleep(pause, summary=f"{kind} is asked again")
        again += 1


def _read(shape: type[Answer], given: Any, fit: Callable[[Answer], bool] = lambda _: True) -> Answer | None:
    """The value that an activity was completed with; None if it is none of that shape, or can't be acted on.

    Raises:
        UnknownCommand: it is whole, but for a command from a newer release.
    """
    try:
        answer = shape.model_validate(given)
    except ValidationError as error:
        # Not asked again: a worker of the newer release reads this history, too, and for it the answer fits.
        if all(fault["type"] == "union_tag_invalid" for fault in error.errors(include_url=False)):
            raise UnknownCommand(f"a newer release's command can't be decoded: {error}") from error
        return None
    return answer if fit(answer) else None


async def open_task(inputs: Sequence[Any]) -> Opened:
    """Validate the task's inputs, and freeze what holds for the whole task."""
    return await _answer(
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
    return await _answer(
        Turn,
        names.REQUEST_MODEL,
        ask,
        fit=fits.turn_fits,
        meant=_in_the_end,
        schedule_to_close_timeout=timedelta(seconds=max(LEAST_SECONDS, left)),
        start_to_close_timeout=timedelta(seconds=conduct.model_seconds),
        heartbeat_timeout=timedelta(seconds=30),
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=60), maximum_attempts=conduct.model_attempts),
    )


def ran_out_of_time(error: ActivityError) -> bool:
    """Whether a model request ended because of the task's deadline: it is over, or comes before the next attempt."""
    over = isinstance(error.cause, TimedOut) and error.cause.type is TimeoutType.SCHEDULE_TO_CLOSE
    return over or error.retry_state is RetryState.TIMEOUT


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
        return await _answer(
            CallResult,
            names.RUN_READ,
            read,
            meant=_in_the_end,
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
        outcome = _read(Outcome, sending.result())
        if outcome is not None:
            return outcome
    sending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return await reconcile(order)


async def reconcile(order: Order) -> Outcome:
    """Ask how an operation stands; void a dispatch that left no trace."""
    return await _answer(
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
    return await _answer(
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
    return await _answer(
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
    return await _answer(
        ResolveAnswer,
        names.RESOLVE,
        asked,
        summary=f"{asked.resolution.outcome}, says {asked.resolution.who}"[:200],
        start_to_close_timeout=STORE_TIMEOUT,
        retry_policy=STORE_RETRIES,
    )


async def settle(question: Question) -> SettlementStep:
    """Take one step of a settlement."""
    return await _answer(
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
