"""The model side where it goes wrong: cut, refused, paused, empty, overloaded. It goes on, or comes to a typed end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from settled.activities.agents import Thinking, ThinkingKind
from settled.activities.registry import Registry
from settled.activities.roots import Root
from settled.activities.toolkit import Answer, Arguments, Call, read
from settled.activities.transcript import Role, make_node
from settled.local.messages_script import (
    Cut,
    CutStream,
    HttpError,
    NotAMessage,
    Reply,
    Stall,
    Step,
    StreamError,
    text,
    thinking,
    tool_use,
)
from settled.local.messages_server import MessagesServer
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.names import REQUEST_MODEL
from settled.workflows.contract.turn import Again, Turn
from settled.workflows.converter import data_converter
from tests.crash.interceptors import Loses
from tests.desk import CLERK, Desk, look_up, open_desk, reserve, status_of
from tests.end_to_end.test_loop import results_in

A, B, C = "claude-scripted", "claude-other", "claude-third"
CHAINED = CLERK.model_copy(update={"fallback": (B, C)})
SOON = {"retry-after-ms": "10"}
OVERLOADED = HttpError(529, headers=SOON)
REFUSAL = Reply([], "refusal", stop_details={"type": "refusal", "category": "cyber"})
GOAL = "reserve 2 of A1 for order 1001"


@pytest.fixture
async def chained(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose agent has two models to fall back on; a request has three attempts."""
    async with open_desk(temporal, tmp_path, profiles={"clerk": CHAINED}, model_attempts=3) as desk:
        yield desk


async def turns_of(handle: WorkflowHandle[Any, Any]) -> list[Turn]:
    """What each model request came to, as it stands in history."""
    scheduled: dict[int, str] = {}
    turns = []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            done = event.activity_task_completed_event_attributes
            if scheduled[done.scheduled_event_id] == REQUEST_MODEL:
                turns += await data_converter.decode(done.result.payloads, [Turn])
    return turns


def models_of(desk: Desk) -> list[str]:
    return [body["model"] for body in desk.model.requests]


