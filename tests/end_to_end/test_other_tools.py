"""Workers with different tools on one ledger: what one of them can't do is left to another one, and nobody hangs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from settled.activities.journal import Subject
from settled.activities.keys import key_forms
from settled.activities.ledger_lists import Listed
from settled.activities.protocol import Claim
from settled.activities.registry import Registry
from settled.activities.sweeping import Sweep
from settled.activities.toolkit import Answer, Arguments, Call, Scope, write
from settled.activities.tools.stock import reserve_stock
from settled.activities.waking import see_to_settlement, start_settlement
from settled.local.messages_script import Reply, tool_use
from settled.worker.wiring import make_worker
from settled.workflows.contract.ending import EndReason, Status, Verdict
from settled.workflows.contract.names import (
    AGENT_TASK,
    CLOSE_TASK,
    SETTLE,
    SETTLEMENT_LOOK,
    SETTLEMENT_RESOLVE,
    settlement_id,
)
from settled.workflows.contract.operation import OperationState
from settled.workflows.contract.result import TaskResult
from settled.workflows.states import Event
from tests.desk import CLERK, Desk, open_desk, reserve, result_of, until
from tests.end_to_end.test_shared import blocked
from tests.end_to_end.test_writes import GOAL, RESERVED
from tests.protocol.books import note


class Count(Arguments):
    """What `count` is asked."""

    sku: str


@write(
    key=("sku",),
    scope=Scope.TASK,
    lookup=None,
    dedupes=None,
    lands_within=timedelta(0),
    resources=lambda asked: [f"stock/{asked.sku}"],
)
async def count(asked: Count, call: Call) -> Answer:
    """Count an article. Writes the number down."""
    return Answer(data={"counted": asked.sku}, source="the shelf")


COUNTING = Registry({"count": count})


@pytest.fixture
async def desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk without a worker: each test employs its own, one after the other or at once."""
    async with open_desk(temporal, tmp_path, working=False) as opened:
        yield opened


def clerk(desk: Desk) -> Worker:
    """A worker with the stock clerk's tools."""
    return make_worker(desk.client, desk.parts)


def counter(desk: Desk, task_queue: str = "") -> Worker:
    """A worker that can count, and nothing else."""
    settings = desk.parts.settings.model_copy(update={"task_queue": task_queue or desk.parts.settings.task_queue})
    profiles = {"counter": CLERK.model_copy(update={"tools": ("count",)})}
    return make_worker(desk.client, replace(desk.parts, registry=COUNTING, settings=settings, profiles=profiles))


async def forsaken(desk: Desk) -> str:
    """An operation of `reserve_stock` on A1 that is out, as a worker leaves it that dies right after the claim."""
    arguments = await desk.parts.stores.artifacts.put('{"order": "7", "sku": "A1", "quantity": 1, "line": 1}')
    about = Subject(
        tool="reserve_stock",
        tenant="default",
        principal="",
        fingerprint="f",
        arguments=arguments,
        resources=("7:default/stock/A1",),
    )
    declaration = key_forms(reserve_stock)[0].declaration
    ask = Claim(subject=about, generation=1, permit=1, seconds=0.0, task="gone", declaration=declaration)
    operation = secrets.token_hex(32)
    await desk.parts.stores.ledger.claim(operation, ask)
    return operation


async def status_of_settlement(desk: Desk, operation: str) -> WorkflowExecutionStatus | None:
    """How the operation's last settlement stands; None if it never had one."""
    try:
        return (await desk.client.get_workflow_handle(settlement_id(operation)).describe()).status
    except RPCError:
        return None


async def complaint(handle: WorkflowHandle[Any, Any], activity: str) -> str:
    """What the last try of a pending activity failed with; empty if it has not failed."""
    pending: Sequence[Any] = (await handle.describe()).raw_description.pending_activities
    lines = [str(one.last_failure.message) for one in pending if one.activity_type.name == activity]
    return lines[0] if lines else ""


async def reserved_for(desk: Desk, state: OperationState) -> Listed | None:
    """The reservation, once it is in that state."""
    found = [one for one in await desk.parts.stores.ledger.listed() if one.view.tool == "reserve_stock"]
    return found[0] if found and found[0].view.state is state else None


# --- Settlements ---


async def test_a_claim_that_waits_for_another_queue_s_operation_starts_no_settlement_that_nobody_could_take(
    desk: Desk,
) -> None:
    """R66: the worker that has the tool finds it by its sweep, on its own queue; then the claim goes on."""
    operation, queue = await forsaken(desk), f"counters-{desk.parts.settings.task_queue}"
    desk.will_say(tool_use("count", {"sku": "A1"}), "Counted.")
    async with counter(desk, queue):
        handle = await desk.client.start_workflow(
            AGENT_TASK, "count A1", id=f"task-on-{queue}", task_queue=queue, result_type=TaskResult
        )
        await until(lambda: blocked(desk, handle.id))
        assert await status_of_settlement(desk, operation) is None
        async with clerk(desk):
            sweep = Sweep(desk.client, desk.parts.stores, desk.parts.registry, desk.parts.settings.task_queue)
            assert await sweep.step(0) == 1
            result = await result_of(handle)
        assert [(one.tool, one.state) for one in result.operations] == [("count", OperationState.COMPLETED)]


