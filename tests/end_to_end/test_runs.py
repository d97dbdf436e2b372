"""One task in several runs: continue-as-new, reset, and what history costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle, WorkflowHistoryEventFilterType

from settled.local.messages_script import Reply
from settled.workflows.contract.ending import EndReason, Status
from tests.desk import Desk, look_up, open_desk, reserve, until
from tests.end_to_end.test_loop import results_in
from tests.end_to_end.test_writes import waits
from tests.measure_history import history_sizes

GOAL = "reserve 2 of A1 for order 1001"


async def runs_of(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The run ids of a task, the first one first."""
    runs = [str(handle.first_execution_run_id)]
    while True:
        history = await handle._client.get_workflow_handle(handle.id, run_id=runs[-1]).fetch_history(
            event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT
        )
        closed = history.events[-1].workflow_execution_continued_as_new_event_attributes
        if not closed.new_execution_run_id:
            return runs
        runs.append(closed.new_execution_run_id)


@pytest.mark.parametrize("cut_events", [8_000, 50])
async def test_r9_a_cut_run_ends_like_an_uncut_one(temporal: Client, tmp_path: Path, cut_events: int) -> None:
    """The same requests, counters, operations and result, in one run or in several."""
    async with open_desk(temporal, tmp_path, cut_events=cut_events) as desk:
        desk.will_say(*(look_up() for _ in range(4)), reserve(), *(look_up() for _ in range(4)), "Reserved.")
        handle = await desk.start({"goal": GOAL})
        result = await desk.result(handle)
        runs = await runs_of(handle)
        assert len(runs) == (1 if cut_events == 8_000 else 3)
        assert (result.status, result.end_reason) == (Status.UNVERIFIED, EndReason.COMPLETED)
        assert (result.counters.turns, result.counters.requests, result.counters.calls) == (9, 10, 9)
        assert [operation.state for operation in result.operations] == ["completed"]
        assert len(desk.model.requests[-1]["messages"]) == 19
        assert desk.model.refusals == []
        assert len(await desk.effects()) == 1
        if cut_events == 50:
            for number, run in enumerate(runs):
                await desk.record(f"cut_run_{number + 1}", desk.client.get_workflow_handle(handle.id, run_id=run))


async def test_b03_calls_that_wait_are_carried_over_to_the_next_run(temporal: Client, tmp_path: Path) -> None:
    """Weeks of waiting need no long history: a waiting call is a quiet point, and its result comes all the same."""
    async with open_desk(temporal, tmp_path, cut_events=50, recheck_seconds=0.05) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=100_000)
        desk.will_say(Reply.of(look_up(), reserve()), "Reserved.")
        handle = await desk.start({"goal": GOAL})
        await until(lambda: waits(handle, "being looked up"))
        second = await until(lambda: later_run_of(handle))
        await desk.http.delete(f"{desk.stock.url}/faults")
        result = await desk.result(handle)
        assert [operation.state for operation in result.operations] == ["completed"]
        assert len(results_in(desk.model.requests[1])) == 2
        assert len(await desk.effects()) == 1
        await desk.record("carried_wait", desk.client.get_workflow_handle(handle.id, run_id=second))


async def later_run_of(handle: WorkflowHandle[Any, Any]) -> str | None:
    """The task's current run, if it isn't the first any more."""
    description = await handle._client.get_workflow_handle(handle.id).describe()
    return description.run_id if description.run_id != handle.first_execution_run_id else None


async def reset_before(handle: WorkflowHandle[Any, Any], activity: str) -> WorkflowHandle[Any, Any]:
    """Reset the task to before its first activity of that type was scheduled; returns the new run."""
    history = await handle.fetch_history()
    at = next(
        event.activity_task_scheduled_event_attributes.workflow_task_completed_event_id
        for event in history.events
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity
    )
    client: Client = handle._client
    response = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id),
            reason="test",
            workflow_task_finish_event_id=at,
            request_id=f"reset-{handle.id}-{at}",
        )
    )
    return client.get_workflow_handle(handle.id, run_id=response.run_id, result_type=handle._result_type)


async def test_b52_a_reset_to_before_the_write_with_the_old_attempt_still_running_has_one_effect(desk: Desk) -> None:
    """R63: the run id changes, the key doesn't; the second dispatch finds the permit spent."""
    await desk.arm("hold_reply_after_commit", seconds=1.0)
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start({"goal": GOAL})
    await until(desk.effects)
    again = await reset_before(handle, "dispatch")
    result = await desk.result(again)
    assert [(operation.state, operation.sends) for operation in result.operations] == [("completed", 1)]
    assert (await desk.requests())["POST /reservations"] == 1
    assert len(await desk.effects()) == 1
    await desk.record("reset_during_write", again)


async def test_r63_a_reset_to_before_the_model_request_tells_the_model_what_was_done(desk: Desk) -> None:
    """The new run's conversation doesn't know of the write: it is told, and what it proposes isn't done again."""
    desk.will_say(reserve(), "Reserved.", reserve(), "It was reserved already.")
    handle = await desk.start({"goal": GOAL})
    await desk.result(handle)
    again = await reset_before(handle, "request_model")
    result = await desk.result(again)
    told = desk.model.requests[2]["messages"][-1]["content"][-1]["text"]
    assert "reserve_stock" in told
    assert "completed" in told
    assert "not executed again" in json.loads(results_in(desk.model.requests[3])[0]["content"])["repeated"]
    assert len(await desk.effects()) == 1
    assert len(result.operations) == 1
    assert desk.model.refusals == []


@pytest.mark.long
@pytest.mark.parametrize("turns", [40])
async def test_history_per_turn_is_constant_at_20_kb_outputs(temporal: Client, tmp_path: Path, turns: int) -> None:
    """At most 3 kB a turn, and no more at the end than at the beginning."""
    sizes = await history_sizes(temporal, tmp_path, (turns // 2, turns))
    few, many = sizes[turns // 2], sizes[turns]
    assert many.bytes / turns <= 3_000
    assert (many.bytes - few.bytes) / (turns // 2) <= 3_000
    assert (many.events - few.events) / (turns // 2) <= 13
