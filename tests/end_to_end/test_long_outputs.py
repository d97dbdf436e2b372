"""R87, R88: what is too long is cut where it is produced, told honestly, and paged through; on the real server."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.activities.lines import Lines
from settled.activities.output_store import TaskOutputs
from settled.activities.outputs import MOST_SHOWN, READ_OUTPUT, page, reference
from settled.activities.stores import TaskRecord
from settled.activities.toolkit import Answer, Arguments, Call, Scope, read, transaction
from settled.local.messages_script import Reply, tool_use
from settled.workflows.contract.ending import Status
from tests.desk import Desk, look_up, open_desk
from tests.end_to_end.test_loop import results_in
from tests.readers import READER, library

ONE_LINE = "0123456789" * 500_000
EMOJI = "a" + "\U0001f600" * 40_000 + "\ud83d"
LOG = "\n".join(f"line {number} of the log" for number in range(1, 10_001))
NUMBERS = list(range(1_000_000))
OUTPUTS = {"one line": ONE_LINE, "emoji": EMOJI, "log": LOG, "numbers": NUMBERS}


class Fetch(Arguments):
    name: str


@read(resources=lambda asked: [f"file/{asked.name}"])
async def fetch(asked: Fetch, call: Call) -> Answer:
    """Fetch a file."""
    return Answer(data=OUTPUTS[asked.name], source="disk")


@transaction(key=("name",), scope=Scope.TASK)
async def write_report(asked: Fetch, call: Call) -> Answer:
    """Write a report, and give it back. Writes."""
    return Answer(data=LOG, source="disk")


PROFILES = {"reader": READER.model_copy(update={"tools": ("fetch", "write_report")})}


@pytest.fixture
async def desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose tools answer at length."""
    registry = library(fetch, write_report)
    async with open_desk(temporal, tmp_path, registry=registry, profiles=PROFILES) as opened:
        yield opened


def asks(tool: str, **given: Any) -> dict[str, Any]:
    return tool_use(tool, given)


def told(desk: Desk, request: int) -> list[str]:
    """The texts of the results that a request brought the model."""
    return [str(block["content"]) for block in results_in(desk.model.requests[request])]


async def test_b18_five_megabytes_on_one_line_are_cut_and_the_model_pages_through_them(desk: Desk) -> None:
    """B18, R87, R88: the loop goes on; the whole is an artifact; the reference of the mark leads to any line of it."""
    name = reference(ONE_LINE)
    desk.will_say(
        asks("fetch", name="one line"),
        Reply.of(asks(READ_OUTPUT, output=name, first=1_200, last=1_201), asks(READ_OUTPUT, output=name, first=2_499)),
        "Read.",
    )
    result = await desk.run("read it")
    assert result.status is Status.UNVERIFIED
    (cut,) = told(desk, 1)
    assert len(cut) <= MOST_SHOWN
    assert f'of output "{name}"' in cut
    assert "5000000 characters in 2500 lines" in cut
    middle, end = told(desk, 2)
    assert f"1200\t{ONE_LINE[1_199 * 2_000 : 1_200 * 2_000]}\n1201\t" in middle
    assert "Lines 1200-1201 are shown; for more, ask with first=1202." in middle
    assert end.endswith(f"2500\t{ONE_LINE[-2_000:]}")
    assert "Lines 2499-2500 are shown, which is the end." in end
    assert desk.model.refusals == []
    kept = await desk.parts.stores.outputs.of_task(await task_of(desk, result.head))
    assert (await desk.parts.stores.artifacts.get(kept[0].digest)).decode() == ONE_LINE


async def task_of(desk: Desk, head: str) -> str:
    """The only task there is."""
    async with desk.parts.stores.database.read() as connection:
        (row,) = (await connection.exec_driver_sql("SELECT task FROM tasks")).all()
    return str(row[0])


