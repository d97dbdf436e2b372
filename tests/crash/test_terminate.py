"""A task that is terminated while its write is unknown: the settlement outlives it, and sends nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from settled.activities.registry import discover
from settled.workflows.contract.operation import Evidence, OperationState
from tests.crash.operator import temporal as temporal_command
from tests.crash.outcomes import TASK, disarm, until_it_is
from tests.crash.processes import LANDS_WITHIN
from tests.desk import hurried, open_desk, reserve


@pytest.mark.parametrize(
    ("fault", "state", "event", "effects"),
    [
        ("drop_reply_after_commit", OperationState.COMPLETED, "found", 1),
        ("drop_before_commit", OperationState.NOT_EXECUTED, "absent_final", 0),
    ],
)
async def test_the_write_of_a_terminated_task_is_settled_and_not_sent_again(
    temporal: Client, tmp_path: Path, fault: str, state: OperationState, event: str, effects: int
) -> None:
    """R66, R67, R69: found means completed; absent means not executed, once nothing can land any more."""
    registry = hurried(discover(), seconds=1.0, lands_within=timedelta(seconds=LANDS_WITHIN))
    async with open_desk(temporal, tmp_path, registry=registry) as desk:
        desk.will_say(reserve())
        await desk.arm(fault)
        await desk.arm("lookup_fails", times=1000)
        handle = await desk.start(TASK)
        operation = await until_it_is(desk, OperationState.UNKNOWN)
        await temporal_command(desk, "workflow", "terminate", "--workflow-id", handle.id, "--reason", "enough")
        assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED
        await disarm(desk)
        step = await asyncio.wait_for((await desk.settlement(operation)).result(), 15)
        assert step.settled
        assert step.view is not None
        assert (step.view.state, step.view.sends, step.view.evidence) == (state, 1, Evidence.LOOKUP)
        rows = await desk.parts.stores.ledger.journal(operation.key)
        # A lookup that was begun before the task was terminated may still issue a permit, which is voided then.
        passing = ("lookup_failed", "absent_so_far", "absent_resend", "withdrawn")
        assert [row.event for row in rows if row.event not in passing] == ["claimed", "unclear", event]
        if state is OperationState.NOT_EXECUTED:
            assert rows[-1].at > rows[0].body["deadline"] + LANDS_WITHIN
        assert len(await desk.effects()) == effects
        assert (await desk.requests())["POST /reservations"] == 1
        assert desk.model.refusals == []
