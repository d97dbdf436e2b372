"""The workflow of one agent task: the loop, with every exit in sight. It asks and carries out; it decides nothing.

checkpoint ──▶ request the model ──▶ run its calls ──▶ checkpoint … ──▶ close
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    import settled.workflows.handed_in as handed_in  # noqa: PLR0402  # see above
    import settled.workflows.loop as loop  # noqa: PLR0402  # see above
    import settled.workflows.reporting as reporting  # noqa: PLR0402  # see above
    import settled.workflows.streaming as streaming  # noqa: PLR0402  # see above
    from settled.workflows.contract import names
    from settled.workflows.contract.calls import CallResult
    from settled.workflows.contract.ending import Status
    from settled.workflows.contract.loop import Ending, LoopState
    from settled.workflows.contract.operation import OperationView, Order, Outcome, Standing
    from settled.workflows.contract.result import StatusReport, TaskResult
    from settled.workflows.contract.task import Limits
    from settled.workflows.contract.turn import Effect, End, Proposal


@workflow.defn(name=names.AGENT_TASK)
class AgentTask:
    """Runs an agent task from its request to a judged end."""

    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self.state: LoopState | None = handed_in.carried(inputs)
        self.ended: TaskResult | None = None
        self.shown: Status | None = None
        self.wakes = 0
        """How many times somebody said that an operation has changed."""
        self.waiting: dict[int, str] = {}
        """What the calls that wait are waiting for, by slot."""
        self.handed_over: set[int] = set()
        """The slots of writes whose outcome is being found out."""
        self.reviews = 0
        self.closing = False
        """Whether the end is decided, so that nothing can be added any more."""
        self.stream: streaming.TaskStream | None = None
        if self.state is not None:
            self.open_stream(self.state)  # here, since a reader of the run before may be the first to call

    @workflow.run
    async def run(self, *inputs: Any) -> TaskResult:
        """Run the task.

        Args:
            inputs: one JSON object of the form of `TaskRequest`, or one JSON string with the goal.
        """
        if self.state is None:
            self.state = await self.open(inputs)
            self.open_stream(self.state)
        while (end := await self.checkpoint(self.state)) is None:
            if short := loop.exhausted(self.state, workflow.now().timestamp()):
                await self.wait_for_budget(short)
                continue
            self.show(Status.RUNNING)
            if loop.has_calls_to_run(self.state):
                await self.run_calls(self.state)
            elif loop.must_settle_first(self.state):
                await self.settle_leftovers(self.state)
            else:
                await self.request_model(self.state)
        return await self.close(end)

    async def open(self, inputs: tuple[Any, ...]) -> LoopState:
        """Open the task, or fail it at once with a line for each fault."""
        if too_large := reporting.fault_of_size(inputs, workflow.payload_converter()):
            self.show(Status.FAILED)
            raise handed_in.invalid([too_large])
        try:
            opened = await asks.open_task(inputs)
        except asyncio.CancelledError:
            self.show(Status.CANCELLED)
            raise
        if opened.faults:
            self.show(Status.FAILED)
            raise handed_in.invalid(opened.faults)
        return loop.first_state(opened, workflow.now().timestamp())

    def open_stream(self, state: LoopState) -> None:
        """Make the task's stream, if it is to have one."""
        if state.opened.conduct.stream:
            self.stream = streaming.TaskStream(state.stream)
            self.state = state.model_copy(update={"stream": None})  # carried on at the next cut, and nowhere else

    async def checkpoint(self, state: LoopState) -> End | None:
        """Before each model request and each wait: is it over, and is it time for a new run?"""
        if workflow.cancellation_reason() is not None:
            return loop.aborted(state)
        if (end := loop.decided_end(state, workflow.now().timestamp())) is not None:
            return end
        if not self.wants_cut(state):
            return None
        if self.stream is not None:
            await self.stream.let_go()
            state = self.current.model_copy(update={"stream": self.stream.kept()})  # it may have changed meanwhile
        if workflow.all_handlers_finished() and workflow.cancellation_reason() is None:
            workflow.continue_as_new(state)
        return None

    async def request_model(self, state: LoopState) -> None:
        """Ask the model once, and take what it led to."""
        try:
            left = loop.seconds_left(state, workflow.now().timestamp())
            turn = await asks.request_model(loop.question(state), state.opened.conduct, left)
        except asyncio.CancelledError:
            return
        except ActivityError as error:
            if workflow.cancellation_reason() is None:
                await self.go_on_without(error, budgets.limits_of(state).wall_seconds)
            return
        self.state = loop.after_turn(self.current, turn)  # the budget may have been extended meanwhile
        if self.stream is not None:
            self.stream.trim()

    async def go_on_without(self, error: ActivityError, given: float) -> None:
        """A model request has failed for good: the task ends so, unless it was its deadline that cut the request short.

        Args:
            error: the failure.
            given: the task's seconds, as the request knew them.
        """
        attempts, short = answers.attempts_of(error), answers.ran_out_of_time(error)
        if not short:
            self.state = loop.after_model_failure(self.current, str(error.cause), attempts)
            return
        self.state = loop.after_late_request(self.current, attempts)
        # It fails before the deadline, if the next attempt would come after it: what is to happen is decided then.
        left = loop.seconds_left(self.current, workflow.now().timestamp())
        if left <= 0:
            return
        try:
            await workflow.wait_condition(lambda: budgets.limits_of(self.current).wall_seconds != given, timeout=left)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if workflow.cancellation_reason() is None:
                raise

    async def run_calls(self, state: LoopState) -> None:
        """Run the turn's calls, batch after batch, as far as nothing stops them."""
        open_calls = {call.slot: call for call in state.pending.open_calls()}
        results: dict[int, CallResult] = {}
        for batch in state.pending.batches:
            calls = [open_calls[slot] for slot in batch if slot in open_calls]
            if not calls:
                continue
            results |= await self.run_batch(calls)
            if self.must_stop() or not all(call.slot in results for call in calls):
                break
        self.state = loop.after_calls(self.current, results, self.handed_over)
        self.waiting.clear()
        self.handed_over.clear()

    async def run_batch(self, calls: list[Proposal]) -> dict[int, CallResult]:
        """Run these calls together. On a cancel, writes that are out are awaited for as long as they may take."""
        running = {call.slot: asyncio.create_task(self.run_call(call)) for call in calls}
        try:
            await workflow.wait(running.values())
        except asyncio.CancelledError:
            for call in calls:
                if call.effect is Effect.READ:
                    running[call.slot].cancel()
            grace = max(call.seconds for call in calls) + asks.ATTEMPT_MARGIN.total_seconds()
            await workflow.wait(running.values(), timeout=grace)
        ended = {slot: task.result() for slot, task in running.items() if task.done() and not task.cancelled()}
        return {slot: result for slot, result in ended.items() if result is not None}

    async def run_call(self, call: Proposal) -> CallResult | None:
        """Run one call; None if it has to be left open."""
        if call.effect is Effect.WRITE:
            return await self.write(call)
        try:
            return await asks.run_read(self.current.head, call, self.current.opened.conduct)
        except (asyncio.CancelledError, ActivityError):
            return None

    async def write(self, call: Proposal) -> CallResult | None:
        """Send a write, and wait until it is settled, however long that takes; None if it has to be left open."""
        assert call.intent is not None, "admission gives each write its intent"
        order = Order(
            head=self.current.head, slot=call.slot, tool=call.tool, intent=call.intent, permit=1, seconds=call.seconds
        )
        seen, asked = self.wakes, 0
        # A write that waits for a resource was not sent: after a continue-as-new it is simply dispatched again.
        handed_over = call.slot in self.current.pending.handed_over
        order = order.model_copy(update={"known": handed_over})
        outcome = await (asks.reconcile if handed_over else asks.dispatch)(order)
        while outcome.standing is not Standing.SETTLED:
            self.state = loop.with_ledger(self.current, outcome.ledger)
            self.waiting[call.slot] = reporting.waits_for(call, outcome)
            if outcome.standing is not Standing.SEND and loop.is_about(outcome, order):
                self.handed_over.add(call.slot)
            if not await self.wait(outcome, seen, asked):
                return None
            seen, asked = self.wakes, asked + 1
            permit = outcome.permit if loop.is_about(outcome, order) else order.permit
            order = order.model_copy(update={"permit": permit, "known": loop.knows(outcome, order)})
            outcome = await (asks.dispatch if loop.may_send(outcome, order) else asks.reconcile)(order)
        self.waiting.pop(call.slot, None)
        self.state = loop.with_ledger(self.current, outcome.ledger)
        return outcome.result

    async def wait(self, outcome: Outcome, seen: int, asked: int) -> bool:
        """Wait until something has changed, at the latest until the next look is due. False: stop waiting."""
        left = loop.seconds_left(self.current, workflow.now().timestamp())
        if self.must_stop():
            return False
        if outcome.standing is Standing.SEND and outcome.after <= 0:
            return True
        self.show(Status.WAITING)
        pause = loop.pause(outcome, self.current.opened.conduct, asked)
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(lambda: self.wakes > seen or self.must_stop(), timeout=min(pause, left))
        return not self.must_stop()

    async def wait_for_budget(self, short: Sequence[budgets.Reached]) -> None:
        """Wait until the budget is extended. It takes one timer at the most: for the deadline, if that is ahead."""
        self.waiting[-1] = budgets.waits_for(short, workflow.info().workflow_id)
        self.show(Status.WAITING)
        left = loop.seconds_left(self.current, workflow.now().timestamp())
        try:
            await workflow.wait_condition(lambda: self.goes_on(short), timeout=left if left > 0 else None)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if workflow.cancellation_reason() is None:
                raise
        self.waiting.clear()

    def goes_on(self, short: Sequence[budgets.Reached]) -> bool:
        """Whether a task that waits for its budget has to look again."""
        state = self.current
        changed = loop.exhausted(state, workflow.now().timestamp()) != short
        # Readers don't finish by themselves: the cut itself lets them go.
        quiet = self.stream is not None or workflow.all_handlers_finished()
        return changed or (self.wants_cut(state) and quiet)

    async def settle_leftovers(self, state: LoopState) -> None:
        """The model says that it is done, but operations that it doesn't remember aren't settled: wait for them."""
        seen = self.wakes
        try:
            ledger = await asks.review()
            self.state = loop.with_ledger(self.current, ledger)
            if loop.must_settle_first(self.state):
                self.waiting[-1] = reporting.waits_for_leftovers(self.state)
                pause = Outcome(standing=Standing.WAIT, permit=0, after=state.opened.conduct.recheck_seconds)
                await self.wait(pause, seen, self.reviews)
        except (asyncio.CancelledError, ActivityError):
            if workflow.cancellation_reason() is None:
                raise
        self.reviews += 1
        self.waiting.clear()

    async def close(self, end: End) -> TaskResult:
        """Close the task; its close status in Temporal follows from the result. Any cancel comes too late now."""
        self.closing = True
        closing = asyncio.create_task(asks.close_task(Ending(end=end, state=self.current)))
        with suppress(asyncio.CancelledError, ActivityError):
            await asyncio.shield(closing)
        try:
            result = await closing
        except ActivityError as error:
            self.show(Status.FAILED)
            why = error.cause.message if isinstance(error.cause, ApplicationError) else error.cause
            message = f"failed: the task could not be closed: {why}"
            raise ApplicationError(message, type=names.TASK_NOT_SUCCEEDED, non_retryable=True) from None
        self.ended = result
        self.show(result.status)
        if self.stream is not None:
            await self.stream.let_go()
        if result.status in (Status.SUCCEEDED, Status.UNVERIFIED):
            return result
        if result.status is Status.CANCELLED:
            raise asyncio.CancelledError(reporting.headline(result))
        raise ApplicationError(reporting.headline(result), result, type=names.TASK_NOT_SUCCEEDED, non_retryable=True)

    @property
    def current(self) -> LoopState:
        """The state, once the task is open."""
        assert self.state is not None, "the task is open"
        return self.state

    def must_stop(self) -> bool:
        """Whether calls are to be left open: the checkpoint will say why."""
        state = self.current
        ending = state.ending is not None and not loop.must_settle_first(state)
        late = loop.seconds_left(state, workflow.now().timestamp()) <= 0
        return ending or late or workflow.cancellation_reason() is not None or self.wants_cut(state)

    def wants_cut(self, state: LoopState) -> bool:
        """Whether the history is long enough for a new run."""
        info = workflow.info()
        return info.is_continue_as_new_suggested() or info.get_current_history_length() >= loop.cut_at(state)

    def show(self, status: Status) -> None:
        """Show the status where lists and the web page show it. Only a change costs an event."""
        if self.state is not None:
            workflow.set_current_details(reporting.details(self.report(status), self.state.opened, self.ended))
        if status is not self.shown:
            self.shown = status
            workflow.upsert_memo(reporting.memo(status, self.state, self.ended))

    def report(self, status: Status) -> StatusReport:
        """The task as it stands."""
        return reporting.report(self.state, status, tuple(self.waiting.values()), self.ended)

    @workflow.signal(name=names.TASK_WAKE, description="An operation that the task waits for has changed.")
    def wake(self) -> None:
        """Ask the ledger again."""
        self.wakes += 1

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
        await workflow.wait_condition(lambda: self.state is not None)
        self.state = handed_in.extended(self.state, words, closing=self.closing)
        return budgets.limits_of(self.current)

    @extend_budget.validator
    def _must_extend(self, *words: Any) -> None:
        handed_in.extended(self.state, words, closing=self.closing)

    @workflow.query(name="status", description="Status, counters, what the task waits for, and its open operations.")
    def status(self) -> StatusReport:
        """The task as it stands, as of its last activity."""
        return self.report(self.shown or Status.RUNNING)

    @workflow.query(name="operations", description="The operations: the open ones, and all once it has ended.")
    def operations(self) -> list[OperationView]:
        """The operations, as of the last activity."""
        return list(reporting.operations(self.state, self.ended))