async def test_b23_ten_thousand_emoji_and_half_of_one_leave_every_request_valid(desk: Desk) -> None:
    """B23."""
    desk.will_say(asks("fetch", name="emoji"), "Read.")
    await desk.run("read it")
    (cut,) = told(desk, 1)
    json.dumps(cut, ensure_ascii=False).encode()
    assert set(re.sub(r"(?m)^(\{.*|\[.*|\d+\t)", "", cut)) <= {"a", "\n", "\U0001f600", "\ufffd"}
    assert cut.endswith("\U0001f600\ufffd")


@pytest.mark.long
async def test_the_worker_goes_on_while_megabytes_of_numbers_are_read_and_paged_through(desk: Desk) -> None:
    """A million lines: nothing else of the worker's, such as a heartbeat, waits until they are laid out."""
    gaps = list[float]()

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            gaps.append(time.monotonic() - before)

    watching = asyncio.create_task(watch())
    name = reference(json.dumps(NUMBERS, indent=1))
    desk.will_say(asks("fetch", name="numbers"), asks(READ_OUTPUT, output=name, first=500_000, last=500_001), "Read.")
    handle = await desk.start("read them")
    await desk.result(handle)
    watching.cancel()
    assert "1000002 lines. Lines 1-" in told(desk, 1)[0]
    assert "500000\\t 499998,\\n500001\\t 499999," in told(desk, 2)[0]
    assert max(gaps) < 3.0
    events = (await handle.fetch_history()).events
    attempts = [event.activity_task_started_event_attributes.attempt for event in events]
    assert set(attempts) == {0, 1}


async def test_r88_a_write_s_long_result_is_cut_and_kept_like_a_read_s(desk: Desk) -> None:
    """It was done once; reading more of what it answered does nothing again."""
    desk.will_say(
        asks("write_report", name="r"), asks(READ_OUTPUT, output=reference(LOG), first=5_000, last=5_000), "Written."
    )
    result = await desk.run("write it")
    (cut,), (page,) = told(desk, 1), told(desk, 2)
    assert cut.startswith('{"status": "completed", "source": "disk"}\n[This output has ')
    assert "5000\\tline 5000 of the log" in page
    assert [(operation.tool, operation.sends) for operation in result.operations] == [("write_report", 1)]


async def test_r35_another_task_s_output_is_none_of_this_one_s(desk: Desk) -> None:
    desk.will_say(asks("fetch", name="log"), "Read.")
    await desk.run("read it")
    desk.will_say(asks(READ_OUTPUT, output=reference(LOG)), "No.")
    await desk.run("read what another one has read")
    (refused,) = results_in(desk.model.requests[3])
    assert refused["is_error"]
    assert json.loads(refused["content"]) == {
        "status": "failed",
        "error": "not_found",
        "message": f"this task has no output {reference(LOG)}; name one from the mark of a cut",
    }


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"output": "../etc/passwd"}, "an output is named by 12 digits and letters a-f, as in the mark of its cut"),
        ({"output": "0" * 12}, f"this task has no output {'0' * 12}; name one from the mark of a cut"),
        ({"first": 10_001}, f"first: output {reference(LOG)} has 10000 lines; 10001 is behind its end"),
        ({"first": 9, "last": 3}, "last: line 3 comes before line 9; give the lower number first"),
        ({"first": 0}, "first: Input should be greater than or equal to 1"),
        ({"first": "1"}, "first: Input should be a valid integer"),
    ],
    ids=str,
)
async def test_r88_a_wrong_reference_or_range_is_one_clear_line(desk: Desk, given: dict[str, Any], line: str) -> None:
    desk.will_say(asks("fetch", name="log"), asks(READ_OUTPUT, **{"output": reference(LOG), **given}), "Read.")
    await desk.run("read it")
    (refused,) = results_in(desk.model.requests[2])
    assert refused["is_error"]
    message = json.loads(refused["content"])["message"]
    assert line in message
    assert "\n" not in message


