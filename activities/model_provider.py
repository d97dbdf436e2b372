"""The one place that talks to the model provider, through the real SDK's async client.

The SDK takes seconds to import, so it is imported when the first request is made (or the worker warms up), in a thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from settled.activities.model_stream import Accumulator, StreamError
from settled.activities.steady import steady
from settled.activities.tool_http import trusted

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

log = logging.getLogger(__name__)

DEFAULT_CONTEXT_TOKENS = 200_000
"""What a model can read, where the provider doesn't say so."""
LIMITS_SECONDS = 10.0
"""How long the provider may take to say what a model can do."""
ASK_AGAIN_SECONDS = 600.0
"""When it is asked again after it did not say so."""
REST_SECONDS = 0.25
"""How long a stream may take to end after its message has: then its connection serves the next request."""
MOST_TOKENS = 10**12
"""A count above it is nonsense, and none that can be reckoned with."""


@dataclass(frozen=True, kw_only=True)
class ModelLimits:
    """What a model can do, as the provider says."""

    context_tokens: int | None = None
    """Tokens that a request may have; none if that isn't known."""
    max_tokens: int | None = None
    """Tokens that a response may have; none if that isn't known."""


@dataclass(frozen=True, kw_only=True)
class Received:
    """A response, as received."""

    message: dict[str, Any]
    request_id: str


class Provider:
    """The Messages API.

    Args:
        url: another server that speaks the API, such as the scripted one; none: the SDK's own settings decide.
    """

    def __init__(self, url: str | None = None) -> None:
        self._url = url
        self._client: AsyncAnthropic | None = None
        self._lock = asyncio.Lock()
        self._limits: dict[str, ModelLimits] = {}
        self._silent_until: dict[str, float] = {}
        self._most: dict[str, int] = {}
        """The tokens that a response may have, where a model has refused more."""

    async def warm_up(self) -> AsyncAnthropic:
        """The client; made once per process."""
        async with self._lock:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)
            return self._client

    async def send(self, parameters: dict[str, Any], progress: Callable[[Accumulator], None]) -> Received:
        """Make one request, and read its stream to the end.

        Args:
            parameters: of the Messages API, without `stream`.
            progress: shown what has arrived, each time that there is more of it.

        Raises:
            StreamError: the stream did not bring a whole message.
            Exception: what the SDK raises; see `settled.activities.model_errors`.
        """
        from anthropic import AsyncStream

        client = await self.warm_up()
        accumulator = Accumulator()
        async with client.messages.with_streaming_response.create(**parameters, stream=True) as response:
            request_id = response.headers.get("request-id", "")
            with _naming(request_id):
                if "text/event-stream" not in response.headers.get("content-type", ""):
                    raise StreamError("the server's answer is not an event stream")
                events = AsyncStream.raw_events(response.http_response)
                async for event in events:
                    if event.event == "error":
                        raise _stream_error(event.data, response.http_response)
                    if event.event:
                        accumulator.take(event.event, event.data)
                        progress(accumulator)
                    if accumulator.stopped:
                        break
                await _rest_of(events)
                return Received(message=_checked(accumulator.finish()), request_id=request_id)

    async def limits(self, model: str) -> ModelLimits:
        """What the model can do; asked once per process.

        Not every server that speaks the Messages API knows. Then the default counts, and it is asked again later.
        """
        told = await self._told(model)
        most = self.most_tokens(model)
        return told if most is None else replace(told, max_tokens=min(most, told.max_tokens or most))

    def learn(self, model: str, max_tokens: int) -> None:
        """Take note of what the model allows, as it said when it was asked for more."""
        self._most[model] = min(max_tokens, self._most.get(model, max_tokens))

    def most_tokens(self, model: str) -> int | None:
        """Tokens that a response may have, if the model has said so by refusing more; none: it hasn't."""
        return self._most.get(model)

    async def _told(self, model: str) -> ModelLimits:
        known = self._limits.get(model)
        if known is not None:
            return known
        if steady() >= self._silent_until.get(model, 0.0):
            client = await self.warm_up()
            try:
                told = await client.models.retrieve(model, timeout=LIMITS_SECONDS)
                self._limits[model] = ModelLimits(
                    context_tokens=_count(told.max_input_tokens),
                    max_tokens=_count(told.max_tokens),
                )
                return self._limits[model]
            # Whatever it is (no such path, no such model, no answer, no model in it), the task can do without.
            except Exception as error:
                log.warning("the limits of %s are not known, so the default counts: %r", model, error)
                self._silent_until[model] = steady() + ASK_AGAIN_SECONDS
        return ModelLimits()

    async def close(self) -> None:
        """Give back the connections."""
        if self._client is not None:
            await self._client.close()

    def _connect(self) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        if self._url is None:
            return AsyncAnthropic(max_retries=0)
        # A proxy variable of the environment would hijack a loopback address.
        http = DefaultAsyncHttpxClient(trust_env=False, verify=trusted())
        return AsyncAnthropic(api_key="local", base_url=self._url, max_retries=0, http_client=http)


@contextmanager
def _naming(request_id: str) -> Iterator[None]:
    """Errors within a stream get the id of its request: they come from the HTTP library, which doesn't know it."""
    try:
        yield
    except Exception as error:
        vars(error).setdefault("request_id", request_id)
        raise


async def _rest_of(events: AsyncIterator[Any]) -> None:
    """Let a stream end whose message is whole. Whatever comes of that, the request has its response."""
    with suppress(Exception):
        async with asyncio.timeout(REST_SECONDS):
            async for _ in events:
                pass


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= MOST_TOKENS else None


def _checked(message: dict[str, Any]) -> dict[str, Any]:
    blocks = message.get("content")
    if message.get("type") != "message" or not isinstance(blocks, list):
        raise StreamError("the server's answer is not a message")
    if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks):
        raise StreamError("the message holds something that is not a content block")
    return message


def _stream_error(data: str, response: Any) -> Exception:
    """The SDK's own error for an `error` event, which comes with status 200 and is told apart by its type."""
    from anthropic import APIStatusError

    try:
        body: object = json.loads(data)
    except ValueError:
        return StreamError(f"an error event that is not JSON: {data[:200]}")
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("type"), str):
        return StreamError(f"an error event that says nothing: {data[:200]}")
    return APIStatusError(str(body)[:300], response=response, body=body)
