"""The scripted Messages server, as the provider's own client sees it."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from settled.local.messages_rules import first_fault
from settled.local.messages_script import (
    Cut,
    CutStream,
    HttpError,
    NotAMessage,
    Reply,
    Script,
    ScriptError,
    Stall,
    Step,
    StreamError,
    load_script,
    text,
    thinking,
    tool_use,
)
from settled.local.messages_server import MessagesServer

Message = dict[str, Any]
STREAM_AND_WHOLE = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with DefaultAsyncHttpxClient(trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def client(http: httpx2.AsyncClient) -> AsyncAnthropic:
    return AsyncAnthropic(api_key="local", base_url="http://unset.invalid", max_retries=0, timeout=10, http_client=http)


def user(*content: Any) -> Message:
    return {"role": "user", "content": [text(block) if isinstance(block, str) else block for block in content]}


def assistant(*content: Any) -> Message:
    return {**user(*content), "role": "assistant"}


def result(call_id: str, content: Any = "fine", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 100, "messages": list(messages or [user("Hi")]), **more}


async def ask(
    server: MessagesServer, client: AsyncAnthropic, *messages: Message, stream: bool = True, **more: Any
) -> dict[str, Any]:
    """What the client makes of the answer, as JSON without its warnings of unknown blocks; and its `request_id`."""
    here = client.with_options(base_url=server.url, timeout=more.pop("timeout", 10))
    if not stream:
        message = await here.messages.create(**body(*messages, **more))
        return {**message.to_dict(mode="json", warnings=False), "request_id": message._request_id}
    async with here.messages.stream(**body(*messages, **more)) as answer:
        message = await answer.get_final_message()
        return {**message.to_dict(mode="json", warnings=False), "request_id": answer.request_id}


async def refusal_of(server: MessagesServer, client: AsyncAnthropic, sent: object) -> str:
    """The message of the 400 with which the server answers a body."""
    with pytest.raises(anthropic.BadRequestError) as caught:
        await client.with_options(base_url=server.url).post("/v1/messages", body=sent, cast_to=object)
    assert caught.value.type == "invalid_request_error"
    assert server.refusals[-1] == caught.value.api_message
    return str(caught.value.api_message)


# --- What arrives -----------------------------------------------------------------------------------------------------

EVERY_BLOCK = Reply.of(
    thinking(""),
    thinking("Let me think about it for a while."),
    {"type": "redacted_thinking", "data": "b3BhcXVl"},
    "Grüße aus Zürich 🦊",
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "fox"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [], "new_field": 1},
    {"type": "of_a_later_year", "anything": {"input": ["x", None, 1.5]}},
    tool_use("look", {"sku": 'A"1\\', "note": "naïve 🦊", "deep": {"list": [1, 2.5, None, True], "empty": ""}}),
    tool_use("look", {}),
)


@STREAM_AND_WHOLE
async def test_every_kind_of_block_arrives_as_scripted(client: AsyncAnthropic, stream: bool) -> None:
    async with MessagesServer([EVERY_BLOCK]) as server:
        message = await ask(server, client, stream=stream)
    assert message["content"] == EVERY_BLOCK.blocks()
    assert (message["role"], message["model"], message["stop_reason"]) == ("assistant", "claude-opus-5-5", "tool_use")
    assert message["id"].startswith("msg_")


@STREAM_AND_WHOLE
async def test_stop_reasons_and_usage_are_those_of_the_script(client: AsyncAnthropic, stream: bool) -> None:
    refused = {"type": "refusal", "category": "cyber", "explanation": None}
    usage = {"input_tokens": 7, "output_tokens": 9, "cache_read_input_tokens": 5}
    script = [
        Reply([], stop_reason="refusal", stop_details=refused, usage=usage),
        Reply.of("so", stop_reason="stop_sequence", stop_sequence="END"),
        Reply.of("well", stop_reason="of_a_later_year"),
        Reply.of("null", stop_reason=None),
    ]
    async with MessagesServer(script) as server:
        answers = [await ask(server, client, stream=stream) for _ in script]
    assert [answer["stop_reason"] for answer in answers] == ["refusal", "stop_sequence", "of_a_later_year", None]
    assert answers[0]["stop_details"] == refused
    assert answers[0]["usage"].items() >= usage.items()
    assert answers[1]["stop_sequence"] == "END"


@STREAM_AND_WHOLE
async def test_usage_is_an_estimate_that_depends_on_what_is_read_and_said_only(
    client: AsyncAnthropic, stream: bool
) -> None:
    async with MessagesServer([Reply.of("Hello")] * 2) as server:
        here = client.with_options(base_url=server.url)
        first = await ask(server, client, stream=stream)
        second = await ask(server, client, stream=stream, max_tokens=9)
        longer = await here.messages.count_tokens(model="m", messages=[{"role": "user", "content": "Hi" * 400}])
        same = await here.messages.count_tokens(model="m", messages=[user("Hi")])  # type: ignore[list-item]  # plain JSON
    assert first["usage"] == second["usage"]
    assert first["usage"]["input_tokens"] == same.input_tokens > 0
    assert longer.input_tokens == pytest.approx(same.input_tokens + 200, abs=10)
    assert first["usage"]["output_tokens"] > 1


@STREAM_AND_WHOLE
async def test_every_answer_has_a_request_id_of_its_own(client: AsyncAnthropic, stream: bool) -> None:
    async with MessagesServer([Reply.of("Hello"), Reply.of("Hello"), HttpError(500)]) as server:
        ids = {(await ask(server, client, stream=stream))["request_id"] for _ in range(2)}
        with pytest.raises(anthropic.InternalServerError) as caught:
            await ask(server, client, stream=stream)
    assert all(request_id.startswith("req_") for request_id in ids)
    assert isinstance(caught.value.body, dict)
    assert caught.value.request_id == caught.value.body["request_id"]
    assert len({*ids, caught.value.request_id}) == 3


async def events_on_the_wire(http: httpx2.AsyncClient, reply: Reply) -> list[tuple[str, dict[str, Any]]]:
    async with MessagesServer([reply]) as server:
        raw = (await http.post(f"{server.url}/v1/messages", json=body(stream=True))).text
    *frames, end = raw.split("\n\n")
    assert end == ""
    lines = [frame.split("\n") for frame in frames]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


async def test_a_stream_has_the_events_of_the_api_in_their_order(http: httpx2.AsyncClient) -> None:
    events = await events_on_the_wire(http, Reply.of(thinking("Hm."), "Hello", tool_use("look", {"sku": "A1"})))
    assert all(name == data["type"] for name, data in events)
    names = [data["delta"]["type"] if name == "content_block_delta" else name for name, data in events]
    assert list(dict.fromkeys(names)) == [
        *("message_start", "content_block_start", "ping", "thinking_delta", "signature_delta", "content_block_stop"),
        *("text_delta", "input_json_delta", "message_delta", "message_stop"),
    ]
    start = events[0][1]["message"]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == ([], None, 1)
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use"
    assert [data["index"] for name, data in events if name == "content_block_start"] == [0, 1, 2]


async def test_the_json_of_a_call_is_cut_within_its_strings(http: httpx2.AsyncClient) -> None:
    given = {"first": "some text", "second": 'with "quotes" and \\ in it', "third": [1, "x"]}
    events = await events_on_the_wire(http, Reply.of(tool_use("look", given)))
    pieces = [data["delta"]["partial_json"] for name, data in events if name == "content_block_delta"]
    assert json.loads("".join(pieces)) == given
    assert pieces[0] == ""
    assert len(pieces) > 4
    for end in range(2, len(pieces)):
        with pytest.raises(json.JSONDecodeError, match="Unterminated string"):
            json.loads("".join(pieces[:end]))


async def test_a_long_call_does_not_become_a_crowd_of_events(http: httpx2.AsyncClient) -> None:
    reply = Reply.of(tool_use("look", {"names": [f"name {number}" for number in range(2000)]}))
    assert len(await events_on_the_wire(http, reply)) < 50


@STREAM_AND_WHOLE
async def test_a_cut_call_reaches_the_client_repaired(client: AsyncAnthropic, stream: bool) -> None:
    """Only the stop reason tells, and whoever sends it back sends what the client made of it."""
    call = tool_use("look", {"city": "Oslo"}, partial_json='{"city":"Oslo","un')
    async with MessagesServer([Reply.of(call, stop_reason="max_tokens"), Reply.of("Well.")]) as server:
        message = await ask(server, client, stream=stream)
        assert [block["input"] for block in message["content"]] == [{"city": "Oslo"}]
        await ask(server, client, user("Hi"), assistant(*message["content"]), user(result(call["id"])), stream=stream)
        assert server.refusals == []


async def test_models_are_listed_and_described(client: AsyncAnthropic) -> None:
    async with MessagesServer([]) as server:
        here = client.with_options(base_url=server.url)
        names = [model.id async for model in here.models.list()]
        described = await here.models.retrieve("any-model-at-all")
    assert len(names) == len(set(names)) > 1
    assert (described.id, described.type, described.lifecycle) == ("any-model-at-all", "model", "active")
    assert described.max_input_tokens
    assert described.max_tokens
    assert described.created_at.year == 2026


async def test_a_server_told_its_models_knows_no_other(client: AsyncAnthropic) -> None:
    async with MessagesServer([Reply.of("Hello")], models=["m"]) as server:
        here = client.with_options(base_url=server.url)
        assert [model.id async for model in here.models.list()] == ["m"]
        with pytest.raises(anthropic.NotFoundError):
            await here.models.retrieve("n")
        with pytest.raises(anthropic.NotFoundError, match="model: claude-opus-5-5"):
            await ask(server, client)
        assert (server.count, server.received, server.refusals) == (0, 1, [])


async def test_a_server_told_a_limit_says_so_and_refuses_what_is_longer(client: AsyncAnthropic) -> None:
    """In the API's words: a client tells by them that the conversation has to be summed up."""
    async with MessagesServer([Reply.of("Hello")], limits={"max_input_tokens": 100}) as server:
        here = client.with_options(base_url=server.url)
        described = await here.models.retrieve("m")
        assert (described.max_input_tokens, described.max_tokens) == (100, 64_000)
        await ask(server, client, user("x" * 200))
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 100 maximum"):
            await ask(server, client, user("x" * 500))
        assert (server.count, server.received, len(server.refusals)) == (1, 2, 1)