async def test_r104_a_key_that_can_t_be_sent_is_told_to_nobody(
    temporal: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A key with a line break at its end, out of a file, say: the HTTP library quotes the header in its error."""
    key = "sk-ant-never-to-be-seen"
    monkeypatch.setenv("ANTHROPIC_API_KEY", f"{key}\n")
    monkeypatch.setenv("NO_PROXY", "*")
    async with MessagesServer([]) as server, open_desk(temporal, tmp_path, model_url=None, model_attempts=1) as desk:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        handle = await desk.start({"goal": GOAL})
        assert (await desk.result(handle)).end_reason is EndReason.MODEL_ERROR
        assert key not in (await handle.fetch_history()).to_json()
    assert key not in caplog.text


# Cut off at the token limit


async def test_b16_a_cut_response_is_asked_again_with_a_higher_limit_and_never_run(desk: Desk) -> None:
    """B16, R6, R7: the same request with a higher limit; an input that came out as {} or that parses is not run."""
    cut = [
        Reply.of(reserve() | {"input": {}}, stop_reason="max_tokens"),
        Reply.of(reserve(9), stop_reason="max_tokens"),
    ]
    desk.will_say(*cut, reserve(), "Reserved.")
    handle = await desk.start({"goal": GOAL})
    result = await desk.result(handle)
    assert [body["max_tokens"] for body in desk.model.requests] == [1000, 2000, 4000, 1000]
    first, second, third = (json.dumps(body | {"max_tokens": 0}) for body in desk.model.requests[:3])
    assert first == second == third
    assert [effect["quantity"] for effect in await desk.effects()] == [2]
    assert (result.end_reason, result.counters.turns, result.counters.requests) == (EndReason.COMPLETED, 1, 4)
    transcripts = desk.parts.stores.transcripts
    chain = await transcripts.chain(result.head)
    assert [node.role for node in chain] == ["root", "user", "assistant", "user", "assistant"]
    for reply in cut:  # left out of the conversation, and kept
        kept = make_node(chain[1], Role.ASSISTANT, reply.blocks())
        assert (await transcripts.node(kept.digest)).content == reply.blocks()
    await desk.record("asked_again_with_a_higher_limit", handle)


async def test_b16_a_response_that_is_cut_again_and_again_ends_the_task(desk: Desk) -> None:
    """B16: input {} with stop_reason max_tokens, 5 times; three are asked for, and none is run."""
    desk.will_say(*[Reply.of(reserve() | {"input": {}}, stop_reason="max_tokens")] * 5)
    result = await desk.run({"goal": GOAL})
    assert (result.status, result.end_reason) == (Status.FAILED, EndReason.OUTPUT_TRUNCATED)
    assert desk.model.count == 3
    assert (await desk.requests())["POST /reservations"] == 0


def too_high(asked: int, allowed: int, model: str = A) -> HttpError:
    words = "which is the maximum allowed number of output tokens for"
    return HttpError(400, message=f"max_tokens: {asked} > {allowed}, {words} {model}")


def limits_of(desk: Desk) -> list[int]:
    return [body["max_tokens"] for body in desk.model.requests]


async def test_b16_a_model_that_allows_no_more_than_it_is_to_think_is_given_up_for_the_next_one(
    temporal: Client, tmp_path: Path
) -> None:
    """With such a limit it would refuse the request for good. A later task asks it once, and hears the same."""
    thinks = Thinking(type=ThinkingKind.ENABLED, budget_tokens=4096)
    profile = CLERK.model_copy(update={"thinking": thinks, "max_tokens": 8192, "model": A, "fallback": (B,)})
    async with open_desk(temporal, tmp_path, profiles={"thinker": profile}) as desk:
        for asked in (2, 4):
            desk.will_say(too_high(8192, 4096), "3.")
            result = await desk.run(f"how many, {asked}?")
            assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "3.")
            assert (models_of(desk), limits_of(desk)) == ([A, B] * (asked // 2), [8192] * asked)


async def test_b16_a_limit_that_the_model_doesn_t_allow_ends_the_raise_and_is_no_error_of_the_model(desk: Desk) -> None:
    desk.will_say(Reply.of("There a", stop_reason="max_tokens"), too_high(2000, 1000))
    result = await desk.run("how many?")
    assert (result.end_reason, result.counters.requests) == (EndReason.OUTPUT_TRUNCATED, 2)
    assert "the model allows no higher one" in result.detail


async def test_b16_a_raise_goes_as_far_as_the_model_allows(desk: Desk) -> None:
    """B16: and no further, also in the next turn: what it has said is kept in mind."""
    cut = Reply.of("There a", stop_reason="max_tokens")
    desk.will_say(cut, too_high(2000, 1500), look_up(), cut, cut)
    result = await desk.run("how many?")
    assert limits_of(desk) == [1000, 2000, 1500, 1000, 1500]
    assert result.end_reason is EndReason.OUTPUT_TRUNCATED


async def test_b16_b18_a_raise_that_has_no_room_in_the_context_is_taken_back(desk: Desk) -> None:
    """B16, B18: nothing is summed up for it; what was cut ends as that."""
    cut = Reply.of("There a", stop_reason="max_tokens")
    no_room = "input length and `max_tokens` exceed context limit: 100 + {} > {}, decrease input length"
    desk.will_say(
        cut, HttpError(400, message=no_room.format(2000, 2050)), HttpError(400, message=no_room.format(1950, 1050))
    )
    result = await desk.run("how many?")
    assert limits_of(desk) == [1000, 2000, 1950]
    assert (result.end_reason, result.counters.requests) == (EndReason.OUTPUT_TRUNCATED, 3)


async def test_r95_a_model_that_takes_over_with_a_lower_limit_goes_on_with_it(chained: Desk) -> None:
    """R95: it refuses the profile's limit once, and is not asked with it again."""
    chained.will_say(REFUSAL, too_high(1000, 500, B), look_up(), "3.")
    handle = await chained.start("how many?")
    result = await chained.result(handle)
    assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "3.")
    assert models_of(chained) == [A, B, B, B]
    assert limits_of(chained) == [1000, 1000, 500, 500]
    assert result.counters.requests == 4
    assert chained.model.refusals == []
    await chained.record("lowered_by_the_model_that_took_over", handle)


