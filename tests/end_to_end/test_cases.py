"""Cases from the field, as whole tasks: repeats, time-outs, cancels and waits that made other runtimes act twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus

from settled.activities.registry import Registry, discover
from settled.activities.toolkit import Answer, Arguments, Call, read
from settled.local.messages_script import Reply, tool_use
from settled.worker.wiring import make_worker
from settled.workflows.contract.ending import Status
from settled.workflows.contract.operation import OperationState, OperationView
from tests.desk import CLERK, Desk, hurried, look_up, open_desk, reserve, until
from tests.end_to_end.test_cancel import cancelled, last_results
from tests.end_to_end.test_loop import results_in
from tests.end_to_end.test_writes import GOAL, RESERVED, waits


def shown(desk: Desk, request: int) -> dict[str, Any]:
    """What the model was shown of its one call, in a request."""
    (block,) = results_in(desk.model.requests[request])
    said: dict[str, Any] = json.loads(block["content"])
    return said


class Hanging(Arguments):
    pass


class Hangs:
    """A read that hangs, and notes that it was told to stop."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.stopped = asyncio.Event()

    def registry(self) -> Registry:
        """A registry of it alone."""

        @read()
        async def hang(asked: Hanging, call: Call) -> Answer:
            """Hang."""
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()
            raise AssertionError("nobody sets that event")

        return Registry({"hang": hang})


async def test_b28_a_cancel_reaches_a_read_that_is_running_and_the_task_is_canceled(
    temporal: Client, tmp_path: Path
) -> None:
    """R91: the read lets the cancel through; nothing turns it into a result of "failed"."""
    hangs = Hangs()
    profiles = {"hanger": CLERK.model_copy(update={"tools": ("hang",)})}
    async with open_desk(temporal, tmp_path, registry=hangs.registry(), profiles=profiles) as desk:
        desk.will_say(tool_use("hang", {}))
        handle = await desk.start("go")
        await asyncio.wait_for(hangs.began.wait(), 10)
        await handle.cancel()
        memo = await cancelled(handle)
        assert (memo["status"], memo["end_reason"]) == ("cancelled", "aborted_tools")
        (result,) = await last_results(desk, handle)
        assert json.loads(result["content"])["status"] == "not_executed"
        history = await handle.fetch_history()
        asked = EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED
        assert [event.event_type for event in history.events].count(asked) == 1
    assert hangs.stopped.is_set(), "by its next heartbeat, or with its worker"


async def test_b28_a_cancel_during_a_write_whose_reply_is_lost_says_unknown_and_the_task_is_canceled(
    temporal: Client, tmp_path: Path
) -> None:
    """R69: the write swallows the cancel and returns its outcome; the loop asks for the cancel itself."""
    async with open_desk(temporal, tmp_path, registry=hurried(discover(), seconds=1.0)) as desk:
        desk.will_say(reserve())
        await desk.arm("hold_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        handle = await desk.start(GOAL)
        await until(desk.effects)
        await handle.cancel()
        await cancelled(handle)
        (operation,) = await handle.query("operations", result_type=list[OperationView])
        assert operation.state is OperationState.UNKNOWN
        (result,) = await last_results(desk, handle)
        assert json.loads(result["content"])["status"] == "unknown"
        assert (await desk.requests())["POST /reservations"] == 1


async def test_b37_a_write_proposed_again_turns_after_its_time_out_is_the_same_write(desk: Desk) -> None:
    """R63, R67: a new call id, and the same business action."""
    first, second = reserve(), reserve()
    assert first["id"] != second["id"]
    await desk.arm("hold_reply_after_commit", seconds=10.0)
    desk.will_say(look_up(), first, look_up(), second, "Reserved.")
    result = await desk.run({"goal": GOAL, "acceptance": [RESERVED]})
    assert result.status is Status.SUCCEEDED
    assert await desk.journal(result.operations[0]) == ["claimed", "unclear", "found"]
    assert "repeated" not in shown(desk, 2)
    assert "not executed again" in shown(desk, 4)["repeated"]
    assert (await desk.requests())["POST /reservations"] == 1
    assert len(await desk.effects()) == 1


async def test_b39_reads_run_as_often_as_they_are_asked_and_an_intended_repeat_of_a_write_has_its_own_field(
    desk: Desk,
) -> None:
    """R73: looking again after each change is no loop; reserving twice is said by the order's line."""
    desk.will_say(
        *(look_up(), reserve(1), look_up(), reserve(1, line=2), look_up()),
        *(reserve(1), "Two lines are reserved."),
    )
    result = await desk.run({"goal": "reserve one piece twice"})
    assert [shown(desk, request)["data"]["available"] for request in (1, 3, 5)] == [3, 2, 1]
    assert (await desk.requests())["GET /stock/{sku}"] == 3
    assert "not executed again" in shown(desk, 6)["repeated"]
    assert [effect["line"] for effect in await desk.effects()] == [1, 2]
    assert [operation.state for operation in result.operations] == [OperationState.COMPLETED] * 2


async def test_b40_a_call_that_times_out_after_its_effect_is_looked_up_by_the_lookup_that_its_tool_names(
    desk: Desk,
) -> None:
    """R66, R67: the service commits, and sleeps past the client's time-out; no hint in a prompt is relied on."""
    await desk.arm("hold_reply_after_commit", seconds=10.0)
    desk.will_say(reserve(), "Reserved.")
    result = await desk.run({"goal": GOAL})
    rows = await desk.parts.stores.ledger.journal(result.operations[0].key)
    assert [row.event for row in rows] == ["claimed", "unclear", "found"]
    assert rows[1].body["failure"]["kind"] == "unknown_result"
    assert shown(desk, 1)["status"] == "completed"
    requests = await desk.requests()
    assert (requests["POST /reservations"], requests["GET /reservations/{key}"]) == (1, 1)
    assert len(await desk.effects()) == 1


async def test_b41_what_was_done_before_a_wait_is_not_done_again_after_it(temporal: Client, tmp_path: Path) -> None:
    """R63: write A, then a wait at B, during which the worker is replaced; A and B have one effect each."""
    async with open_desk(temporal, tmp_path, working=False) as desk:
        a, b = reserve(1), reserve(1, order="2002", sku="B2")
        desk.will_say(Reply.of(a, look_up()), b, "Both are reserved.")
        await desk.arm("drop_reply_after_commit", match={"order": "2002"})
        await desk.arm("lookup_fails", times=100_000, match={"order": "2002"})
        async with make_worker(desk.client, desk.parts):
            handle = await desk.start(GOAL)
            await until(lambda: waits(handle, "being looked up"))
        await desk.http.delete(f"{desk.stock.url}/faults")
        async with make_worker(desk.client, desk.parts):
            result = await desk.result(handle)
        assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED
        assert [operation.state for operation in result.operations] == [OperationState.COMPLETED] * 2
        assert [operation.sends for operation in result.operations] == [1, 1]
        requests = await desk.requests()
        assert (requests["POST /reservations"], requests["GET /stock/{sku}"]) == (2, 1)
        assert [effect["order"] for effect in await desk.effects()] == ["1001", "2002"]
        assert desk.model.count == 3