@pytest.mark.parametrize(("keep", "kept"), [(None, 5), (2, 2), (0, 0), (9, 5)])
async def test_a_server_keeps_as_many_requests_as_it_is_told(
    client: AsyncAnthropic, keep: int | None, kept: int
) -> None:
    """All of them, unless it is to run for long."""
    async with MessagesServer([Reply.of(str(number)) for number in range(5)], keep=keep) as server:
        for number in range(5):
            await ask(server, client, user(f"question {number}"))
        asked = [body["messages"][0]["content"][0]["text"] for body in server.requests]
        assert asked == [f"question {number}" for number in range(5 - kept, 5)]
        assert server.count == 5


async def test_an_unknown_path_and_a_huge_body_are_errors_of_the_api_too(client: AsyncAnthropic) -> None:
    async with MessagesServer([]) as server:
        here = client.with_options(base_url=server.url)
        with pytest.raises(anthropic.NotFoundError) as lost:
            await here.post("/v1/complete", body={}, cast_to=object)
        with pytest.raises(anthropic.RequestTooLargeError) as large:
            await here.post("/v1/messages", body={"x": "x" * 34_000_000}, cast_to=object)
    assert (lost.value.type, large.value.type) == ("not_found_error", "request_too_large")
    assert lost.value.request_id


# --- The faults of the wire -------------------------------------------------------------------------------------------

SPENT = {"error_code": "enforced_spend_limit_reached"}
IN_STREAM = [
    (StreamError(), anthropic.APIStatusError),
    (CutStream(how=Cut.RESET), httpx2.ReadError),
    (CutStream(how=Cut.FIN), httpx2.RemoteProtocolError),
    (Stall(60, after_events=2), httpx2.ReadTimeout),
    (CutStream(after_events=0), AssertionError),
    (NotAMessage.html(), AssertionError),
    (NotAMessage.stream('data: {"type": "message_start"}\n\n'), AssertionError),
    (NotAMessage.stream('event: message_start\ndata: {"type"\n\n'), json.JSONDecodeError),
    (NotAMessage.stream(b"event: message_start\ndata: \xff\n\n"), UnicodeDecodeError),
]
WITHOUT_STREAM = [
    (StreamError(), anthropic.OverloadedError),
    (StreamError(type="rate_limit_error"), anthropic.RateLimitError),
    (CutStream(how=Cut.CLEAN_EOF), anthropic.APIConnectionError),
    (CutStream(how=Cut.FIN), anthropic.APIConnectionError),
    (CutStream(how=Cut.RESET), anthropic.APIConnectionError),
]
EITHER_WAY = [
    (HttpError(400), anthropic.BadRequestError),
    (HttpError(401), anthropic.AuthenticationError),
    (HttpError(408), anthropic.RequestTimeoutError),
    (HttpError(429), anthropic.RateLimitError),
    (HttpError(429, details=SPENT), anthropic.RateLimitError),
    (HttpError(500), anthropic.InternalServerError),
    (HttpError(503), anthropic.ServiceUnavailableError),
    (HttpError(504), anthropic.GatewayTimeoutError),
    (HttpError(529), anthropic.OverloadedError),
    (NotAMessage.html(502), anthropic.InternalServerError),
    (CutStream(after_events=0, how=Cut.RESET), anthropic.APIConnectionError),
    (CutStream(after_events=0, how=Cut.FIN), anthropic.APIConnectionError),
    (Stall(60), anthropic.APITimeoutError),
]


