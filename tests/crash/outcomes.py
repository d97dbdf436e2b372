"""What each test asserts in the end: what happened at the service, and that everybody tells the same of it."""

from __future__ import annotations

from typing import Any

from settled.workflows.contract.ending import Status, Verdict
from settled.workflows.contract.operation import Evidence, OperationState, OperationView
from settled.workflows.contract.result import TaskResult
from tests.desk import Desk

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
        journal: the events of the operation's journal, in order.
        sends: attempts that may have been sent, as the ledger counts them.
        posts: requests to write that the service received.
        evidence: what the completed state rests on.
    """
    assert [effect["quantity"] for effect in await desk.effects()] == [2]
    assert (result.status, result.verdict) == (Status.SUCCEEDED, Verdict.ACCEPTED)
    (operation,) = result.operations
    assert (operation.state, operation.evidence) == (OperationState.COMPLETED, evidence)
    assert await desk.journal(operation) == list(journal)
    (standing,) = await in_ledger(desk)
    assert (standing.key, standing.state, standing.sends) == (operation.key, OperationState.COMPLETED, sends)
    assert (await desk.requests())["POST /reservations"] == posts
    assert desk.model.refusals == []


async def in_ledger(desk: Desk) -> list[OperationView]:
    """Every operation of the ledger."""
    return [view for view, _ in await desk.parts.stores.ledger.listed()]


async def has_effect(desk: Desk) -> bool:
    """Whether the service has reserved anything."""
    return bool(await desk.effects())


async def results_shown(desk: Desk, request: int = -1) -> list[dict[str, Any]]:
    """The tool results in the last message of a request to the model."""
    content = desk.model.requests[request]["messages"][-1]["content"]
    return [block for block in content if block["type"] == "tool_result"]
