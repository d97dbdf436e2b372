"""R31: what a person sees of a model request that streams, step by step."""

from __future__ import annotations

import json
from typing import Any

from settled.activities.model_stream import Accumulator
from settled.activities.progress import ModelProgress

START = ("message_start", {"message": {"content": [], "usage": {"input_tokens": 7, "output_tokens": 1}}})


def starts(index: int, **block: Any) -> tuple[str, dict[str, Any]]:
    """A block begins."""
    return "content_block_start", {"index": index, "content_block": block}


def goes_on(index: int, **delta: Any) -> tuple[str, dict[str, Any]]:
    """A block gets longer."""
    return "content_block_delta", {"index": index, "delta": delta}


STOPS = [("content_block_stop", {"index": index}) for index in range(3)]


def seen_after(*events: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """The details once these events have arrived."""
    progress, arriving = ModelProgress("claude-x", 2), Accumulator()
    progress.watch(arriving)
    for name, data in events:
        arriving.take(name, json.dumps(data))
    return progress.details()


def test_r31_before_anything_has_arrived_model_and_attempt_are_known() -> None:
    asked = {"model": "claude-x", "attempt": 2, "characters": 0}
    assert ModelProgress("claude-x", 2).details() == asked
    assert seen_after() == asked
    assert seen_after(START) == asked | {"output_tokens": 1}


def test_r31_text_is_seen_while_it_is_written_as_far_as_its_last_200_characters() -> None:
    whole = "".join(chr(97 + n % 26) for n in range(500))
    text = (starts(0, type="text", text=""), goes_on(0, type="text_delta", text=whole))
    assert seen_after(START, *text) == {
        "model": "claude-x",
        "attempt": 2,
        "characters": 500,
        "output_tokens": 1,
        "text": whole[-200:],
    }


def test_r31_the_tool_is_seen_whose_input_is_being_written_and_no_other() -> None:
    text = (starts(0, type="text", text="Hm."), STOPS[0])
    call = (
        starts(1, type="tool_use", id="a", name="look_up", input={}),
        goes_on(1, type="input_json_delta", partial_json='{"s'),
    )
    seen = seen_after(START, *text, *call)
    assert (seen["tool"], seen["text"], seen["characters"]) == ("look_up", "Hm.", 6)
    assert "tool" not in seen_after(START, *text, *call, STOPS[1])
    server = starts(2, type="server_tool_use", id="b", name="web_search", input={})
    assert seen_after(START, *text, *call, STOPS[1], server)["tool"] == "web_search"


def test_r31_thoughts_are_counted_and_not_shown() -> None:
    thought = (
        starts(0, type="thinking", thinking="", signature=""),
        goes_on(0, type="thinking_delta", thinking="secret"),
    )
    seen = seen_after(START, *thought)
    assert seen["characters"] == 6
    assert "secret" not in json.dumps(seen)


def test_r31_the_tokens_are_those_that_the_provider_has_told_last() -> None:
    told = ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 42}})
    assert seen_after(START, told)["output_tokens"] == 42


def test_what_is_seen_can_stand_in_a_heartbeat_whatever_arrives() -> None:
    """Half a surrogate pair, a name that is none, blocks of a later year."""
    odd = (
        starts(0, type="text", text="\ud800"),
        STOPS[0],
        starts(1, type="of_a_later_year", text=5),
        STOPS[1],
        starts(2, type="tool_use", name=["x"] * 100),
    )
    json.dumps(seen_after(START, *odd), ensure_ascii=False).encode()
    assert len(seen_after(START, *odd)["tool"]) <= 64


def halves(*texts: str, stops: bool = False) -> str:
    """The text that readers are given of these deltas."""
    progress, arriving = ModelProgress("claude-x", 1), Accumulator()
    progress.watch(arriving)
    events = [START, starts(0, type="text", text=""), *(goes_on(0, type="text_delta", text=text) for text in texts)]
    for name, data in [*events, *([STOPS[0], ("message_stop", {})] if stops else [])]:
        arriving.take(name, json.dumps(data))
    return progress.text()


def test_a_character_that_comes_in_two_halves_is_shown_once_it_is_whole() -> None:
    assert halves("Hm \ud83d") == "Hm "
    assert halves("Hm \ud83d", "\ude00 ok") == "Hm \N{GRINNING FACE} ok"
    assert halves("\ud83d", "Hm \ude00") == "\ud83dHm \ude00", "halves without another one stay, as they came"
    assert halves("Hm \ud83d", stops=True) == "Hm \ud83d"


def test_the_stop_reason_is_known_once_the_model_has_said_it() -> None:
    progress, arriving = ModelProgress("claude-x", 1), Accumulator()
    assert progress.stop_reason() is None
    progress.watch(arriving)
    for reason, told in (("refusal", "refusal"), (None, None), (["x"], None), ("x" * 100, "x" * 64)):
        for name, data in (START, ("message_delta", {"delta": {"stop_reason": reason}})):
            if name != "message_start" or arriving.message is None:
                arriving.take(name, json.dumps(data))
        assert progress.stop_reason() == told
