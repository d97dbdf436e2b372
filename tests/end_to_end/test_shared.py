"""A business scope is shared: two tasks that mean the same action share one operation, and one effect."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from settled.activities.ledger_lists import Listed, Wanted
from settled.activities.ledger_rows import WaitsFor
from settled.activities.registry import Registry, discover
from settled.activities.toolkit import ShownTo, WriteTool
from settled.activities.waking import wake_waiters
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.desk import Desk, hurried, open_desk, reserve, result_of, status_of, until
from tests.end_to_end.test_writes import GOAL, shown
from tests.protocol.books import note, report
from tests.protocol.stories import order


async def blocked(desk: Desk, task: str) -> bool:
    """Whether the task waits for a resource."""
    handle = desk.client.get_workflow_handle(task)
    return any("lets go" in line for line in (await status_of(handle)).waits_for)


async def test_r63_a_second_task_joins_what_the_first_one_has_sent(desk: Desk) -> None:
    """R63, R73: one effect, and each is told the truth: done, and done already."""
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    desk.will_say(reserve(), reserve(), "Done.", "Done.")
    first = await desk.start(GOAL, "first")
    await until(lambda: _unsettled(desk))
    second = await desk.start(GOAL, "second")
    await until(lambda: _waits(desk, "second"))
    await desk.http.delete(f"{desk.stock.url}/faults")
    results = await asyncio.gather(result_of(first), result_of(second))
    assert [result.status for result in results] == [Status.UNVERIFIED] * 2
    assert {result.operations[0].key for result in results} == {results[0].operations[0].key}
    assert len(await desk.effects()) == 1
    assert (await desk.requests())["POST /reservations"] == 1


async def _unsettled(desk: Desk) -> bool:
    return any(not one.view.state.settled for one in await desk.parts.stores.ledger.listed())


async def _waits(desk: Desk, task: str) -> bool:
    return (await status_of(desk.client.get_workflow_handle(task))).status is Status.WAITING


async def test_r69_the_first_task_s_cancel_does_not_give_up_the_second_one_s_action(desk: Desk) -> None:
    """Both wait with the same action, not yet sent. The first one gives up; it is done for the other."""
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    desk.will_say(reserve(1, order="999"))
    await desk.start(GOAL, "holder")
    await until(lambda: _unsettled(desk))
    handles = []
    for task in ("first", "second"):
        desk.will_say(reserve())
        handles.append(await desk.start(GOAL, task))
        await until(lambda task=task: blocked(desk, task))  # type: ignore[misc]  # bound at once, called at once
    desk.will_say("Done.", "Done.")
    await handles[0].cancel()
    assert (await until(lambda: _ended(desk, "first"))).end_reason is EndReason.ABORTED_TOOLS
    await desk.http.delete(f"{desk.stock.url}/faults")
    result = await result_of(handles[1])
    assert [one.state for one in result.operations] == [OperationState.COMPLETED]
    assert len(await desk.effects(order="1001")) == 1


async def test_r73_who_has_waited_for_its_turn_and_finds_another_request_there_has_no_part_in_it(desk: Desk) -> None:
    """R73, B28: two tasks wait with different requests for one action. The second one is told of the conflict, ends
    at once, and counts nothing as its own.
    """
    for number, fault in (("999", "drop_reply_after_commit"), ("1001", "drop_before_commit")):
        await desk.arm(fault, match={"order": number})
        await desk.arm("lookup_fails", times=1000, match={"order": number})
    desk.will_say(reserve(1, order="999"))
    holder = await desk.start(GOAL)
    (held,) = await until(lambda: desk.parts.stores.ledger.of_task(holder.id, [OperationState.UNKNOWN]))
    handles = []
    for quantity in (2, 1):
        desk.will_say(reserve(quantity))
        handles.append(await desk.start(GOAL))
        await until(lambda task=handles[-1].id: blocked(desk, task))  # type: ignore[misc]  # bound at once, called at once
    await holder.terminate()
    desk.will_say("Done.")
    await note(desk.parts.stores.ledger, Event.FOUND, at=held.key)
    (claimed,) = await until(lambda: _of_order(desk, "1001"))
    winner, loser = handles if claimed.task == handles[0].id else reversed(handles)
    result = await result_of(loser)
    assert (result.status, result.operations, result.tally.operations) == (Status.UNVERIFIED, (), 0)
    assert "already exists with other arguments" in shown(desk)[0]["message"]
    (standing,) = await desk.parts.stores.ledger.of_task(winner.id)
    assert standing.state is OperationState.UNKNOWN, "it is still open, and the other one's alone"
    assert [one.task for one in await desk.parts.stores.ledger.waiters(standing.key)] == [winner.id]


async def test_a_task_that_is_gone_is_taken_for_no_owner_of_what_it_has_waited_for(desk: Desk) -> None:
    """It has waited for a resource, or for its turn; the operation that settles then is another task's."""
    ledger, key = desk.parts.stores.ledger, secrets.token_hex(32)
    await ledger.claim(key, order(task="task-a"))
    amended = await report(ledger, Event.SUCCEEDED, at=key)
    for waits_for in (WaitsFor.RESOURCE, WaitsFor.RESULT):
        await ledger.wait(key, f"gone-{waits_for}", waits_for)
    assert amended.operation is not None
    await wake_waiters(desk.client, ledger, amended.operation)
    assert await ledger.waiters(key) == []
    assert [one.task for one in await ledger.listed(Wanted(task="task-a"))] == ["task-a"]
    for waits_for in (WaitsFor.RESOURCE, WaitsFor.RESULT):
        assert await ledger.of_task(f"gone-{waits_for}") == []


