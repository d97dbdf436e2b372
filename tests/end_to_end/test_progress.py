"""R31: a watcher sees how an activity goes on, by Temporal's own means; the model never reads of it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle

from settled.activities.registry import Registry, discover
from settled.activities.toolkit import Answer, Arguments, Call, read
from settled.local.messages_script import Reply, Stall, text, tool_use
from settled.workflows.contract.ending import Status
from settled.workflows.contract.operation import Evidence
from tests.desk import CLERK, Desk, hurried, look_up, open_desk, reserve, status_of, until


async def details_of(handle: WorkflowHandle[Any, Any], activity: str) -> dict[str, Any]:
    """The heartbeat details of the pending activity, as `temporal workflow describe` shows them."""
    pending = (await handle.describe()).raw_description.pending_activities
    for one in pending:
        if one.activity_type.name == activity and one.heartbeat_details.payloads:
            shown: dict[str, Any] = json.loads(one.heartbeat_details.payloads[0].data)
            return shown
    return {}


async def test_r31_a_request_that_streams_shows_its_text_and_the_tool_that_it_writes(desk: Desk) -> None:
    """While it stalls in the middle of a call; `status` tells what the workflow knows."""
    reply = Reply.of(text("I look it up: now"), look_up())
    # Message, text, ping, three pieces and the end of the text, the call, and a piece of its input.
    desk.will_say(Stall(seconds=7.0, after_events=9, ping_every=0.2, reply=reply), "3.")
    handle = await desk.start("how many A1 are there?")

    async def writes() -> dict[str, Any]:
        shown = await details_of(handle, "request_model")
        return shown if "tool" in shown else {}

    shown = await until(writes)
    assert shown["tool"] == "lookup_stock"
    assert shown["text"] == "I look it up: now"
    assert (shown["model"], shown["attempt"]) == ("claude-scripted", 1)
    assert shown["characters"] >= len("I look it up: now")
    assert shown["output_tokens"] >= 1
    result = await handle.result()
    status = await status_of(handle)
    assert (status.model, status.usage) == ("claude-scripted", result.usage)
    assert status.context_tokens > 100
    assert status.last_text == "3."
    # What the model reads is the conversation, and nothing else: the goal, its own words, the result.
    goal, said, results = desk.model.requests[1]["messages"]
    assert goal["content"] == [text("how many A1 are there?")]
    assert said["content"] == list(reply.content)
    assert [block["type"] for block in results["content"]] == ["tool_result"]
    assert not {"characters", "output_tokens", "attempt", "seconds"} & results["content"][0].keys()
    assert "characters" not in json.dumps(desk.model.requests)


class Wait(Arguments):
    """What `slow` is asked."""

    name: str


GO_ON = asyncio.Event()


@read()
async def slow(asked: Wait, call: Call) -> Answer:
    """Answer when the test says so."""
    await GO_ON.wait()
    return Answer(data=asked.name, source="test")


async def test_r31_a_read_shows_its_tool_and_for_how_long_it_has_run(temporal: Client, tmp_path: Path) -> None:
    profile = CLERK.model_copy(update={"tools": ("slow",)})
    async with open_desk(temporal, tmp_path, registry=Registry({"slow": slow}), profiles={"slow": profile}) as desk:
        GO_ON.clear()
        desk.will_say(tool_use("slow", {"name": "x"}), "Done.")
        handle = await desk.start("wait")

        async def runs() -> dict[str, Any]:
            shown = await details_of(handle, "run_read")
            return shown if shown.get("seconds", 0) > 1 else {}

        shown = await until(runs)
        assert shown["tool"] == "slow"
        GO_ON.set()
        await handle.result()
        assert "seconds" not in json.dumps(desk.model.requests[1]["messages"])


async def test_a_task_that_works_again_does_not_say_that_it_waits(temporal: Client, tmp_path: Path) -> None:
    """The next call of the same response may take long; what was waited for before it is settled."""
    reached, let_go = asyncio.Event(), asyncio.Event()

    @read(resources=lambda asked: [])
    async def look_into_archive(asked: Arguments, call: Call) -> Answer:
        """Look into the archive."""
        reached.set()
        await let_go.wait()
        return Answer(data="all there", source="test")

    known = hurried(discover(), seconds=2.0, lands_within=timedelta(seconds=1))
    registry = Registry({**known.tools, look_into_archive.name: look_into_archive})
    tools = ("reserve_stock", "look_into_archive")
    profiles = {"clerk": CLERK.model_copy(update={"tools": tools})}
    async with open_desk(temporal, tmp_path, registry=registry, profiles=profiles) as desk:
        await desk.arm("drop_reply_after_commit")
        desk.will_say(Reply.of(reserve(), tool_use("look_into_archive", {})), "All there.")
        handle = await desk.start("reserve 2 of A1 for order 1001")
        await asyncio.wait_for(reached.wait(), 30)
        shown = await status_of(handle)
        assert (shown.status, shown.waits_for) == (Status.RUNNING, ())
        let_go.set()
        assert (await desk.result(handle)).operations[0].evidence is Evidence.LOOKUP
