"""Route 9: our activities, called from beside our workflows: with the `temporal` command, and by another workflow.

The writes are refused; the others are truthful whoever asks. `test_routes` says what the number is.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.loop import Ending, LoopState
from settled.workflows.contract.names import AGENT_TASK, CLOSE_TASK, DISPATCH, RECONCILE, SETTLE
from settled.workflows.contract.operation import Evidence, OperationState, Order, Question
from settled.workflows.contract.task import Opened
from settled.workflows.contract.turn import End
from settled.workflows.contract.values import Value
from settled.workflows.converter import data_converter
from tests.crash.operator import Handle, run_temporal, scheduled
from tests.crash.outcomes import (
    TASK,
    a_write_that_is_out,
    assert_reserved_once,
    disarm,
    in_ledger,
    until_it_is,
)
from tests.desk import Desk, reserve, result_of


@workflow.defn(sandboxed=False)
class Impostor:
    """Another workflow that would like to write."""

    @workflow.run
    async def run(self, queue: str, activity: str, given: dict[str, Any]) -> Any:
        """Call an activity as our own workflows do."""
        return await workflow.execute_activity(
            activity,
            given,
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


@workflow.defn(sandboxed=False, name=AGENT_TASK)
class Double:
    """Another workflow that goes by the name of ours."""

    @workflow.run
    async def run(self, queue: str, activity: str, given: dict[str, Any]) -> Any:
        """Call an activity as our own workflows do."""
        return await Impostor().run(queue, activity, given)


CANCELLED = End(reason=EndReason.ABORTED_TOOLS, detail="by hand")
A_STATE = LoopState(opened_at=0.0, opened=Opened(), head="0" * 64)


async def an_order_that_would_be_sent(desk: Desk, task: str) -> Order:
    """An order whose claim would be granted: the next generation of an operation that the service has declined."""
    desk.will_say(reserve(), "Declined.")
    await desk.arm("decline")
    handle = await desk.start("reserve 2 of A1 for order 1001", task)
    await result_of(handle)
    order = await the_order_of(handle)
    return order.model_copy(update={"intent": order.intent.model_copy(update={"generation": 2})})


async def the_order_of(handle: Handle) -> Order:
    """What the task's one dispatch was told."""
    (event,) = await scheduled(handle, DISPATCH)
    (payload,) = event.activity_task_scheduled_event_attributes.input.payloads
    order: Order = data_converter.payload_converter.from_payload(payload, Order)
    return order


async def assert_nothing_was_sent(desk: Desk) -> None:
    """Only the send that the service declined."""
    assert await desk.effects() == []
    assert (await desk.requests())["POST /reservations"] == 1
    (operation,) = await in_ledger(desk)
    assert await desk.journal(operation) == ["claimed", "declined"]


async def run_by_hand(desk: Desk, activity: str, *inputs: Value) -> tuple[int, str]:
    """Run one of our activities with the `temporal` command; returns its exit code and all that it says."""
    return await run_temporal(
        desk,
        *("activity", "execute", "--activity-id", f"by-hand-{uuid4().hex[:12]}", "--type", activity),
        *("--task-queue", desk.parts.settings.task_queue, "--start-to-close-timeout", "10s"),
        *("--retry-maximum-attempts", "1"),
        *(word for value in inputs for word in ("--input", value.model_dump_json())),
    )


async def run_as_an_impostor(desk: Desk, task: str, activity: str, value: Value, who: Any = Impostor) -> Any:
    """Run one of our activities from another workflow, under the id of a task that is closed."""
    queue = f"impostors-{uuid4().hex[:8]}"
    async with Worker(desk.client, task_queue=queue, workflows=[who]):
        return await desk.client.execute_workflow(
            who.run, args=[desk.parts.settings.task_queue, activity, value], id=task, task_queue=queue
        )


@pytest.mark.parametrize("activity", [DISPATCH, RECONCILE])
async def test_route_9_a_write_s_activity_started_from_the_command_line_is_refused(desk: Desk, activity: str) -> None:
    """Rule 4 of the protocol: `temporal activity execute --type dispatch` sends nothing."""
    order = await an_order_that_would_be_sent(desk, f"task-{uuid4().hex[:12]}")
    code, said = await run_by_hand(desk, activity, order)
    assert code == 1
    assert f"{activity} runs only for an AgentTask workflow" in said
    await assert_nothing_was_sent(desk)


