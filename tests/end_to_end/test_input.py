"""What people send to start a task, through the real command line: everything wrong fails at once and readably."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from settled.workflows.contract.ending import Status
from tests.desk import Desk

TEMPORAL = str(Path(sys.executable).parent / "temporal")


async def command(desk: Desk, *words: str) -> tuple[int, str]:
    """Run the Temporal CLI; returns its exit code and what it printed."""
    address = desk.client.service_client.config.target_host
    process = await asyncio.create_subprocess_exec(
        TEMPORAL, *words, "--address", address, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(30):
        printed, _ = await process.communicate()
    return process.returncode or 0, printed.decode()


async def execute(desk: Desk, *inputs: str) -> tuple[int, str]:
    """`temporal workflow execute` with these inputs."""
    given = [word for text in inputs for word in ("--input", text)]
    queue = desk.parts.settings.task_queue
    words = ("--type", "AgentTask", "--task-queue", queue, "--workflow-id", f"task-{uuid4().hex[:8]}")
    return await command(desk, "workflow", "execute", *words, *given)


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        ((), "input: expected one, a JSON object"),
        (('"a"', '"b"'), "got 2 inputs"),
        (("5",), "got a JSON int"),
        (("null",), "input: expected"),
        (("[]",), "got a JSON list"),
        (("{}",), "goal: Field required"),
        (('{"goal": ""}',), "goal: String should have at least 1 character"),
        (('{"goal": 5}',), "goal: Input should be a valid string"),
        (('{"goal": "x", "gaol": 1}',), "gaol: unknown field"),
        (('{"goal": "x", "agent": "nobody"}',), "there is no agent 'nobody'; this worker has stock-clerk"),
        (('{"goal": "x", "tools": ["rm"]}',), "has no tool 'rm'; it has lookup_stock, reserve_stock"),
        (('{"goal": "x", "budget": {"turns": 0}}',), "budget.turns: Input should be greater than 0"),
        (('{"goal": "x", "budget": {"turns": "5"}}',), "budget.turns: Input should be a valid integer"),
        (('{"goal": "x", "budget": {"turns": 5000}}',), "above the agent's limit of 50"),
        (('{"goal": "x", "acceptance": [{"check": "magic"}]}',), "there is no check 'magic'"),
        (('{"goal": "x", "acceptance": [{"check": "operation"}]}',), "acceptance.0.tool"),
        (
            ('{"goal": "x", "acceptance": [{"check": "operation", "tool": "reserve_stock"}]}',),
            "acceptance.0.arguments",
        ),
    ],
)
async def test_a_bad_request_fails_at_once_with_a_readable_line(desk: Desk, inputs: tuple[str, ...], line: str) -> None:
    """R103: exit code 1, type InvalidTask, the field named; nothing hangs, no model is asked."""
    code, printed = await execute(desk, *inputs)
    assert code == 1
    assert line in printed
    assert "FAILED" in printed
    assert desk.model.received == 0


async def test_every_fault_is_named_at_once(desk: Desk) -> None:
    """A line for each."""
    handle = await desk.start({"goal": "x", "tools": ["rm", "ls"], "budget": {"turns": 99, "requests": 999}})
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    cause = failure.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "InvalidTask"
    assert [line.split(":")[0] for line in cause.message.splitlines()] == [
        "tools",
        "tools",
        "budget.turns",
        "budget.requests",
    ]
    await desk.record("invalid_task", handle)


async def test_faults_of_every_kind_are_named_at_once(desk: Desk) -> None:
    """An unknown field, an unknown agent, a check that isn't there, and a budget that no agent has."""
    given = {"tols": [], "agent": "nope", "budget": {"turns": 999, "pages": 1}, "acceptance": [{"check": "magic"}]}
    handle = await desk.start({"goal": "x", **given}, "settlement-of-nothing")
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert [line.split(":")[0] for line in str(failure.value.cause).removeprefix("InvalidTask: ").splitlines()] == [
        "budget.pages",
        "tols",
        "agent",
        "budget.turns",
        "task id",
        "acceptance.0.check",
    ]


async def test_of_thousands_of_unknown_fields_the_number_is_told(desk: Desk) -> None:
    handle = await desk.start({"goal": "x", **{f"field_{number}": 1 for number in range(3_000)}})
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert str(failure.value.cause).endswith("and 2950 more")


@pytest.mark.parametrize(
    "payload",
    [
        Payload(metadata={"encoding": b"json/plain"}, data=b'{"goal": "\\ud83d"}'),
        Payload(metadata={"encoding": b"json/plain"}, data=b"{not json"),
        Payload(metadata={"encoding": b"json/protobuf", "messageType": b"acme.Task"}, data=b"{}"),
        Payload(metadata={"encoding": b"binary/plain"}, data=b"\xff\x00"),
        Payload(metadata={}, data=b"x"),
    ],
    ids=["lone surrogate", "not json", "protobuf", "bytes", "no encoding"],
)
async def test_an_input_that_can_t_be_decoded_fails_the_task_and_hangs_nothing(desk: Desk, payload: Payload) -> None:
    """No stuck workflow task."""
    handle = await desk.start(RawValue(payload))
    with pytest.raises(WorkflowFailureError) as failure:
        async with asyncio.timeout(15):
            await handle.result()
    assert "input: expected" in str(failure.value.cause)


async def test_an_input_that_is_too_large_is_refused_and_hangs_nothing(desk: Desk) -> None:
    """An activity input of that size would hang the task."""
    handle = await desk.start({"goal": "x", "more": "y" * 1_500_000})
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert "at most 1,000,000" in str(failure.value.cause)


async def test_a_task_id_that_the_ledger_can_t_keep_is_refused(desk: Desk) -> None:
    """Temporal takes longer ones, and PostgreSQL would refuse each claim."""
    handle = await desk.start("what is A1?", "x" * 300)
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert "task id: longer than 255 characters" in str(failure.value.cause)


async def test_r103_a_task_is_started_looked_at_and_finished_by_the_temporal_cli_alone(desk: Desk) -> None:
    """A bare JSON string is a goal; an id that is in use is refused."""
    desk.will_say("It is an article.")
    queue = desk.parts.settings.task_queue
    start = ("workflow", "start", "--type", "AgentTask", "--task-queue", queue, "--workflow-id", "what-is-a1")
    once = ("--id-reuse-policy", "RejectDuplicate", "--fail-existing")
    code, _ = await command(desk, *start, *once, "--input", '"what is A1?"')
    assert code == 0
    code, printed = await command(desk, "workflow", "result", "--workflow-id", "what-is-a1", "--output", "json")
    assert code == 0
    result: dict[str, Any] = json.loads(printed)["result"]
    assert (result["status"], result["final_text"]) == (Status.UNVERIFIED, "It is an article.")
    code, printed = await command(
        desk, "workflow", "query", "--workflow-id", "what-is-a1", "--type", "status", "--output", "json"
    )
    assert code == 0
    assert '"status"' in printed
    assert "unverified" in printed
    code, _ = await command(desk, *start, *once, "--input", '"what is A1?"')
    assert code == 1


async def test_a_task_id_that_is_a_settlement_s_is_refused(desk: Desk) -> None:
    """Whoever needs that operation would wait for the task in the place of its settlement."""
    handle = await desk.start("what is A1?", f"settlement-{'a' * 64}")
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert "are the ids of settlements" in str(failure.value.cause)
