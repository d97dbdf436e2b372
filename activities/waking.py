"""Who is told when an operation changes: the settlement that looks it up, and the tasks that wait for it.

A signal can be lost (a task may be closed, a server away); a waiting task also asks again by a timer of its own.
"""

from __future__ import annotations

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from settled.activities.journal import Operation
from settled.activities.ledger import Ledger, Waiter
from settled.activities.ledger_rows import WaitsFor
from settled.activities.registry import Registry
from settled.activities.toolkit import WriteTool
from settled.workflows.contract.names import SETTLEMENT, SETTLEMENT_LOOK, TASK_WAKE, settlement_id
from settled.workflows.contract.operation import OperationState, Question

MOST_WOKEN = 3
"""How many of those who wait for a resource are told that it is free: the first one may be slow."""
WORTH_WAKING = frozenset(
    {
        OperationState.COMPLETED,
        OperationState.REJECTED,
        OperationState.NOT_EXECUTED,
        OperationState.UNDONE,
        OperationState.RESENDABLE,
        OperationState.NEEDS_HUMAN,
    }
)
"""The states in which a waiting task has something to do."""


async def start_settlement(client: Client, key: str, task_queue: str, *, look: bool = True) -> None:
    """See to it that a settlement of this operation runs, and looks now unless it is not to be hurried.

    The signal goes with the start: a settlement that is about to close would miss it otherwise.
    """
    await client.start_workflow(
        SETTLEMENT,
        Question(key=key),
        id=settlement_id(key),
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        start_signal=SETTLEMENT_LOOK if look else None,
        static_summary=f"finds out what became of operation {key[:12]}",
    )


async def see_to_settlement(client: Client, registry: Registry, key: str, tool: str, task_queue: str) -> None:
    """As `start_settlement`, for an operation of any tool. A settlement on the queue of a worker that hasn't got the
    tool would find nobody who can take its steps, and stand in the way of one where somebody can.

    Args:
        client: of Temporal.
        registry: the tools of this worker.
        key: the operation.
        tool: the operation's tool.
        task_queue: this worker's.
    """
    if isinstance(registry.named(tool), WriteTool):
        await start_settlement(client, key, task_queue)
        return
    try:
        await client.get_workflow_handle(settlement_id(key)).signal(SETTLEMENT_LOOK)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise  # where none runs, the sweep of a worker that has the tool starts one


async def wake_waiters(client: Client, ledger: Ledger, operation: Operation) -> None:
    """Tell each waiting task that the operation is worth asking about, once for each change."""
    if operation.state not in WORTH_WAKING:
        return
    if operation.state.settled:
        await _wake_the_line(client, ledger, operation)
    for waiter in await ledger.waiters(operation.key):
        if waiter.woken_seq >= operation.seq or not _concerns(waiter, operation):
            continue
        if await _signal(client, waiter.task):
            await ledger.woken(operation, waiter)
        else:
            await ledger.leave(operation.key, waiter.task)


async def _wake_the_line(client: Client, ledger: Ledger, operation: Operation) -> None:
    """Tell the first living tasks that wait for its resources. Those in front who are gone would be waited for."""
    for line in await ledger.in_line(operation):
        living = 0
        for task in line:
            if await _signal(client, task):
                living += 1
            else:
                await ledger.forget_task(task)
            if living == MOST_WOKEN:
                break


async def somebody_waits(client: Client, ledger: Ledger, key: str, *, besides: str = "") -> bool:
    """Whether a task that is still running waits for the operation's result."""
    for waiter in await ledger.waiters(key):
        if waiter.waits_for is WaitsFor.RESULT and waiter.task != besides and await _is_running(client, waiter.task):
            return True
    return False


async def stop_waiting(ledger: Ledger, key: str) -> None:
    """Take back every wait for the operation's result."""
    for waiter in await ledger.waiters(key):
        if waiter.waits_for is WaitsFor.RESULT:
            await ledger.leave(key, waiter.task)


def _concerns(waiter: Waiter, operation: Operation) -> bool:
    """A task that only waits for a resource is woken when the resource is free, or won't be without a person."""
    told = operation.state.settled or operation.state is OperationState.NEEDS_HUMAN
    return told or waiter.waits_for is WaitsFor.RESULT


async def _signal(client: Client, task: str) -> bool:
    try:
        await client.get_workflow_handle(task).signal(TASK_WAKE)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False  # the task is closed: nobody waits there any more
        raise
    return True


async def _is_running(client: Client, task: str) -> bool:
    try:
        description = await client.get_workflow_handle(task).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return description.status is WorkflowExecutionStatus.RUNNING
