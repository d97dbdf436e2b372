"""Routes 7, 8 and 10: the same task in another run, while an old attempt may still be out.

Started again under its closed id, retried, repeated by a cron or a schedule, or by a parent: a run shares its keys with
those before it, and an equal action of another task is the same one. `test_routes` says what the numbers are.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Worker

from settled.local.messages_script import HttpError
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.names import AGENT_TASK
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.contract.result import TaskResult
from tests.crash.handlers import Stubborn
from tests.crash.operator import Handle, current, run_after, start_by_hand, time_out_soon
from tests.crash.operator import temporal as temporal_command
from tests.crash.outcomes import (
    TASK,
    a_write_that_is_out,
    assert_reserved_once,
    disarm,
    in_ledger,
    until_both_succeeded,
    until_it_is,
    until_it_waits,
)
from tests.desk import Desk, open_desk, reserve, result_of, status_of, until


async def test_route_8_a_start_after_success_sends_once(desk: Desk) -> None:
    """R63, B51: `temporal workflow start` runs a closed id again; the stored result is what it gets."""
    desk.will_say(reserve(), "Reserved.", reserve(), "Reserved, as before.")
    handle = await desk.start(TASK)
    await result_of(handle)
    again = await start_by_hand(desk, handle.id, TASK)
    result = await result_of(again)
    assert result.final_text == "Reserved, as before."
    assert "not executed again" in json.dumps(desk.model.requests[-1]["messages"])
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_8_a_start_after_a_failure_sends_once(desk: Desk) -> None:
    """R63, R94: a failed task is started again; what it had done is not done again."""
    desk.will_say(reserve(), HttpError(400, "invalid_request_error", "no such thing"), reserve(), "Reserved.")
    handle = await desk.start(TASK)
    assert (await result_of(handle)).end_reason is EndReason.MODEL_ERROR
    result = await result_of(await start_by_hand(desk, handle.id, TASK))
    await assert_reserved_once(desk, result, "claimed", "succeeded")


@pytest.mark.parametrize("how", ["terminate and start", "TerminateExisting"])
async def test_routes_7_and_8_a_start_after_a_termination_waits_for_the_old_attempt(
    patient_desk: Desk, how: str
) -> None:
    """R63, R69: the terminated run's attempt is still out, beside the new run."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    desk.script.insert(1, desk.script[0])
    options = ["--id-conflict-policy", how]
    if how == "terminate and start":
        await temporal_command(desk, "workflow", "terminate", "--workflow-id", handle.id)
        options = []
    again = await start_by_hand(desk, handle.id, TASK, *options)
    await until_it_waits(desk, handle.id)
    assert (await again.describe()).run_id != handle.first_execution_run_id
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(again), "claimed", "succeeded")


async def test_route_7_a_cancelled_attempt_that_goes_on_beside_a_new_run_has_one_effect(
    temporal: Client, tmp_path: Path
) -> None:
    """R69: it ignores its deadline and its cancel, and writes after the new run has; both have one key."""
    tool = Stubborn()
    async with open_desk(temporal, tmp_path, registry=tool.registry(lands_within=60.0)) as desk:
        try:
            desk.will_say(reserve(), reserve(), "Reserved.")
            await desk.arm("lookup_fails", times=1000)
            handle = await desk.start(TASK)
            await until_it_is(desk, OperationState.DISPATCHED)
            await temporal_command(desk, "workflow", "cancel", "--workflow-id", handle.id)
            await time_out_soon(desk, handle, seconds=0.2)
            with pytest.raises(WorkflowFailureError) as ended:
                await result_of(handle)
            assert isinstance(ended.value.cause, CancelledError)
            await disarm(desk)
            result = await result_of(await start_by_hand(desk, handle.id, TASK))
            journal = ("claimed", "expired", "absent_resend", "claimed", "succeeded")
            await assert_reserved_once(desk, result, *journal, sends=2)
        finally:
            tool.let_go.set()
        await until_both_succeeded(desk)
        await assert_reserved_once(desk, result, *journal, "succeeded", sends=2, posts=2)


async def test_route_8_a_start_while_a_settlement_is_at_work_waits_for_it(desk: Desk) -> None:
    """R66, R67: the unknown write of the terminated run is looked up; the new run gets what was found."""
    desk.will_say(reserve(), reserve(), "Reserved.")
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    handle = await desk.start(TASK)
    operation = await until_it_is(desk, OperationState.UNKNOWN)
    await temporal_command(desk, "workflow", "terminate", "--workflow-id", handle.id)
    again = await start_by_hand(desk, handle.id, TASK)
    await until_it_waits(desk, handle.id)
    settlement = await desk.settlement(operation)
    assert (await settlement.describe()).status is WorkflowExecutionStatus.RUNNING
    await disarm(desk)
    result = await result_of(again)
    await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)


async def test_route_10_a_run_that_times_out_and_is_retried_by_temporal_sends_once(patient_desk: Desk) -> None:
    """R63: a workflow retry policy, which the `temporal` command can't set, but another client can."""
    desk = patient_desk
    desk.will_say(reserve(), reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    policy = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(seconds=0.1))
    handle = await desk.start(TASK, run_timeout=timedelta(seconds=5), retry_policy=policy)
    await until(lambda: run_after(desk, handle.id, handle.first_execution_run_id))
    await until_it_waits(desk, handle.id)
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(current(desk, handle)), "claimed", "succeeded")


