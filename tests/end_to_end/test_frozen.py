"""R6: what a task was opened with holds for all of its requests, whatever is deployed meanwhile."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.client import Client

from settled.activities.agents import Effort, Thinking, ThinkingKind
from settled.activities.profiles import load_profiles
from settled.activities.registry import Registry, discover
from settled.local.messages_script import Reply
from settled.worker.wiring import make_worker, parts
from settled.workflows.contract.ending import EndReason
from tests.desk import CLERK, look_up, open_desk

BEFORE = """
model = "claude-scripted"
system = "You are the stock clerk."
tools = ["lookup_stock"]
max_tokens = 4000
effort = "high"
thinking = { type = "enabled", budget_tokens = 2000 }
"""
AFTER = """
model = "claude-other"
system = "You are somebody else."
tools = ["lookup_stock", "reserve_stock"]
max_tokens = 100
[limits]
turns = 1
"""


def shared(request: Mapping[str, Any]) -> str:
    """All of a request but its messages, as it was sent."""
    return json.dumps({name: value for name, value in request.items() if name != "messages"})


async def test_r6_a_changed_profile_and_a_reworded_tool_change_later_tasks_only(
    temporal: Client, tmp_path: Path
) -> None:
    """The worker is stopped between two turns, and another one goes on with other files, in a new run of the task."""
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "clerk.toml").write_text(BEFORE)
    before = load_profiles(folder, discover())
    async with open_desk(temporal, tmp_path, profiles=before, working=False, cut_events=50) as desk:
        held = asyncio.Event()
        desk.will_say(look_up(), look_up("B2"), Reply.of(look_up("C3"), hold=held))
        desk.may_ask_again(1)  # the worker is stopped while it asks
        first = make_worker(temporal, desk.parts)
        async with first:
            handle = await desk.start("how many are there?")
            await desk.model.until(lambda model: model.count == 3)
        held.set()
        (folder / "clerk.toml").write_text(AFTER)
        reworded = {
            name: replace(tool, description=f"{tool.description} Reworded.") for name, tool in discover().tools.items()
        }
        registry = Registry(reworded)
        after = load_profiles(folder, registry)
        async with parts(desk.parts.settings, registry, after) as made_of, make_worker(temporal, made_of):
            desk.will_say(look_up("C3"), look_up(), "Many.")
            result = await desk.result(handle)
            assert result.end_reason is EndReason.COMPLETED
            task = desk.model.requests[:]
            desk.will_say("None.")
            await desk.result(await desk.start("how many are there now?"))
        assert (len(task), result.counters.turns) == (6, 4)
        assert {shared(request) for request in task} == {shared(task[0])}
        assert task[0]["thinking"] == {"type": "enabled", "budget_tokens": 2000}
        (later,) = desk.model.requests[6:]
        assert later["model"] == "claude-other"
        assert "Reworded." in later["tools"][0]["description"]
        assert desk.model.refusals == []


async def test_prompts_are_cached_by_default_and_the_request_is_as_the_client_knows_it(
    temporal: Client, tmp_path: Path
) -> None:
    """One mark at the top, which the provider moves along by itself: the prefix stays the same bytes. What was read
    from the cache, and written to it, is counted by itself."""
    from anthropic.resources.messages import AsyncMessages

    profile = CLERK.model_copy(
        update={"effort": Effort.LOW, "thinking": Thinking(type=ThinkingKind.ADAPTIVE), "max_tokens": 2000}
    )
    async with open_desk(temporal, tmp_path, profiles={"clerk": profile}) as desk:
        desk.will_say(
            Reply.of(look_up(), usage={"cache_creation_input_tokens": 500}),
            Reply.of("3.", usage={"cache_read_input_tokens": 400, "cache_creation_input_tokens": 50}),
        )
        result = await desk.run("how many A1 are there?")
        assert (result.usage.cache_read_tokens, result.usage.cache_write_tokens) == (400, 550)
        known = inspect.signature(AsyncMessages.create).parameters
        for request in desk.model.requests:
            assert request["cache_control"] == {"type": "ephemeral"}
            assert request["output_config"] == {"effort": "low"}
            assert request.keys() <= known.keys()
            assert "cache_control" not in json.dumps([request["system"], request["tools"], request["messages"]])
