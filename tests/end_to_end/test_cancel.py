"""Cancel is no rollback: what was sent is awaited or handed on, what was not is withdrawn, and effects are listed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError

from settled.local.messages_script import Reply
from settled.worker.wiring import make_worker
from settled.workflows.contract.operation import OperationState, OperationView
from settled.workflows.contract.result import StatusReport
from settled.workflows.contract.turn import Usage
from tests.desk import Desk, look_up, open_desk, reserve, status_of, until
from tests.end_to_end.test_writes import waits

GOAL = "reserve 2 of A1 for order 1001"


async def cancelled(handle: WorkflowHandle[Any, Any]) -> dict[str, Any]:
    """Wait for the task's end, which must be Canceled; returns its memo."""
    with pytest.raises(WorkflowFailureError) as failure:
        async with asyncio.timeout(20):
            await handle.result()
    assert isinstance(failure.value.cause, CancelledError)
    description = await handle.describe()
    assert description.status is WorkflowExecutionStatus.CANCELED
    return dict(await description.memo())


async def last_results(desk: Desk, handle: WorkflowHandle[Any, Any]) -> list[dict[str, Any]]:
    """The results that close the transcript of an ended task, by its close activity's own record."""
    history = await handle.fetch_history()
    completed = [event for event in history.events if event.HasField("activity_task_completed_event_attributes")]
    head = json.loads(completed[-1].activity_task_completed_event_attributes.result.payloads[0].data)["head"]
    chain = await desk.parts.stores.transcripts.chain(head)
    return [block for block in chain[-1].content if block["type"] == "tool_result"]


async def test_r91_a_cancel_reaches_a_model_request_in_flight(desk: Desk) -> None:
    """R48, R92: `aborted_model`; no call of an unfinished response is run."""
    await desk.parts.provider.warm_up()  # which takes seconds
    hold = asyncio.Event()
    desk.will_say(Reply.of(reserve(), hold=hold))
    handle = await desk.start(GOAL)
    await desk.model.until(lambda server: server.count == 1)
    await handle.cancel()
    memo = await cancelled(handle)
    hold.set()
    assert (memo["status"], memo["end_reason"]) == ("cancelled", "aborted_model")
    assert await desk.effects() == []
    report = await status_of(handle)
    assert (report.counters.requests, report.counters.attempts) == (1, 1), "what was cut off was sent, and is paid for"
    await desk.record("cancel_during_model_request", handle)


async def test_r69_a_cancel_during_a_write_awaits_it_and_lists_its_effect(desk: Desk) -> None:
    """B01, B28, R29, R30, R72, R93: the repaired message has the write's real result, and "not executed" for the call
    that had not begun; the ledger's row and the effect stay as they are."""
    await desk.arm("hold_reply_after_commit", seconds=0.5)
    desk.will_say(Reply.of(reserve(), look_up(), reserve(1, order="2002")))
    handle = await desk.start(GOAL)
    await until(desk.effects)
    await handle.cancel()
    memo = await cancelled(handle)
    assert (memo["status"], memo["end_reason"]) == ("cancelled", "aborted_tools")
    results = await last_results(desk, handle)
    said = [json.loads(block["content"])["status"] for block in results]
    assert said == ["completed", "not_executed", "not_executed"]
    assert [block.get("is_error", False) for block in results] == [False, True, True]
    operations = await handle.query("operations", result_type=list[OperationView])
    assert [operation.state for operation in operations] == ["completed", "not_executed"]
    assert len(await desk.effects()) == 1
    assert (await desk.requests())["POST /reservations"] == 1
    await desk.record("cancel_during_write", handle)


async def test_r30_a_write_that_is_unknown_at_the_cancel_is_told_as_unknown_and_settled_later(
    temporal: Client, tmp_path: Path
) -> None:
    """Rule 15: the rest is handed on; the settlement outlives the task, and sends nothing."""
    async with open_desk(temporal, tmp_path) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve())
        handle = await desk.start(GOAL)
        await until(lambda: waits(handle, "being looked up"))
        await handle.cancel()
        memo = await cancelled(handle)
        assert memo["end_reason"] == "aborted_tools"
        assert memo["operations"][0].endswith("unknown")
        results = await last_results(desk, handle)
        assert json.loads(results[0]["content"])["status"] == "unknown"
        assert results[0]["is_error"]
        operations = await handle.query("operations", result_type=list[OperationView])
        await desk.http.delete(f"{desk.stock.url}/faults")
        settlement = await desk.settlement(operations[0])
        step = await settlement.result()
        assert step.view is not None
        assert step.view.state is OperationState.COMPLETED
        assert len(await desk.effects()) == 1
        await desk.record("cancel_while_unknown", handle)


async def test_without_a_waiting_task_a_settlement_issues_no_permit_and_closes(
    temporal: Client, tmp_path: Path
) -> None:
    """Rule 10: nobody would spend it; `not_executed` comes only when nothing can land any more."""
    async with open_desk(temporal, tmp_path) as desk:
        await desk.arm("drop_before_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve())
        handle = await desk.start(GOAL)
        await until(lambda: waits(handle, "being looked up"))
        await handle.cancel()
        await cancelled(handle)
        operations = await handle.query("operations", result_type=list[OperationView])
        await desk.http.delete(f"{desk.stock.url}/faults")
        settlement = await desk.settlement(operations[0])
        step = await settlement.result()
        assert step.view is not None
        assert step.view.state is OperationState.NOT_EXECUTED
        events = await desk.journal(operations[0])
        assert "absent_resend" not in events
        assert events[-1] == "absent_final"
        assert await desk.effects() == []
        await desk.record("settlement_closes", settlement)


async def test_a_cancel_while_it_waits_for_a_resource_withdraws_what_was_not_sent(
    temporal: Client, tmp_path: Path
) -> None:
    """R69: the permit is void, so that nothing can send it later."""
    async with open_desk(temporal, tmp_path) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve(1), reserve(1, order="2002"))
        first = await desk.start("reserve 1")
        await until(lambda: waits(first, "being looked up"))
        second = await desk.start("reserve 1 for 2002")
        await until(lambda: waits(second, "lets go"))
        await second.cancel()
        await cancelled(second)
        operations = await second.query("operations", result_type=list[OperationView])
        assert [(operation.state, operation.sends) for operation in operations] == [("not_executed", 0)]
        report: StatusReport = await status_of(second)
        assert report.status == "cancelled"
        await first.terminate()


async def test_what_a_response_costs_that_nobody_takes_up_any_more_is_unknown(temporal: Client, tmp_path: Path) -> None:
    """R29: it has come, and then the cancel, before a worker saw either: the task doesn't say that it cost nothing."""
    async with open_desk(temporal, tmp_path, working=False) as desk:
        held = asyncio.Event()
        desk.will_say(Reply.of(look_up(), hold=held))
        async with make_worker(temporal, desk.parts):
            handle = await desk.start("look")
            await desk.model.until(lambda server: server.count == 1)
            asyncio.get_running_loop().call_later(0.3, held.set)  # while the worker drains
        await handle.cancel()
        async with make_worker(temporal, desk.parts):
            await cancelled(handle)
            status = await status_of(handle)
        assert (status.counters.requests, status.usage) == (1, Usage(unpriced=1))
        assert "cost unknown for 1 request" in status.spent