@pytest.mark.long
async def test_r88_paging_with_what_each_page_says_shows_every_line_once(desk: Desk) -> None:
    """By the words of the answers alone, as a model would."""
    name, seen, first = reference(LOG), list[str](), 1
    desk.will_say(asks("fetch", name="log"))
    desk.will_say(*(asks(READ_OUTPUT, output=name, first=number) for number in FIRSTS), "Read.")
    await desk.run("read it")
    for request in range(2, 2 + len(FIRSTS)):
        (text,) = told(desk, request)
        lines = re.findall(r"(?m)^(\d+)\t(.*)$", text)
        assert int(lines[0][0]) == first
        seen += [line for _, line in lines]
        more = re.search(r"ask with first=(\d+)", text)
        first = int(more[1]) if more else 0
    assert seen == LOG.split("\n")
    assert first == 0


def _firsts() -> list[int]:
    """The first lines of the log's pages."""
    firsts, lines = [1], Lines.of(LOG)
    while (last := page(lines, firsts[-1]).last) < lines.count:
        firsts.append(last + 1)
    return firsts


FIRSTS = _firsts()


async def test_the_tool_comes_with_any_other_and_not_without(desk: Desk) -> None:
    """Whatever may answer at length needs it; a task without tools has nothing to page through."""
    desk.will_say("Hello.", "Hello.")
    await desk.run({"goal": "greet"})
    await desk.run({"goal": "greet", "tools": []})
    assert [tool["name"] for tool in desk.model.requests[0]["tools"]] == ["fetch", "write_report", READ_OUTPUT]
    assert "tools" not in desk.model.requests[1]


async def test_r6_a_task_that_an_earlier_release_has_opened_keeps_its_tools(temporal: Client, tmp_path: Path) -> None:
    """R6: admission goes by the task's record, so the model is told of the same ones, also when the task is run again.
    Its outputs are cut all the same, and it isn't sent to a tool that it doesn't have."""
    registry = library(fetch, write_report)
    async with open_desk(temporal, tmp_path, registry=registry, profiles=PROFILES, working=True) as desk:
        desk.will_say("Hello.")
        await desk.run("read it", task="old")
        record = await desk.parts.stores.tasks.get("old")
        assert record is not None
        await forget_the_tool(desk, record)
        desk.will_say(asks("fetch", name="log"), "Read.")
        await desk.run("read it", task="old")
        assert [tool["name"] for tool in desk.model.requests[1]["tools"]] == ["fetch", "write_report"]
        (cut,) = told(desk, 2)
        assert f'The whole is kept as output "{reference(LOG)}"' in cut
        assert READ_OUTPUT not in cut


async def forget_the_tool(desk: Desk, record: TaskRecord) -> None:
    """Make the record one of an earlier release."""
    older = replace(record, tools=tuple(name for name in record.tools if name != READ_OUTPUT))
    async with desk.parts.stores.database.write() as connection:
        tools = json.dumps(older.tools)
        await connection.exec_driver_sql(f"UPDATE tasks SET tools = '{tools}' WHERE task = '{record.task}'")


async def test_small_results_stay_what_they_were(temporal: Client, tmp_path: Path) -> None:
    async with open_desk(temporal, tmp_path) as desk:
        desk.will_say(look_up(), "3.")
        await desk.run("how many A1 are there?")
        assert json.loads(told(desk, 1)[0])["data"]["available"] == 3


async def test_keeping_an_output_twice_changes_nothing(desk: Desk) -> None:
    """A retry of the activity produces it again."""
    outputs = desk.parts.stores.outputs
    first = await outputs.note("t", "fetch", LOG)
    assert await outputs.note("t", "fetch", LOG) == first
    assert len(await outputs.of_task("t")) == 1
    assert await TaskOutputs(outputs, "t").read(first[:12]) == LOG
    with pytest.raises(LookupError):
        await TaskOutputs(outputs, "t%").read(first[:12])
