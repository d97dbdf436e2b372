"""What a failed model request means. The failures are real: the provider's client, against a server that misbehaves."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from temporalio.exceptions import ApplicationError

from settled.activities.model_errors import MOST_RETRY_AFTER, Remedy, Trouble, classify
from settled.activities.model_provider import Provider, Received
from settled.activities.model_stream import StreamError, UnknownEvent
from settled.local.messages_script import (
    Cut,
    CutStream,
    HttpError,
    NotAMessage,
    Reply,
    Stall,
    Step,
    text,
    thinking,
    tool_use,
)
from settled.local.messages_script import StreamError as ErrorEvent
from settled.local.messages_server import MessagesServer
from settled.local.messages_wire import events, frame

Json = dict[str, Any]
ASKED: Json = {
    "model": "claude-scripted",
    "max_tokens": 100,
    "system": "You are the clerk.",
    "messages": [{"role": "user", "content": "Look up A1."}],
}
START = frame("message_start", {"message": {"type": "message", "content": [], "stop_reason": None, "usage": {}}})
BLOCK = frame("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class Line:
    """A real client at a server whose script grows."""

    def __init__(self, server: MessagesServer, script: list[Step], provider: Provider) -> None:
        self.server = server
        self.script = script
        self.provider = provider

    async def send(self, step: Step, **changes: Any) -> Received:
        """One request, which meets this step."""
        self.script.append(step)
        return await self.provider.send({**ASKED, **changes}, lambda _: None)

    async def error(self, step: Step) -> Exception:
        """What one request raises that meets this step. It is exactly one request (B19)."""
        before = self.server.received
        with pytest.raises(Exception) as raised:  # noqa: PT011 - which one it is, the test asks
            await self.send(step)
        assert self.server.received == before + 1
        return raised.value

    async def trouble(self, step: Step) -> Trouble:
        """What it means."""
        return classify(await self.error(step))

    async def failure(self, step: Step) -> ApplicationError:
        """The same, as Temporal is told of it."""
        return (await self.trouble(step)).failure()


@pytest.fixture(scope="module")
async def line() -> AsyncIterator[Line]:
    script: list[Step] = []
    async with MessagesServer(script) as server:
        provider = Provider(server.url)
        try:
            yield Line(server, script, provider)
        finally:
            await provider.close()


@pytest.fixture
async def hasty(line: Line) -> AsyncIterator[Line]:
    """The same with a client that waits for a second and no longer."""
    provider = Provider(line.server.url)
    patient = await provider.warm_up()
    provider._client = patient.with_options(timeout=1.0)
    try:
        yield Line(line.server, line.script, provider)
    finally:
        await patient.close()


# What comes well


async def test_r25_a_message_is_received_as_it_was_sent(line: Line) -> None:
    blocks = [thinking(""), text("caf\u00e9 \U0001f600"), tool_use("look_up", {"sku": "A1", "note": "caf\u00e9"})]
    received = await line.send(Reply.of(*blocks))
    assert received.message["content"] == blocks
    assert received.message["stop_reason"] == "tool_use"
    assert received.message["usage"]["output_tokens"] > 0
    assert received.request_id.startswith("req_")


async def test_r6_a_request_says_what_it_was_told_and_asks_for_a_stream(line: Line) -> None:
    await line.send(Reply.of("Hello"))
    assert line.server.requests[-1] == {**ASKED, "stream": True}
    assert line.server.refusals == []


async def test_r31_progress_is_told_while_the_message_arrives(line: Line) -> None:
    seen: list[int] = []
    line.script.append(Reply.of("Hello"))
    await line.provider.send(ASKED, lambda arriving: seen.append(arriving.characters))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0, 5)
    assert 0 < seen[len(seen) // 2] < 5


WHOLE = list(events(Reply.of("Hello"), {"model": "m", "messages": []}))


@pytest.mark.parametrize(
    "after",
    [
        CutStream(reply=Reply.of("Hello"), after_events=len(WHOLE), how=Cut.FIN),
        CutStream(reply=Reply.of("Hello"), after_events=len(WHOLE), how=Cut.RESET),
        Stall(reply=Reply.of("Hello"), after_events=len(WHOLE), seconds=60.0),
        Stall(reply=Reply.of("Hello"), after_events=len(WHOLE), seconds=60.0, ping_every=0.05),
        ErrorEvent(reply=Reply.of("Hello"), after_events=len(WHOLE)),
        NotAMessage.stream(b"".join(frame(*event) for event in WHOLE) + b"event: message_delta\ndata: {\n\n"),
        NotAMessage.stream(b"".join(frame(*event) for event in WHOLE) + b"event: error\ndata: \xff\n\n"),
    ],
    ids=["closed", "reset", "silence", "pings", "error event", "a malformed event", "no UTF-8"],
)
async def test_b21_what_comes_after_a_whole_message_is_no_fault_of_it(line: Line, after: Step) -> None:
    """B21, B05: it is paid for, and `message_stop` ends it."""
    began = asyncio.get_running_loop().time()
    received = await line.send(after)
    assert received.message["content"] == [text("Hello")]
    assert received.message["stop_reason"] == "end_turn"
    assert asyncio.get_running_loop().time() - began < 20.0, "nobody waits for the connection to end"
    assert (await line.send(Reply.of("Hi"))).message["content"] == [text("Hi")]


async def test_a_stall_full_of_pings_ends_well_if_the_message_comes(hasty: Line) -> None:
    """Timeouts are per read, so that a total deadline has to be somebody else's."""
    received = await hasty.send(Stall(seconds=2.0, after_events=2, ping_every=0.1, reply=Reply.of("Hello")))
    assert received.message["content"] == [text("Hello")]