async def test_a_settlement_that_runs_elsewhere_is_told_to_look(desk: Desk) -> None:
    operation = await forsaken(desk)
    elsewhere = desk.parts.settings.task_queue
    await see_to_settlement(desk.client, COUNTING, operation, "reserve_stock", "counters")
    assert await status_of_settlement(desk, operation) is None
    await see_to_settlement(desk.client, desk.parts.registry, operation, "reserve_stock", elsewhere)
    await see_to_settlement(desk.client, COUNTING, operation, "reserve_stock", "counters")
    handle = desk.client.get_workflow_handle(settlement_id(operation))
    events = [event async for event in handle.fetch_history_events()]
    signals = [event.workflow_execution_signaled_event_attributes.signal_name for event in events]
    assert signals.count(SETTLEMENT_LOOK) == 2, "with its start, and after it"


async def test_a_task_that_ends_on_a_worker_without_its_tool_leaves_the_operation_to_others(desk: Desk) -> None:
    """R66, R69: its settlement is gone. None is started where the tool isn't known; the sweep of who has it does it."""
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=1000)
    desk.will_say(reserve())
    async with clerk(desk):
        handle = await desk.start(GOAL)
        await until(lambda: reserved_for(desk, OperationState.UNKNOWN))
        (operation,) = await desk.parts.stores.ledger.of_task(handle.id)
        await until(lambda: status_of_settlement(desk, operation.key))
    await desk.client.get_workflow_handle(settlement_id(operation.key)).terminate()
    async with counter(desk):
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert await status_of_settlement(desk, operation.key) is WorkflowExecutionStatus.TERMINATED
    await desk.http.delete(f"{desk.stock.url}/faults")
    async with clerk(desk):
        sweep = Sweep(desk.client, desk.parts.stores, desk.parts.registry, desk.parts.settings.task_queue)
        assert await sweep.step(0) == 1
        await until(lambda: reserved_for(desk, OperationState.COMPLETED))
    assert len(await desk.effects()) == 1


async def test_a_step_of_a_settlement_on_a_worker_without_the_tool_says_so_and_is_taken_by_one_that_has_it(
    desk: Desk,
) -> None:
    operation = await forsaken(desk)
    queue = desk.parts.settings.task_queue
    await start_settlement(desk.client, operation, queue)
    handle = desk.client.get_workflow_handle(settlement_id(operation))
    async with counter(desk):
        line = await until(lambda: complaint(handle, SETTLE))
    assert "\n" not in line
    assert "this worker has no write 'reserve_stock'" in line
    assert f"let one that has it serve {queue}" in line
    async with clerk(desk):
        await until(lambda: reserved_for(desk, OperationState.NOT_EXECUTED))


async def test_r92_a_person_s_word_ends_a_settlement_whatever_tools_the_worker_has(desk: Desk) -> None:
    operation = await forsaken(desk)
    for event in (Event.EXPIRED, Event.HANDED_TO_PERSON):
        await note(desk.parts.stores.ledger, event, at=operation)
    await start_settlement(desk.client, operation, desk.parts.settings.task_queue)
    handle = desk.client.get_workflow_handle(settlement_id(operation))
    word = {"outcome": "not_executed", "because": "the shelf is as it was", "who": "ada"}
    async with counter(desk):
        await handle.execute_update(SETTLEMENT_RESOLVE, word)
        await until(lambda: settled(desk, operation))


async def settled(desk: Desk, operation: str) -> bool:
    return await status_of_settlement(desk, operation) is WorkflowExecutionStatus.COMPLETED


# --- Acceptance ---


@pytest.fixture
async def reserved(desk: Desk) -> AsyncIterator[WorkflowHandle[Any, Any]]:
    """A task that has reserved, and whose model has yet to say that it is done; its worker is gone."""
    never = asyncio.Event()
    desk.will_say(reserve(), replace(Reply.of("Reserved."), hold=never), "Reserved.")
    desk.may_ask_again(1)  # whoever is gone had asked
    async with clerk(desk):
        handle = await desk.start({"goal": GOAL, "acceptance": [RESERVED]})
        await until(lambda: reserved_for(desk, OperationState.COMPLETED))
        await until(lambda: is_asked(desk))
    yield handle
    never.set()


async def is_asked(desk: Desk) -> bool:
    """Whether the model was asked what comes after the reservation."""
    return len(desk.model.requests) > 1


async def test_r55_a_task_is_judged_by_a_worker_that_can(desk: Desk, reserved: WorkflowHandle[Any, Any]) -> None:
    """A worker that hasn't got the tool that a criterion names says so; it is no finding about the task."""
    async with counter(desk):
        line = await until(lambda: complaint(reserved, CLOSE_TASK))
    assert "this worker can't judge the task" in line
    assert f"let one that can serve {desk.parts.settings.task_queue}: acceptance.0.tool" in line
    async with clerk(desk):
        result = await result_of(reserved)
    assert (result.status, result.verdict) == (Status.SUCCEEDED, Verdict.ACCEPTED)


async def test_r55_where_no_worker_can_judge_the_task_ends_and_says_why(
    desk: Desk, reserved: WorkflowHandle[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("settled.activities.closing.MOST_JUDGES", 2)
    async with counter(desk):
        result = await result_of(reserved)
    assert (result.end_reason, result.verdict) == (EndReason.ACCEPTANCE_FAILED, Verdict.NOT_ACCEPTED)
    assert "can't be checked: acceptance.0.tool" in result.findings[0].evidence
