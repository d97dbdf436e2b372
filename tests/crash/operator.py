"""What an operator does: the `temporal` command, and what is seen of a task's history."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import BatchOperationState, EventType, PendingActivityState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import DescribeBatchOperationRequest, DescribeBatchOperationResponse
from temporalio.client import WorkflowHandle

from settled.workflows.contract.names import AGENT_TASK, DISPATCH
from settled.workflows.contract.result import TaskResult
from tests.desk import Desk, until

Handle = WorkflowHandle[Any, Any]


def address_of(desk: Desk) -> str:
    """The Temporal server's address."""
    return desk.client.service_client.config.target_host


async def run_temporal(desk: Desk, *words: str) -> tuple[int, str]:
    """Run the `temporal` command; returns its exit code and all that it says."""
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).parent / "temporal"), *words),
        *("--address", address_of(desk), "--disable-config-file", "--disable-config-env"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return await process.wait(), said.decode()


async def temporal(desk: Desk, *words: str) -> None:
    """Run the `temporal` command, which must succeed."""
    code, said = await run_temporal(desk, *words)
    assert code == 0, f"temporal {' '.join(words)}: {said}"


async def temporal_of_many(desk: Desk, *words: str) -> None:
    """Run a `temporal` command as one batch job over all open tasks of the desk, and wait until the job has ended."""
    query = f'TaskQueue="{desk.parts.settings.task_queue}" AND WorkflowType="{AGENT_TASK}"'
    query += ' AND ExecutionStatus="Running"'
    code, said = await run_temporal(desk, *words, "--query", query, "--yes", "--output", "json")
    assert code == 0, f"temporal {' '.join(words)}: {said}"
    which = DescribeBatchOperationRequest(namespace=desk.client.namespace, job_id=json.loads(said)["batchJobId"])

    async def ended() -> DescribeBatchOperationResponse | None:
        job = await desk.client.workflow_service.describe_batch_operation(which)
        return None if job.state == BatchOperationState.BATCH_OPERATION_STATE_RUNNING else job

    job = await until(ended)
    assert (job.failure_operation_count, job.complete_operation_count) == (0, job.total_operation_count), job
    assert job.total_operation_count > 1, "it is a job over many"


async def scheduled(handle: Handle, activity: str) -> list[HistoryEvent]:
    """The events that schedule an activity of this type, in order."""
    return [
        event
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        and event.activity_task_scheduled_event_attributes.activity_type.name == activity
    ]


async def of_activity(handle: Handle, activity: str = DISPATCH) -> tuple[str, ...]:
    """The options that name the task's last activity of this type to the `temporal` command."""
    event = (await scheduled(handle, activity))[-1]
    name = event.activity_task_scheduled_event_attributes.activity_id
    return ("--workflow-id", handle.id, "--activity-id", name)


async def time_out_soon(desk: Desk, handle: Handle, *options: str, activity: str = DISPATCH, seconds: float) -> None:
    """Shorten the timeout of an activity that is running, so that nobody waits for a worker that is gone."""
    which = await of_activity(handle, activity)
    timeout = ("--start-to-close-timeout", f"{seconds}s")
    await temporal(desk, "activity", "update-options", *which, *timeout, *options)


async def reset(desk: Desk, handle: Handle, *, to_before: str, number: int = -1) -> Handle:
    """Reset a task to before it scheduled an activity of this type, the last one by default; returns how it goes on."""
    event = (await scheduled(handle, to_before))[number]
    at = event.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
    return await reset_by(desk, handle, "--event-id", str(at))


async def reset_by(desk: Desk, handle: Handle, *options: str) -> Handle:
    """Reset a task as the options say; returns the task as it goes on."""
    which = ("--workflow-id", handle.id, "--reason", "an operator tries again")
    await temporal(desk, "workflow", "reset", *options, *which)
    return current(desk, handle)


def current(desk: Desk, handle: Handle) -> Handle:
    """The task in whatever run it is in now."""
    return desk.client.get_workflow_handle(handle.id, result_type=TaskResult)


async def start_by_hand(desk: Desk, task: str, request: Any, *options: str) -> Handle:
    """Start a task with the `temporal` command; returns it in whatever run it is in."""
    what = ("--type", AGENT_TASK, "--task-queue", desk.parts.settings.task_queue, "--workflow-id", task)
    await temporal(desk, "workflow", "start", *what, "--input", json.dumps(request), *options)
    return desk.client.get_workflow_handle(task, result_type=TaskResult)


async def run_after(desk: Desk, task: str, run: str | None) -> str | None:
    """The current run of a workflow, if it is another one by now."""
    description = await desk.client.get_workflow_handle(task).describe()
    return description.run_id if description.run_id != run else None


async def is_paused(handle: Handle) -> bool:
    """Whether an activity of the task is paused, and doesn't run any more."""
    pending = (await handle.describe()).raw_description.pending_activities
    return any(each.state == PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED for each in pending)


async def until_paused(handle: Handle) -> None:
    """Wait until an activity of the task is paused, and doesn't run any more."""
    await until(lambda: is_paused(handle))
