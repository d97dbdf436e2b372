"""An operator completes an activity with anything, or fails it: the task asks again, and ends as it would have.

Route 13 for the other activities; what a forged outcome of a dispatch comes to stands in `tests/crash`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from settled.workflows.answers import AGAIN_SECONDS
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
from tests.crash.operator import of_activity, scheduled, temporal
from tests.desk import Desk, look_up, open_desk, reserve, status_of, until
from tests.end_to_end.test_people import WORD, by_temporal, shipping_desk, until_a_person_is_asked
from tests.end_to_end.test_writes import GOAL

pytestmark = pytest.mark.long

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
        with suppress(RPCError):  # it has ended by itself
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


@pytest.mark.parametrize("kind", [REQUEST_MODEL, RUN_READ])
async def test_r52_what_is_asked_again_gets_no_more_time_than_the_task_has(
    temporal: Client, tmp_path: Path, kind: str
) -> None:
    """R52: its deadline stays where it was, however often somebody completes what it asks for."""
    held = Holds(kind)
    async with open_desk(temporal, tmp_path, interceptors=[held]) as desk:
        desk.will_say(look_up(), "3.")
        handle = await desk.start({"goal": GOAL, "budget": {"wall_seconds": 60}})
        await forge(desk, handle, held, NOTHING)
        assert (await desk.result(handle)).end_reason is EndReason.COMPLETED
        first, second, *_ = [
            event.activity_task_scheduled_event_attributes.schedule_to_close_timeout.ToTimedelta()
            for event in await scheduled(handle, kind)
        ]
        assert second <= first - timedelta(seconds=AGAIN_SECONDS)


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
