"""What activities answer, read as the values that are expected; and what a failed model request says of itself.

An operator may complete an activity with any value (`temporal activity complete`), or fail it (`temporal activity
fail`). So every answer is taken as plain JSON, and then read as its value: what doesn't fit is asked for again, and so
is what failed in a way that the activity doesn't mean.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as TimedOut

from settled.workflows.contract.values import Value
from settled.workflows.loop import UnknownCommand, recheck_after

AGAIN_SECONDS = 1.0
"""Until an activity is first asked again; the wait doubles up to an hour."""
LONGEST_PAUSE = timedelta(seconds=60)
"""Between two attempts of a model request or a read, unless it names another one itself."""
OVER = (TimeoutType.SCHEDULE_TO_START, TimeoutType.SCHEDULE_TO_CLOSE)
"""The timeouts after which there is no further attempt."""
LEAST_SECONDS = 1.0
"""That a model request or a read is given, however near the deadline is."""
Answer = TypeVar("Answer", bound=Value)


async def answer_of(
    shape: type[Answer],
    kind: str,
    *args: Any,
    fit: Callable[[Answer], bool] = lambda _: True,
    meant: Callable[[ActivityError], bool] = lambda _: False,
    left: float | None = None,
    **terms: Any,
) -> Answer:
    """An activity's answer; asked for again, after a wait, until there is one that fits.

    Args:
        shape: the value that is expected.
        kind: the activity's type.
        args: its arguments.
        fit: whether a value of that shape can be acted on.
        meant: whether a failure is one that the activity itself decided on, for the caller to deal with.
        left: seconds until the task's deadline, over all times that it is asked; none: it isn't bound by that.
        terms: its timeouts, and so on.

    Raises:
        ActivityError: it failed as it meant to, or was cancelled.
    """
    again, began = 0, workflow.now()
    while True:
        over = _until_over(left, began)
        try:
            given = await workflow.execute_activity(kind, args=args, schedule_to_close_timeout=over, **terms)
        except ActivityError as error:
            if is_cancelled_exception(error) or meant(error):
                raise
            wrong = f"failed: {error.cause}"
        else:
            if (answer := read_answer(shape, given, fit)) is not None:
                return answer
            wrong = f"was completed with what is no {shape.__name__}"
        pause = min(recheck_after(AGAIN_SECONDS, again), _until_over(left, began) or timedelta.max)
        workflow.logger.warning("%s %s; it is asked again in %s", kind, wrong[:300], pause)
        await workflow.sleep(pause, summary=f"{kind} is asked again")
        again += 1


def _until_over(left: float | None, began: datetime) -> timedelta | None:
    """What is left of the time that there was at the beginning; a little, where none is: who asks is told by that."""
    if left is None:
        return None
    return timedelta(seconds=max(LEAST_SECONDS, left - (workflow.now() - began).total_seconds()))


def read_answer(shape: type[Answer], given: Any, fit: Callable[[Answer], bool] = lambda _: True) -> Answer | None:
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


def ran_out_of_time(error: ActivityError) -> bool:
    """Whether a request or a read ended because of the task's deadline: it is over, or before the next attempt."""
    over = isinstance(error.cause, TimedOut) and error.cause.type in OVER
    return over or error.retry_state is RetryState.TIMEOUT


def next_attempt_after(error: ActivityError) -> float:
    """Seconds until what ran out of time may be tried again, if the deadline hasn't come by then.

    It needn't come: the server has been seen to time out an attempt that might have waited for days, as soon as
    somebody changed its options; and somebody may have given it a timeout of its own.
    """
    if isinstance(error.cause, TimedOut) and error.cause.type in OVER:
        return AGAIN_SECONDS
    named = error.cause.next_retry_delay if isinstance(error.cause, ApplicationError) else None
    return (named or LONGEST_PAUSE).total_seconds()


def may_have_lost(error: ActivityError) -> bool:
    """Whether a model request may have brought a response that got lost on the way: its last attempt said nothing."""
    return not isinstance(error.cause, ApplicationError)


def attempts_of(error: ActivityError) -> int | None:
    """The attempts of a model request that failed, as its last one counted them; none: all that it may have."""
    cause = error.cause
    said = cause.details[0] if isinstance(cause, ApplicationError) and cause.details else None
    if isinstance(said, int):
        return said
    return None if error.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED else 1
