"""What an operator does to tasks, by Temporal's own API: resets, pauses, more attempts, cancels, ends, re-runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import RetryPolicy, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    ResetActivityRequest,
    ResetWorkflowExecutionRequest,
    UnpauseActivityRequest,
    UpdateActivityOptionsRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from settled.workflows.contract.names import DISPATCH
from tests.chaos.naive import RESERVE
from tests.chaos.pace import Pace

NAMESPACE = "default"
BETWEEN_SECONDS = (0.1, 0.7)
"""Between two deeds; longer where not enough has happened meanwhile."""
BETWEEN_EFFECTS = 4
MOST_SECONDS = 3.0
DEEDS = {
    "reset_to_dispatch": 22,
    "reset_to_start": 8,
    "reset_closed": 5,
    "pause": 25,
    "more_attempts": 20,
    "cancel": 5,
    "terminate": 3,
    "re_run": 12,
}
"""How often each is done, relative to the others."""
SENDING = (DISPATCH, RESERVE)
"""The activities that send."""


@dataclass
class Operator:
    """An operator with a busy hand."""

    client: Client
    random: Random
    pace: Pace
    running: Callable[[], Sequence[str]]
    """The ids of the tasks that run."""
    closed: Callable[[], Sequence[str]]
    """The ids of the tasks that have ended."""
    run_again: Callable[[str], Any]
    """Starts a closed task again, with the same request and id."""
    quiet: bool = False
    """Whether nothing is done."""
    done: Counter[str] = field(default_factory=Counter)
    """What was done, by kind."""
    _pausing: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def deeds(self) -> int:
        """How much was done to tasks."""
        return self.done.total() - self.done["in_vain"]

    async def storm(self) -> None:
        """Do things to tasks, without an end."""
        try:
            while True:
                await self.pace.wait(self.random.uniform(*BETWEEN_SECONDS), BETWEEN_EFFECTS, MOST_SECONDS)
                if self.quiet:
                    continue
                deed = self.random.choices(list(DEEDS), weights=list(DEEDS.values()))[0]
                try:
                    if await self._do(deed):
                        self.done[deed] += 1
                except RPCError:  # the server is away, or the task has gone on meanwhile
                    self.done["in_vain"] += 1
        finally:
            await asyncio.gather(*self._pausing, return_exceptions=True)

    async def _do(self, deed: str) -> bool:
        """Do one thing; whether there was something to do it to."""
        tasks = self.closed() if deed in ("re_run", "reset_closed") else self.running()
        if not tasks:
            return False
        task = self.random.choice(tasks)
        handle = self.client.get_workflow_handle(task)
        match deed:
            case "reset_to_dispatch" | "reset_closed":
                return await self._reset(task, to_start=False)
            case "reset_to_start":
                return await self._reset(task, to_start=True)
            case "cancel":
                await handle.cancel()
            case "terminate":
                await handle.terminate(reason="a storm")
            case "re_run":
                await self.run_again(task)
            case _:
                return await self._touch_activity(deed, tasks)
        return True

    async def _reset(self, task: str, *, to_start: bool) -> bool:
        """Reset a task to its first workflow task, or to the one that asked for its last send."""
        at = 0
        async for event in self.client.get_workflow_handle(task).fetch_history_events():
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED and to_start:
                at = event.event_id
                break
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED and not to_start:
                scheduled = event.activity_task_scheduled_event_attributes
                if scheduled.activity_type.name in SENDING:
                    at = scheduled.workflow_task_completed_event_id
        if not at:
            return False
        await self.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=NAMESPACE,
                workflow_execution=WorkflowExecution(workflow_id=task),
                reason="a storm",
                workflow_task_finish_event_id=at,
                request_id=str(uuid4()),
            )
        )
        return True

    async def _touch_activity(self, deed: str, tasks: Sequence[str]) -> bool:
        """Pause an activity that is under way, or allow it more attempts; one that sends, if there is one."""
        looked_at = self.random.sample(tasks, min(len(tasks), 6))
        found = [(task, each) for task in looked_at for each in await self._pending(task)]
        sending = [(task, each) for task, each in found if each.activity_type.name in SENDING]
        if not found:
            return False
        task, activity = self.random.choice(sending or found)
        execution = WorkflowExecution(workflow_id=task)
        which: dict[str, Any] = {"namespace": NAMESPACE, "execution": execution, "id": activity.activity_id}
        if deed == "pause":
            await self.client.workflow_service.pause_activity(PauseActivityRequest(**which, reason="a storm"))
            going_on = asyncio.create_task(self._let_go_on(which))
            self._pausing.add(going_on)
            going_on.add_done_callback(self._pausing.discard)
            return True
        await self.client.workflow_service.update_activity_options(
            UpdateActivityOptionsRequest(
                **which,
                activity_options=ActivityOptions(retry_policy=RetryPolicy(maximum_attempts=5)),
                update_mask=FieldMask(paths=["retry_policy.maximum_attempts"]),
            )
        )
        return True

    async def _let_go_on(self, which: dict[str, Any]) -> None:
        await asyncio.sleep(self.random.uniform(0.5, 3.0))
        with suppress(RPCError):  # it has ended; or the server is away, and the last round lets it go on
            if self.random.random() < 0.5:
                await self.client.workflow_service.unpause_activity(UnpauseActivityRequest(**which))
                self.done["unpause"] += 1
            else:
                await self.client.workflow_service.reset_activity(ResetActivityRequest(**which))
                self.done["reset_activity"] += 1

    async def _pending(self, task: str) -> list[PendingActivityInfo]:
        description = await self.client.get_workflow_handle(task).describe()
        return list(description.raw_description.pending_activities)

    async def let_all_go_on(self) -> None:
        """Take back every pause that is still there."""
        self.quiet = True
        await asyncio.gather(*self._pausing, return_exceptions=True)
        for task in self.running():
            pending: list[PendingActivityInfo] = []
            with suppress(RPCError):  # it has ended meanwhile
                pending = await self._pending(task)
            for activity in pending:
                if activity.paused:
                    execution = WorkflowExecution(workflow_id=task)
                    request = UnpauseActivityRequest(namespace=NAMESPACE, execution=execution, id=activity.activity_id)
                    with suppress(RPCError):  # it has ended meanwhile
                        await self.client.workflow_service.unpause_activity(request)
