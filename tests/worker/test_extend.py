"""`settled extend`: a person adds to a task's budget; what can't be added is told in one line."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from settled.workflows.contract.names import EXTEND_BUDGET
from settled.workflows.contract.result import TaskResult
from settled.workflows.contract.task import OnExhausted
from tests.crash.operator import address_of
from tests.desk import CLERK, Desk, look_up, open_desk, status_of, until
from tests.end_to_end.test_writes import waits
from tests.worker.command import Said, settled_process

PATIENT = CLERK.model_copy(update={"on_exhausted": OnExhausted.WAIT})


@pytest.fixture
async def desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose tasks wait where their budget is spent."""
    async with open_desk(temporal, tmp_path, profiles={"clerk": PATIENT}) as opened:
        yield opened


async def extend(desk: Desk, *words: str) -> Said:
    """Run the command."""
    return await settled_process("extend", *words, TEMPORAL_ADDRESS=address_of(desk), LOGNAME="ada")


async def words_of(desk: Desk, task: str) -> list[dict[str, Any]]:
    """What was said to the task, as its history has it."""
    history = await desk.client.get_workflow_handle(task).fetch_history()
    said = [event.workflow_execution_update_accepted_event_attributes.accepted_request for event in history.events]
    return [json.loads(one.input.args.payloads[0].data) for one in said if one.input.name == EXTEND_BUDGET]


async def test_a_person_adds_to_a_budget_and_is_shown_the_new_limits(desk: Desk) -> None:
    """Who says so, and why, stands in the task's history; without a name it is the login name."""
    desk.will_say(look_up(), "3.")
    handle = await desk.start({"goal": "look", "budget": {"turns": 1}}, "order 1001's")
    await until(lambda: waits(handle, "a larger budget"))
    said = await extend(desk, "order 1001's", "--turns", "2", "--wall-seconds", "1.5", "--because", "nearly there")
    assert said.code == 0, said.err
    assert [line.split() for line in said.lines][:3] == [
        ["turns", "3"],
        ["requests", "100"],
        ["wall_seconds", "604801.5"],
    ]
    assert ["cost", "no", "limit"] in [line.split() for line in said.lines]
    await desk.result(handle)
    expected = {"turns": 2, "wall_seconds": 1.5, "because": "nearly there", "who": "ada"}
    assert await words_of(desk, "order 1001's") == [expected]


async def test_the_line_that_a_task_shows_works_also_where_its_id_begins_with_a_dash(desk: Desk) -> None:
    desk.will_say(look_up(), "3.")
    handle = await desk.start({"goal": "look", "budget": {"turns": 1}}, "-order 1")
    (line,) = await until(lambda: waits_for(handle))
    said = await extend(desk, *shlex.split(line.partition("; extend it with: settled extend ")[2]))
    assert said.code == 0, said.err
    await desk.result(handle)


async def waits_for(handle: WorkflowHandle[Any, TaskResult]) -> tuple[str, ...]:
    """What the task waits for, if it waits."""
    return (await status_of(handle)).waits_for


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ([], 2, "input: nothing is added; give at least one of turns, requests"),
        (["--turns", "0"], 2, "turns: Input should be greater than 0; give the amount that is added"),
        (["--cost", "much"], 2, "cost: "),
        (["--wall-seconds", "nan"], 2, "wall_seconds: Input should be a finite number"),
        (["--turns", "1", "--who", "x" * 201], 2, "--who: at most 200 characters"),
        (["--calls", "1"], 1, "calls: the task has no such limit, so there is nothing to extend; leave it out"),
    ],
    ids=["nothing", "zero", "not money", "not a number", "long name", "no limit"],
)
async def test_what_cannot_be_added_is_told_in_one_line(desk: Desk, words: list[str], code: int, line: str) -> None:
    """R103."""
    desk.will_say(look_up(), "3.")
    handle = await desk.start({"goal": "look", "budget": {"turns": 1}}, "refused")
    await until(lambda: waits(handle, "a larger budget"))
    said = await extend(desk, "refused", *words)
    assert (said.code, len(said.err.splitlines())) == (code, 1), said.err
    assert said.err.startswith(f"settled: {line}")
    await handle.terminate()


async def test_a_task_that_does_not_run_is_told_in_one_line(desk: Desk) -> None:
    said = await extend(desk, "nobody", "--turns", "1")
    assert (said.code, len(said.err.splitlines())) == (1, 1), said.err
    assert said.err.startswith("settled: no task 'nobody' is running")
