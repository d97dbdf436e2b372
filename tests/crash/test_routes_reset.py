"""Route 5: `temporal workflow reset`, in each of its forms, of a task whose old attempt is still running, or is over.

The new run has another run id, the same activity id and the same permit. `test_routes` says what the number is.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from settled.activities.database import Database
from settled.activities.ledger import Ledger, Waiter
from settled.activities.ledger_rows import WaitsFor
from settled.activities.registry import discover
from settled.worker.wiring import make_worker
from settled.workflows.contract.names import DISPATCH, REQUEST_MODEL, settlement_id
from settled.workflows.contract.operation import Evidence, OperationState
from tests.crash.operator import current, reset, reset_by, scheduled, temporal_of_many
from tests.crash.outcomes import (
    TASK,
    a_write_that_is_out,
    assert_each_reserved_once,
    assert_reserved_once,
    disarm,
    two_writes_that_are_out,
    until_asked_to_reserve,
    until_it_is,
    until_it_waits,
    until_reserved,
)
from tests.desk import Desk, hurried, look_up, open_desk, reserve, result_of

FAULTS = {"hold_reply_after_commit": {}, "commit_after_timeout": {"seconds": 3.0}}


@pytest.mark.parametrize("fault", FAULTS)
async def test_route_5_a_reset_to_before_the_write_waits_for_the_old_attempt(patient_desk: Desk, fault: str) -> None:
    """R63, B52: another run with the same permit; its claim is refused while the old attempt is out."""
    desk = patient_desk
    desk.will_say(reserve(), "Reserved.")
    await desk.arm(fault, **FAULTS[fault])
    handle = await desk.start(TASK)
    await until_asked_to_reserve(desk)
    again = await reset(desk, handle, to_before=DISPATCH)
    await until_it_waits(desk, handle.id)
    operation = await until_it_is(desk, OperationState.DISPATCHED)
    assert operation.sends == 1
    await disarm(desk)
    result = await result_of(again)
    assert len(await scheduled(again, DISPATCH)) == 1
    assert (await again.describe()).run_id != handle.first_execution_run_id, "it is another run"
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_5_a_reset_to_before_the_model_request_gives_a_new_call_id_and_no_second_effect(
    patient_desk: Desk,
) -> None:
    """R63, B52: the same business action, proposed again in another conversation, is the same operation."""
    desk = patient_desk
    first, second = reserve(), reserve()
    desk.will_say(first, second, "Reserved.")
    await desk.arm("hold_reply_after_commit")
    handle = await desk.start(TASK)
    await until_asked_to_reserve(desk)
    again = await reset(desk, handle, to_before=REQUEST_MODEL)
    await until_it_waits(desk, handle.id)
    await disarm(desk)
    result = await result_of(again)
    await assert_reserved_once(desk, result, "claimed", "succeeded")
    asked_again, told = desk.model.requests[1:]
    assert "has already acted" in json.dumps(asked_again["messages"])
    shown = json.dumps(told["messages"])
    assert second["id"] in shown
    assert first["id"] not in shown


async def test_route_5_a_reset_of_a_finished_task_does_nothing_again(desk: Desk) -> None:
    """R63, B52: the spent permit answers with what was stored."""
    desk.will_say(reserve(), "Reserved.", "Reserved, as before.")
    handle = await desk.start(TASK)
    await result_of(handle)
    again = await reset(desk, handle, to_before=DISPATCH)
    result = await result_of(again)
    assert result.final_text == "Reserved, as before."
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_5_a_reset_while_the_outcome_is_looked_up_waits_for_it(desk: Desk) -> None:
    """R66, R67: the new run's permit is spent; the settlement that is at work finds the effect for it."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    handle = await desk.start(TASK)
    await until_it_is(desk, OperationState.UNKNOWN)
    again = await reset(desk, handle, to_before=DISPATCH)
    await until_it_waits(desk, handle.id)
    await disarm(desk)
    result = await result_of(again)
    await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)


async def test_route_5_a_reset_to_before_the_first_of_two_sends_sends_no_third_time(desk: Desk) -> None:
    """R68: the new run knows of no second permit, and needs none."""
    desk.will_say(reserve(), "Reserved.", "Reserved, as before.")
    await desk.arm("drop_before_commit")
    handle = await desk.start(TASK)
    await result_of(handle)
    again = await reset(desk, handle, to_before=DISPATCH, number=0)
    result = await result_of(again)
    assert result.final_text == "Reserved, as before."
    journal = ("claimed", "unclear", "absent_resend", "claimed", "succeeded")
    await assert_reserved_once(desk, result, *journal, sends=2, posts=2)


