"""What a model can read is asked of the provider, once, by the real client; a task does without where nobody says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from settled.activities import model_provider
from settled.activities.compacting import FULL, context_of, is_full
from settled.activities.model_provider import DEFAULT_CONTEXT_TOKENS, ModelLimits, Provider
from settled.activities.roots import Root
from settled.local.messages_server import MessagesServer
from settled.workflows.contract.turn import Usage


@asynccontextmanager
async def answering(answer: web.Response | float, asked: list[str]) -> AsyncIterator[str]:
    """A server that gives this answer to everything, or none before so many seconds; notes what it was asked."""

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        assert isinstance(answer, web.Response)
        return web.Response(body=answer.body, status=answer.status, content_type=answer.content_type)

    app = web.Application()
    app.add_routes([web.get("/{path:.*}", handle)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def provider_at(url: str) -> AsyncIterator[Provider]:
    provider = Provider(url)
    try:
        yield provider
    finally:
        await provider.close()


async def test_the_provider_is_asked_once_per_model() -> None:
    async with MessagesServer([], limits={"max_input_tokens": 7_000}) as server, provider_at(server.url) as provider:
        told = await provider.limits("claude-a")
        assert told == ModelLimits(context_tokens=7_000, max_tokens=64_000)
        server._limits["max_input_tokens"] = 8_000
        assert await provider.limits("claude-a") is told
        assert (await provider.limits("claude-b")).context_tokens == 8_000


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=404, text="not here"),
        web.Response(status=500),
        web.Response(text="<html></html>", content_type="text/html"),
        web.json_response({"type": "model", "id": "m"}),
        web.json_response({"type": "model", "id": "m", "max_input_tokens": None, "max_tokens": None}),
        web.json_response({"max_input_tokens": -5, "max_tokens": "many"}),
        web.json_response([1]),
    ],
    ids=["404", "500", "html", "silent", "null", "nonsense", "a list"],
)
async def test_a_server_that_does_not_know_is_tolerated(answer: web.Response) -> None:
    """Not every gateway serves `/v1/models`; the default counts, and nobody is hammered."""
    asked: list[str] = []
    async with answering(answer, asked) as url, provider_at(url) as provider:
        for _ in range(3):
            assert await provider.limits("m") == ModelLimits()
    assert asked == ["/v1/models/m"]


async def test_a_server_that_did_not_answer_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(model_provider, "steady", lambda: now)
    async with provider_at("http://127.0.0.1:1") as provider:
        assert await provider.limits("m") == ModelLimits()
        async with MessagesServer([], limits={"max_input_tokens": 7_000}) as server:
            client: Any = await provider.warm_up()
            client.base_url = server.url
            assert await provider.limits("m") == ModelLimits()
            now += model_provider.ASK_AGAIN_SECONDS
            assert (await provider.limits("m")).context_tokens == 7_000


@pytest.mark.parametrize(
    ("usage", "full"),
    [
        (Usage(), False),
        (Usage(input_tokens=int(FULL * 1_000) - 1), False),
        (Usage(input_tokens=int(FULL * 1_000)), True),
        (Usage(input_tokens=100, cache_read_tokens=500, cache_write_tokens=100, output_tokens=99), False),
        (Usage(input_tokens=100, cache_read_tokens=500, cache_write_tokens=100, output_tokens=100), True),
    ],
)
def test_it_is_full_by_all_that_was_read_and_written(usage: Usage, full: bool) -> None:
    """The cached tokens count too: they take room like any others."""
    assert is_full(usage, 1_000) is full


@pytest.mark.parametrize(
    ("profile", "provider", "counts"),
    [
        (5_000, None, 5_000),
        (5_000, 9_000, 5_000),
        (400_000, 30_000, 30_000),
        (400_000, None, 400_000),
        (None, 9, 9),
        (None, None, DEFAULT_CONTEXT_TOKENS),
    ],
)
def test_a_profile_s_own_limit_counts_as_far_as_the_model_is_known_to_have_room(
    profile: int | None, provider: int | None, counts: int
) -> None:
    """Another model of its chain may have less; a conversation that is summed up too late can't be summed up at all."""
    root = Root(parameters={"model": "m"}, context_tokens=profile)
    assert context_of(root, ModelLimits(context_tokens=provider)) == counts