@pytest.mark.parametrize("activity", [DISPATCH, RECONCILE])
async def test_route_9_a_write_s_activity_called_by_another_workflow_is_refused(desk: Desk, activity: str) -> None:
    """Rule 4 of the protocol: not even under the id of the task that the order belongs to."""
    task = f"task-{uuid4().hex[:12]}"
    order = await an_order_that_would_be_sent(desk, task)
    with pytest.raises(WorkflowFailureError) as failure:
        await run_as_an_impostor(desk, task, activity, order)
    assert isinstance(failure.value.cause, ActivityError)
    assert isinstance(failure.value.cause.cause, ApplicationError)
    assert failure.value.cause.cause.type == "NotOurWorkflow"
    await assert_nothing_was_sent(desk)


async def test_route_9_a_workflow_by_the_name_of_ours_repeats_nothing(desk: Desk) -> None:
    """R63: the guard takes it for ours; its permit is spent, and it gets what was stored."""
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start(TASK)
    result = await result_of(handle)
    outcome = await run_as_an_impostor(desk, handle.id, DISPATCH, await the_order_of(handle), Double)
    assert (outcome["standing"], outcome["permit"]) == ("settled", 1)
    await assert_reserved_once(desk, result, "claimed", "succeeded")


def with_another_key(order: Order) -> Order:
    """The order as somebody would forge it: the same call, under a key that its tool doesn't make."""
    intent = {"key": "f" * 64, "generation": 1, "resources": ()}
    return order.model_copy(update={"intent": order.intent.model_copy(update=intent)})


@pytest.mark.parametrize("done", [True, False])
async def test_route_9_an_order_whose_key_is_not_its_action_s_sends_nothing(desk: Desk, done: bool) -> None:
    """R63: whether the action was done under its own key, or was declined there; the forged permit is void."""
    desk.will_say(reserve(), "That is all.")
    if not done:
        await desk.arm("decline")
    handle = await desk.start("reserve 2 of A1 for order 1001")
    await result_of(handle)
    order = await the_order_of(handle)
    await run_as_an_impostor(desk, handle.id, DISPATCH, with_another_key(order), Double)
    assert (await desk.requests())["POST /reservations"] == 1
    assert len(await desk.effects()) == done
    journals = {operation.key: await desk.journal(operation) for operation in await in_ledger(desk)}
    assert journals.pop(order.intent.key) == ["claimed", "succeeded" if done else "declined"]
    assert list(journals.values()) == [["withdrawn"]]


async def test_route_9_a_step_of_a_settlement_by_hand_finds_out_and_sends_nothing(patient_desk: Desk) -> None:
    """R67: whoever asks, an attempt that is out is awaited, and a settled operation stays as it is."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    operation = await until_it_is(desk, OperationState.DISPATCHED)
    for state in (OperationState.DISPATCHED, OperationState.COMPLETED):
        code, said = await run_by_hand(desk, SETTLE, Question(key=operation.key))
        assert code == 0, said
        assert f'"state":"{state}"' in "".join(said.split())
        await disarm(desk)
        await until_it_is(desk, OperationState.COMPLETED)
    await assert_reserved_once(desk, await result_of(handle), "claimed", "succeeded")


@pytest.mark.parametrize("absent", [False, True])
async def test_route_9_a_step_of_a_settlement_by_hand_beside_the_settlement_sends_once(
    desk: Desk, absent: bool
) -> None:
    """R67, R68: two look the same operation up; what the slower one found out counts only if nothing else happened."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("drop_before_commit" if absent else "drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    handle = await desk.start(TASK)
    operation = await until_it_is(desk, OperationState.UNKNOWN)
    await disarm(desk)
    codes = [
        code
        for code, _ in await asyncio.gather(*(run_by_hand(desk, SETTLE, Question(key=operation.key)) for _ in "ab"))
    ]
    assert codes == [0, 0]
    result = await result_of(handle)
    if absent:
        journal = ("claimed", "unclear", "absent_resend", "claimed", "succeeded")
        await assert_reserved_once(desk, result, *journal, sends=2, posts=2)
    else:
        await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)


async def test_route_9_closing_a_task_by_hand_closes_nothing_of_it(patient_desk: Desk) -> None:
    """R69: a standalone activity has no task; nothing is withdrawn, and the task goes on."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    code, said = await run_by_hand(desk, CLOSE_TASK, Ending(end=CANCELLED, state=A_STATE))
    assert code == 1
    assert "was never opened" in said
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(handle), "claimed", "succeeded")


async def test_route_9_another_workflow_that_closes_a_closed_task_again_undoes_nothing(desk: Desk) -> None:
    """R69, R30: under the task's own id; what it is told comes from the ledger."""
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start(TASK)
    result = await result_of(handle)
    state = A_STATE.model_copy(update={"head": result.head})
    closed = await run_as_an_impostor(desk, handle.id, CLOSE_TASK, Ending(end=CANCELLED, state=state))
    assert closed["status"] == "cancelled"
    assert [operation["state"] for operation in closed["operations"]] == ["completed"]
    await assert_reserved_once(desk, result, "claimed", "succeeded")
