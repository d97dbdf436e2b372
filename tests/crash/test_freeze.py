"""A dispatch that is frozen (SIGSTOP), outlived by its deadline, settled by others, and woken again (R75b).

The frozen worker serves one activity at a time and no workflow: the one that it froze in is all that it holds.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from settled.workflows.contract.operation import Evidence
from settled.workflows.contract.result import TaskResult
from tests.crash.operator import time_out_soon
from tests.crash.outcomes import TASK, assert_reserved_once, disarm, in_ledger, until_reserved
from tests.crash.processes import SECONDS, Crew, WorkerProcess, a_head, other_hands
from tests.crash.traps import Point
from tests.desk import Desk, reserve, result_of

SENT_AGAIN = ("claimed", "expired", "absent_resend", "claimed", "succeeded")


async def settled_by_others(desk: Desk, frozen: WorkerProcess, *, in_flight: bool = False) -> TaskResult:
    """Freeze the worker in a dispatch, let others finish the task, and wake it again until it has said all it has to.

    Args:
        desk: where it happens.
        frozen: a worker that falls into its trap by itself, unless:
        in_flight: it is frozen while the service holds back its reply.
    """
    async with AsyncExitStack() as others:
        await others.enter_async_context(a_head(desk))
        handle = await desk.start(TASK)
        if in_flight:
            await until_reserved(desk)
            await frozen.freeze()
        else:
            await frozen.is_frozen()
        await others.enter_async_context(other_hands(desk))
        await time_out_soon(desk, handle, seconds=SECONDS)
        result = await result_of(handle)
        await disarm(desk)
        frozen.wake()
        await frozen.says("dispatch answers settled")
    return result


@pytest.mark.long
async def test_a_dispatch_frozen_before_its_claim_finds_its_permit_void(empty_desk: Desk, crew: Crew) -> None:
    """R75b: others void the permit, look up, and send under the next one; the woken claim is refused."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    frozen = await crew.hire(trap=Point.BEFORE_DISPATCH, one_hand=True)
    result = await settled_by_others(desk, frozen)
    assert "claim of permit 1 refused" in frozen.said()
    await assert_reserved_once(desk, result, "missed", "absent_resend", "claimed", "succeeded")


@pytest.mark.long
async def test_a_dispatch_frozen_after_its_claim_sends_nothing_past_its_deadline(empty_desk: Desk, crew: Crew) -> None:
    """R75b: the last look at the clock comes after the freeze; the late "not sent" is noted, and changes nothing."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    frozen = await crew.hire(trap=Point.AFTER_CLAIM, one_hand=True)
    result = await settled_by_others(desk, frozen)
    await assert_reserved_once(desk, result, *SENT_AGAIN, "late_no")


async def test_a_tool_frozen_before_its_first_byte_is_stopped_by_its_timeout(empty_desk: Desk, crew: Crew) -> None:
    """R75b: past the last look at the clock, the tool's own timeout is over before its connection is there."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    frozen = await crew.hire(trap=Point.BEFORE_SEND, one_hand=True)
    result = await settled_by_others(desk, frozen)
    await assert_reserved_once(desk, result, *SENT_AGAIN, sends=2)


@pytest.mark.parametrize("late", ["no answer", "success"])
async def test_a_late_report_of_a_dispatch_frozen_in_flight_changes_nothing(
    empty_desk: Desk, crew: Crew, late: str
) -> None:
    """R75b: found by others; what the woken dispatch then reports fits, and alarms nobody."""
    desk = empty_desk
    desk.will_say(reserve(), "Reserved.")
    journal = ["claimed", "expired", "found"]
    if late == "success":
        frozen = await crew.hire(trap=Point.AFTER_ANSWER, one_hand=True)
        result = await settled_by_others(desk, frozen)
        journal.append("succeeded")
    else:
        await desk.arm("hold_reply_after_commit")
        frozen = await crew.hire(one_hand=True)
        result = await settled_by_others(desk, frozen, in_flight=True)
    await assert_reserved_once(desk, result, *journal, evidence=Evidence.LOOKUP)
    (operation,) = await in_ledger(desk)
    rows = await desk.parts.stores.ledger.journal(operation.key)
    assert not any("alarm" in row.body for row in rows)
    assert operation.evidence is Evidence.LOOKUP
