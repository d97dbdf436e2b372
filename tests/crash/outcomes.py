"""What each test asserts in the end: what happened at the service, and that everybody tells the same of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowHandle

from settled.workflows.contract.ending import Status, Verdict
from settled.workflows.contract.operation import Evidence, OperationState, OperationView
from settled.workflows.contract.result import TaskResult
from tests.desk import Desk, reserve, status_of, until

GOAL = "reserve 2 of A1 for order 1001"
RESERVED = {"order": "1001", "sku": "A1", "quantity": 2}
TASK = {"goal": GOAL, "acceptance": [{"check": "operation", "tool": "reserve_stock", "arguments": RESERVED}]}
"""A task that succeeds only if the ledger and the service's own record say that the reservation was made."""


async def assert_reserved_once(
    desk: Desk,
    result: TaskResult,
    *journal: str,
    sends: int = 1,
    posts: int = 1,
    evidence: Evidence = Evidence.ANSWER,
) -> None:
    """One effect at the service, and a task, a ledger and a conversation that are true to it.

    Args:
        desk: where it happened.
        result: what the task came to.
        journal: the events of the operation's journal, in order; all of them, but for lookups that settled nothing.
        sends: attempts that may have been sent, as the ledger counts them.
        posts: requests to write that the service received.
        evidence: what the completed state rests on.
    """
    assert [(effect["order"], effect["quantity"]) for effect in await desk.effects()] == [("1001", 2)]
    assert (result.status, result.verdict) == (Status.SUCCEEDED, Verdict.ACCEPTED)
    (operation,) = result.operations
    assert (operation.state, operation.evidence) == (OperationState.COMPLETED, evidence)
    (standing,) = await in_ledger(desk)
    assert (standing.key, standing.state, standing.sends) == (operation.key, OperationState.COMPLETED, sends)
    rows = await desk.journal(operation)
    assert [event for event in rows if event not in ("lookup_failed", "absent_so_far")] == list(journal)
    assert (await desk.requests())["POST /reservations"] == posts
    assert desk.model.refusals == []


async def a_write_that_is_out(desk: Desk, task: str | None = None) -> WorkflowHandle[Any, TaskResult]:
    """A task whose write has had its effect, and waits for the reply until the faults are disarmed."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("hold_reply_after_commit")
    handle = await desk.start(TASK, task)
    await until_reserved(desk)
    return handle


async def two_writes_that_are_out(desk: Desk) -> list[WorkflowHandle[Any, TaskResult]]:
    """Two tasks with different writes, each like the one above."""
    desk.will_say(reserve(), reserve(order="2002", sku="B2"), "Reserved.", "Reserved.")
    await desk.arm("hold_reply_after_commit", times=2)
    handles = [await desk.start(GOAL)]
    await until_reserved(desk)
    handles.append(await desk.start(GOAL))

    async def both() -> bool:
        return len(await desk.effects()) == 2

    await until(both)
    return handles


async def assert_each_reserved_once(desk: Desk, results: Sequence[TaskResult]) -> None:
    """One effect for each of the two tasks."""
    assert [(effect["order"], effect["sku"]) for effect in await desk.effects()] == [("1001", "A1"), ("2002", "B2")]
    assert [result.status for result in results] == [Status.UNVERIFIED] * 2
    assert {operation.state for result in results for operation in result.operations} == {OperationState.COMPLETED}
    for operation in await in_ledger(desk):
        assert await desk.journal(operation) == ["claimed", "succeeded"]
        assert operation.sends == 1
    assert (await desk.requests())["POST /reservations"] == 2
    assert desk.model.refusals == []


async def in_ledger(desk: Desk) -> list[OperationView]:
    """Every operation of the ledger."""
    return [listed.view for listed in await desk.parts.stores.ledger.listed()]


async def until_reserved(desk: Desk) -> None:
    """Wait until the service has an effect."""
    await until(desk.effects)


async def until_asked_to_reserve(desk: Desk) -> None:
    """Wait until the service has a request to reserve, whatever became of it."""

    async def asked() -> bool:
        return bool((await desk.requests())["POST /reservations"])

    await until(asked)


async def until_it_is(desk: Desk, state: OperationState) -> OperationView:
    """Wait until the ledger's one operation is in this state; returns it."""

    async def one() -> list[OperationView]:
        return [view for view in await in_ledger(desk) if view.state is state]

    (operation,) = await until(one)
    assert isinstance(operation, OperationView)
    return operation


async def until_it_waits(desk: Desk, task: str) -> None:
    """Wait until the task, in whatever run it is now, says that it waits."""
    handle = desk.client.get_workflow_handle(task)

    async def waits() -> bool:
        return bool((await status_of(handle)).waits_for)

    await until(waits)


async def until_both_succeeded(desk: Desk) -> None:
    """Wait until the one operation's journal ends with the successes of two attempts."""

    async def have() -> bool:
        (operation,) = await in_ledger(desk)
        return (await desk.journal(operation))[-2:] == ["succeeded", "succeeded"]

    await until(have)


async def disarm(desk: Desk) -> None:
    """Forget all faults of the stock service, and let held replies go."""
    (await desk.http.delete(f"{desk.stock.url}/faults")).raise_for_status()
