"""R25, B10: a message that came as a stream is, byte for byte, the one that would have come as JSON.

The scripted server sends any message both ways, and the real client receives it.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from settled.activities.model_provider import Provider
from settled.local.messages_script import Reply
from settled.local.messages_server import MessagesServer

Json = dict[str, Any]
ASKED: Json = {
    "model": "claude-scripted",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Look up A1."}],
}

texts = st.text(st.characters(), max_size=20)  # halves of surrogate pairs, too
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
ids = st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=8)


def a_block(kind: str, optional: Json | None = None, **fields: Any) -> Any:
    needed: Json = {"type": st.just(kind), **fields}
    return st.fixed_dictionaries(needed, optional=optional or {})


blocks = st.one_of(
    a_block("text", {"citations": st.none() | st.lists(objects, max_size=3)}, text=texts),
    a_block("thinking", thinking=texts, signature=texts),
    a_block("redacted_thinking", data=texts),
    a_block("tool_use", {"caller": objects, "later": values}, id=ids, name=ids, input=objects),
    a_block("server_tool_use", id=ids, name=ids, input=objects),
    a_block("mcp_tool_use", id=ids, name=ids, server_name=ids, input=objects),
    a_block("web_search_tool_result", tool_use_id=ids, content=st.lists(objects, max_size=2) | objects),
    a_block("compaction", content=st.none() | texts),
    a_block("of_a_later_year", payload=values),
)
counts = st.fixed_dictionaries(
    {},
    optional={
        "input_tokens": st.integers(0, 10**6),
        "output_tokens": st.integers(0, 10**6),
        "cache_read_input_tokens": st.none() | st.integers(0, 10**6),
        "server_tool_use": st.none() | st.just({"web_search_requests": 1}),
        "service_tier": ids,
    },
)
reasons = st.sampled_from(
    [
        "tool_use",
        "end_turn",
        "stop_sequence",
        "max_tokens",
        "pause_turn",
        "refusal",
        "compaction",
        "of_a_later_year",
        None,
    ]
)
replies = st.builds(
    Reply,
    st.lists(blocks, max_size=5),
    reasons,
    counts,
    stop_sequence=st.none() | texts,
    stop_details=st.none() | objects,
)


class BothWays:
    """A real client at a server that answers each request with the reply at hand."""

    def __init__(self, server: MessagesServer, provider: Provider, hand: list[Reply]) -> None:
        self.server = server
        self.provider = provider
        self.hand = hand

    async def bodies(self, reply: Reply) -> tuple[str, str]:
        """The message as JSON, and as it was put together from the stream; under one id."""
        self.hand[:] = [reply]
        client = await self.provider.warm_up()
        plain = await client.messages.with_raw_response.create(**ASKED)
        received = await self.provider.send(ASKED, lambda _: None)
        whole = plain.http_response.text
        return whole, json.dumps({**received.message, "id": json.loads(whole)["id"]})


@pytest.fixture(scope="module")
async def both_ways() -> AsyncIterator[BothWays]:
    hand: list[Reply] = []
    async with MessagesServer(lambda _: hand[0]) as server:
        provider = Provider(server.url)
        yield BothWays(server, provider, hand)
        await provider.close()


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(replies)
@example(Reply([{"type": "tool_use", "id": "a", "name": "n", "input": {}}], "tool_use"))
@example(Reply([{"type": "text", "text": "\ud83d\ude00 \ud83d"}, {"type": "text", "text": "", "citations": []}]))
@example(Reply([], None, {"cache_read_input_tokens": None}))
async def test_r25_b10_a_streamed_message_equals_the_plain_one_byte_for_byte(both_ways: BothWays, reply: Reply) -> None:
    plain, streamed = await both_ways.bodies(reply)
    assert streamed == plain
