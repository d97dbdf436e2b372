"""Routes 1 to 4: an operator's hand on a running dispatch.

Pause, unpause, reset and more attempts have Temporal run the dispatch a second time, whatever its retry policy says;
the permit is what holds. `test_routes` says what the numbers are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from settled.activities.registry import discover
from settled.workflows.contract.names import CLOSE_TASK, DISPATCH, OPEN_TASK, RECONCILE, SETTLE
from settled.workflows.contract.operation import Evidence
from tests.crash.interceptors import Loses
from tests.crash.operator import (
    of_activity,
    scheduled,
    temporal,
    temporal_of_many,
    time_out_soon,
    until_paused,
)
from tests.crash.outcomes import (
    TASK,
    a_write_that_is_out,
    assert_each_reserved_once,
    assert_reserved_once,
    disarm,
    two_writes_that_are_out,
    until_it_waits,
)
from tests.crash.processes import SECONDS, Crew, another_worker
from tests.desk import Desk, hurried, open_desk, reserve, result_of


@dataclass(frozen=True)
class LossyDesk:
    """A desk whose worker loses the completion of its first dispatch."""

    desk: Desk
    loses: Loses


@pytest.fixture
async def lossy(temporal: Client, tmp_path: Path) -> AsyncIterator[LossyDesk]:
    """The desk, with all the time in the world for a write."""
    loses = Loses(DISPATCH)
    registry = hurried(discover(), seconds=12.0, lands_within=timedelta(seconds=1))
    async with open_desk(temporal, tmp_path, registry=registry, interceptors=[loses]) as opened:
        yield LossyDesk(opened, loses)


async def test_route_1_a_dispatch_allows_one_attempt_and_its_failure_is_not_retried(lossy: LossyDesk) -> None:
    """R70: no policy at all would mean that Temporal retries for ever. A lost completion is asked about instead."""
    desk = lossy.desk
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start(TASK)
    result = await result_of(handle)
    (event,) = await scheduled(handle, DISPATCH)
    assert event.activity_task_scheduled_event_attributes.retry_policy.maximum_attempts == 1
    assert lossy.loses.attempts == [1]
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_1_whatever_else_is_retried_after_a_lost_completion_sends_nothing(
    temporal: Client, tmp_path: Path
) -> None:
    """R64: opening, reconciling, settling and closing are retried without end; each may run as often as it likes."""
    loses = [Loses(name) for name in (OPEN_TASK, RECONCILE, SETTLE, CLOSE_TASK)]
    async with open_desk(temporal, tmp_path, interceptors=loses) as desk:
        desk.will_say(reserve(), "Reserved.")
        await desk.arm("drop_reply_after_commit")
        result = await desk.run(TASK)
        assert all(each.attempts[:2] == [1, 2] for each in loses)
        await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)


async def runs_again_after_a_pause(lossy: LossyDesk, command: str) -> None:
    """Pause a dispatch, let it fail, and have Temporal run it again."""
    handle = await a_write_that_is_out(lossy.desk)
    which = await of_activity(handle)
    await temporal(lossy.desk, "activity", "pause", *which)
    await disarm(lossy.desk)
    await until_paused(handle)
    await temporal(lossy.desk, "activity", command, *which)
    await assert_reserved_once(lossy.desk, await result_of(handle), "claimed", "succeeded")


async def test_route_2_pause_failure_unpause_sends_once(lossy: LossyDesk) -> None:
    """R63, R70: attempt 2, although the policy allows one."""
    await runs_again_after_a_pause(lossy, "unpause")
    assert lossy.loses.attempts == [1, 2]


async def test_route_2_a_dispatch_that_is_paused_and_ends_is_not_run_again(patient_desk: Desk) -> None:
    """R63: an activity that never fails is beyond the reach of a pause."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    await temporal(desk, "activity", "pause", *await of_activity(handle))
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(handle), "claimed", "succeeded")


async def test_route_3_pause_failure_reset_sends_once(lossy: LossyDesk) -> None:
    """R63, R70: even the attempt's number is the old one."""
    await runs_again_after_a_pause(lossy, "reset")
    assert lossy.loses.attempts == [1, 1]


async def test_route_3_a_reset_alone_sends_once(patient_desk: Desk) -> None:
    """R63: the attempt that is out goes on, and its outcome counts."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    await temporal(desk, "activity", "reset", *await of_activity(handle))
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(handle), "claimed", "succeeded")


async def test_route_4_more_attempts_and_a_failure_send_once(lossy: LossyDesk) -> None:
    """R63: the completion is lost, and an operator has allowed more attempts."""
    desk = lossy.desk
    handle = await a_write_that_is_out(desk)
    await temporal(desk, "activity", "update-options", *await of_activity(handle), "--retry-maximum-attempts", "3")
    await disarm(desk)
    result = await result_of(handle)
    assert lossy.loses.attempts == [1, 2]
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_4_more_attempts_and_a_timeout_overlap_and_send_once(patient_desk: Desk) -> None:
    """R63, R70: Temporal's timeout doesn't stop the first attempt; the second one runs beside it, and waits."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    await time_out_soon(desk, handle, "--retry-maximum-attempts", "3", seconds=0.5)
    await until_it_waits(desk, handle.id)
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(handle), "claimed", "succeeded")


async def test_route_4_more_attempts_and_a_kill_send_once(empty_desk: Desk, crew: Crew) -> None:
    """R68, R70: an operator allows five attempts, and the worker is killed between commit and reply."""
    desk = empty_desk
    worker = await crew.hire()
    handle = await a_write_that_is_out(desk)
    await worker.kill()
    await time_out_soon(desk, handle, "--retry-maximum-attempts", "5", seconds=SECONDS)
    watches = Loses(DISPATCH, times=0)
    async with another_worker(desk, [watches]):
        result = await result_of(handle)
    assert watches.attempts == [2]
    await assert_reserved_once(desk, result, "claimed", "expired", "found", evidence=Evidence.LOOKUP)


async def test_route_4_more_attempts_for_all_tasks_of_a_query_send_once_each(patient_desk: Desk) -> None:
    """R63: one batch job over many tasks; each dispatch times out, and runs again beside its first attempt."""
    desk = patient_desk
    handles = await two_writes_that_are_out(desk)
    options = ("--retry-maximum-attempts", "3", "--start-to-close-timeout", "0.5s")
    await temporal_of_many(desk, "activity", "update-options", *options)
    for handle in handles:
        await until_it_waits(desk, handle.id)
    await disarm(desk)
    await assert_each_reserved_once(desk, [await result_of(handle) for handle in handles])