async def test_route_10_a_failed_task_is_not_retried_by_temporal(desk: Desk) -> None:
    """R94, B36: our failures are final, whatever the workflow's retry policy says."""
    desk.will_say(reserve(), HttpError(400, "invalid_request_error", "no such thing"))
    handle = await desk.start(TASK, retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.1)))
    assert (await result_of(handle)).status is Status.FAILED
    assert not await run_after(desk, handle.id, handle.first_execution_run_id)
    assert len(await desk.effects()) == 1


async def test_route_10_a_cron_does_nothing_again(desk: Desk) -> None:
    """R63: each run has the task's id, and so its keys."""
    for _ in range(5):
        desk.will_say(reserve(), "Reserved.")
    handle = await desk.start(TASK, cron_schedule="@every 1s")
    second = await until(lambda: run_after(desk, handle.id, handle.first_execution_run_id))
    await until(lambda: run_after(desk, handle.id, second))
    await current(desk, handle).terminate()
    for run in (handle.first_execution_run_id, second):
        report = await status_of(desk.client.get_workflow_handle(handle.id, run_id=run))
        assert (report.status, report.ledger.tally.completed) == (Status.SUCCEEDED, 1)
    assert "not executed again" in json.dumps(desk.model.requests[3]["messages"])
    (operation,) = await in_ledger(desk)
    assert await desk.journal(operation) == ["claimed", "succeeded"]
    assert len(await desk.effects()) == 1


async def is_over(second: str) -> bool:
    """Whether this second of the day, as a schedule writes it into its tasks' ids, is over."""
    return datetime.now(UTC).strftime("%H:%M:%SZ") != second


async def tasks_of(desk: Desk, schedule: str, number: int) -> list[Handle]:
    """The tasks that a schedule has started, once there are so many."""
    query = f'TemporalScheduledById="{schedule}"'
    ids = [listed.id async for listed in desk.client.list_workflows(query)]
    handles = [desk.client.get_workflow_handle(task, result_type=TaskResult) for task in ids]
    return handles if len(handles) == number else []


@pytest.mark.parametrize("how", ["overlap", "backfill"])
async def test_route_10_a_schedule_that_overlaps_or_is_backfilled_sends_once(patient_desk: Desk, how: str) -> None:
    """R63: each start is a task of its own, and its equal action the same one, by its business scope."""
    desk = patient_desk
    desk.will_say(reserve(), reserve(), "Reserved.", "Reserved.")
    desk.may_ask_again(1)  # there are two tasks, which the schedule starts
    await desk.arm("hold_reply_after_commit")
    schedule = f"schedule-{uuid4().hex[:12]}"
    what = ("--type", AGENT_TASK, "--task-queue", desk.parts.settings.task_queue, "--input", json.dumps(TASK))
    when = ("--interval", "1h", "--overlap-policy", "AllowAll", "--remaining-actions", "0")
    named = ("--schedule-id", schedule)
    await temporal_command(desk, "schedule", "create", *named, "--workflow-id", schedule, *what, *when)
    try:
        if how == "backfill":
            now = datetime.now(UTC)
            since, to = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (now - timedelta(hours=2), now))
            span = ("--start-time", since, "--end-time", to, "--overlap-policy", "AllowAll")
            await temporal_command(desk, "schedule", "backfill", *named, *span)
        else:
            await temporal_command(desk, "schedule", "trigger", *named)
            (first,) = await until(lambda: tasks_of(desk, schedule, 1))
            await until(lambda: is_over(first.id[-len("00:00:00Z") :]))
            await temporal_command(desk, "schedule", "trigger", *named, "--overlap-policy", "AllowAll")
        tasks = await until(lambda: tasks_of(desk, schedule, 2))
        await desk.model.until(lambda server: server.count == 2)
        await until(desk.effects)
        await disarm(desk)
        results = [await result_of(task) for task in tasks]
    finally:
        await temporal_command(desk, "schedule", "delete", *named)
    for result in results:
        await assert_reserved_once(desk, result, "claimed", "succeeded")


@workflow.defn(sandboxed=False)
class Parent:
    """A workflow of somebody's that runs a task as its child, and is retried while the child is at work."""

    def __init__(self) -> None:
        self.told = False

    @workflow.run
    async def run(self, queue: str, task: str) -> Any:
        """Run the task; the first attempt fails once it is told to, which terminates its child."""
        child = await workflow.start_child_workflow(
            AGENT_TASK, TASK, id=task, task_queue=queue, id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE
        )
        if workflow.info().attempt == 1:
            await workflow.wait_condition(lambda: self.told)
            raise ApplicationError("try again")
        return await child

    @workflow.signal
    def fail(self) -> None:
        """Fail the first attempt."""
        self.told = True


async def test_routes_7_and_10_a_parent_that_is_retried_runs_its_child_again_and_sends_once(patient_desk: Desk) -> None:
    """R63: the first child is terminated with its parent; its attempt is out, beside the second child."""
    desk, task, queue = patient_desk, f"task-{uuid4().hex[:12]}", f"parents-{uuid4().hex[:8]}"
    desk.will_say(reserve(), reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    async with Worker(desk.client, task_queue=queue, workflows=[Parent]):
        parent = await desk.client.start_workflow(
            Parent.run,
            args=[desk.parts.settings.task_queue, task],
            id=f"parent-of-{task}",
            task_queue=queue,
            retry_policy=RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_attempts=5),
        )
        await until(desk.effects)
        await parent.signal(Parent.fail)
        child = desk.client.get_workflow_handle(task)
        first = (await child.describe()).run_id
        await until(lambda: run_after(desk, task, first))
        await until_it_waits(desk, task)
        await disarm(desk)
        result = TaskResult.model_validate(await parent.result())
    await assert_reserved_once(desk, result, "claimed", "succeeded")