@pytest.mark.parametrize("asks", [True, False], ids=["FirstWorkflowTask", "LastWorkflowTask"])
async def test_route_5_a_reset_by_type_sends_once(patient_desk: Desk, asks: bool) -> None:
    """R63: to the first workflow task, which asks the model again, and to the last one, which dispatches again."""
    desk = patient_desk
    desk.will_say(reserve(), *([reserve()] if asks else []), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    handle = await desk.start(TASK)
    await until_reserved(desk)
    again = await reset_by(desk, handle, "--type", "FirstWorkflowTask" if asks else "LastWorkflowTask")
    await until_it_waits(desk, handle.id)
    await disarm(desk)
    result = await result_of(again)
    assert len(desk.model.requests) == (3 if asks else 2)
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_route_5_a_reset_to_before_the_last_continue_as_new_sends_once(temporal: Client, tmp_path: Path) -> None:
    """R9, R63: the run before comes back, and is cut again; its model is told of what it doesn't remember."""
    async with open_desk(
        temporal, tmp_path, registry=hurried(discover(), seconds=12.0), recheck_seconds=60.0, cut_events=50
    ) as desk:
        desk.will_say(*(look_up() for _ in range(4)), reserve(), reserve(), "Reserved.")
        await desk.arm("hold_reply_after_commit")
        handle = await desk.start(TASK)
        await until_reserved(desk)
        cut = (await current(desk, handle).describe()).run_id
        assert cut != handle.first_execution_run_id
        again = await reset_by(desk, handle, "--type", "LastContinuedAsNew")
        await until_it_waits(desk, handle.id)
        assert (await again.describe()).run_id not in (cut, handle.first_execution_run_id)
        await disarm(desk)
        result = await result_of(again)
        assert "has already acted" in json.dumps(desk.model.requests[5]["messages"])
        await assert_reserved_once(desk, result, "claimed", "succeeded")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["LastWorkflowTask", "BuildId"])
async def test_route_5_a_reset_of_all_tasks_of_a_query_sends_once_each(patient_desk: Desk, kind: str) -> None:
    """R63: one batch job over many tasks, whose old attempts are still out; by build, all ask their models again."""
    desk = patient_desk
    handles = await two_writes_that_are_out(desk)
    which = ["--type", kind]
    if kind == "BuildId":
        desk.script[2:2] = desk.script[:2]
        info = (await handles[0].describe()).raw_description.workflow_execution_info
        which += ["--build-id", info.auto_reset_points.points[0].build_id]
    await temporal_of_many(desk, "workflow", "reset", *which, "--reason", "a bad release")
    for handle in handles:
        await until_it_waits(desk, handle.id)
    await disarm(desk)
    results = [await result_of(current(desk, handle)) for handle in handles]
    assert [len(await scheduled(current(desk, handle), DISPATCH)) for handle in handles] == [1, 1]
    await assert_each_reserved_once(desk, results)


async def test_route_5_a_reset_that_also_moves_the_task_to_another_version_sends_once(patient_desk: Desk) -> None:
    """R63: `reset with-workflow-update-options` resets first, and then runs like any other reset."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    moves = ("with-workflow-update-options", "--versioning-override-behavior", "auto_upgrade")
    again = await reset_by(desk, handle, *moves, "--type", "LastWorkflowTask")
    await until_it_waits(desk, handle.id)
    await disarm(desk)
    assert (await again.describe()).run_id != handle.first_execution_run_id
    await assert_reserved_once(desk, await result_of(again), "claimed", "succeeded")


async def test_route_5_resets_in_a_row_while_the_old_attempt_is_out_send_once(patient_desk: Desk) -> None:
    """R63: each of the runs claims the same permit; one had it."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    again, runs = current(desk, handle), {handle.first_execution_run_id}
    for _ in range(4):
        again = await reset(desk, again, to_before=DISPATCH)
        await until_it_waits(desk, handle.id)
        runs.add((await again.describe()).run_id)
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(again), "claimed", "succeeded")
    assert len(runs) == 5


async def test_route_5_a_reset_of_the_settlement_sends_nothing(desk: Desk) -> None:
    """R67: it may look as often as it likes; it never sends."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("drop_reply_after_commit")
    handle = await desk.start(TASK)
    result = await result_of(handle)
    settlement = desk.client.get_workflow_handle(settlement_id(result.operations[0].key))
    await settlement.result()
    again = await reset_by(desk, settlement, "--type", "FirstWorkflowTask")
    await desk.client.get_workflow_handle(again.id).result()
    await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)


class Meeting(Ledger):
    """A ledger where a new run's wait for the result comes right between the old attempt's look and its last word."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.begins, self.looked, self.waits, self.taken_back = (asyncio.Event() for _ in range(4))

    async def waiters(self, key: str) -> list[Waiter]:
        """Who waits: the first look is the old attempt's, when it has its outcome."""
        waiters = await super().waiters(key)
        self.looked.set()
        return waiters

    async def join(self, key: str, task: str, waits_for: WaitsFor | None = None) -> None:
        """Begin to wait, or take a wait back."""
        begins = waits_for is WaitsFor.RESULT
        meeting = not self.waits.is_set()
        if meeting and begins:
            self.begins.set()
        if meeting:
            await (self.looked if begins else self.waits).wait()
        await super().join(key, task, waits_for)
        if meeting:
            (self.waits if begins else self.taken_back).set()
            await self.taken_back.wait()


async def test_route_5_a_run_that_begins_to_wait_while_the_old_attempt_ends_is_told(
    temporal: Client, tmp_path: Path
) -> None:
    """R63: whoever comes to wait for what is settled at that moment learns of it at once, not at its next recheck."""
    registry = hurried(discover(), seconds=12.0)
    async with open_desk(temporal, tmp_path, registry=registry, recheck_seconds=60.0, working=False) as desk:
        ledger = Meeting(desk.parts.stores.database)
        stores = replace(desk.parts.stores, ledger=ledger)
        async with make_worker(desk.client, replace(desk.parts, stores=stores)):
            handle = await a_write_that_is_out(desk)
            again = await reset(desk, handle, to_before=DISPATCH)
            await asyncio.wait_for(ledger.begins.wait(), 10)
            await disarm(desk)
            try:
                result = await result_of(again, 3)
            finally:
                assert ledger.taken_back.is_set(), "the two have met"
                with suppress(RPCError):
                    await again.terminate()
        await assert_reserved_once(desk, result, "claimed", "succeeded")
