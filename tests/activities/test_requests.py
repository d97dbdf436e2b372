"""R90: a request that is composed again is byte for byte what the real client sends."""

from __future__ import annotations

import inspect
import json
import re

import pytest
from aiohttp import web

from settled.activities.agents import AgentProfile
from settled.activities.model_provider import Provider
from settled.activities.registry import discover
from settled.activities.requests import ORDER, body_of
from settled.activities.roots import root_of

FULL = AgentProfile.model_validate_json(
    json.dumps(
        {
            "model": "claude-a",
            "system": 'Be brief \N{SNOWMAN} <&> \\ "\u2028\u0007.',
            "max_tokens": 4000,
            "effort": "low",
            "thinking": {"type": "enabled", "budget_tokens": 2000},
            "tools": ["lookup_stock", "reserve_stock"],
        }
    )
)


async def test_r90_the_body_is_what_the_real_client_sends_byte_for_byte() -> None:
    """With every parameter that a profile can lead to, in whatever order they are handed over."""
    received: list[bytes] = []

    async def refuse(request: web.Request) -> web.Response:
        received.append(await request.read())
        return web.json_response(
            {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, status=400
        )

    app = web.Application()
    app.add_routes([web.post("/v1/messages", refuse)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider = Provider(f"http://127.0.0.1:{runner.addresses[0][1]}")
    said = [{"type": "text", "text": "1.0 \x7f \N{GRINNING FACE}"}]
    called = [{"type": "tool_use", "id": "toolu_1", "name": "n", "input": {"z": 1.0, "a": 10**20, "e": 1e-7}}]
    messages = [{"role": "user", "content": said}, {"role": "assistant", "content": called}]
    parameters = {**root_of(FULL, discover(), FULL.tools).parameters, "messages": messages}
    backwards = dict(reversed(parameters.items()))
    try:
        for given in (parameters, backwards):
            with pytest.raises(Exception, match="no"):
                await provider.send(given, lambda _: None)
    finally:
        await provider.close()
        await runner.cleanup()
    assert set(parameters) > {"output_config", "thinking", "tools", "cache_control"}
    assert received == [body_of(parameters), body_of(backwards)]
    assert received[0] == received[1]


def test_the_order_of_the_fields_is_the_sdks() -> None:
    """A field that a later SDK writes elsewhere is seen here, and not by whoever reads a transcript."""
    from anthropic.resources.messages import messages

    source = inspect.getsource(messages.AsyncMessages)
    start = source.index('"max_tokens": max_tokens')
    written = re.findall(r'"(\w+)": \w+,', source[start : source.index("},", start)])
    assert tuple(written) == ORDER