# What the model allows


@pytest.mark.parametrize(
    ("message", "allowed"),
    [
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x", 64_000),
        ("max_tokens is above the maximum allowed number of output tokens", None),
        (f"max_tokens: 1 > {'9' * 400}, which is the maximum allowed number of output tokens for x", None),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease", 10_000),
        ("input length and `max_tokens` exceed context limit: 210000 + 20000 > 200000", 0),
        ("input length and `max_tokens` exceed context limit", None),
        ("max_tokens: Field required", None),
    ],
)
async def test_the_limit_that_would_do_is_read_from_the_refusal(line: Line, message: str, allowed: int | None) -> None:
    assert (await line.trouble(HttpError(400, message=message))).allowed == allowed


# The table of facts: what is tried again

RETRIED: dict[str, Step] = {
    "408": HttpError(408),
    "409": HttpError(409),
    "429": HttpError(429),
    "500": HttpError(500),
    "502 HTML": NotAMessage.html(status=502),
    "503": HttpError(503),
    "504": HttpError(504),
    "529 overloaded": HttpError(529),
    "599 of a later year": HttpError(599),
    "reset before the stream": CutStream(after_events=0, how=Cut.RESET),
    "closed before the stream": CutStream(after_events=0, how=Cut.FIN),
    "reset within the stream": CutStream(after_events=3, how=Cut.RESET),
    "closed within the stream": CutStream(after_events=3, how=Cut.FIN),
    "clean end within the message": CutStream(after_events=3, how=Cut.CLEAN_EOF),
    "clean end before the message": CutStream(after_events=0, how=Cut.CLEAN_EOF),
    "no message_stop": CutStream(Reply.of("Hi"), after_events=7, how=Cut.CLEAN_EOF),
    "no stop reason": NotAMessage.stream(START + frame("message_stop", {})),
    "overloaded after 200": ErrorEvent(),
    "api_error after 200": ErrorEvent(type="api_error"),
    "rate_limit_error after 200": ErrorEvent(type="rate_limit_error"),
    "timeout_error after 200": ErrorEvent(type="timeout_error"),
    "error before the message": ErrorEvent(after_events=0),
    "error event that is no JSON": NotAMessage.stream(b"event: error\ndata: oops\n\n"),
    **{
        f"error event {data}": NotAMessage.stream(f"event: error\ndata: {data}\n\n")
        for data in (
            "null",
            "[]",
            "[1]",
            "{}",
            '{"type":"error"}',
            '{"type":"error","error":null}',
            '{"type":"error","error":"overloaded"}',
            '{"type":"error","error":{"message":"x"}}',
        )
    },
    "HTML instead of a stream": NotAMessage.html(),
    "JSON instead of a stream": NotAMessage.json(),
    "frames without an event": NotAMessage.stream(b'data: {"type": "message_start"}\n\n'),
    "malformed JSON": NotAMessage.stream(b"event: message_start\ndata: {\n\n"),
    "malformed UTF-8": NotAMessage.stream(b"event: message_start\ndata: \xff\xfe\n\n"),
    "a block out of order": NotAMessage.stream(START + BLOCK.replace(b'"index": 0', b'"index": 1')),
    "cut tool input": Reply.of(tool_use("look_up", {}, partial_json='{"sku": "A')),
    "a message of another type": NotAMessage.stream(
        START.replace(b'"type": "message",', b'"type": "poem",')
        + frame("message_delta", {"delta": {"stop_reason": "end_turn"}})
        + frame("message_stop", {})
    ),
    "an empty stream": NotAMessage.stream(b""),
}

