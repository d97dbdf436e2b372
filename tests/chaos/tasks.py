"""The tasks of a storm: starting as many as it needs, knowing which run, and what each came to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from google.protobuf.json_format import MessageToJson
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from settled.workflows.contract.names import AGENT_TASK
from tests.chaos.naive import NAIVE_TASK
from tests.chaos.oracle import Ended
from tests.chaos.plan import Plan, TaskPlan

LOOK_SECONDS = 0.5
RETRY_SECONDS = 0.3
SURPLUS = 1.05
"""How many operations are begun for each that is needed: not every task comes to all of its own."""
FEWEST = 8
"""Tasks at once while the last ones come to their end."""
WORKFLOW_TASK_TIMEOUT = timedelta(seconds=5)
"""Half of the usual: what a worker that was killed had in its hands is another one's after that."""
MOST_STARTS = 8
"""Tasks started in one go."""


@dataclass
class Tasks:
    """The tasks of a storm."""

    client: Client
    plan: Plan
    task_queue: str
    seconds: float
    """The time budget of a naive task's write."""
    naive: bool
    enough: Callable[[], Awaitable[bool]]
    """Whether there are as many operations as the storm needs."""
    plans: dict[str, TaskPlan] = field(default_factory=dict)
    """The tasks that were started, by id."""
    running: set[str] = field(default_factory=set)

    @property
    def closed(self) -> list[str]:
        """The tasks that have ended."""
        return [task for task in self.plans if task not in self.running]

    async def feed(self) -> None:
        """Start tasks until there are enough."""
        coming = self.plan.tasks()
        while not await self.enough():
            await self.look()
            planned = sum(len(plan.actions) for plan in self.plans.values())
            # Not all at once, and not many more than are needed: the last ones would run when all is quiet.
            most = self.plan.tasks_at_once if planned < self.plan.operations * SURPLUS else FEWEST
            for _ in range(min(most - len(self.running), MOST_STARTS)):
                await self._start(next(coming))
            await asyncio.sleep(LOOK_SECONDS)

    async def run_again(self, task: str) -> None:
        """Start a task that has ended once more, as it was."""
        with suppress(WorkflowAlreadyStartedError):  # a reset was faster
            await self._ask(self.plans[task])
        self.running.add(task)

    async def _start(self, plan: TaskPlan) -> None:
        while True:
            try:
                await self._ask(plan)
            except WorkflowAlreadyStartedError:
                pass  # the server was killed between its start and its answer
            except RPCError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.plans[plan.id] = plan
            self.running.add(plan.id)
            return

    async def _ask(self, plan: TaskPlan) -> None:
        if self.naive:
            turns = [[action.arguments() for action in turn] for turn in plan.turns]
            name, inputs = NAIVE_TASK, [turns, self.seconds]
        else:
            name, inputs = AGENT_TASK, [{"goal": plan.goal()}]
        await self.client.start_workflow(
            name, args=inputs, id=plan.id, task_queue=self.task_queue, task_timeout=WORKFLOW_TASK_TIMEOUT
        )

    async def look(self) -> None:
        """See which tasks run. The server's list lags behind, so who is missing in it is asked for by name."""
        try:
            name = NAIVE_TASK if self.naive else AGENT_TASK
            query = f'WorkflowType="{name}" AND ExecutionStatus="Running"'
            listed = {each.id async for each in self.client.list_workflows(query)}
            self.running |= listed & self.plans.keys()
            for task in sorted(self.running - listed):
                if await self._status(task) is not WorkflowExecutionStatus.RUNNING:
                    self.running.discard(task)
        except RPCError:
            return  # the server is away

    async def _status(self, task: str) -> WorkflowExecutionStatus | None:
        return (await self.client.get_workflow_handle(task).describe()).status

    async def waiting(self, task: str) -> list[str]:
        """What a task that isn't closed is waiting for, in words."""
        described = (await self.client.get_workflow_handle(task).describe()).raw_description
        lines = [f"    {task} run {described.workflow_execution_info.execution.run_id}"]
        for pending in (described.pending_workflow_task, *described.pending_activities, *described.pending_children):
            lines.append("    pending: " + MessageToJson(pending, indent=None)[:600])
        return lines

    async def ended(self) -> list[Ended]:
        """What each task came to, by its last run."""
        return [await self._ended(plan) for plan in self.plans.values()]

    async def _ended(self, plan: TaskPlan) -> Ended:
        status, said, why = await self._status(plan.id), dict[str, Any](), ""
        try:
            if status in (WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED):
                result = await self.client.get_workflow_handle(plan.id).result()
                said = result if self.naive else json.loads(result["final_text"])
        except WorkflowFailureError as failure:
            why = str(failure.cause)
        return Ended(
            id=plan.id,
            actions=plan.actions,
            closed=status is not WorkflowExecutionStatus.RUNNING,
            normally=status is WorkflowExecutionStatus.COMPLETED,
            done=frozenset((order, sku, line) for order, sku, line, *_ in said.get("done", ())),
            told=frozenset((order, sku, line) for order, sku, line, *_ in said.get("told", ())),
            how=status.name.lower() if status else "unknown",
            why=why,
        )
