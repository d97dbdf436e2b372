"""Routes 11 and 14: the Temporal server is killed, is restored from a copy of its past, loses it, and pauses workflows.

The ledger has a database of its own, which remembers what Temporal has forgotten. `test_routes` says what the numbers
are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from settled.activities.registry import discover
from settled.workflows.contract.names import DISPATCH
from settled.workflows.contract.operation import OperationState
from tests.crash.interceptors import Holds
from tests.crash.operator import scheduled, temporal, time_out_soon
from tests.crash.outcomes import TASK, a_write_that_is_out, assert_reserved_once, disarm, until_it_is
from tests.crash.processes import another_worker
from tests.crash.servers import Server
from tests.desk import Desk, hurried, open_desk, reserve, result_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server on a database file."""
    made = Server(tmp_path_factory.mktemp("temporal"))
    await made.start()
    try:
        yield made
    finally:
        await made.kill()


@pytest.fixture
async def its_desk(server: Server, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk at that server, without a worker; a write takes as long as the test likes."""
    registry = hurried(discover(), seconds=12.0, lands_within=timedelta(seconds=1))
    async with open_desk(await server.connect(), tmp_path, registry=registry, working=False) as opened:
        yield opened


async def test_route_11_a_server_that_is_killed_during_a_write_goes_on_where_it_was(
    server: Server, its_desk: Desk
) -> None:
    """R70: kill -9, and the write's outcome comes while nobody is there to hear of it."""
    desk = its_desk
    async with another_worker(desk):
        handle = await a_write_that_is_out(desk)
        await server.kill()
        await disarm(desk)
        await until_it_is(desk, OperationState.COMPLETED)
        await server.start()
        result = await result_of(handle)
    assert len(await scheduled(handle, DISPATCH)) == 1
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_11_a_server_that_is_restored_from_before_the_write_runs_it_again_and_sends_nothing(
    server: Server, its_desk: Desk, tmp_path: Path
) -> None:
    """R63: Temporal believes that the task has just been started; everything is run from the past, run id and all."""
    desk = its_desk
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start(TASK)
    await server.stop()
    await server.copy_to(tmp_path)
    await server.start()
    async with another_worker(desk):
        first = await result_of(handle)
    await server.kill()
    await server.forget(tmp_path / "temporal-copy.db")
    await server.start()
    assert await scheduled(handle, DISPATCH) == [], "it has forgotten"
    async with another_worker(desk):
        result = await result_of(handle)
    assert len(await scheduled(handle, DISPATCH)) == 1
    assert result.operations == first.operations
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_11_a_server_that_is_restored_from_the_middle_of_the_write_sends_nothing(
    server: Server, its_desk: Desk, tmp_path: Path
) -> None:
    """R63, R70: Temporal believes that the dispatch is about to run; it has run, and asking about it is enough."""
    desk, holds = its_desk, Holds(DISPATCH)
    desk.will_say(reserve(), "Reserved.", "Reserved, as before.")
    desk.may_ask_again(1)  # the restored server knows nothing of the second request
    async with another_worker(desk, [holds]):
        handle = await desk.start(TASK)
        await asyncio.wait_for(holds.reached.wait(), 10)
        await server.stop()
        await server.copy_to(tmp_path)
        await server.start()
        holds.let_go.set()
        first = await result_of(handle)
    await server.kill()
    await server.forget(tmp_path / "temporal-copy.db")
    await server.start()
    async with another_worker(desk):
        await time_out_soon(desk, handle, seconds=0.5)
        result = await result_of(handle)
    assert result.final_text == "Reserved, as before."
    assert result.operations == first.operations
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_11_a_server_that_has_lost_everything_is_told_to_start_the_task_again(
    server: Server, its_desk: Desk
) -> None:
    """R63: a deleted database: same id, same request, another run id; the stored result is what it gets."""
    desk = its_desk
    desk.will_say(reserve(), "Reserved.", reserve(), "Reserved, as before.")
    async with another_worker(desk):
        handle = await desk.start(TASK)
        await result_of(handle)
    await server.kill()
    await server.forget()
    await server.start()
    async with another_worker(desk):
        result = await desk.run(TASK, handle.id)
    assert result.final_text == "Reserved, as before."
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_14_a_task_that_is_paused_during_a_write_and_goes_on_sends_once(its_desk: Desk) -> None:
    """R63: where the server allows it; off by default."""
    desk = its_desk
    async with another_worker(desk):
        handle = await a_write_that_is_out(desk)
        await temporal(desk, "workflow", "pause", "--workflow-id", handle.id)
        await disarm(desk)
        await until_it_is(desk, OperationState.COMPLETED)
        await temporal(desk, "workflow", "unpause", "--workflow-id", handle.id)
        result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "succeeded")