async def test_r95_a_limit_that_is_refused_again_and_again_ends_the_task(desk: Desk) -> None:
    desk.will_say(too_high(1000, 500), too_high(500, 400), too_high(400, 300))
    result = await desk.run("how many?")
    assert limits_of(desk) == [1000, 500, 400]
    assert (result.status, result.end_reason) == (Status.FAILED, EndReason.MODEL_ERROR)


# Paused, malformed, empty


async def test_b12_a_paused_turn_goes_on_with_its_content_as_it_is(desk: Desk) -> None:
    """B12, R40: twice, and then the answer; nothing of it is ours to run, and it counts as the provider's."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    more = search | {"id": "srvtoolu_2"}
    desk.will_say(
        Reply.of(search, stop_reason="pause_turn"),
        Reply.of(found, more, stop_reason="pause_turn"),
        Reply.of(found | {"tool_use_id": "srvtoolu_2"}, "It is an article."),
    )
    result = await desk.run("what is A1?")
    assert result.final_text == "It is an article."
    assert [message["role"] for message in desk.model.requests[2]["messages"]] == ["user", "assistant", "assistant"]
    assert [message["content"] for message in desk.model.requests[2]["messages"][1:]] == [[search], [found, more]]
    assert (result.counters.requests, result.counters.turns) == (3, 0)
    assert (result.counters.calls, result.counters.server_calls) == (0, 2)
    assert desk.model.refusals == []


async def test_b12_b16_a_raised_limit_outlives_a_pause(desk: Desk) -> None:
    """B12, B16: else the response would be cut where it was cut before."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}
    desk.will_say(
        Reply.of("It", stop_reason="max_tokens"),
        Reply.of(search, stop_reason="pause_turn"),
        Reply.of("It", stop_reason="max_tokens"),
        look_up(),
        "It is an article.",
    )
    result = await desk.run("what is A1?")
    assert result.end_reason is EndReason.COMPLETED
    assert limits_of(desk) == [1000, 2000, 2000, 4000, 1000]


async def test_what_was_said_before_a_pause_is_a_part_of_the_last_words(desk: Desk) -> None:
    """The turn is one, over all its messages, and whoever reads the result has no other."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    resumed = Reply([found, text("And it is in stock.")], "end_turn")
    desk.will_say(look_up(), Reply([text("It is an article."), search], "pause_turn"), resumed)
    result = await desk.run("what is A1?")
    assert result.final_text == "It is an article.\nAnd it is in stock."


async def test_r40_an_end_in_the_middle_of_a_server_call_goes_on_like_a_pause(desk: Desk) -> None:
    """No word of ours may stand after it."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}
    desk.will_say(Reply([search], "end_turn"), "It is an article.")
    result = await desk.run("what is A1?")
    assert (result.final_text, result.counters.server_calls) == ("It is an article.", 1)
    assert desk.model.refusals == []


async def test_r40_nor_after_an_empty_response_that_goes_on_from_it(desk: Desk) -> None:
    """A turn in which the provider has paused is one, over all its messages."""
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}
    desk.will_say(Reply([search], "pause_turn"), Reply([], "end_turn"), "It is an article.")
    desk.may_ask_again(1)
    result = await desk.run("what is A1?")
    assert (result.final_text, desk.model.refusals) == ("It is an article.", [])


