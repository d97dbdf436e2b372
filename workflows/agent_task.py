"""The workflow of one agent task: the loop, with every exit in sight. It asks and carries out; it decides nothing.

checkpoint ──▶ request the model ──▶ run its calls ──▶ checkpoint … ──▶ close
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    # Built anew in the sandbox, the models would cost more than the run, and be other classes than the converter's.
    # What the sandbox would catch in these modules a test keeps out of them: they can't import a clock or any I/O.
    # By their full names, since the sandbox would load a module that is imported from its parent a second time.
    import settled.workflows.answers as answers  # noqa: PLR0402  # see above
    import settled.workflows.asks as asks  # noqa: PLR0402  # see above
    import settled.workflows.budgets as budgets  # noqa: PLR0402  # see above
    import settled.workflows.calls as calls  # noqa: PLR0402  # see above
    import settled.workflows.handed_in as handed_in  # noqa: PLR0402  # see above
    import settled.workflows.loop as loop  # noqa: PLR0402  # see above
    import settled.workflows.reporting as reporting  # noqa: PLR0402  # see above
    import settled.workflows.waits as waits  # noqa: PLR0402  # see above
    from settled.workflows.contract import names
    from settled.workflows.contract.ending import Status
    from settled.workflows.contract.loop import Ending, LoopState
    from settled.workflows.contract.operation import OperationView
    from settled.workflows.contract.result import StatusReport, TaskResult
    from settled.workflows.contract.task import Limits
    from settled.workflows.contract.turn import End
    from settled.workflows.live_task import LiveTask


@workflow.defn(name=names.AGENT_TASK)
class AgentTask:
    """Runs an agent task from its request to a judged end."""

    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self.task = LiveTask(handed_in.carried(inputs))

    @workflow.run
    async def run(self, *inputs: Any) -> TaskResult:
        """Run the task.

        Args:
            inputs: one JSON object of the form of `TaskRequest`, or one JSON string with the goal.
        """
        task = self.task
        if task.state is None:
            task.begin(await self.open(inputs))
        while (end := await self.checkpoint()) is None:
            if short := task.exhausted():
                await waits.for_budget(task, short)
                continue
            task.show(Status.RUNNING)
            if loop.has_calls_to_run(task.current):
                await calls.run_calls(task)
            elif loop.must_settle_first(task.current):
                await waits.for_leftovers(task)
            else:
                await self.request_model()
        return await self.close(end)

    async def open(self, inputs: tuple[Any, ...]) -> LoopState:
        """Open the task, or fail it at once with a line for each fault. Its time counts from here on."""
        began = workflow.now().timestamp()
        if too_large := reporting.fault_of_size(inputs, workflow.payload_converter()):
            self.task.show(Status.FAILED)
            raise handed_in.invalid([too_large])
        try:
            opened = await asks.open_task(inputs)
        except asyncio.CancelledError:
            self.task.show(Status.CANCELLED)
            raise
        if opened.faults:
            self.task.show(Status.FAILED)
            raise handed_in.invalid(opened.faults)
        return loop.first_state(opened, began)

    async def checkpoint(self) -> End | None:
        """Before each model request and each wait: is it over, and is it time for a new run?"""
        task = self.task
        if workflow.cancellation_reason() is not None:
            return loop.aborted(task.current)
        if (end := task.decided_end()) is not None:
            return end
        if not task.wants_cut():
            return None
        if task.stream is not None:
            await task.stream.let_go()
        if workflow.all_handlers_finished() and workflow.cancellation_reason() is None:
            workflow.continue_as_new(task.handed_on())
        return None

    async def request_model(self) -> None:
        """Ask the model once, and take what it led to."""
        task, state = self.task, self.task.current
        try:
            turn = await asks.request_model(loop.question(state), state.opened.conduct, task.seconds_left())
        except asyncio.CancelledError:
            task.state = loop.after_cut_request(task.current, None, lost=True)
            return
        except ActivityError as error:
            await self.go_on_without(error, budgets.limits_of(state).wall_seconds)
            return
        task.state = loop.after_turn(task.current, turn)  # the budget may have been extended meanwhile
        if task.stream is not None:
            task.stream.trim()

    async def go_on_without(self, error: ActivityError, given: float) -> None:
        """A model request has failed for good: the task ends so, unless its deadline or a cancel cut the request short.

        Args:
            error: the failure.
            given: the task's seconds, as the request knew them.
        """
        task, attempts, lost = self.task, answers.attempts_of(error), answers.may_have_lost(error)
        if workflow.cancellation_reason() is not None:
            task.state = loop.after_cut_request(task.current, attempts, lost=lost)
        elif answers.ran_out_of_time(error):
            task.state = loop.after_cut_request(task.current, attempts, lost=lost, activity=error.activity_id)
            # It fails before the deadline, if the next attempt would come after it: what is to happen is decided then.
            await waits.for_deadline(task, given, answers.next_attempt_after(error))
        else:
            task.state = loop.after_model_failure(task.current, str(error.cause), attempts, lost=lost)

    async def close(self, end: End) -> TaskResult:
        """Close the task; its close status in Temporal follows from the result. Any cancel comes too late now."""
        task = self.task
        task.closing = True
        closing = asyncio.create_task(asks.close_task(Ending(end=end, state=task.current)))
        with suppress(asyncio.CancelledError, ActivityError):
            await asyncio.shield(closing)
        try:
            result = await closing
        except ActivityError as error:
            task.show(Status.FAILED)
            why = error.cause.message if isinstance(error.cause, ApplicationError) else error.cause
            message = f"failed: the task could not be closed: {why}"
            raise ApplicationError(message, type=names.TASK_NOT_SUCCEEDED, non_retryable=True) from None
        task.ended = result
        task.show(result.status)
        if task.stream is not None:
            await task.stream.let_go()
        if result.status in (Status.SUCCEEDED, Status.UNVERIFIED):
            return result
        if result.status is Status.CANCELLED:
            raise asyncio.CancelledError(reporting.headline(result))
        raise ApplicationError(reporting.headline(result), result, type=names.TASK_NOT_SUCCEEDED, non_retryable=True)

    @workflow.signal(name=names.TASK_WAKE, description="An operation that the task waits for has changed.")
    def wake(self) -> None:
        """Ask the ledger again."""
        self.task.wakes += 1

    @workflow.update(
        name=names.EXTEND_BUDGET,
        description='Add to the budget: {"turns": 5, "cost": "2.50", "because": …, "who": …}; answers the new limits.',
        # It waits for nothing but the task's opening: a task that can't be opened has no budget to extend.
        unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON,
    )
    async def extend_budget(self, *words: Any) -> Limits:
        """Add to the task's budget, whether it runs or waits for that.

        Raises:
            ApplicationError: nothing can be added, and why.
        """
        await workflow.wait_condition(lambda: self.task.state is not None)
        self.task.state = handed_in.extended(self.task.state, words, closing=self.task.closing)
        return budgets.limits_of(self.task.current)

    @extend_budget.validator
    def _must_extend(self, *words: Any) -> None:
        handed_in.extended(self.task.state, words, closing=self.task.closing)

    @workflow.query(name="status", description="Status, counters, what the task waits for, and its open operations.")
    def status(self) -> StatusReport:
        """The task as it stands, as of its last activity."""
        return self.task.report(self.task.stands)

    @workflow.query(name="operations", description="The operations: the open ones, and all once it has ended.")
    def operations(self) -> list[OperationView]:
        """The operations, as of the last activity."""
        return list(reporting.operations(self.task.state, self.task.ended))
