"""A dispatch that somebody calls beside our workflow: it is refused, and nothing is sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from settled.workflows.contract.names import DISPATCH
from settled.workflows.contract.operation import Order
from settled.workflows.converter import data_converter
from tests.crash.operator import run_temporal, scheduled
from tests.crash.outcomes import in_ledger
from tests.desk import Desk, reserve, result_of


@workflow.defn(sandboxed=False)
class Impostor:
    """Another workflow that would like to write."""

    @workflow.run
    async def run(self, queue: str, order: Order) -> Any:
        """Call the dispatch as our own workflow does."""
        return await workflow.execute_activity(
            DISPATCH,
            order,
            task_queue=queue,
            start_to_close_timeout=timedelta(seconds=10),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )


async def an_order_that_would_be_sent(desk: Desk, task: str) -> Order:
    """An order whose claim would be granted: the next generation of an operation that the service has declined."""
    desk.will_say(reserve(), "Declined.")
    await desk.arm("decline")
    handle = await desk.start("reserve 2 of A1 for order 1001", task)
    await result_of(handle)
    (event,) = await scheduled(handle, DISPATCH)
    (payload,) = event.activity_task_scheduled_event_attributes.input.payloads
    order: Order = data_converter.payload_converter.from_payload(payload, Order)
    return order.model_copy(update={"intent": order.intent.model_copy(update={"generation": 2})})


async def assert_nothing_was_sent(desk: Desk) -> None:
    """Only the send that the service declined."""
    assert await desk.effects() == []
    assert (await desk.requests())["POST /reservations"] == 1
    (operation,) = await in_ledger(desk)
    assert await desk.journal(operation) == ["claimed", "declined"]


async def test_a_dispatch_started_from_the_command_line_is_refused(desk: Desk) -> None:
    """Rule 4 of the protocol: `temporal activity execute --type dispatch` sends nothing."""
    order = await an_order_that_would_be_sent(desk, f"task-{uuid4().hex[:12]}")
    code, said = await run_temporal(
        desk,
        *("activity", "execute", "--activity-id", f"by-hand-{uuid4().hex[:12]}", "--type", DISPATCH),
        *("--task-queue", desk.parts.settings.task_queue, "--start-to-close-timeout", "10s"),
        *("--retry-maximum-attempts", "1", "--input", order.model_dump_json()),
    )
    assert code == 1
    assert "dispatch runs only for an AgentTask workflow" in said
    await assert_nothing_was_sent(desk)


async def test_a_dispatch_called_by_another_workflow_is_refused(desk: Desk) -> None:
    """Rule 4 of the protocol: not even under the id of the task that the order belongs to."""
    task, queue = f"task-{uuid4().hex[:12]}", f"impostors-{uuid4().hex[:8]}"
    order = await an_order_that_would_be_sent(desk, task)
    async with Worker(desk.client, task_queue=queue, workflows=[Impostor]):
        with pytest.raises(WorkflowFailureError) as failure:
            await desk.client.execute_workflow(
                Impostor.run, args=[desk.parts.settings.task_queue, order], id=task, task_queue=queue
            )
    assert isinstance(failure.value.cause, ActivityError)
    assert isinstance(failure.value.cause.cause, ApplicationError)
    assert failure.value.cause.cause.type == "NotOurWorkflow"
    await assert_nothing_was_sent(desk)
