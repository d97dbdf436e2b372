"""Workers that are killed, or whose answers are lost, around a write."""

from __future__ import annotations

import pytest

from settled.workflows.contract.operation import Evidence
from tests.crash.outcomes import TASK, assert_reserved_once, has_effect
from tests.crash.processes import Crew, another_worker
from tests.crash.worker_process import Act, Point
from tests.desk import Desk, reserve, result_of, until


async def test_a_lost_reply_is_found_by_lookup_and_nothing_is_sent_again(desk: Desk) -> None:
    """R67, R68: unknown is looked up; found means done."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("drop_reply_after_commit")
    result = await desk.run(TASK)
    await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)


async def test_a_worker_killed_between_commit_and_reply_leaves_one_reservation(empty_desk: Desk, crew: Crew) -> None:
    """R70: kill -9 after the commit; another worker settles it."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    worker = await crew.hire()
    handle = await desk.start(TASK)
    await until(lambda: has_effect(desk))
    await worker.kill()
    async with another_worker(desk):
        result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "expired", "found", evidence=Evidence.LOOKUP)


async def test_a_worker_killed_after_it_stored_the_outcome_needs_no_lookup(empty_desk: Desk, crew: Crew) -> None:
    """R70: what is stored before it is returned survives the kill."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=Point.AFTER_STORE, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.process.wait()
    async with another_worker(desk):
        result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "succeeded")


@pytest.mark.parametrize("point", [Point.AFTER_CLAIM, Point.BEFORE_SEND])
async def test_a_worker_killed_between_claim_and_send_is_looked_up_before_the_second_send(
    empty_desk: Desk, crew: Crew, point: Point
) -> None:
    """R68, R70: the claim may have been sent, so a lookup comes first."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=point, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.process.wait()
    assert await desk.effects() == []
    async with another_worker(desk):
        result = await result_of(handle)
    journal = ("claimed", "expired", "absent_resend", "claimed", "succeeded")
    await assert_reserved_once(desk, result, *journal, sends=2)
