"""The scripted server's prompt cache: what a request begins with, and was read before, is read from the cache."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from settled.local.messages_cache import PromptCache, input_tokens

MARK = {"cache_control": {"type": "ephemeral"}}
COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def asked(*texts: str, **more: Any) -> dict[str, Any]:
    """A request whose messages hold these texts."""
    roles = ("user", "assistant")
    messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return {"model": "m", "system": "You are the clerk.", "messages": messages, **MARK, **more}


def counts(cache: PromptCache, body: dict[str, Any]) -> tuple[int, ...]:
    """New, written to the cache, read from it."""
    read = cache.read(body)
    assert tuple(read) == COUNTS
    return tuple(read.values())


def test_what_was_read_before_is_read_from_the_cache() -> None:
    cache, first, second = PromptCache(), asked("hello " * 50), asked("hello " * 50, "yes?", "more " * 20)
    assert counts(cache, first) == (0, input_tokens(first), 0)
    assert counts(cache, second) == (0, input_tokens(second) - input_tokens(first), input_tokens(first))
    assert counts(cache, second) == (0, 0, input_tokens(second))


def test_nothing_is_cached_unless_it_is_asked_for() -> None:
    cache, body = PromptCache(), asked("hello")
    del body["cache_control"]
    assert counts(cache, body) == counts(cache, body) == (input_tokens(body), 0, 0)
    assert counts(cache, asked("hello"))[2] == 0


@pytest.mark.parametrize(
    "other",
    [
        asked("hello", "yes?", "more", model="n"),
        asked("hello", "yes?", "more", system="You are the Clerk."),
        asked("hello", "yes?", "more", tools=[{"name": "look", "input_schema": {"type": "object"}}]),
        asked("Hello", "yes?", "more"),
    ],
    ids=["model", "system", "tools", "message"],
)
def test_r6_a_byte_that_differs_before_it_makes_all_of_it_new(other: dict[str, Any]) -> None:
    cache = PromptCache()
    cache.read(asked("hello"))
    assert counts(cache, other)[2] == 0


def test_limits_and_marks_do_not_matter() -> None:
    cache = PromptCache()
    cache.read(asked("hello", max_tokens=5))
    assert counts(cache, asked("hello", max_tokens=50, stream=True))[2] > 0


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), max_size=12))
def test_the_parts_are_always_the_whole(requests: list[list[str]]) -> None:
    cache = PromptCache()
    for texts in requests:
        body = asked(*texts)
        assert sum(counts(cache, body)) == input_tokens(body)
        assert min(counts(cache, body)) >= 0