async def test_a_pause_in_a_call_that_cannot_be_sent_back_is_an_invalid_response(desk: Desk) -> None:
    """B13: without it there is nothing to resume, and words of the model's at the end are a prefill."""
    desk.will_say(Reply([text("I look."), {"type": "server_tool_use", "name": "web_search"}], "pause_turn"))
    result = await desk.run("what is A1?")
    assert result.end_reason is EndReason.INVALID_RESPONSE
    assert "can't be sent back" in result.detail
    assert desk.model.refusals == []


async def test_r95_another_model_begins_a_turn_anew_that_the_provider_has_paused(
    temporal: Client, tmp_path: Path
) -> None:
    """To another model, words at the end of the conversation are a prefill, which is refused."""
    profiles = {"stock-clerk": CLERK.model_copy(update={"fallback": ("claude-other",)})}
    async with open_desk(temporal, tmp_path, profiles=profiles) as desk:
        paused = Reply([thinking("Hm."), text("I look.")], "pause_turn")
        desk.will_say(paused, Reply([], "refusal"), "It is an article.")
        result = await desk.run("what is A1?")
        assert (result.final_text, desk.model.refusals) == ("It is an article.", [])
        assert [message["role"] for message in desk.model.requests[2]["messages"]] == ["user"]


async def test_b13_a_stop_for_tools_without_a_call_is_asked_again_and_goes_on(desk: Desk) -> None:
    """B13: the same request once more, and the response is no part of the conversation."""
    desk.will_say(Reply([], "tool_use"), look_up(), "3.")
    desk.may_ask_again(1)
    result = await desk.run("how many?")
    assert json.dumps(desk.model.requests[0]) == json.dumps(desk.model.requests[1])
    assert (result.end_reason, result.final_text, result.counters.requests) == (EndReason.COMPLETED, "3.", 3)


async def test_b13_twice_is_a_typed_failure(desk: Desk) -> None:
    """B13: bounded; no silent end."""
    desk.will_say(*[Reply([], "tool_use")] * 2)
    desk.may_ask_again(1)
    result = await desk.run("how many?")
    assert (result.status, result.end_reason, desk.model.count) == (Status.FAILED, EndReason.INVALID_RESPONSE, 2)


@pytest.mark.parametrize("content", [[], [text(" \n")], [thinking("Hm.")]], ids=["nothing", "blank", "thinking"])
async def test_r28_an_empty_answer_is_no_success_and_the_model_is_told_so(desk: Desk, content: list[Any]) -> None:
    """A bounded number of times; also right after the results of calls."""
    desk.will_say(look_up(), Reply(content, "end_turn"), "3.")
    result = await desk.run("how many?")
    assert "your last response was empty" in desk.model.requests[2]["messages"][-1]["content"][0]["text"]
    assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "3.")
    assert desk.model.refusals == []


async def test_r28_an_answer_that_stays_empty_is_an_invalid_response(desk: Desk) -> None:
    desk.will_say(*[Reply([], "end_turn")] * 3)
    result = await desk.run("how many?")
    assert (result.end_reason, desk.model.count) == (EndReason.INVALID_RESPONSE, 3)
    assert desk.model.refusals == []


# Refused


async def test_b14_a_refusal_is_a_typed_end_and_is_not_tried_again(desk: Desk) -> None:
    """B14: one request, and the category in the detail."""
    desk.will_say(Reply.of("First, you ", stop_reason="refusal", stop_details=REFUSAL.stop_details))
    handle = await desk.start("hack it")
    result = await desk.result(handle)
    assert (result.final_text, (await status_of(handle)).last_text) == ("", ""), "the half of it is shown to nobody"
    assert (result.status, result.end_reason) == (Status.FAILED, EndReason.REFUSED)
    assert "(category: cyber)" in result.detail
    assert (desk.model.received, result.counters.attempts) == (1, 1)


