"""SIGTERM to `settled worker` while a write is out."""

from __future__ import annotations

import pytest

from settled.workflows.contract.operation import Evidence
from tests.crash.outcomes import TASK, assert_reserved_once, disarm, in_ledger, until_reserved
from tests.crash.processes import Crew, another_worker
from tests.desk import Desk, reserve, result_of


@pytest.mark.long
async def test_b44_a_write_ends_within_the_drain_and_its_outcome_is_stored(empty_desk: Desk, crew: Crew) -> None:
    """R70: a deploy waits for the writes that are out; the worker then ends well."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    worker = await crew.employ(SETTLED_DRAIN_SECONDS="12", STOCK_TIMEOUT_SECONDS="12")
    handle = await desk.start(TASK)
    await until_reserved(desk)
    worker.process.terminate()
    await worker.says("draining")
    await disarm(desk)
    assert await worker.ends() == 0
    (operation,) = await in_ledger(desk)
    assert await desk.journal(operation) == ["claimed", "succeeded"]
    async with another_worker(desk):
        result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "succeeded")


@pytest.mark.long
async def test_b44_a_write_that_outlives_the_drain_is_unknown_and_looked_up(empty_desk: Desk, crew: Crew) -> None:
    """R66, R67: the interrupted attempt says that it doesn't know, before the worker ends."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    worker = await crew.employ(SETTLED_DRAIN_SECONDS="0.2", STOCK_TIMEOUT_SECONDS="12")
    handle = await desk.start(TASK)
    await until_reserved(desk)
    worker.process.terminate()
    assert await worker.ends() == 0
    (operation,) = await in_ledger(desk)
    assert await desk.journal(operation) == ["claimed", "unclear"]
    async with another_worker(desk):
        result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)
