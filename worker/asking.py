"""Giving a person's word to the settlement of an operation, or to a task, over Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from settled.workflows.contract.names import EXTEND_BUDGET, SETTLEMENT, SETTLEMENT_RESOLVE, settlement_id
from settled.workflows.contract.operation import OperationView, Question, Resolution
from settled.workflows.contract.task import Limits


class NotTaken(Exception):
    """A person's word has changed nothing, or nobody knows; the text says why, in one line."""


async def give_word(client: Client, key: str, word: Resolution, *, task_queue: str, seconds: float) -> OperationView:
    """Have the word taken by the operation's settlement, which is started if it doesn't run.

    Raises:
        NotTaken: it was refused, or nobody has answered in time.
    """
    start: WithStartWorkflowOperation[object, object] = WithStartWorkflowOperation(
        SETTLEMENT,
        Question(key=key),
        id=settlement_id(key),
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        static_summary=f"finds out what became of operation {key[:12]}",
    )
    try:
        async with asyncio.timeout(seconds):
            view: OperationView = await client.execute_update_with_start_workflow(
                SETTLEMENT_RESOLVE, word, start_workflow_operation=start, result_type=OperationView
            )
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        raise NotTaken(cause.message if isinstance(cause, ApplicationError) else str(cause)) from error
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        await _forget(start)
        raise NotTaken(
            f"no worker has answered within {seconds:g} seconds; is one running that serves task queue {task_queue} "
            "(SETTLED_TASK_QUEUE)? Look at the operation before you say it again: a worker may still take your word"
        ) from error
    except RPCError as error:
        await _forget(start)
        raise NotTaken(f"Temporal refuses: {' '.join(error.message.split())}") from error
    return view


async def extend_budget(client: Client, task: str, words: Mapping[str, Any], *, seconds: float) -> Limits:
    """Have the task add to its budget; returns the new limits.

    Raises:
        NotTaken: it was refused, or nobody has answered in time.
    """
    handle = client.get_workflow_handle(task)
    try:
        async with asyncio.timeout(seconds):
            limits: Limits = await handle.execute_update(EXTEND_BUDGET, words, result_type=Limits)
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        raise NotTaken(cause.message if isinstance(cause, ApplicationError) else str(cause)) from error
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        raise NotTaken(
            f"no worker has answered within {seconds:g} seconds; is one running that serves the task? "
            "Look at its status before you say it again: a worker may still take your word"
        ) from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise NotTaken(f"no task {task!r} is running ({' '.join(error.message.split())})") from error
        raise NotTaken(f"Temporal refuses: {' '.join(error.message.split())}") from error
    return limits


async def _forget(start: WithStartWorkflowOperation[object, object]) -> None:
    """Take the start's own failure, which asyncio would complain of otherwise: what went wrong is told already."""
    with suppress(asyncio.CancelledError, RPCError):
        await start.workflow_handle()