async def test_b14_a_refusal_after_calls_runs_nothing_and_the_next_model_goes_on_without_thoughts(
    chained: Desk,
) -> None:
    """B14, R6, R7, R95: a new root; what was refused is kept, and is no part of the conversation."""
    desk = chained
    thought, refused = thinking("Hm.", "c2ln"), [text("I will "), reserve(9, order="2002")]
    desk.will_say(Reply.of(thought, look_up()), Reply(refused, "refusal"), reserve(), "Reserved.")
    handle = await desk.start({"goal": GOAL})
    result = await desk.result(handle)
    assert models_of(desk) == [A, A, B, B]
    assert [effect["order"] for effect in await desk.effects()] == ["1001"]
    kinds = [block["type"] for body in desk.model.requests[2:] for block in body["messages"][1]["content"]]
    assert kinds == ["tool_use", "tool_use"], "the first one's thoughts are left out"
    for name in ("system", "tools", "max_tokens", "cache_control"):
        assert json.dumps(desk.model.requests[1][name]) == json.dumps(desk.model.requests[2][name])
    transcripts = desk.parts.stores.transcripts
    root = Root.of((await transcripts.chain(result.head))[0])
    assert (root.model, root.fallback, root.why) == (B, (C,), Again.FALLBACK)
    assert root.replaces is not None
    left = await transcripts.chain(root.replaces)
    assert left[2].content[0] == thought, "the first conversation stays as it was"
    kept = make_node(left[-1], Role.ASSISTANT, refused)
    assert (await transcripts.node(kept.digest)).content == refused
    assert [turn.model for turn in await turns_of(handle)] == [A, A, B, B]
    assert (result.counters.turns, result.counters.requests) == (2, 4), "outside of the count of turns"
    assert desk.model.refusals == []
    await desk.record("refused_and_taken_over", handle)


async def test_r95_each_model_of_the_chain_is_asked_once_where_all_refuse(chained: Desk) -> None:
    chained.will_say(*[REFUSAL] * 3)
    result = await chained.run("hack it")
    assert (models_of(chained), result.end_reason) == ([A, B, C], EndReason.REFUSED)
    assert "(category: cyber)" in result.detail


# Overloaded


async def test_r95_an_overloaded_model_gets_two_attempts_before_the_next_one_goes_on(chained: Desk) -> None:
    """B21 too: overloaded by its status, and as an event after 200."""
    desk = chained
    desk.will_say(look_up(), OVERLOADED, StreamError(), "3.")
    desk.may_ask_again(1)
    handle = await desk.start("how many?")
    result = await desk.result(handle)
    assert models_of(desk) == [A, A, A, B]
    assert result.final_text == "3."
    turns = await turns_of(handle)
    assert [(turn.model, turn.attempts, turn.request_id[:4]) for turn in turns] == [
        (A, 1, "req_"),
        (A, 2, "req_"),
        (B, 1, "req_"),
    ]
    assert (result.counters.requests, result.counters.attempts) == (3, 4)
    assert desk.model.refusals == []


async def test_r94_r95_where_all_models_are_overloaded_the_last_one_gets_all_attempts(chained: Desk) -> None:
    chained.will_say(*[OVERLOADED] * 7)
    chained.may_ask_again(4)
    result = await chained.run("how many?")
    assert models_of(chained) == [A, A, B, B, C, C, C]
    assert result.end_reason is EndReason.MODEL_ERROR
    assert "OverloadedError" in result.detail
    assert "(request req_" in result.detail


async def test_r95_a_model_that_has_a_single_attempt_is_given_up_after_it(temporal: Client, tmp_path: Path) -> None:
    async with open_desk(temporal, tmp_path, profiles={"clerk": CHAINED}, model_attempts=1) as desk:
        desk.will_say(OVERLOADED, "3.")
        result = await desk.run("how many?")
        assert (models_of(desk), result.final_text) == ([A, B], "3.")