GIVEN_UP: dict[str, Step] = {
    "400": HttpError(400),
    "401": HttpError(401),
    "402": HttpError(402),
    "403": HttpError(403),
    "404": HttpError(404),
    "422": HttpError(422),
    "400 HTML": NotAMessage.html(status=400),
    "429 spend cap": HttpError(429, details={"error_code": "enforced_spend_limit_reached"}),
    "429 contract's spend cap": HttpError(429, details={"error_code": "contract_spend_limit_reached"}),
    "429 spend cap, to be retried": HttpError(
        429, details={"error_code": "enforced_spend_limit_reached"}, headers={"x-should-retry": "true"}
    ),
    "402 another organization's spend cap": HttpError(
        402, details={"error_code": "linked_organization_spend_limit_reached"}
    ),
    "invalid request after 200": ErrorEvent(type="invalid_request_error"),
    "authentication after 200": ErrorEvent(type="authentication_error"),
    "an unheard-of error after 200": ErrorEvent(type="weather_error"),
    "a delta of an unknown kind": NotAMessage.stream(
        START + BLOCK + frame("content_block_delta", {"index": 0, "delta": {"type": "rain_delta"}})
    ),
}


@pytest.mark.parametrize("step", RETRIED.values(), ids=RETRIED.keys())
async def test_b19_b20_b21_what_may_pass_is_tried_again_by_temporal_and_by_nobody_else(line: Line, step: Step) -> None:
    """B19, B20, B21: one request per attempt, whatever came of it."""
    failure = await line.failure(step)
    assert not failure.non_retryable, failure.message
    assert failure.type == "ModelRequestFailed"
    assert failure.next_retry_delay is None


@pytest.mark.parametrize("step", GIVEN_UP.values(), ids=GIVEN_UP.keys())
async def test_what_does_not_pass_is_not_tried_again(line: Line, step: Step) -> None:
    failure = await line.failure(step)
    assert failure.non_retryable, failure.message
    assert failure.type == "ModelRequestFailed"


TOO_LONG = "prompt is too long: 210000 tokens > 200000 maximum"
NO_ROOM = "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
TOO_HIGH = "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x"
REMEDIED: dict[str, tuple[Step, Remedy]] = {
    "529": (HttpError(529), Remedy.FALL_BACK),
    "529 of a proxy": (NotAMessage.html(status=529), Remedy.FALL_BACK),
    "overloaded after 200": (ErrorEvent(), Remedy.FALL_BACK),
    "overloaded under another status": (HttpError(503, type="overloaded_error"), Remedy.FALL_BACK),
    "overloaded, not to be retried": (HttpError(529, headers={"x-should-retry": "false"}), Remedy.FALL_BACK),
    "overloaded, and a spend cap": (
        HttpError(529, details={"error_code": "enforced_spend_limit_reached"}),
        Remedy.GIVE_UP,
    ),
    "rate limit": (HttpError(429), Remedy.RETRY),
    "413": (HttpError(413), Remedy.SUM_UP),
    "413 of a proxy": (NotAMessage.html(status=413), Remedy.SUM_UP),
    "too large after 200": (ErrorEvent(type="request_too_large"), Remedy.SUM_UP),
    "prompt too long": (HttpError(400, message=TOO_LONG), Remedy.SUM_UP),
    "prompt too long after 200": (ErrorEvent(type="invalid_request_error", message=TOO_LONG), Remedy.SUM_UP),
    "no room for the response": (HttpError(400, message=NO_ROOM), Remedy.MAKE_ROOM),
    "too long, to be retried": (HttpError(400, message=TOO_LONG, headers={"x-should-retry": "true"}), Remedy.SUM_UP),
    "limit above the model's": (HttpError(400, message=TOO_HIGH), Remedy.LOWER),
    "another 400 about the limit": (HttpError(400, message="max_tokens: Field required"), Remedy.GIVE_UP),
    "words of a 500": (HttpError(500, message=TOO_LONG), Remedy.RETRY),
}


@pytest.mark.parametrize(("step", "remedy"), REMEDIED.values(), ids=REMEDIED.keys())
async def test_some_failures_have_a_remedy_of_their_own(line: Line, step: Step, remedy: Remedy) -> None:
    trouble = await line.trouble(step)
    assert trouble.remedy is remedy, trouble.message
    assert trouble.failure().non_retryable is (remedy not in (Remedy.RETRY, Remedy.FALL_BACK) or not trouble.again)


