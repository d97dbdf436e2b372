"""A model request whose completion is lost: the response was paid for, and is not bought again."""

from __future__ import annotations

from pathlib import Path

from temporalio.client import Client

from settled.workflows.contract.names import REQUEST_MODEL
from tests.crash.interceptors import Loses
from tests.crash.operator import time_out_soon
from tests.crash.outcomes import TASK, assert_reserved_once
from tests.crash.processes import Crew, another_worker
from tests.crash.traps import Act, Point
from tests.desk import Desk, open_desk, reserve, result_of


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
