"""What a task waits for, besides its activities: a write's outcome, leftovers, more budget, its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from temporalio import workflow
from temporalio.exceptions import ActivityError

from settled.workflows import asks, budgets, loop, reporting
from settled.workflows.contract.ending import Status
from settled.workflows.contract.operation import Outcome, Standing
from settled.workflows.live_task import NO_CALL, LiveTask


async def for_outcome(task: LiveTask, outcome: Outcome, seen: int, asked: int) -> bool:
    """Wait until an operation may have changed, at the latest until the next look is due. False: stop looking.

    Args:
        task: whose operation it is.
        outcome: what was said of it.
        seen: the wakes that there were before that was asked.
        asked: how many times it was asked already.
    """
    if task.must_stop():
        return False
    if outcome.standing is Standing.SEND and outcome.after <= 0:
        return True
    task.show(Status.WAITING)
    pause = min(loop.pause(outcome, task.current.opened.conduct, asked), task.seconds_left())
    with suppress(TimeoutError):
        await workflow.wait_condition(lambda: task.wakes > seen or task.must_stop(), timeout=pause)
    return not task.must_stop()


async def for_leftovers(task: LiveTask) -> None:
    """The model says that it is done, but operations that it doesn't remember aren't settled: wait for them."""
    seen, recheck = task.wakes, task.current.opened.conduct.recheck_seconds
    task.heard = seen
    try:
        ledger = await asks.review()
        task.state = loop.with_ledger(task.current, ledger)  # the budget may have been extended meanwhile
        if loop.must_settle_first(task.state):
            task.waiting[NO_CALL] = reporting.waits_for_leftovers(task.state)
            await for_outcome(task, Outcome(standing=Standing.WAIT, permit=0, after=recheck), seen, task.reviews)
    except (asyncio.CancelledError, ActivityError):
        if workflow.cancellation_reason() is None:
            raise
    task.reviews += 1
    task.waiting.clear()


async def for_budget(task: LiveTask, short: Sequence[budgets.Reached]) -> None:
    """Wait until the budget is extended, or an end is decided. Nothing is asked meanwhile, unless there is a wake.

    It takes one timer at the most: for the deadline, if that is ahead; and one more after each wake.
    """

    def is_woken() -> bool:
        return task.wakes > task.heard and task.current.ledger.tally.unsettled > 0

    def goes_on() -> bool:
        # Readers don't finish by themselves: the cut itself lets them go.
        quiet = task.stream is not None or workflow.all_handlers_finished()
        return task.decided_end() is not None or task.exhausted() != short or (task.wants_cut() and quiet)

    task.waiting[NO_CALL] = budgets.waits_for(short, workflow.info().workflow_id)
    while True:
        task.show(Status.WAITING)
        if not is_woken():
            left = task.seconds_left()
            await _until(lambda: goes_on() or is_woken(), left if left > 0 else None)
        if not is_woken() or workflow.cancellation_reason() is not None:
            break
        await _review(task)
    task.waiting.clear()


async def _review(task: LiveTask) -> None:
    """Ask how the task's operations stand. A cancel of the task ends that as well: the checkpoint sees to it."""
    task.heard = task.wakes
    try:
        ledger = await asks.review()
    except (asyncio.CancelledError, ActivityError):
        if workflow.cancellation_reason() is None:
            raise
    else:
        task.state = loop.with_ledger(task.current, ledger)


async def for_deadline(task: LiveTask, given: float, most: float) -> None:
    """Wait until the task's deadline, or until it is another one.

    Args:
        task: whose deadline it is.
        given: the task's seconds, from which the deadline follows that is waited for.
        most: seconds after which it can't have been the deadline that was in the way.
    """
    if (left := task.seconds_left()) > 0:
        await _until(lambda: budgets.limits_of(task.current).wall_seconds != given, min(left, most))


async def _until(condition: Callable[[], bool], seconds: float | None) -> None:
    """Wait, for so long at the most. A cancel of the task ends it as well: the checkpoint sees to that."""
    try:
        await workflow.wait_condition(condition, timeout=seconds)
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        if workflow.cancellation_reason() is None:
            raise