async def test_r95_what_isn_t_an_overload_is_not_for_another_model(chained: Desk) -> None:
    """A rate limit is the account's, and a bad request stays bad."""
    chained.will_say(*[HttpError(429, headers=SOON)] * 3)
    chained.may_ask_again(2)
    result = await chained.run("how many?")
    assert (models_of(chained), result.end_reason) == ([A] * 3, EndReason.MODEL_ERROR)


async def test_r95_an_overload_after_something_else_is_the_first_one(temporal: Client, tmp_path: Path) -> None:
    """R95: two in a row lead to the next model, not two attempts."""
    cut = CutStream(after_events=4, how=Cut.CLEAN_EOF)
    async with open_desk(temporal, tmp_path, profiles={"clerk": CHAINED}, model_attempts=9) as desk:
        desk.will_say(cut, OVERLOADED, HttpError(500, headers=SOON), OVERLOADED, OVERLOADED, "3.")
        desk.may_ask_again(4)
        result = await desk.run("how many?")
        assert (models_of(desk), result.final_text) == ([A] * 5 + [B], "3.")


async def test_r95_an_overload_that_is_not_to_be_retried_goes_to_the_next_model_at_once(chained: Desk) -> None:
    final = HttpError(529, headers={"x-should-retry": "false"})
    chained.will_say(final, final, final)
    result = await chained.run("how many?")
    assert (models_of(chained), result.end_reason) == ([A, B, C], EndReason.MODEL_ERROR)


async def test_r28_counts_that_are_nonsense_count_as_nothing(desk: Desk) -> None:
    """They come from whoever speaks the API, and must fail nothing."""
    nonsense = {"input_tokens": 10**400, "output_tokens": -5, "cache_read_input_tokens": True}
    desk.will_say(Reply([text("3.")], "end_turn", {**nonsense, "cache_creation_input_tokens": "many"}))
    result = await desk.run("how many?")
    assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "3.")
    assert (result.usage.read_tokens, result.usage.output_tokens, result.usage.unpriced) == (0, 0, 1)


# Attempts


@pytest.mark.parametrize(
    "step",
    [
        HttpError(500),
        NotAMessage.html(status=502),
        NotAMessage.html(),
        StreamError(type="api_error"),
        CutStream(after_events=4, how=Cut.CLEAN_EOF),
        CutStream(after_events=4, how=Cut.RESET),
    ],
    ids=["500", "502 HTML", "HTML", "error event", "clean end", "reset"],
)
async def test_b19_b21_a_request_that_fails_is_made_as_often_as_we_say_and_never_more(
    temporal: Client, tmp_path: Path, step: Step
) -> None:
    """B19: one owner of retries. B21: what had arrived is discarded, and no record of it is made."""
    async with open_desk(temporal, tmp_path, model_attempts=2) as desk:
        desk.will_say(step, step)
        desk.may_ask_again(1)
        result = await desk.run("how many?")
        assert (desk.model.received, result.end_reason) == (2, EndReason.MODEL_ERROR)
        assert [node.role for node in await desk.parts.stores.transcripts.chain(result.head)] == ["root", "user"]


async def test_b21_a_stream_that_pings_keep_alive_has_a_deadline_all_the_same(temporal: Client, tmp_path: Path) -> None:
    """R96: timeouts are per read, so that pings would keep it alive for ever."""
    async with open_desk(temporal, tmp_path, model_seconds=2.0) as desk:
        desk.will_say(Stall(seconds=60.0, after_events=2, ping_every=0.1), "3.")
        desk.may_ask_again(1)
        result = await desk.run("how many?")
        assert (result.final_text, result.counters.attempts) == ("3.", 2)
        assert desk.model.aborted == 1, "the connection was given up, too"


