"""An operator completes an activity with anything, fails it, or makes it time out: the task asks again, and ends well.

Route 13 for the other activities; what a forged outcome of a dispatch comes to stands in `tests/crash`.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle

from settled.activities.registry import Registry
from settled.activities.toolkit import Answer, Arguments, Call, RateLimited, ReadTool, read
from settled.local.messages_script import HttpError, tool_use
from settled.worker.wiring import make_worker
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.names import (
    CLOSE_TASK,
    OPEN_TASK,
    RECONCILE,
    REQUEST_MODEL,
    RESOLVE,
    REVIEW,
    RUN_READ,
    SETTLE,
    SETTLEMENT_LOOK,
    settlement_id,
)
from settled.workflows.contract.operation import Evidence
from tests.crash.interceptors import Holds
from tests.crash.operator import of_activity, run_temporal, scheduled, temporal
from tests.desk import CLERK, Desk, look_up, open_desk, reserve, status_of, until
from tests.end_to_end.test_people import WORD, by_temporal, shipping_desk, until_a_person_is_asked
from tests.end_to_end.test_streams import replays
from tests.end_to_end.test_writes import GOAL

Handle = WorkflowHandle[Any, Any]
WRITE = {"slot": 0, "call_id": "c", "tool": "reserve_stock", "effect": "write"}
NOTHING = '"hello"'
FAIL = ""
"""Stands for `temporal activity fail` among the values that an activity is completed with."""
D = "0" * 64


async def forge(desk: Desk, handle: Handle, held: Holds, value: str) -> None:
    """Complete an activity that has been started, or fail it; then let its worker go on."""
    await asyncio.wait_for(held.reached.wait(), 20)
    what = ("complete", "--result", value) if value else ("fail", "--reason", "it went wrong")
    await temporal(desk, "activity", what[0], *await of_activity(handle, held.name), *what[1:])
    held.let_go.set()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (OPEN_TASK, NOTHING),
        (OPEN_TASK, "{}"),
        (OPEN_TASK, FAIL),
        (REQUEST_MODEL, NOTHING),
        (REQUEST_MODEL, json.dumps({"head": D, "next": {"do": "run_batches", "calls": [WRITE]}})),
        (REQUEST_MODEL, json.dumps({"head": D, "next": {"do": "run_batches", "calls": [WRITE], "batches": [[0]]}})),
        (RUN_READ, NOTHING),
        (RECONCILE, NOTHING),
        (RECONCILE, FAIL),
        (CLOSE_TASK, NOTHING),
        (CLOSE_TASK, '{"status": "waiting", "end_reason": "completed"}'),
        (CLOSE_TASK, FAIL),
    ],
)
async def test_an_activity_of_a_task_that_somebody_ended_is_asked_again(
    temporal: Client, tmp_path: Path, kind: str, value: str
) -> None:
    """B33: the workflow task doesn't fail for ever, and the task comes to an end of the table."""
    held = Holds(kind)
    async with open_desk(temporal, tmp_path, interceptors=[held]) as desk:
        await desk.arm("drop_reply_after_commit")
        desk.will_say(look_up(), reserve(), "Reserved.", "Reserved.")
        handle = await desk.start(GOAL)
        await forge(desk, handle, held, value)
        result = await desk.result(handle)
        assert (result.status, result.end_reason) == (Status.UNVERIFIED, EndReason.COMPLETED)
        assert [(one.state, one.sends) for one in result.operations] == [("completed", 1)]
        assert len(await desk.effects()) == 1
        assert len(await scheduled(handle, kind)) >= 2
        assert (await status_of(handle)).status is Status.UNVERIFIED


@pytest.mark.parametrize("value", [NOTHING, '{"settled": false, "after": 1e300}', FAIL])
async def test_a_step_of_a_settlement_that_somebody_ended_is_taken_again(
    temporal: Client, tmp_path: Path, value: str
) -> None:
    """R66: the outcome is found out all the same; no timer is longer than one can be."""
    held = Holds(SETTLE)
    async with open_desk(temporal, tmp_path, interceptors=[held], recheck_seconds=0.3) as desk:
        await desk.arm("drop_reply_after_commit")
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start(GOAL)
        await asyncio.wait_for(held.reached.wait(), 20)
        (listed,) = await desk.parts.stores.ledger.listed()
        settlement = await desk.settlement(listed.view)
        await forge(desk, settlement, held, value)
        result = await desk.result(handle)
        assert [(one.state, one.evidence) for one in result.operations] == [("completed", Evidence.LOOKUP)]
        await settlement.signal(SETTLEMENT_LOOK)
        assert (await asyncio.wait_for(settlement.result(), 20)).settled


@pytest.mark.parametrize("value", [NOTHING, FAIL])
async def test_a_person_s_word_that_somebody_ended_is_taken_and_counts_once(
    temporal: Client, tmp_path: Path, value: str
) -> None:
    """R66: asked again it is the same word, by the update's id."""
    held = Holds(RESOLVE)
    async with shipping_desk(temporal, tmp_path, interceptors=[held]) as desk:
        handle, operation = await until_a_person_is_asked(desk, "Shipped.")
        word = asyncio.create_task(by_temporal(desk, operation, WORD))
        await forge(desk, desk.client.get_workflow_handle(settlement_id(operation.key)), held, value)
        code, said = await word
        assert code == 0, said
        assert (await desk.result(handle)).operations[0].evidence is Evidence.PERSON
        events = await desk.journal(operation)
        assert events.count("resolved_completed") == 1


