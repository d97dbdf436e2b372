"""The demo: a task whose write is done by the service, but whose reply is lost, and which is settled by a lookup.

It is started with the `temporal` command line, as a person would, and everything that is told of it was recorded.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from settled.activities.database import Database
from settled.activities.stores import Stores
from settled.local.commands import shown, start_task
from settled.local.narrate import Narrator
from settled.local.places import environment, program
from settled.local.screen import Screen
from settled.local.stack import NAMESPACE, Stack
from settled.workflows.contract import names
from settled.workflows.contract.result import TaskResult

ORDER = "1001"
TASK = f"order-{ORDER}"
RESERVATION = {"order": ORDER, "sku": "A1", "quantity": 2}
REQUEST = {
    "goal": f"reserve 2 of A1 for order {ORDER}",
    "agent": "stock-clerk",
    "acceptance": [{"check": "operation", "tool": "reserve_stock", "arguments": RESERVATION}],
}
START = start_task(TASK, REQUEST)
FAULT = {"fault": "drop_reply_after_commit", "match": {"order": ORDER}}
SCRIPTED_SECONDS = 60.0
PROVIDER_SECONDS = 300.0
"""How long the task may take: with the scripted model, and with a real one, which thinks, and is retried when busy."""


class DemoFailed(Exception):
    """The demo did not come to its end. The text says why."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the demo came to: its last line, and what is not as it should be."""

    line: dict[str, Any]
    wrong: list[str]


async def run_demo(stack: Stack, screen: Screen) -> Summary:
    """Run the task, telling it while it runs.

    Args:
        stack: where.
        screen: takes what the demo does, and what is recorded of the task.

    Raises:
        DemoFailed: the task could not be started, or did not end in time, or has no result.
    """
    seconds = SCRIPTED_SECONDS if stack.model else PROVIDER_SECONDS
    try:
        async with asyncio.timeout(seconds):
            await _arm(stack)
            screen.part("fault", f"armed at the stock service: it will commit order {ORDER}, and drop its reply")
            screen.command(shown(START))
            await _start(stack)
            await _narrate(stack, screen)
            return await _summarise(stack)
    except TimeoutError:
        raise DemoFailed(f"the task did not end within {seconds:.0f} s") from None


async def _arm(stack: Stack) -> None:
    async with stack.http.post(f"{stack.stock}/faults", json=FAULT) as response:
        response.raise_for_status()


async def _start(stack: Stack) -> None:
    """Start the task as a person would.

    Raises:
        DemoFailed: the command failed.
    """
    words = [word for line in START for word in line]
    command = await asyncio.create_subprocess_exec(
        program(words[0]),
        *words[1:],
        env=environment(stack.folder, TEMPORAL_ADDRESS=stack.temporal),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await command.communicate()
    finally:
        if command.returncode is None:
            command.kill()
            await command.wait()
    if command.returncode:
        raise DemoFailed(f"the command failed: {output.decode(errors='replace').strip()}")


async def _narrate(stack: Stack, screen: Screen) -> None:
    database = Database(stack.ledger)
    try:
        await Narrator(stack.client.get_workflow_handle(TASK), Stores.over(database)).follow(screen.fact)
    finally:
        await database.close()


async def _summarise(stack: Stack) -> Summary:
    result = await _result(stack)
    async with stack.http.get(f"{stack.stock}/effects", params={"order": ORDER}) as response:
        effects = (await response.json())["count"]
    operations = [
        {"key": view.key, "state": view.state, "sends": view.sends, "evidence": view.evidence}
        for view in result.operations
    ]
    line = {
        "status": result.status,
        "end_reason": result.end_reason,
        "operations": operations,
        "service_effects": effects,
        "web_ui": f"{stack.web}/namespaces/{NAMESPACE}/workflows/{TASK}",
    }
    return Summary(line=line, wrong=differences(line))


async def _result(stack: Stack) -> TaskResult:
    """The task's result, which stands in a failure's details where the task failed.

    Raises:
        DemoFailed: it has none.
    """
    try:
        result: TaskResult = await stack.client.get_workflow_handle(TASK, result_type=TaskResult).result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.type == names.TASK_NOT_SUCCEEDED:
            return TaskResult.model_validate(cause.details[0])
        raise DemoFailed(f"the task has no result: {cause}") from failure
    return result


def differences(line: dict[str, Any]) -> list[str]:
    """What is not as the demo promises, a line each."""
    operations = line["operations"]
    wanted = {"status": "succeeded", "end_reason": "completed", "service_effects": 1}
    wrong = [f"{name} is {line[name]!s}, not {value!s}" for name, value in wanted.items() if line[name] != value]
    if len(operations) != 1:
        return [*wrong, f"there are {len(operations)} operations, not 1"]
    wanted = {"state": "completed", "sends": 1, "evidence": "lookup"}
    return wrong + [
        f"the operation's {name} is {operations[0][name]!s}, not {value!s}"
        for name, value in wanted.items()
        if operations[0][name] != value
    ]