async def _of_order(desk: Desk, number: str) -> list[Listed]:
    return [one for one in await desk.parts.stores.ledger.listed() if f'"order":"{number}"' in one.shown]


async def _ended(desk: Desk, task: str) -> object:
    report = await status_of(desk.client.get_workflow_handle(task))
    return report if report.end_reason else None


@pytest.fixture
async def patient(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk where a write has time, however slow the machine is: who comes when is what is looked at."""
    registry = hurried(discover(), seconds=15.0, lands_within=timedelta(seconds=1))
    async with open_desk(temporal, tmp_path, registry=registry) as opened:
        yield opened


@pytest.mark.parametrize("shown_to", list(ShownTo))
async def test_r35_another_principal_is_told_that_it_was_done_and_sees_the_result_only_if_it_may(
    temporal: Client, tmp_path: Path, shown_to: ShownTo
) -> None:
    """R35, R73: neither the result nor, in a conflict, the arguments."""
    tools = hurried(discover(), seconds=2.0, lands_within=timedelta(seconds=1), shown_to=shown_to).tools
    assert isinstance(tools["reserve_stock"], WriteTool)
    async with open_desk(temporal, tmp_path, registry=Registry(tools)) as desk:
        desk.will_say(reserve(), "Done.", reserve(), reserve(1), "Done.")
        await desk.run({"goal": GOAL, "principal": "anna"})
        await desk.run({"goal": GOAL, "principal": "bert"})
        repeated, conflict = shown(desk, 3)[0], shown(desk, 4)[0]
        may = shown_to is ShownTo.TENANT
        assert repeated["status"] == "completed"
        assert ("reservation_id" in json.dumps(repeated)) is may
        assert ('"quantity":2' in conflict["message"]) is may
        assert len(await desk.effects()) == 1


@pytest.mark.long
async def test_r78_who_came_first_for_a_resource_goes_first(patient: Desk) -> None:
    """R74, R78: several tasks wait for one article; once it is free they go in the order in which they came."""
    desk = patient
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    desk.will_say(reserve(1, order="0", sku="C3"))
    handles = [await desk.start(GOAL, "holder-of-c3")]
    await until(lambda: _unsettled(desk))
    for number in range(1, 5):
        desk.will_say(reserve(1, order=str(number), sku="C3"))
        handles.append(await desk.start(GOAL, f"task-{number}"))
        await until(lambda task=handles[-1].id: blocked(desk, task))  # type: ignore[misc]  # bound at once, called at once
    desk.will_say(*["Done."] * 5)
    await desk.http.delete(f"{desk.stock.url}/faults")
    await asyncio.gather(*(result_of(handle, 40) for handle in handles))
    assert [effect["order"] for effect in await desk.effects()] == ["0", "1", "2", "3", "4"]


@pytest.mark.long
async def test_r78_those_who_are_gone_are_not_waited_for(patient: Desk) -> None:
    """Several tasks wait for one article and are terminated; the one that comes after them goes at once."""
    desk = patient
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    desk.will_say(reserve(1, order="0", sku="C3"))
    await desk.start(GOAL, "holder-of-dead")
    await until(lambda: _unsettled(desk))
    handles = []
    for number in range(1, 7):
        desk.will_say(reserve(1, order=str(number), sku="C3"))
        handles.append(await desk.start(GOAL, f"dead-{number}"))
        await until(lambda task=handles[-1].id: blocked(desk, task))  # type: ignore[misc]  # bound at once, called at once
    for handle in handles[:-1]:
        await handle.terminate()
    desk.will_say("Done.", "Done.")
    await desk.http.delete(f"{desk.stock.url}/faults")
    async with asyncio.timeout(10):
        await result_of(handles[-1])
    assert [effect["order"] for effect in await desk.effects()] == ["0", "6"]
