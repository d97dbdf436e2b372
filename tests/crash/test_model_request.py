"""A model request whose completion is lost: the response was paid for, and is not bought again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import Client, WorkflowHandle

from settled.workflows.contract.names import REQUEST_MODEL
from tests.crash.interceptors import Loses
from tests.crash.operator import time_out_soon
from tests.crash.outcomes import TASK, assert_reserved_once
from tests.crash.processes import Crew, another_worker
from tests.crash.traps import Act, Point
from tests.desk import Desk, open_desk, reserve, result_of, until


async def test_b05_a_lost_completion_leads_to_the_same_turn(temporal: Client, tmp_path: Path) -> None:
    """R64, B05: the retry judges the response that is stored; no transcript knows of a second one."""
    loses = Loses(REQUEST_MODEL)
    async with open_desk(temporal, tmp_path, interceptors=[loses]) as desk:
        desk.will_say(reserve(), "Reserved.")
        result = await desk.run(TASK)
        assert loses.attempts == [1, 2, 1]
        assert desk.model.received == 2
        assert (result.counters.requests, result.counters.attempts) == (2, 3)
        await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_b05_a_worker_killed_after_the_response_was_stored_costs_no_second_request(
    empty_desk: Desk, crew: Crew
) -> None:
    """R64, B05: kill -9; another worker goes on with the response that is stored."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=Point.AFTER_RESPONSE, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.ends()
    await time_out_soon(desk, handle, activity=REQUEST_MODEL, seconds=1.0)
    async with another_worker(desk):
        result = await result_of(handle)
    assert desk.model.received == 2
    assert (result.counters.requests, result.counters.attempts) == (2, 3)
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_a_request_that_the_server_times_out_days_too_early_is_made_again(empty_desk: Desk, crew: Crew) -> None:
    """It does so where somebody changes the options of an attempt that waits for a worker, after one that timed out."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=Point.AFTER_RESPONSE, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.ends()
    await time_out_soon(desk, handle, activity=REQUEST_MODEL, seconds=1.0)

    async def second_attempt_waits() -> bool:
        (pending,) = (await handle.describe()).raw_description.pending_activities
        return pending.attempt == 2 and pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED

    await until(second_attempt_waits)
    await time_out_soon(desk, handle, activity=REQUEST_MODEL, seconds=2.0)
    await until(lambda: timed_out(handle))
    async with another_worker(desk):
        result = await result_of(handle)
    assert desk.model.received == 2, "what was bought is found again"
    assert (result.counters.requests, result.usage.unpriced) == (2, 2), "the scripted model has no price"
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def timed_out(handle: WorkflowHandle[Any, Any]) -> bool:
    """Whether one of a task's activities has run out of time."""
    events = handle.fetch_history_events()
    return any([event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT async for event in events])
