"""A write whose reply is lost, and workers that are killed around it."""

from __future__ import annotations

import json

from settled.local.messages_script import Reply
from settled.workflows.contract.operation import Evidence
from tests.crash.operator import time_out_soon
from tests.crash.outcomes import TASK, assert_reserved_once, until_reserved
from tests.crash.processes import SECONDS, Crew, another_worker
from tests.crash.traps import Act, Point
from tests.desk import Desk, look_up, reserve, result_of


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
    await until_reserved(desk)
    await worker.kill()
    await time_out_soon(desk, handle, seconds=SECONDS)
    async with another_worker(desk):
        result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "expired", "found", evidence=Evidence.LOOKUP)


async def test_b02_after_a_kill_inside_the_second_call_of_two_each_result_stands_in_its_own_slot(
    empty_desk: Desk, crew: Crew
) -> None:
    """R70: the read's result is kept, the write's comes late, and the conversation goes on and on."""
    desk = empty_desk
    read, write = look_up("B2"), reserve()
    desk.will_say(Reply.of(read, write), look_up("B2"), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    worker = await crew.hire()
    handle = await desk.start(TASK)
    await until_reserved(desk)
    await worker.kill()
    await time_out_soon(desk, handle, seconds=SECONDS)
    async with another_worker(desk):
        result = await result_of(handle)
    first, second = desk.model.requests[1]["messages"][-1]["content"]
    assert [first["tool_use_id"], second["tool_use_id"]] == [read["id"], write["id"]]
    assert json.loads(first["content"])["data"]["sku"] == "B2"
    assert json.loads(second["content"])["data"]["order"] == "1001"
    assert (await desk.requests())["GET /stock/{sku}"] == 2, "the read of the first turn was not run again"
    await assert_reserved_once(desk, result, "claimed", "expired", "found", evidence=Evidence.LOOKUP)


async def test_a_worker_killed_after_it_stored_the_outcome_leaves_nothing_to_look_up(
    empty_desk: Desk, crew: Crew
) -> None:
    """R70: what is stored before it is returned survives the kill."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=Point.AFTER_STORE, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.ends()
    await time_out_soon(desk, handle, seconds=SECONDS)
    async with another_worker(desk):
        result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "succeeded")
    assert (await desk.requests())["GET /reservations/{key}"] == 1, "acceptance, and nobody else, has looked it up"


async def test_a_worker_killed_between_claim_and_send_is_looked_up_before_the_second_send(
    empty_desk: Desk, crew: Crew
) -> None:
    """R68, R70: what was claimed may have been sent, so a lookup comes first."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    worker = await crew.hire(trap=Point.AFTER_CLAIM, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.ends()
    await time_out_soon(desk, handle, seconds=SECONDS)
    async with another_worker(desk):
        result = await result_of(handle)
    journal = ("claimed", "expired", "absent_resend", "claimed", "succeeded")
    await assert_reserved_once(desk, result, *journal, sends=2)
