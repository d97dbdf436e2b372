"""The loop: requests, calls, results, counters, budgets, endings."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.activities.registry import Registry
from settled.activities.toolkit import Answer, Arguments, Call, NotFound, read
from settled.local.messages_script import HttpError, Reply, text, thinking, tool_use
from settled.workflows.contract.ending import EndReason, Status, Verdict
from tests.desk import CLERK, Desk, look_up, open_desk, reserve


def results_in(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool results of a request's last message."""
    return [block for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]


async def test_one_answer_without_a_tool_is_a_legal_task_and_unverified(desk: Desk) -> None:
    """R19, R44, R61: the model's word alone is no success."""
    desk.will_say("A1 is an article.")
    handle = await desk.start("what is A1?")
    result = await handle.result()
    assert (result.status, result.end_reason, result.verdict) == (
        Status.UNVERIFIED,
        EndReason.COMPLETED,
        Verdict.NO_CRITERIA,
    )
    assert result.final_text == "A1 is an article."
    assert (result.counters.turns, result.counters.requests, result.counters.calls) == (0, 1, 0)
    await desk.record("no_tool", handle)


async def test_one_start_leads_to_as_many_requests_as_the_model_needs(desk: Desk) -> None:
    """R2, R3, R6, R10, R11: the same system, tools and model each time; the conversation only grows."""
    desk.will_say(look_up(), look_up("B2"), "A1: 3, B2: 10.")
    handle = await desk.start({"goal": "how many A1 and B2 are there?"})
    result = await handle.result()
    assert (result.counters.turns, result.counters.requests, result.counters.calls) == (2, 3, 2)
    first, second, third = desk.model.requests
    for name in ("system", "tools", "model", "max_tokens"):
        assert json.dumps(first[name]) == json.dumps(second[name]) == json.dumps(third[name])
    assert second["messages"][:1] == first["messages"]
    assert third["messages"][:3] == second["messages"]
    assert '"available": 10' in results_in(third)[0]["content"]
    assert desk.model.refusals == []
    await desk.record("two_reads", handle)


async def test_one_read(desk: Desk) -> None:
    """R36: the answer carries status, data, source, and the time and version it stands for."""
    desk.will_say(look_up(), "3 are available.")
    handle = await desk.start("how many A1 are there?")
    await handle.result()
    shown = json.loads(results_in(desk.model.requests[1])[0]["content"])
    assert shown["status"] == "completed"
    assert shown["data"]["available"] == 3
    assert shown["source"] == "stock service"
    assert shown["version"].startswith("version ")
    assert "is_error" not in results_in(desk.model.requests[1])[0]
    await desk.record("one_read", handle)


class Wait(Arguments):
    seconds: float
    name: str


@read()
async def slow(asked: Wait, call: Call) -> Answer:
    """Answer after a while."""
    await asyncio.sleep(asked.seconds)
    return Answer(data=asked.name, source="test")


@read()
async def exits(asked: Wait, call: Call) -> Answer:
    """End the process, or so it thinks."""
    raise SystemExit(asked.name)


@read()
async def missing(asked: Wait, call: Call) -> Answer:
    """Find nothing."""
    raise NotFound(f"no {asked.name}")


HANDY = Registry({tool.name: tool for tool in (slow, exits, missing)})
HANDYMAN = CLERK.model_copy(update={"tools": tuple(HANDY.tools)})


async def test_b07_three_reads_overlap_and_their_results_come_in_call_order_in_one_message(
    temporal: Client, tmp_path: Path
) -> None:
    """R4, R76, R81: whatever the finish order."""
    async with open_desk(temporal, tmp_path, registry=HANDY, profiles={"handyman": HANDYMAN}) as desk:
        waits = (0.6, 0.3, 0.0)
        desk.will_say(Reply.of(*(tool_use("slow", {"seconds": s, "name": f"after {s}"}) for s in waits)), "Done.")
        handle = await desk.start("wait")
        began = asyncio.get_running_loop().time()
        await handle.result()
        took = asyncio.get_running_loop().time() - began
        calls = [block["id"] for block in desk.model.requests[1]["messages"][1]["content"]]
        results = results_in(desk.model.requests[1])
        assert [result["tool_use_id"] for result in results] == calls
        assert [json.loads(result["content"])["data"] for result in results] == [f"after {s}" for s in waits]
        assert took < sum(waits) + 5
        await desk.record("three_parallel_reads", handle)