@pytest.mark.parametrize("after_events", [0, 3])
async def test_a_server_that_falls_silent_is_tried_again(hasty: Line, after_events: int) -> None:
    """Before the headers it is the SDK's own error; within a stream, the HTTP library's."""
    failure = await hasty.failure(Stall(after_events=after_events))
    assert not failure.non_retryable
    assert ("APITimeoutError" if after_events == 0 else "ReadTimeout") in failure.message


async def test_a_server_that_is_not_there_is_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        provider = Provider(f"http://127.0.0.1:{taken.getsockname()[1]}")
        try:
            with pytest.raises(Exception, match="Connection error") as raised:
                await provider.send(ASKED, lambda _: None)
        finally:
            await provider.close()
    failure = classify(raised.value).failure()
    assert not failure.non_retryable
    assert failure.message == "APIConnectionError: Connection error. (ConnectError: All connection attempts failed)"


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.5},
        {"messages": [{"role": "user", "content": "ok \ud83d"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "n": float("nan")}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": b"x"}]}]},
    ],
    ids=["unknown parameter", "surrogate", "NaN", "bytes"],
)
async def test_a_request_that_cannot_be_built_is_not_tried_again(line: Line, changes: Json) -> None:
    before = line.server.received
    with pytest.raises((TypeError, ValueError)) as raised:
        await line.provider.send({**ASKED, **changes}, lambda _: None)
    assert line.server.received == before
    assert classify(raised.value).remedy is Remedy.GIVE_UP


async def test_a_client_is_as_good_as_new_after_a_cancelled_request(line: Line) -> None:
    """R91: cancelling reaches the request in flight."""
    held = asyncio.Event()
    aborted, count = line.server.aborted, line.server.count
    request = asyncio.create_task(line.send(Reply.of("Hello", hold=held)))
    await line.server.until(lambda server: server.count == count + 1)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await line.server.until(lambda server: server.aborted == aborted + 1)
    assert (await line.send(Reply.of("Hello"))).message["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (StreamError("x"), True),
        (UnknownEvent("x"), False),
        (TimeoutError(), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), True),
        (UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "x"), False),
        (json.JSONDecodeError("x", "{", 1), True),
        (httpx2.ReadError("x"), True),
        (httpx2.RemoteProtocolError("x"), True),
        (httpx2.DecodingError("a body that is not what its encoding says"), True),
        (ValueError("x"), False),
        (TypeError("x"), False),
        (RuntimeError("x"), False),
        (AssertionError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_without_a_response_are_told_apart_by_their_kind(error: Exception, retried: bool) -> None:
    assert classify(error).remedy is (Remedy.RETRY if retried else Remedy.GIVE_UP)


# B20: when it is tried again


@pytest.mark.parametrize("status", [429, 503, 529])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "", "retry-after": "7"}, 7.0),
        ({"retry-after": "3600"}, MOST_RETRY_AFTER),
        ({"retry-after": "1e300"}, MOST_RETRY_AFTER),
        ({"retry-after": "inf"}, MOST_RETRY_AFTER),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, MOST_RETRY_AFTER),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "soon"}, None),
        ({"retry-after": "Mon, 99 Jan 2026 25:00:00 GMT"}, None),
        ({}, None),
    ],
    ids=str,
)
async def test_b20_the_servers_wish_to_wait_is_obeyed_with_a_cap(
    line: Line, status: int, headers: dict[str, str], seconds: float | None
) -> None:
    """B20: in seconds, in milliseconds, as a date; and a server can't park a task for an hour."""
    failure = await line.failure(HttpError(status, headers=headers))
    assert not failure.non_retryable
    assert failure.next_retry_delay == (None if seconds is None else timedelta(seconds=seconds))


async def test_b20_a_date_to_wait_for_is_obeyed(line: Line) -> None:
    at = datetime.now(UTC) + timedelta(seconds=100)
    failure = await line.failure(HttpError(429, headers={"retry-after": format_datetime(at, usegmt=True)}))
    assert failure.next_retry_delay is not None
    assert timedelta(seconds=80) < failure.next_retry_delay <= timedelta(seconds=100)


def test_the_cap_is_five_minutes() -> None:
    assert MOST_RETRY_AFTER == 300.0


async def test_what_is_given_up_has_no_delay(line: Line) -> None:
    failure = await line.failure(HttpError(400, headers={"retry-after": "7"}))
    assert (failure.non_retryable, failure.next_retry_delay) == (True, None)