async def test_b20_the_provider_s_wish_to_wait_is_obeyed(desk: Desk) -> None:
    """B20: by the server that owns the retries; the first wait would be a second otherwise."""
    loop = asyncio.get_running_loop()
    desk.will_say(HttpError(429, headers={"retry-after": "3"}), "3.")
    desk.may_ask_again(1)
    handle = await desk.start("how many?")
    await desk.model.until(lambda server: server.count == 1)
    began = loop.time()
    await desk.model.until(lambda server: server.count == 2)
    assert 2.9 <= loop.time() - began < 10
    assert (await desk.result(handle)).final_text == "3."


async def test_b19_a_spend_cap_is_not_tried_again(desk: Desk) -> None:
    desk.will_say(HttpError(429, details={"error_code": "enforced_spend_limit_reached"}))
    result = await desk.run("how many?")
    assert (result.counters.requests, result.counters.attempts) == (1, 1), "R11: one attempt was made, and is counted"
    assert (desk.model.received, result.end_reason) == (1, EndReason.MODEL_ERROR)
    assert "EnforcedSpendLimitReachedError" in result.detail


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (Reply.of(reserve(9), stop_reason="max_tokens"), [reserve(), "Reserved."]),
        (Reply([], "tool_use"), [reserve(), "Reserved."]),
        (Reply([], "end_turn"), [reserve(), "Reserved."]),
        (Reply([reserve(9, order="2")], "refusal"), [reserve(), "Reserved."]),
    ],
    ids=["cut", "malformed", "empty", "refused"],
)
async def test_b05_a_lost_completion_leads_to_the_same_decision(
    temporal: Client, tmp_path: Path, first: Reply, then: list[Any]
) -> None:
    """B05, R7: the response that was bought is judged again, and is asked for again but once."""
    loses = Loses(REQUEST_MODEL)
    async with open_desk(temporal, tmp_path, profiles={"clerk": CHAINED}, interceptors=[loses]) as desk:
        desk.will_say(first, *then)
        desk.may_ask_again(1)
        result = await desk.run({"goal": GOAL})
        assert loses.attempts[:2] == [1, 2]
        assert (desk.model.received, result.counters.requests, result.counters.attempts) == (3, 3, 4)
        assert [effect["order"] for effect in await desk.effects()] == ["1001"]
        assert desk.model.refusals == []


# What can't be sent


class Nothing(Arguments):
    pass


@read()
async def halves(asked: Nothing, call: Call) -> Answer:
    """Say half a character."""
    return Answer(data="ok \ud83d", source="test")


async def test_b23_half_a_character_in_a_result_does_not_poison_the_conversation(
    temporal: Client, tmp_path: Path
) -> None:
    """B23: it is replaced where it is produced; the next request is valid."""
    profiles = {"clerk": CLERK.model_copy(update={"tools": ("halves",)})}
    async with open_desk(temporal, tmp_path, registry=Registry({"halves": halves}), profiles=profiles) as desk:
        desk.will_say(tool_use("halves", {}), "Done.")
        result = await desk.run("go")
        assert json.loads(results_in(desk.model.requests[1])[0]["content"])["data"] == "ok \ufffd"
        assert (result.final_text, desk.model.count, desk.model.refusals) == ("Done.", 2, [])


async def test_b25_an_argument_that_is_text_stays_text_and_a_list_as_text_is_no_text(desk: Desk) -> None:
    """B25: nothing is coerced on the way to the key; the model is told what to correct."""
    order = {"order": "1001", "sku": "A1", "quantity": 2}
    given = [order | {"order": "[1,2]"}, order | {"order": ["1", "2"]}, order | {"quantity": "2"}]
    desk.will_say(Reply.of(*(tool_use("reserve_stock", each) for each in given)), "Done.")
    await desk.run({"goal": GOAL})
    shown = [json.loads(block["content"]) for block in results_in(desk.model.requests[1])]
    assert [entry.get("error") for entry in shown] == [None, "invalid_arguments", "invalid_arguments"]
    assert "order" in shown[1]["message"]
    assert "quantity" in shown[2]["message"]
    assert [effect["order"] for effect in await desk.effects()] == ["[1,2]"]