async def test_b04_every_call_gets_one_result_whatever_its_tool_raises(temporal: Client, tmp_path: Path) -> None:
    """R4, R24, R37: a tool that raises SystemExit is answered like any other."""
    async with open_desk(temporal, tmp_path, registry=HANDY, profiles={"handyman": HANDYMAN}, read_attempts=1) as desk:
        given = {"seconds": 0.0, "name": "x"}
        desk.will_say(Reply.of(*(tool_use(name, given) for name in ("slow", "exits", "missing", "slow"))), "Done.")
        await desk.run("go")
        results = results_in(desk.model.requests[1])
        assert [result.get("is_error", False) for result in results] == [False, True, True, False]
        assert json.loads(results[1]["content"])["error"] == "unavailable"
        assert json.loads(results[2]["content"])["error"] == "not_found"
        assert desk.model.refusals == []


async def test_r38_the_stock_example_holds_as_a_whole(desk: Desk) -> None:
    """R23, R37, R38, R39, B26, B27: three sellable, not reserved, unverified."""
    desk.will_say(
        Reply.of(tool_use("delete_stock", {"sku": "A1"}), tool_use("lookup_stock", {"sku": 1}), look_up("ZZ")),
        look_up(),
        "3 sellable, not reserved.",
    )
    handle = await desk.start({"goal": "how many A1 can be sold?"})
    result = await handle.result()
    shown = [json.loads(block["content"]) for block in results_in(desk.model.requests[1])]
    assert [entry["error"] for entry in shown] == ["unknown_tool", "invalid_arguments", "not_found"]
    assert "lookup_stock, read_output, reserve_stock" in shown[0]["message"]
    assert "sku" in shown[1]["message"]
    assert all(block["is_error"] for block in results_in(desk.model.requests[1]))
    assert result.status is Status.UNVERIFIED
    assert result.final_text == "3 sellable, not reserved."
    assert result.operations == ()
    assert await desk.effects() == []
    await desk.record("invalid_input_of_calls", handle)


async def test_r38_with_one_request_allowed_the_stock_example_exhausts_its_budget(desk: Desk) -> None:
    """R50, R52, R29: the proposed tools still run, the records are kept, and no second request is made."""
    desk.will_say(look_up(), "never said")
    handle = await desk.start({"goal": "how many A1 are there?", "budget": {"requests": 1}})
    result = await desk.result(handle)
    assert (result.status, result.end_reason) == (Status.BUDGET_EXHAUSTED, EndReason.MAX_REQUESTS)
    assert desk.model.count == 1
    assert (await desk.requests())["GET /stock/{sku}"] == 1
    last = (await desk.parts.stores.transcripts.chain(result.head))[-1]
    assert [block["type"] for block in last.content] == ["tool_result"]
    await desk.record("budget_of_requests", handle)


async def test_r50_with_one_turn_allowed_the_proposed_tools_still_run(desk: Desk) -> None:
    """The task ends before the second request."""
    desk.will_say(reserve(), "never said")
    handle = await desk.start({"goal": "reserve", "budget": {"turns": 1}})
    result = await desk.result(handle)
    assert (result.status, result.end_reason) == (Status.BUDGET_EXHAUSTED, EndReason.MAX_TURNS)
    assert len(await desk.effects()) == 1
    assert [operation.state for operation in result.operations] == ["completed"]
    assert desk.model.count == 1
    await desk.record("budget_of_turns", handle)


async def test_the_wall_time_is_a_budget_too(desk: Desk) -> None:
    """R52."""
    await desk.parts.provider.warm_up()  # which takes seconds
    desk.will_say(Reply.of(look_up(), delay=3), "never said")
    result = await desk.run({"goal": "look", "budget": {"wall_seconds": 1.5}})
    assert (result.status, result.end_reason) == (Status.BUDGET_EXHAUSTED, EndReason.DEADLINE)
    assert desk.model.count == 1


async def test_r1_what_the_model_claims_without_a_call_did_not_happen(desk: Desk) -> None:
    """The ledger stays empty, and acceptance doesn't take the model's word."""
    desk.will_say("I have reserved 2 of A1 for order 1001.")
    criterion = {
        "check": "operation",
        "tool": "reserve_stock",
        "arguments": {"order": "1001", "sku": "A1", "quantity": 2},
    }
    result = await desk.run({"goal": "reserve 2 of A1 for order 1001", "acceptance": [criterion]})
    assert (result.status, result.end_reason) == (Status.FAILED, EndReason.ACCEPTANCE_FAILED)
    assert result.verdict is Verdict.NOT_ACCEPTED
    assert "no such operation" in result.findings[0].evidence
    assert await desk.effects() == []


STRANGE = {"type": "hologram", "depth": 3, "inner": {"kept": None}}