@pytest.mark.parametrize(
    ("stream", "fault", "exception"),
    [
        *((True, *row) for row in [*IN_STREAM, *EITHER_WAY]),
        *((False, *row) for row in [*WITHOUT_STREAM, *EITHER_WAY]),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_a_fault_of_the_wire_raises_what_the_facts_say(
    client: AsyncAnthropic, stream: bool, fault: Step, exception: type[Exception]
) -> None:
    async with MessagesServer([fault, Reply.of("Hello again")]) as server:
        with pytest.raises(exception) as caught:
            await ask(server, client, stream=stream, timeout=0.4 if isinstance(fault, Stall) else 10)
        assert (type(caught.value) is exception) == (getattr(fault, "details", None) is None)
        again = await ask(server, client, stream=stream)
        assert (again["content"], server.count, server.refusals) == ([text("Hello again")], 2, [])


async def test_an_error_has_the_type_headers_and_details_of_the_script(client: AsyncAnthropic) -> None:
    error = HttpError(429, "of_a_later_year", "Slow down.", {"retry-after": "7", "x-should-retry": "true"}, SPENT)
    async with MessagesServer([error]) as server:
        with pytest.raises(anthropic.RateLimitError, match="Slow down") as caught:
            await ask(server, client)
    assert type(caught.value).__name__ == "EnforcedSpendLimitReachedError"
    assert (caught.value.type, caught.value.error_code) == ("of_a_later_year", SPENT["error_code"])
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.response.headers["x-should-retry"] == "true"


async def test_an_error_in_a_stream_comes_after_status_200(client: AsyncAnthropic) -> None:
    async with MessagesServer([StreamError(5, "api_error", "Oops", Reply.of("a long text"))]) as server:
        here = client.with_options(base_url=server.url)
        with pytest.raises(anthropic.APIStatusError, match="Oops") as caught:
            async with here.messages.stream(**body()) as answer:
                await answer.get_final_message()
    assert (caught.value.status_code, caught.value.type) == (200, "api_error")
    assert answer.current_message_snapshot.content[0].to_dict()["text"] == "a long t"  # two of its three deltas


@pytest.mark.parametrize("events", [4, 6, 9])
async def test_a_clean_end_in_mid_message_is_no_error_to_the_client(client: AsyncAnthropic, events: int) -> None:
    """With 9 of 10 events only `message_stop` is missing, and the message has a stop reason."""
    cut = CutStream(Reply.of("a long text", tool_use("look", {})), events)
    async with MessagesServer([cut]) as server:
        message = await ask(server, client)
    assert message["stop_reason"] is None
    assert message["content"][0]["text"] in "a long text"


async def test_pings_keep_a_silent_stream_alive_beyond_the_read_timeout(client: AsyncAnthropic) -> None:
    async with MessagesServer([Stall(1.0, 2, Reply.of("At last"), ping_every=0.05)]) as server:
        before = time.monotonic()
        message = await ask(server, client, timeout=0.5)
    assert message["content"] == [text("At last")]
    assert time.monotonic() - before >= 1.0


@STREAM_AND_WHOLE
async def test_a_stall_goes_on_in_the_end(client: AsyncAnthropic, stream: bool) -> None:
    async with MessagesServer([Stall(0.05, after_events=3, reply=Reply.of("At last"))]) as server:
        assert (await ask(server, client, stream=stream))["content"] == [text("At last")]


@STREAM_AND_WHOLE
async def test_a_delayed_reply_comes_late(client: AsyncAnthropic, stream: bool) -> None:
    async with MessagesServer([Reply.of("At last", delay=0.2)]) as server:
        before = time.monotonic()
        await ask(server, client, stream=stream)
        assert time.monotonic() - before >= 0.2


@STREAM_AND_WHOLE
async def test_a_held_reply_comes_when_it_is_let_go(client: AsyncAnthropic, stream: bool) -> None:
    hold = asyncio.Event()
    async with MessagesServer([Reply.of("At last", hold=hold)]) as server:
        asked = asyncio.create_task(ask(server, client, stream=stream))
        await server.until(lambda server: server.count == 1)
        assert not asked.done()
        hold.set()
        assert (await asked)["content"] == [text("At last")]


@STREAM_AND_WHOLE
async def test_a_request_cancelled_in_flight_is_seen_by_the_server(client: AsyncAnthropic, stream: bool) -> None:
    async with MessagesServer([Reply.of("Never", hold=asyncio.Event()), Reply.of("Hello again")]) as server:
        asked = asyncio.create_task(ask(server, client, stream=stream))
        await server.until(lambda server: server.count == 1)
        asked.cancel()
        await server.until(lambda server: server.aborted == 1)
        await asyncio.wait([asked])
        assert asked.cancelled()
        assert (await ask(server, client, stream=stream))["content"] == [text("Hello again")]


async def test_waiting_for_what_never_happens_ends(client: AsyncAnthropic) -> None:
    async with MessagesServer([]) as server:
        with pytest.raises(TimeoutError):
            await server.until(lambda server: server.count == 1, timeout=0.01)


async def test_a_held_request_does_not_keep_the_server_from_ending(client: AsyncAnthropic) -> None:
    before = time.monotonic()
    async with MessagesServer([Reply.of("Never", hold=asyncio.Event())]) as server:
        asked = asyncio.create_task(ask(server, client))
        await server.until(lambda server: server.count == 1)
    with pytest.raises(anthropic.APIConnectionError):
        await asked
    assert time.monotonic() - before < 3


# --- What is refused --------------------------------------------------------------------------------------------------

CALL, OTHER = tool_use("look", {}, "call_1"), tool_use("look", {}, "call_2")
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
HI = user("Hi")

REFUSED: Mapping[str, tuple[Any, str]] = {
    "a body that is no object": ([], "must be a JSON object"),
    "no model": ({"max_tokens": 1, "messages": [HI]}, "model: Field required"),
    "no messages": (body() | {"messages": []}, "messages: at least one message"),
    "no max_tokens": ({"model": "m", "messages": [HI]}, "max_tokens: Field required"),
    "max_tokens of zero": (body(max_tokens=0), "max_tokens: Input should be"),
    "max_tokens that is no number": (body(max_tokens="9"), "max_tokens: Input should be"),
    "a stream that is no boolean": (body(stream="yes"), "stream: Input should be"),
    "temperature": (body(temperature=0.5), "temperature: sampling parameters are not supported"),
    "top_p": (body(top_p=0.5), "top_p: sampling"),
    "top_k": (body(top_k=5), "top_k: sampling"),
    "any tool forced": (body(tools=[TOOL], tool_choice={"type": "any"}), "tool_choice: forced tool use"),
    "one tool forced": (body(tools=[TOOL], tool_choice={"type": "tool", "name": "look"}), "tool_choice: forced"),
    "thinking disabled": (body(thinking={"type": "disabled"}), "thinking: `disabled`"),
    "thinking as long as the response": (
        body(max_tokens=2048, thinking={"type": "enabled", "budget_tokens": 2048}),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "thinking without a type": (body(thinking={}), "thinking.type: Field required"),
    "tools that are no list": (body(tools=TOOL), "tools: Input should be a valid list"),
    "a tool name used twice": (body(tools=[TOOL, TOOL]), "Tool names must be unique; look"),
    "a tool name with a dot": (body(tools=[TOOL | {"name": "a.b"}]), "tools.0.name: String should match"),
    "a tool name too long": (body(tools=[TOOL | {"name": "a" * 129}]), "tools.0.name: String should match"),
    "a tool without a schema": (body(tools=[{"name": "look"}]), "tools.0.custom.input_schema.type"),
    "a schema of no object": (body(tools=[TOOL | {"input_schema": {"type": "array"}}]), "Input should be 'object'"),
    "a schema of a union": (
        body(tools=[TOOL | {"input_schema": {"type": "object", "anyOf": []}}]),
        "does not support oneOf, allOf, or anyOf at the top level",
    ),
    "an unknown role": (body({"role": "tool", "content": "x"}), "messages.0.role: Input should be 'user'"),
    "a message that is no object": (body() | {"messages": ["Hi"]}, "messages.0.role"),
    "content of no kind": (body({"role": "user", "content": 5}), "messages.0.content: Input should be"),
    "empty content": (body({"role": "user", "content": []}), "messages.0: all messages must have non-empty content"),
    "an empty string": (body({"role": "user", "content": ""}), "messages.0: all messages must have non-empty content"),
    "a block without a type": (body(user({"text": "x"})), "messages.0.content.0: a content block needs a `type`"),
    "a text that is none": (body(user({"type": "text"})), "messages.0.content.0.text.text: Input should be"),
    "the assistant first": (body(assistant("x"), HI), "messages.0: the first message must use the `user` role"),
    "the assistant last": (body(HI, assistant("x")), "must end with a user message"),
    "a finished server call last": (body(HI, assistant(SEARCH, FOUND, "x")), "must end with a user message"),
    "an empty text": (body(user("Hi", "")), "messages.0: text content blocks must be non-empty"),
    "a text of white space": (body(HI, assistant(" \n"), HI), "messages.1: text content blocks must"),
    "a string of white space": (body({"role": "user", "content": " "}), "messages.0: text content blocks must"),
    "an empty text in system": (body(system=[text("")]), "system: text content blocks must"),
    "an empty text in a result": (
        body(HI, assistant(CALL), user(result("call_1", [text("")]))),
        "messages.2: text content blocks must",
    ),
    "thinking of the user": (
        body(user(thinking("x"))),
        "`thinking` blocks are not permitted in a message of role `user`",
    ),
    "a call of the user": (body(user(CALL)), "`tool_use` blocks are not permitted in a message of role `user`"),
    "a result of the assistant": (body(HI, assistant(result("x")), HI), "`tool_result` blocks are not permitted"),
    "thinking without a signature": (body(HI, assistant(thinking("x", "")), HI), "Invalid `signature` in `thinking`"),
    "a call without an id": (body(HI, assistant(tool_use("look", {}, "")), HI), "tool_use.id: String should match"),
    "a call with null as id": (
        body(HI, assistant(CALL | {"id": None}), HI),
        "tool_use.id: Input should be a valid str",
    ),
    "a call with a strange name": (body(HI, assistant(tool_use("a b", {})), HI), "tool_use.name: String should match"),
    "a server's result of no call": (
        body(HI, assistant({"type": "web_search_tool_result", "content": []}), HI),
        "web_search_tool_result.tool_use_id: Input should be",
    ),
    "a call whose input is text": (body(HI, assistant(CALL | {"input": "{}"}), HI), "tool_use.input: Input should be"),
    "an unanswered call": (body(HI, assistant(CALL), HI), "`tool_result` blocks immediately after: call_1"),
    "a call answered too late": (
        body(HI, assistant(CALL), HI, assistant("x"), user(result("call_1"))),
        "messages.1: `tool_use` ids were found without",
    ),
    "one of two calls unanswered": (
        body(HI, assistant(CALL, OTHER), user(result("call_1"))),
        "immediately after: call_2.",
    ),
    "results in two messages": (
        body(HI, assistant(CALL, OTHER), user(result("call_1")), user(result("call_2"))),
        "immediately after: call_2. The one next user message",
    ),
    "the assistant after its own call": (
        body(HI, assistant(CALL), assistant("x"), user(result("call_1"))),
        "messages.1: `tool_use` ids were found without",
    ),
    "a result of no call": (body(user(result("call_9"))), "messages.0.content.0: unexpected `tool_use_id` call_9"),
    "a result of an older call": (
        body(HI, assistant(CALL), user(result("call_1")), assistant("x"), user(result("call_1"))),
        "messages.4.content.0: unexpected `tool_use_id` call_1",
    ),
    "two results of a call": (
        body(HI, assistant(CALL), user(result("call_1"), result("call_1"))),
        "each `tool_use` must have a single result; call_1",
    ),
    "text before a result": (
        body(HI, assistant(CALL), user("First", result("call_1"))),
        "messages.2.content.1: `tool_result` blocks must come first",
    ),
    "text between results": (
        body(HI, assistant(CALL, OTHER), user(result("call_1"), "then", result("call_2"))),
        "messages.2.content.2: `tool_result` blocks must come first",
    ),
    "a call id used twice in a message": (
        body(HI, assistant(CALL, CALL), user(result("call_1"))),
        "`tool_use` ids must be unique; call_1",
    ),
    "a call id used again later": (
        body(HI, assistant(CALL), user(result("call_1")), assistant(CALL), user(result("call_1"))),
        "messages.3: `tool_use` ids must be unique; call_1",
    ),
    "a result without an id": (body(HI, assistant(CALL), user({"type": "tool_result"})), "tool_result.tool_use_id"),
    "a result of a number": (body(HI, assistant(CALL), user(result("call_1", 5))), "tool_result.content: Input should"),
    "an error without a word": (
        body(HI, assistant(CALL), user(result("call_1", " ", is_error=True))),
        "content cannot be empty if `is_error` is true",
    ),
    "an error as a picture": (
        body(HI, assistant(CALL), user(result("call_1", [{"type": "image", "source": {}}], is_error=True))),
        "all content must be type `text` if `is_error` is true",
    ),
    "text after an unfinished server call": (
        body(HI, assistant(SEARCH), HI),
        "messages.2: after an unfinished server tool call only `tool_result` blocks may follow",
    ),
    "text after the results beside an unfinished server call": (
        body(HI, assistant(SEARCH, CALL), user(result("call_1"), "and")),
        "messages.2: after an unfinished server tool call only",
    ),
}


@pytest.mark.parametrize(("sent", "said"), REFUSED.values(), ids=list(REFUSED))
async def test_what_the_api_refuses_is_refused(client: AsyncAnthropic, sent: Any, said: str) -> None:
    async with MessagesServer([Reply.of("Hello")]) as server:
        assert said in await refusal_of(server, client, sent)
        assert (server.count, server.received, server.requests, len(server.refusals)) == (0, 1, [], 1)
        assert (await ask(server, client))["content"] == [text("Hello")], "a refused request uses up no step"


ACCEPTED: Mapping[str, dict[str, Any]] = {
    "content as strings": body({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "x"}, HI),
    "messages of the user in a row": body(HI, user("and"), user("so on")),
    "a system message in between": body(HI, {"role": "system", "content": "Be brief."}),
    "results in any order, text after them": body(
        HI, assistant(CALL, OTHER), user(result("call_2"), result("call_1", is_error=True), "and")
    ),
    "results without content": body(
        HI, assistant(CALL, OTHER), user(result("call_1", ""), {"type": "tool_result", "tool_use_id": "call_2"})
    ),
    "an unfinished server call last": body(HI, assistant("x", SEARCH)),
    "a compaction last": body(HI, assistant({"type": "compaction", "content": "so far"})),
    "results beside an unfinished server call": body(HI, assistant(SEARCH, CALL), user(result("call_1"))),
    "a server call finished in the next message": body(HI, assistant(SEARCH), assistant(FOUND, "x"), HI),
    "thinking without words": body(HI, assistant(thinking(""), "x"), HI),
    "blocks of a later year": body(HI, assistant({"type": "of_a_later_year"}), user({"type": "as_well"})),
    "tools of both kinds": body(tools=[TOOL, {"type": "web_search_20260318", "name": "web_search"}]),
    "a choice that forces nothing": body(tools=[TOOL], tool_choice={"type": "auto"}, thinking={"type": "adaptive"}),
    "an unknown field": body(output_config={"effort": "low"}, cache_control={"type": "ephemeral"}, metadata={}),
}


@pytest.mark.parametrize("sent", ACCEPTED.values(), ids=list(ACCEPTED))
async def test_what_the_api_accepts_is_accepted(client: AsyncAnthropic, sent: dict[str, Any]) -> None:
    async with MessagesServer([Reply.of("Hello")]) as server:
        await client.with_options(base_url=server.url).post("/v1/messages", body=sent, cast_to=object)
        assert (server.count, server.requests, server.refusals) == (1, [sent], [])


async def test_tokens_are_counted_of_a_request_without_max_tokens_but_not_of_a_wrong_one(
    client: AsyncAnthropic,
) -> None:
    async with MessagesServer([]) as server:
        here = client.with_options(base_url=server.url)
        assert (await here.messages.count_tokens(model="m", messages=[{"role": "user", "content": "Hi"}])).input_tokens
        with pytest.raises(anthropic.BadRequestError, match="the first message must use the `user` role"):
            await here.messages.count_tokens(model="m", messages=[{"role": "assistant", "content": "Hi"}])
        assert (server.count, server.received, len(server.refusals)) == (0, 0, 1)


async def test_a_body_that_is_no_json_is_refused(http: httpx2.AsyncClient) -> None:
    async with MessagesServer([]) as server:
        answer = await http.post(f"{server.url}/v1/messages", content=b'{"model": ')
        assert answer.status_code == 400
        assert "not valid JSON" in answer.json()["error"]["message"]
        assert (server.received, len(server.refusals)) == (1, 1)


@pytest.mark.parametrize(
    "junk", [None, True, 5, "x", [], [5], {}, {"type": 5}, {"type": "text"}, [{"type": "tool_use"}]]
)
@pytest.mark.parametrize(
    "place", ["model", "messages", "tools", "system", "thinking", "tool_choice", "role", "content"]
)
def test_junk_anywhere_is_judged_and_never_crashes(place: str, junk: Any) -> None:
    for role in ("user", "assistant"):
        message = {"role": role, "content": "x", **({place: junk} if place in ("role", "content") else {})}
        sent = body(HI, message, user(result("x", junk), junk), **({} if place in message else {place: junk}))
        assert isinstance(first_fault(sent), str)


# --- The frozen prefix ------------------------------------------------------------------------------------------------

THOUGHT = thinking("", "signature_1")
FIRST, SECOND = Reply.of(THOUGHT, CALL), Reply.of("Fine.")
ROOT: dict[str, Any] = {"system": "Be brief.", "tools": [TOOL]}
ONE = [HI]
TWO = [HI, assistant(THOUGHT, CALL), user(result("call_1"))]
THREE = [*TWO, assistant("Fine."), user("And?")]


async def after(
    server: MessagesServer, client: AsyncAnthropic, *conversations: Sequence[Message], **root: Any
) -> dict[str, Any]:
    """The last answer to requests made one after the other."""
    answers = [await ask(server, client, *messages, **(root or ROOT)) for messages in conversations]
    return answers[-1]


THAWED: Mapping[str, tuple[dict[str, Any], str]] = {
    "another system": (body(*THREE, **ROOT | {"system": "Be very brief."}), "`system`: changed since messages.1"),
    "no system": (body(*THREE, tools=[TOOL]), "`system`: changed since messages.1"),
    "a reworded tool": (body(*THREE, **ROOT | {"tools": [TOOL | {"description": "Sees."}]}), "`tools`: changed"),
    "a tool's keys in another order": (
        body(*THREE, **ROOT | {"tools": [dict(reversed(TOOL.items()))]}),
        "`tools`: changed since messages.1",
    ),
    "another model": (body(*THREE, **ROOT) | {"model": "claude-haiku-5-5"}, "`model`: changed since messages.1"),
    "model and system": (body(*THREE, tools=[TOOL]) | {"model": "m"}, "`model`, `system`: changed"),
    "an edited goal": (body(user("Hi!"), *THREE[1:], **ROOT), "messages.0: changed since messages.1 was given"),
    "an edited result": (
        body(*TWO[:2], user(result("call_1", "bad")), *THREE[3:], **ROOT),
        "messages.2: changed since messages.3 was given",
    ),
    "an inserted message": (body(HI, user("note"), *THREE[1:], **ROOT), "messages.1: changed since messages.2"),
    "a trimmed history": (body(HI, *THREE[3:], **ROOT), "messages.1: not a reply of this server"),
    "a dropped thought": (
        body(HI, assistant(CALL), *THREE[2:], **ROOT),
        "messages.1: not a reply of this server to the messages before it",
    ),
    "an edited thought": (
        body(HI, assistant(thinking("x", "signature_1"), CALL), *THREE[2:], **ROOT),
        "messages.1.content.0: `thinking` blocks cannot be modified",
    ),
    "an edited call": (
        body(HI, assistant(THOUGHT, CALL | {"input": {"sku": "A1"}}), *THREE[2:], **ROOT),
        "messages.1: not a reply of this server",
    ),
    "another call id": (
        body(HI, assistant(THOUGHT, OTHER), user(result("call_2")), **ROOT),
        "messages.1: not a reply of this server",
    ),
    "an edited text": (body(*TWO, assistant("Fine!"), user("And?"), **ROOT), "messages.3: not a reply of this server"),
    "an invented reply": (
        body(*THREE, assistant("Invented."), user("So?"), **ROOT),
        "messages.5: not a reply of this server",
    ),
    "a reply after an unknown beginning": (
        body(*TWO, user("more"), assistant("Invented."), user("So?"), **ROOT),
        "messages.4: not a reply of this server",
    ),
}


@pytest.mark.parametrize(("sent", "said"), THAWED.values(), ids=list(THAWED))
async def test_a_changed_prefix_is_refused(client: AsyncAnthropic, sent: dict[str, Any], said: str) -> None:
    async with MessagesServer([FIRST, SECOND, Reply.of("And so on.")]) as server:
        await after(server, client, ONE, TWO, THREE)
        assert said in await refusal_of(server, client, sent)


async def test_without_the_strict_prefix_only_thinking_must_stay(client: AsyncAnthropic) -> None:
    edited = {sent: body for sent, (body, said) in THAWED.items() if "`thinking`" not in said}
    script = [FIRST, SECOND, *[Reply.of("And so on.")] * len(edited)]
    async with MessagesServer(script, strict_prefix=False) as server:
        await after(server, client, ONE, TWO)
        here = client.with_options(base_url=server.url)
        for sent in edited.values():
            await here.post("/v1/messages", body=sent, cast_to=object)
        assert "cannot be modified" in await refusal_of(server, client, THAWED["an edited thought"][0])


CONTINUED: Mapping[str, list[Message]] = {
    "the same again": THREE,
    "an older head, as after a reset": ONE,
    "an older head, with another result": [*TWO[:2], user(result("call_1", "bad"))],
    "the reply dropped, as after a refusal": [*TWO, user("Once more, please.")],
    "cache marks moved": [HI, assistant(THOUGHT, CALL | {"cache_control": {"type": "ephemeral"}}), *THREE[2:]],
    "strings for single texts": [{"role": "user", "content": "Hi"}, *THREE[1:]],
    "another conversation, with a reply that happens to be the same": [user("Yo"), assistant("Fine."), user("So?")],
}


@pytest.mark.parametrize("messages", CONTINUED.values(), ids=list(CONTINUED))
async def test_what_goes_on_from_a_reply_is_accepted(client: AsyncAnthropic, messages: list[Message]) -> None:
    async with MessagesServer([FIRST, SECOND, Reply.of("And so on."), Reply.of("Well.")]) as server:
        await after(server, client, ONE, TWO, THREE, messages)
        assert server.refusals == []


async def test_either_of_two_replies_to_the_same_messages_may_go_on(client: AsyncAnthropic) -> None:
    async with MessagesServer([Reply.of("One."), Reply.of("Two."), *[Reply.of("So.")] * 2]) as server:
        await after(server, client, ONE, ONE, [HI, assistant("Two."), HI], [HI, assistant("One."), HI])
        assert server.refusals == []


async def test_blank_texts_of_a_reply_may_be_left_out(client: AsyncAnthropic) -> None:
    """They must be: the API gives them, and doesn't take them back. A reply of nothing else is dropped."""
    async with MessagesServer([Reply.of("", CALL, " \n"), Reply.of(" "), Reply.of("So.")]) as server:
        await after(server, client, ONE, [HI, assistant(CALL), TWO[2]], [HI, assistant(CALL), TWO[2], user("Well?")])
        assert server.refusals == []


@pytest.mark.parametrize(
    "broken", [tool_use("look", {}, ""), CALL | {"id": None}, OTHER], ids=["empty", "null", "twice"]
)
async def test_broken_call_ids_may_be_mended_and_nothing_else(client: AsyncAnthropic, broken: dict[str, Any]) -> None:
    async with MessagesServer([Reply.of(OTHER, broken), Reply.of("So."), Reply.of("So.")]) as server:
        await ask(server, client, HI)
        mended = [OTHER, tool_use("look", {}, "mended")]
        results = user(result("call_2"), result("mended"))
        await ask(server, client, HI, assistant(*mended), results)
        assert server.refusals == []
        edited = [OTHER, tool_use("look", {"sku": "A1"}, "mended")]
        assert "messages.1" in await refusal_of(server, client, body(HI, assistant(*edited), results))


async def post(server: MessagesServer, client: AsyncAnthropic, *messages: Message) -> None:
    """Ask, and make nothing of the answer: the client would not know how."""
    await client.with_options(base_url=server.url).post("/v1/messages", body=body(*messages), cast_to=object)


@pytest.mark.parametrize(
    ("broken", "mended", "edited"),
    [
        (CALL | {"name": "look up!"}, CALL | {"name": "none"}, CALL | {"name": "none", "input": {"sku": "A1"}}),
        ({"type": "tool_use", "id": "call_1", "input": {}}, CALL, CALL | {"id": "call_2"}),
        (CALL | {"input": "A1"}, CALL | {"input": {"said": "A1"}}, CALL | {"name": "other", "input": {}}),
        (CALL | {"input": {"n": "\ud83d"}}, CALL | {"input": {"n": "\ufffd"}}, CALL | {"input": {"n": ""}}),
    ],
    ids=["name", "no name", "input", "half a pair"],
)
async def test_what_makes_no_call_of_a_call_may_be_mended_and_nothing_else(
    client: AsyncAnthropic, broken: dict[str, Any], mended: dict[str, Any], edited: dict[str, Any]
) -> None:
    async with MessagesServer([Reply.of("Well.", broken), Reply.of("So."), Reply.of("So.")]) as server:
        await post(server, client, HI)
        await post(server, client, HI, assistant("Well.", mended), user(result("call_1")))
        assert server.refusals == []
        sent = body(HI, assistant("Well.", edited), user(result(edited["id"])))
        assert "messages.1: not a reply" in await refusal_of(server, client, sent)
        sent = body(HI, assistant("Well!", mended), user(result("call_1")))
        assert "messages.1: not a reply" in await refusal_of(server, client, sent)


@pytest.mark.parametrize(
    "refused",
    [
        thinking("Hm.", ""),
        {"type": "thinking", "thinking": "Hm."},
        thinking("Hm \ud83d."),
        {"type": "redacted_thinking"},
        {"type": "text", "text": 7},
        result("call_1"),
        {"type": "server_tool_use", "id": ["x"], "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "content": []},
    ],
    ids=["no signature", "none at all", "half a pair", "no data", "a number", "a result", "a list as id", "no id"],
)
async def test_what_is_refused_in_any_form_may_be_left_out(client: AsyncAnthropic, refused: dict[str, Any]) -> None:
    async with MessagesServer([Reply.of(refused, "Well."), Reply.of("So.")]) as server:
        await post(server, client, HI)
        await post(server, client, HI, assistant("Well."), user("And?"))
        assert server.refusals == []


async def test_a_new_start_of_a_goal_may_have_another_system(client: AsyncAnthropic) -> None:
    """Somebody edits an agent and starts the same goal again, on a server that runs for days."""
    async with MessagesServer([FIRST, FIRST, SECOND, SECOND]) as server:
        await after(server, client, ONE)
        await after(server, client, ONE, TWO, system="Be verbose.")
        await after(server, client, TWO)
        assert server.refusals == []


async def test_a_restarted_server_believes_what_was_said_before(client: AsyncAnthropic) -> None:
    async with MessagesServer([Reply.of("And so on."), Reply.of("Well.")]) as server:
        await after(server, client, THREE, [*THREE, assistant("And so on."), user("And?")])
        assert server.refusals == []


async def test_thinking_is_bound_to_its_prefix_even_under_another_goal(client: AsyncAnthropic) -> None:
    async with MessagesServer([FIRST]) as server:
        await after(server, client, ONE)
        sent = body(user("Something else"), *TWO[1:], **ROOT)
        assert "messages.0: changed since messages.1" in await refusal_of(server, client, sent)


@pytest.mark.parametrize(
    "fault", [CutStream(after_events=5), StreamError(5), Stall(60, 5)], ids=lambda step: type(step).__name__
)
async def test_what_came_of_a_reply_before_it_broke_off_is_no_reply(client: AsyncAnthropic, fault: Step) -> None:
    async with MessagesServer([fault, Reply.of("So.")]) as server:
        here = client.with_options(base_url=server.url, timeout=0.4)
        async with here.messages.stream(**body()) as answer:
            with suppress(anthropic.APIError, httpx2.TransportError):
                await answer.until_done()
        kept = answer.current_message_snapshot.content[0].to_dict()["text"]
        assert kept
        sent = body(HI, assistant(kept), HI)
        assert "messages.1: not a reply of this server" in await refusal_of(server, client, sent)


async def test_a_paused_turn_goes_on_with_its_content_as_it_is(client: AsyncAnthropic) -> None:
    paused = Reply.of("Let me look.", SEARCH, stop_reason="pause_turn")
    script = [paused, Reply.of(FOUND, "It is red."), Reply.of("So.")]
    async with MessagesServer(script) as server:
        first = await ask(server, client, HI)
        second = await ask(server, client, HI, assistant(*first["content"]))
        await ask(server, client, HI, assistant(*first["content"]), assistant(*second["content"]), user("And?"))
        assert (first["stop_reason"], server.count, server.refusals) == ("pause_turn", 3, [])


@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
async def test_only_what_was_paused_may_stand_last_without_an_open_server_call(
    client: AsyncAnthropic, reason: str
) -> None:
    async with MessagesServer([Reply.of("So far.", stop_reason=reason), Reply.of("So."), Reply.of("Fine.")]) as server:
        for said in ("So far.", "So."):
            await ask(server, client, HI, *([] if said == "So far." else [assistant("So far.")]))
        fault = await refusal_of(server, client, body(HI, assistant("So far."), assistant("So.")))
        assert "prefill is not supported" in fault


OTHER_MODEL = {"model": "claude-haiku-5-5"}
BARE = [HI, assistant(CALL), user(result("call_1"))]


@pytest.mark.parametrize("left", [Reply.of("I can't.", stop_reason="refusal"), HttpError(529)], ids=["refusal", "529"])
async def test_another_model_may_go_on_where_one_left_without_the_thoughts_of_that_one(
    client: AsyncAnthropic, left: Step
) -> None:
    async with MessagesServer([FIRST, left, Reply.of(thinking("", "s2"), "Fine."), SECOND, SECOND]) as server:
        await after(server, client, ONE)
        with suppress(anthropic.APIError):
            await after(server, client, TWO)
        await after(server, client, BARE, **ROOT, **OTHER_MODEL)
        on = [*BARE, assistant(thinking("", "s2"), "Fine."), user("And?")]
        await after(server, client, on, **ROOT, **OTHER_MODEL)
        assert server.refusals == []
        for messages, more, said in (
            (TWO, {}, "`model`: changed since messages.1"),
            (BARE, {"system": "Be verbose."}, "messages.1: not a reply"),
            ([HI, assistant({**CALL, "input": {"a": 1}}), BARE[2]], {}, "messages.1: not a reply"),
        ):
            sent = body(*messages, **{**ROOT, **OTHER_MODEL, **more})
            assert said in await refusal_of(server, client, sent)


async def test_no_other_model_may_go_on_where_nobody_left(client: AsyncAnthropic) -> None:
    async with MessagesServer([FIRST, SECOND]) as server:
        await after(server, client, ONE, TWO)
        assert "messages.1" in await refusal_of(server, client, body(*BARE, **ROOT) | OTHER_MODEL)


# --- Scripts ----------------------------------------------------------------------------------------------------------


async def test_steps_are_used_in_order_by_all_conversations_together(client: AsyncAnthropic) -> None:
    async with MessagesServer([Reply.of("1"), Reply.of("2"), Reply.of("3")]) as server:
        said = [(await ask(server, client, user(goal)))["content"][0]["text"] for goal in ("A", "B", "A")]
        assert said == ["1", "2", "3"]
        assert [request["messages"] for request in server.requests] == [[user("A")], [user("B")], [user("A")]]


async def test_each_conversation_can_have_the_steps_to_itself(client: AsyncAnthropic) -> None:
    script = Script([Reply.of("1"), Reply.of("2")], per_conversation=True)
    async with MessagesServer(script) as server:
        said = [(await ask(server, client, user(goal)))["content"][0]["text"] for goal in ("A", "B", "A", "B")]
        assert said == ["1", "1", "2", "2"]


async def test_a_script_that_has_run_out_says_so(client: AsyncAnthropic) -> None:
    async with MessagesServer([Reply.of("1")]) as server:
        await ask(server, client)
        with pytest.raises(anthropic.BadRequestError, match="the script has 1 steps, and this is request 2") as caught:
            await ask(server, client)
        assert str(caught.value.type) == "script_exhausted"
        assert (server.count, server.received, len(server.refusals)) == (2, 2, 1)


async def test_a_function_answers_with_what_it_makes_of_the_request(client: AsyncAnthropic) -> None:
    async def slowly(request: dict[str, Any]) -> Step:
        await asyncio.sleep(0)
        return Reply.of(f"later {request['messages'][-1]['content'][0]['text']}")

    for script, said in ((lambda request: Reply.of(request["model"]), "claude-opus-5-5"), (slowly, "later Hi")):
        async with MessagesServer(script) as server:
            assert (await ask(server, client))["content"] == [text(said)]


@pytest.mark.parametrize(
    ("made", "said"), [(lambda _: 1 / 0, "ZeroDivisionError"), (lambda _: "Hi", "not a step"), ([5], "not a step")]
)
async def test_a_script_that_fails_is_a_400_that_nobody_retries(client: AsyncAnthropic, made: Any, said: str) -> None:
    async with MessagesServer(made) as server:
        with pytest.raises(anthropic.BadRequestError, match=said) as caught:
            await ask(server, client)
        assert str(caught.value.type) == "script_error"
        assert len(server.refusals) == 1


def test_a_reply_is_frozen_and_keeps_its_own_copy_of_the_blocks() -> None:
    block = tool_use("look", {"sku": "A1"})
    reply = Reply.of(block)
    block["input"]["sku"] = "B2"
    assert reply.content[0]["input"] == {"sku": "A1"}
    with pytest.raises(AttributeError):
        reply.stop_reason = "end_turn"  # type: ignore[misc]  # frozen
    with pytest.raises(ValueError, match=r'content\[0\] has no "type"'):
        Reply([{"text": "x"}])


def test_generated_ids_are_new_each_time() -> None:
    assert tool_use("look", {})["id"] != tool_use("look", {})["id"]
    assert tool_use("look", {})["id"].startswith("toolu_")
    assert thinking("x")["signature"] != thinking("x")["signature"]


def test_a_file_holds_every_kind_of_step(tmp_path: Path) -> None:
    said = {"content": [text("Hi")]}
    written = [
        {"reply": {"content": [{"type": "tool_use", "name": "look", "input": {}}], "stop_reason": "tool_use"}},
        {"reply": {**said, "delay": 0.5, "usage": {"input_tokens": 3}}},
        {"http_error": {"status": 429, "headers": {"retry-after": "7"}, "details": SPENT}},
        {"stream_error": {"after_events": 1, "type": "api_error", "reply": said}},
        {"cut_stream": {"reply": said, "after_events": 3, "how": "reset"}},
        {"stall": {"seconds": 5, "ping_every": 1}},
        {"not_a_message": {"body": "x", "content_type": "text/plain"}},
    ]
    (path := tmp_path / "script.json").write_text(json.dumps(written))
    script = load_script(path)
    call = script.steps[0].completes()
    assert call is not None
    assert call.content[0]["id"].startswith("toolu_")
    assert list(script.steps[1:]) == [
        Reply.of("Hi", delay=0.5, usage={"input_tokens": 3}),
        HttpError(429, headers={"retry-after": "7"}, details=SPENT),
        StreamError(1, "api_error", reply=Reply.of("Hi")),
        CutStream(Reply.of("Hi"), 3, Cut.RESET),
        Stall(5, ping_every=1),
        NotAMessage("x", "text/plain"),
    ]
    assert not script.per_conversation
    path.write_text(json.dumps({"per_conversation": True, "steps": written}))
    assert load_script(path).per_conversation


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[", "not JSON"),
        ('"clerk"', "write a list of steps, or"),
        ('{"steps": [], "loop": true}', "write a list of steps, or"),
        ('{"steps": [], "per_conversation": 1}', "write a list of steps, or"),
        ('[{"reply": {}}, {"replay": {}}]', "entry 2: write an object with one key, which is one of reply, http_error"),
        ('[{"reply": {}, "stall": {}}]', "entry 1: write an object with one key"),
        ('["Hi"]', "entry 1: write an object with one key"),
        ('[{"http_error": {"status": "many"}}]', "entry 1 (http_error): status: Input should be a valid integer"),
        ('[{"http_error": {"code": 529}}]', "code: Unexpected keyword argument; the fields are delay, status, type, "),
        ('[{"reply": {"content": [{"text": "Hi"}]}}]', 'content[0] has no "type"'),
        ('[{"reply": {"content": ["Hi"]}}]', "entry 1 (reply): content.0: "),
        ('[{"cut_stream": {"how": "softly"}}]', "entry 1 (cut_stream): how: Input should be 'clean_eof', 'fin' or"),
    ],
)
def test_a_malformed_file_is_one_line_that_names_the_entry_and_the_mend(
    tmp_path: Path, written: str, said: str
) -> None:
    (path := tmp_path / "script.json").write_text(written)
    with pytest.raises(ScriptError) as caught:
        load_script(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# --- The process ------------------------------------------------------------------------------------------------------


async def started(*arguments: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "settled.local.messages_server", *arguments)
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_serves_a_file_until_it_is_told_to_end(
    client: AsyncAnthropic, http: httpx2.AsyncClient, tmp_path: Path, number: signal.Signals
) -> None:
    (path := tmp_path / "script.json").write_text('[{"reply": {}}, {"stall": {"after_events": 1}}]')
    process = await started("--script", str(path))
    assert process.stdout
    url = json.loads(await process.stdout.readline())["listening"]
    here = client.with_options(base_url=url)
    assert (await here.messages.create(**body())).content == []
    with pytest.raises(anthropic.BadRequestError):
        await here.messages.create(**body(), extra_body={"top_k": 1})
    told = (await http.get(f"{url}/requests")).json()
    assert told == {
        "count": 1,
        "received": 2,
        "refusals": ["top_k: sampling parameters are not supported by this model"],
    }
    assert (await http.get(f"{url}/healthz")).json() == {"status": "ok"}
    async with here.messages.stream(**body()) as answer:
        await anext(answer)
        process.send_signal(number)
        rest, errors = await asyncio.wait_for(process.communicate(), 5)
        assert (process.returncode, rest, errors) == (0, b"", b"")
        with pytest.raises(httpx2.RemoteProtocolError):
            await answer.until_done()


async def test_a_process_with_a_malformed_script_says_so_in_one_line(tmp_path: Path) -> None:
    (path := tmp_path / "script.json").write_text("[{}]")
    process = await started("--script", str(path))
    said, errors = await process.communicate()
    assert (process.returncode, said) == (1, b"")
    assert errors.decode().startswith(f"messages server: {path}: entry 1: write an object with one key")
    assert errors.count(b"\n") == 1