@pytest.mark.parametrize(
    ("status", "told", "retried"),
    [(400, "true", True), (500, "false", False), (429, "false", False), (529, "true", True), (500, "maybe", True)],
)
async def test_the_servers_word_on_retrying_is_obeyed(line: Line, status: int, told: str, retried: bool) -> None:
    failure = await line.failure(HttpError(status, headers={"x-should-retry": told}))
    assert failure.non_retryable is not retried


# What people are told


async def test_r94_a_failure_names_its_kind_and_its_request(line: Line) -> None:
    failure = await line.failure(HttpError(529, message="Overloaded,\n  come back later"))
    assert failure.message.startswith("OverloadedError: ")
    assert "come back later" in failure.message
    assert "\n" not in failure.message
    assert "(request req_" in failure.message


@pytest.mark.parametrize(
    "step",
    [
        ErrorEvent(message="Overloaded"),
        CutStream(after_events=3, how=Cut.RESET),
        CutStream(after_events=3, how=Cut.CLEAN_EOF),
        NotAMessage.stream(b"event: message_start\ndata: \xff\xfe\n\n"),
        NotAMessage.stream(START + BLOCK + frame("content_block_delta", {"index": 0, "delta": {"type": "rain"}})),
        NotAMessage.html(),
    ],
    ids=["error event", "reset", "clean end", "no UTF-8", "unknown delta", "HTML"],
)
async def test_r94_an_error_within_a_stream_names_its_request_too(line: Line, step: Step) -> None:
    """Whatever raised it: the HTTP library doesn't know the id."""
    trouble = await line.trouble(step)
    assert trouble.request_id.startswith("req_")
    assert trouble.message.endswith(f"(request {trouble.request_id})")


async def test_r94_an_error_before_any_response_has_no_request_to_name(line: Line) -> None:
    trouble = await line.trouble(CutStream(after_events=0, how=Cut.RESET))
    assert (trouble.request_id, trouble.message) == ("", "APIConnectionError: Connection error. (ReadError)")


def test_a_failure_is_text_that_any_history_can_keep() -> None:
    """Half a surrogate pair would fail the activity's own failure."""
    trouble = classify(StreamError("half a pair: \ud83d"))
    assert "half a pair: \ufffd" in trouble.message


@pytest.mark.parametrize("step", [NotAMessage.html(), NotAMessage.json()], ids=["HTML", "JSON"])
async def test_an_answer_that_is_no_stream_is_told_as_such(line: Line, step: Step) -> None:
    message = (await line.failure(step)).message
    assert message.startswith("StreamError: the server's answer is not an event stream (request req_")


async def test_a_failure_stays_small_whatever_the_server_says(line: Line) -> None:
    for step in (HttpError(500, message="x" * 100_000), ErrorEvent(message="x" * 100_000)):
        assert len((await line.failure(step)).message) < 500


# The client


async def test_one_client_serves_a_whole_process(line: Line) -> None:
    clients = await asyncio.gather(*(line.provider.warm_up() for _ in range(3)))
    assert clients[0] is clients[1] is clients[2]
    assert clients[0].max_retries == 0, "B19: Temporal owns the retries"


async def test_a_provider_that_was_never_used_can_be_closed() -> None:
    await Provider("http://127.0.0.1:9").close()


async def test_a_proxy_of_the_environment_does_not_hijack_a_server_of_ours(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PROXIES:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    provider = Provider(line.server.url)
    try:
        line.script.append(Reply.of("Hello"))
        assert (await provider.send(ASKED, lambda _: None)).message["stop_reason"] == "end_turn"
    finally:
        await provider.close()


@pytest.fixture
async def sdk_settings(line: Line, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Provider]:
    """A provider that goes by the SDK's own settings, which lead to our server, and hold no key."""
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")] + ["XDG_CONFIG_HOME", *PROXIES]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", line.server.url)
    provider = Provider()
    yield provider
    await provider.close()


async def test_without_an_address_the_sdks_own_settings_decide(
    line: Line, sdk_settings: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    line.script.append(HttpError(500))
    before = line.server.received
    with pytest.raises(Exception, match="scripted error"):
        await sdk_settings.send(ASKED, lambda _: None)
    assert line.server.received == before + 1, "B19: one request here, too"


async def test_without_a_key_the_request_fails_for_good(line: Line, sdk_settings: Provider) -> None:
    before = line.server.received
    with pytest.raises(TypeError) as raised:
        await sdk_settings.send(ASKED, lambda _: None)
    assert line.server.received == before
    assert classify(raised.value).remedy is Remedy.GIVE_UP