@pytest.mark.parametrize("value", [NOTHING, FAIL])
async def test_a_review_that_somebody_ended_is_made_again(temporal: Client, tmp_path: Path, value: str) -> None:
    """The model says that it is done, and the task believes that something is left: somebody forged that, too."""
    asked, held = Holds(REQUEST_MODEL), Holds(REVIEW)
    async with open_desk(temporal, tmp_path, interceptors=[asked, held]) as desk:
        desk.will_say("Done.")
        handle = await desk.start(GOAL)
        await asyncio.wait_for(asked.reached.wait(), 20)
        (event,) = await scheduled(handle, REQUEST_MODEL)
        head = json.loads(event.activity_task_scheduled_event_attributes.input.payloads[0].data)["head"]
        turn = {"head": head, "next": {"do": "end"}, "ledger": {"tally": {"unsettled": 1}}}
        await forge(desk, handle, asked, json.dumps(turn))
        await forge(desk, handle, held, value)
        assert (await desk.result(handle)).end_reason is EndReason.COMPLETED
        assert len(await scheduled(handle, REVIEW)) == 2


@pytest.mark.parametrize("kind", [OPEN_TASK, RECONCILE])
async def test_b33_a_task_that_asks_again_can_be_cancelled(temporal: Client, tmp_path: Path, kind: str) -> None:
    """However often somebody fails it, a cancel stays a cancel; only while a task closes any cancel comes too late."""
    held = Holds(kind)
    async with open_desk(temporal, tmp_path, interceptors=[held]) as desk:
        await desk.arm("drop_reply_after_commit")
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start(GOAL)
        await forge(desk, handle, held, FAIL)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 30)
        assert (await handle.describe()).status is WorkflowExecutionStatus.CANCELED


async def test_an_activity_that_is_failed_again_and_again_is_asked_at_longer_intervals(
    temporal: Client, tmp_path: Path
) -> None:
    """Nothing spins: the second wait is twice the first one."""
    held = Holds(OPEN_TASK)
    async with open_desk(temporal, tmp_path, interceptors=[held]) as desk:
        desk.will_say("Done.")
        handle = await desk.start(GOAL)
        await asyncio.wait_for(held.reached.wait(), 20)
        for number in (1, 2):
            await until(lambda number=number: _has_asked(handle, number))  # type: ignore[misc]  # mypy can't tell its type
            await temporal_fail(desk, handle)
        held.let_go.set()
        assert (await desk.result(handle)).status is Status.UNVERIFIED
        history = await handle.fetch_history()
        waits = [
            event.timer_started_event_attributes.start_to_fire_timeout.ToSeconds()
            for event in history.events
            if event.HasField("timer_started_event_attributes")
        ]
        assert waits == [1, 2]


async def _has_asked(handle: Handle, times: int) -> bool:
    return len(await scheduled(handle, OPEN_TASK)) == times


async def temporal_fail(desk: Desk, handle: Handle) -> None:
    """Fail the task's opening by hand."""
    await temporal(desk, "activity", "fail", *await of_activity(handle, OPEN_TASK), "--reason", "no")


@pytest.mark.parametrize("kind", [REQUEST_MODEL, RUN_READ])
async def test_an_attempt_that_the_server_times_out_days_too_early_is_made_again(
    temporal: Client, tmp_path: Path, kind: str
) -> None:
    """It does so where somebody changes the options of an attempt, not the first one, that waits for a worker."""
    away = HttpError(503, headers={"retry-after": "3"})
    profiles = {"stock-clerk": CLERK.model_copy(update={"tools": ("look_into_archive",)})}
    registry = Registry({"look_into_archive": Archive().tool})
    async with open_desk(temporal, tmp_path, registry=registry, profiles=profiles, working=False) as desk:
        desk.will_say(*([away] if kind == REQUEST_MODEL else []), tool_use("look_into_archive", {}), "All there.")
        desk.may_ask_again(1)
        handle = await desk.start("look into it")

        async def second_attempt(state: PendingActivityState.ValueType | None = None) -> bool:
            (pending,) = (await handle.describe()).raw_description.pending_activities or (PendingActivityInfo(),)
            return pending.activity_type.name == kind and pending.attempt == 2 and state in (None, pending.state)

        async with make_worker(temporal, desk.parts):
            await until(second_attempt)
        await until(lambda: second_attempt(PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED))
        which = await of_activity(handle, kind)
        code, said = await run_temporal(desk, "activity", "update-options", *which, "--retry-maximum-attempts", "5")
        assert code == 0, said
        await until(lambda: timed_out(handle))
        async with make_worker(temporal, desk.parts):
            result = await desk.result(handle)
        assert (result.end_reason, result.counters.turns) == (EndReason.COMPLETED, 1)
        assert await replays([await handle.fetch_history()])


class Nothing(Arguments):
    """What the archive is asked."""


class Archive:
    """A tool that reads, and the first time asks to come again."""

    def __init__(self) -> None:
        self.asked = False

    @property
    def tool(self) -> ReadTool:
        """The tool."""

        @read(timeout=timedelta(seconds=3))
        async def look_into_archive(_: Nothing, call: Call) -> Answer:
            """Look into the archive."""
            if not self.asked:
                self.asked = True
                raise RateLimited("come again", after=3.0)
            return Answer(data="all there", source="archive")

        return look_into_archive


async def timed_out(handle: Handle) -> bool:
    """Whether one of a task's activities has run out of time."""
    events = handle.fetch_history_events()
    return any([event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT async for event in events])
