"""`temporal workflow reset` of a task whose old attempt is still running."""

from __future__ import annotations

import json

import pytest

from settled.workflows.contract.names import DISPATCH, REQUEST_MODEL
from settled.workflows.contract.operation import OperationState
from tests.crash.operator import reset, scheduled
from tests.crash.outcomes import TASK, assert_reserved_once, disarm, until_asked_to_reserve, until_it_is
from tests.desk import Desk, reserve, result_of, status_of, until

FAULTS = {"hold_reply_after_commit": {}, "commit_after_timeout": {"seconds": 3.0}}


async def until_it_waits(desk: Desk, task: str) -> None:
    """Wait until the task that was reset has asked again, and waits for the old attempt."""
    handle = desk.client.get_workflow_handle(task)

    async def waits() -> bool:
        return bool((await status_of(handle)).waits_for)

    await until(waits)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_reset_to_before_the_write_waits_for_the_old_attempt(patient_desk: Desk, fault: str) -> None:
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
    assert (await handle.describe()).run_id != handle.first_execution_run_id, "it is another run"
    await assert_reserved_once(desk, result, "claimed", "succeeded")


async def test_a_reset_to_before_the_model_request_gives_the_action_a_new_call_id_and_no_second_effect(
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


async def test_a_reset_of_a_finished_task_does_nothing_again(desk: Desk) -> None:
    """R63, B52: the spent permit answers with what was stored."""
    desk.will_say(reserve(), "Reserved.", "Reserved, as before.")
    handle = await desk.start(TASK)
    await result_of(handle)
    again = await reset(desk, handle, to_before=DISPATCH)
    result = await result_of(again)
    assert result.final_text == "Reserved, as before."
    await assert_reserved_once(desk, result, "claimed", "succeeded")
