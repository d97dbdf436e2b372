"""An operator's hand on a running dispatch: pause, unpause, reset, and more attempts than one.

Temporal then runs the dispatch a second time, whatever its retry policy says; the permit is what holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from settled.activities.registry import discover
from settled.workflows.contract.names import DISPATCH
from settled.workflows.contract.operation import Evidence
from tests.crash.interceptors import Loses
from tests.crash.operator import of_activity, temporal, time_out_soon, until_paused
from tests.crash.outcomes import TASK, assert_reserved_once, disarm, until_reserved
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


@pytest.mark.parametrize(("command", "attempts"), [("unpause", [1, 2]), ("reset", [1, 1])])
async def test_a_dispatch_that_is_paused_and_fails_runs_again_and_sends_nothing(
    lossy: LossyDesk, command: str, attempts: list[int]
) -> None:
    """R63, R70: pause, failure, unpause; and pause, failure, reset, where even the attempt's number is the old one."""
    desk = lossy.desk
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    handle = await desk.start(TASK)
    await until_reserved(desk)
    which = await of_activity(handle)
    await temporal(desk, "activity", "pause", *which)
    await disarm(desk)
    await until_paused(handle)
    await temporal(desk, "activity", command, *which)
    result = await result_of(handle)
    assert lossy.loses.attempts == attempts
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_a_dispatch_that_is_paused_and_ends_is_not_run_again(patient_desk: Desk) -> None:
    """R63: an activity that never fails is beyond the reach of a pause."""
    desk = patient_desk
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    handle = await desk.start(TASK)
    await until_reserved(desk)
    await temporal(desk, "activity", "pause", *await of_activity(handle))
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(handle), "claimed", "succeeded")


async def test_a_killed_dispatch_with_more_attempts_runs_again_and_sends_nothing(empty_desk: Desk, crew: Crew) -> None:
    """R68, R70: an operator allows five attempts, and the worker is killed between commit and reply."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    worker = await crew.hire()
    handle = await desk.start(TASK)
    await until_reserved(desk)
    await worker.kill()
    await time_out_soon(desk, handle, "--retry-maximum-attempts", "5", seconds=SECONDS)
    watches = Loses(DISPATCH, times=0)
    async with another_worker(desk, [watches]):
        result = await result_of(handle)
    assert watches.attempts == [2]
    await assert_reserved_once(desk, result, "claimed", "expired", "found", evidence=Evidence.LOOKUP)