async def test_b10_the_assistant_message_goes_back_as_it_was_received(desk: Desk) -> None:
    """R7, R20, R25: thinking with an empty text, redacted thinking, unknown blocks and fields, byte for byte."""
    said = [
        thinking("", signature="c2lnbmVk"),
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        STRANGE,
        text("Let me look."),
        look_up() | {"caller": {"type": "direct"}},
    ]
    desk.will_say(Reply.of(*said), "3.")
    result = await desk.run("how many?")
    assert json.dumps(desk.model.requests[1]["messages"][1]["content"]) == json.dumps(said)
    chain = await desk.parts.stores.transcripts.chain(result.head)
    assert json.dumps(chain[2].content) == json.dumps(said)
    assert desk.model.refusals == []


async def test_b09_blank_texts_are_kept_but_not_sent_back(desk: Desk) -> None:
    """They are stored as received; the view leaves them out."""
    desk.will_say(Reply.of(text(""), look_up(), text(" \n")), "3.")
    result = await desk.run("how many?")
    assert [block["type"] for block in desk.model.requests[1]["messages"][1]["content"]] == ["tool_use"]
    chain = await desk.parts.stores.transcripts.chain(result.head)
    assert [block["type"] for block in chain[2].content] == ["text", "tool_use", "text"]
    assert desk.model.refusals == []


async def test_r27_calls_with_one_id_or_none_get_slots_of_their_own(desk: Desk) -> None:
    """Each is answered once, and none is paired with another's result."""
    same = look_up()
    other = {**look_up("B2"), "id": same["id"]}
    nameless = {**look_up("ZZ"), "id": ""}
    desk.will_say(Reply.of(same, other, nameless), "Done.")
    await desk.run("look")
    results = results_in(desk.model.requests[1])
    assert len({result["tool_use_id"] for result in results}) == 3
    assert ["A1" in results[0]["content"], "B2" in results[1]["content"], "ZZ" in results[2]["content"]] == [True] * 3
    assert desk.model.refusals == []


async def test_a_desk_notices_a_request_that_was_made_twice(desk: Desk) -> None:
    """What each desk asserts at its end: no request is paid for twice, unless the test says so."""
    desk.will_say(Reply([], "tool_use"), "3.")
    await desk.run("how many?")
    with pytest.raises(AssertionError, match=r"asked once more: .*how many"):
        desk.assert_nothing_was_asked_twice()
    desk.may_ask_again(1)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(content=[text("…")], stop_reason="brand_new_reason"), EndReason.INVALID_RESPONSE),
        (Reply(content=[reserve()], stop_reason="brand_new_reason"), EndReason.INVALID_RESPONSE),
        (Reply(content=[reserve()], stop_reason=None), EndReason.INVALID_RESPONSE),
        (Reply(content=[reserve()], stop_reason="pause_turn"), EndReason.INVALID_RESPONSE),
        (Reply(content=[reserve()], stop_reason="refusal"), EndReason.REFUSED),
    ],
)
async def test_r28_a_response_that_must_not_be_run_ends_in_a_typed_way(
    desk: Desk, reply: Reply, reason: EndReason
) -> None:
    """R7, R8, R13, R29, R61, B26: nothing of it runs, each call has its result, all records are kept."""
    desk.will_say(reply)
    result = await desk.run("reserve 2 of A1 for order 1001")
    assert (result.status, result.end_reason) == (Status.FAILED, reason)
    assert (await desk.requests())["POST /reservations"] == 0
    chain = await desk.parts.stores.transcripts.chain(result.head)
    assert chain[2].content == reply.blocks(), "the assistant message is kept before the stop check"
    calls = sum(block["type"] == "tool_use" for node in chain[1:] for block in node.content)
    answers = sum(block["type"] == "tool_result" for node in chain[1:] for block in node.content)
    assert calls == answers


async def test_b12_a_paused_turn_is_sent_again_as_it_stands_and_not_for_ever(desk: Desk) -> None:
    """B12: bounded, and counted as model requests."""
    paused = Reply(
        content=[{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}],
        stop_reason="pause_turn",
    )
    desk.will_say(*[paused] * 10)
    result = await desk.run("look it up")
    assert result.end_reason is EndReason.INVALID_RESPONSE
    assert desk.model.count == result.counters.requests == 6


async def test_b36_a_refused_request_fails_the_task_and_repeats_nothing(desk: Desk) -> None:
    """R94: the write of the first turn was done once and is in the result."""
    desk.will_say(reserve(), HttpError(400, "invalid_request_error", "no such thing"))
    handle = await desk.start("reserve 2 of A1 for order 1001")
    result = await desk.result(handle)
    assert (result.status, result.end_reason) == (Status.FAILED, EndReason.MODEL_ERROR)
    assert "req_" in result.detail
    assert [operation.state for operation in result.operations] == ["completed"]
    assert len(await desk.effects()) == 1
    assert desk.model.count == 2
    await desk.record("model_error", handle)
