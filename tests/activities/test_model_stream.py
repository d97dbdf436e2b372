"""From raw events to the message: nothing is repaired, nothing is dropped, and a cut stream is no message."""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settled.activities.model_stream import (
    DELTAS,
    FIXED,
    RETURNED_REASONS,
    RUNNING_REASONS,
    Accumulator,
    StreamError,
    UnknownEvent,
)
from settled.local.messages_script import Reply, thinking, tool_use
from settled.local.messages_wire import events

Json = dict[str, Any]
Event = tuple[str, Json]
START: Event = (
    "message_start",
    {
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "stop_reason": None,
            "stop_details": None,
            "usage": {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 3},
        }
    },
)
STOP: Event = ("message_stop", {})
REASONS = [
    "tool_use",
    "end_turn",
    "stop_sequence",
    "max_tokens",
    "pause_turn",
    "compaction",
    "refusal",
    "of_a_later_year",
]


def ended(reason: Any = "end_turn", **more: Any) -> Event:
    return "message_delta", {"delta": {"stop_reason": reason, **more}, "usage": {"output_tokens": 9}}


def block(start: Json, *deltas: Json, index: int = 0) -> list[Event]:
    return [
        ("content_block_start", {"index": index, "content_block": start}),
        *(("content_block_delta", {"index": index, "delta": delta}) for delta in deltas),
        ("content_block_stop", {"index": index}),
    ]


def text(*pieces: str, index: int = 0) -> list[Event]:
    return block({"type": "text", "text": ""}, *({"type": "text_delta", "text": it} for it in pieces), index=index)


def called(*pieces: str, index: int = 0) -> list[Event]:
    start = {"type": "tool_use", "id": "a", "name": "look_up", "input": {}}
    return block(start, *({"type": "input_json_delta", "partial_json": it} for it in pieces), index=index)


def taken(stream: Sequence[Event]) -> Accumulator:
    accumulator = Accumulator()
    for name, data in stream:
        accumulator.take(name, json.dumps({"type": name, **data}))
    return accumulator


def message(*stream: Event) -> Json:
    return taken(stream).finish()


def content(*stream: Event, reason: str = "end_turn") -> list[Json]:
    blocks: list[Json] = message(START, *stream, ended(reason), STOP)["content"]
    return blocks


# Whole messages


def test_a_message_is_put_together_as_it_was_sent() -> None:
    whole = message(START, *text("There ", "are 3."), ended("stop_sequence", stop_sequence="X", later=[1]), STOP)
    assert whole == {
        **START[1]["message"],
        "content": [{"type": "text", "text": "There are 3."}],
        "stop_reason": "stop_sequence",
        "stop_sequence": "X",
        "later": [1],
        "usage": {"input_tokens": 7, "output_tokens": 9, "cache_read_input_tokens": 3},
    }


def test_counts_that_the_end_does_not_know_stay_as_the_start_said_them() -> None:
    end = ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": None, "output_tokens": 9}})
    assert message(START, end, STOP)["usage"] == {
        "input_tokens": 7,
        "output_tokens": 9,
        "cache_read_input_tokens": 3,
    }


def test_r25_thinking_keeps_its_text_and_its_signature() -> None:
    blocks = content(
        *block(
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "H"},
            {"type": "thinking_delta", "thinking": "m."},
            {"type": "signature_delta", "signature": "sig"},
        ),
        *block(
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "signature_delta", "signature": "s2"},
            index=1,
        ),
    )
    assert blocks == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "thinking", "thinking": "", "signature": "s2"},
    ]


def test_r25_blocks_that_are_whole_at_their_start_are_kept_as_they_are() -> None:
    given_blocks: list[Json] = [
        {"type": "redacted_thinking", "data": "b64=="},
        {"type": "of_a_later_year", "payload": {"a": [None, 1.5]}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "whole"},
    ]
    made = [event for index, one in enumerate(given_blocks) for event in block(one, index=index)]
    assert content(*made) == given_blocks


def test_citations_are_kept_in_their_order() -> None:
    cited: list[Json] = [{"type": "char_location", "cited_text": str(n)} for n in range(3)]
    starts: list[Json] = [{"citations": []}, {"citations": None}, {}]
    for start in starts:
        (made,) = content(
            *block(
                {"type": "text", "text": "", **start},
                *({"type": "citations_delta", "citation": it} for it in cited),
                {"type": "text_delta", "text": "x"},
            )
        )
        assert made == {"type": "text", "text": "x", "citations": cited}


def test_a_call_without_input_events_has_the_input_of_its_start() -> None:
    for pieces in ([], [""], ["", ""]):
        assert content(*called(*pieces), reason="tool_use")[0]["input"] == {}


def test_r20_the_input_of_a_call_is_put_together_from_its_pieces() -> None:
    (made,) = content(*called("", '{"sku": "A', '1", "n', '": [1, ', "2.50]}"), reason="tool_use")
    assert made == {"type": "tool_use", "id": "a", "name": "look_up", "input": {"sku": "A1", "n": [1, 2.5]}}


def test_r20_inputs_of_several_calls_do_not_mix() -> None:
    """Also where their pieces come in turns."""
    start = {"type": "tool_use", "name": "look_up", "input": {}}
    piece = {"type": "input_json_delta"}
    made = content(
        ("content_block_start", {"index": 0, "content_block": {**start, "id": "a"}}),
        ("content_block_start", {"index": 1, "content_block": {**start, "id": "b"}}),
        ("content_block_delta", {"index": 0, "delta": {**piece, "partial_json": '{"n":'}}),
        ("content_block_delta", {"index": 1, "delta": {**piece, "partial_json": '{"n":2'}}),
        ("content_block_delta", {"index": 0, "delta": {**piece, "partial_json": "1}"}}),
        ("content_block_stop", {"index": 0}),
        ("content_block_delta", {"index": 1, "delta": {**piece, "partial_json": "}"}}),
        ("content_block_stop", {"index": 1}),
        reason="tool_use",
    )
    assert [one["input"] for one in made] == [{"n": 1}, {"n": 2}]


def cuts(whole: str, places: Sequence[int]) -> Iterator[str]:
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return (whole[start:end] for start, end in pairwise(edges))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(deadline=None)
@given(
    st.dictionaries(st.text(), json_values, max_size=4), st.lists(st.integers(0, 10_000), max_size=12), st.booleans()
)
def test_r20_an_input_may_be_cut_anywhere_within_strings_and_characters(
    value: Json, places: list[int], ascii_only: bool
) -> None:
    """Pieces end within strings, escapes and surrogate pairs; the arguments are those that the model wrote."""
    whole = json.dumps(value, ensure_ascii=ascii_only)
    assert content(*called(*cuts(whole, places)), reason="tool_use")[0]["input"] == value


@settings(deadline=None)
@given(st.text(), st.lists(st.integers(0, 10_000), max_size=12))
def test_a_text_may_be_cut_anywhere(said: str, places: list[int]) -> None:
    assert content(*text(*cuts(said, places)))[0]["text"] == said


def test_r25_what_the_scripted_server_sends_is_what_is_received() -> None:
    blocks: list[Json] = [
        thinking("I think \U0001f600."),
        thinking(""),
        {"type": "text", "text": "caf\u00e9", "citations": [{"cited_text": "x"}]},
        tool_use("look_up", {"sku": "A\u20281", "deep": {"list": [1, "\u00e9", None]}}),
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": "a"}},
        {"type": "redacted_thinking", "data": "x"},
    ]
    made = message(*((name, dict(data)) for name, data in events(Reply.of(*blocks), {"model": "m", "messages": []})))
    assert made["content"] == blocks
    assert made["stop_reason"] == "tool_use"


# What is passed over, and what isn't


def test_pings_and_events_of_a_later_year_belong_to_no_message() -> None:
    noise: list[Event] = [("ping", {}), ("weather", {"index": 0, "delta": {"type": "rain"}})]
    made = content(*noise, *(event for one in text("a", "b") for event in (one, *noise)))
    assert made == [{"type": "text", "text": "ab"}]


def test_an_event_that_is_passed_over_is_not_even_read() -> None:
    accumulator = taken([START])
    accumulator.take("ping", "")
    accumulator.take("weather", "{not JSON")
    assert accumulator.message == START[1]["message"]


def test_a_delta_of_an_unknown_kind_fails_loudly() -> None:
    """It changes the message in a way that we would lose, and the provider refuses a message that was changed."""
    with pytest.raises(UnknownEvent, match="'rain_delta'"):
        taken([START, *block({"type": "text", "text": ""}, {"type": "rain_delta", "rain": 1})])
    assert not issubclass(UnknownEvent, StreamError), "a retry brings the same again"


@pytest.mark.parametrize(
    ("start", "delta"),
    [
        ({"type": "text", "text": ""}, {"type": "input_json_delta", "partial_json": '{"n": 1}'}),
        ({"type": "thinking", "thinking": ""}, {"type": "input_json_delta", "partial_json": ""}),
        ({"type": "of_a_later_year"}, {"type": "input_json_delta", "partial_json": "{"}),
        ({"type": "tool_use", "id": "a", "name": "look_up", "input": {}}, {"type": "text_delta", "text": "x"}),
        ({"type": "server_tool_use", "id": "a", "name": "n", "input": {}}, {"type": "thinking_delta", "thinking": "x"}),
    ],
    ids=lambda value: value["type"],
)
def test_r25_a_delta_in_a_block_that_it_can_t_be_of_fails_loudly(start: Json, delta: Json) -> None:
    """An input in a text would be kept as one, and sent back."""
    with pytest.raises(UnknownEvent, match=f"'{delta['type']}' in a block of the type '{start['type']}'"):
        taken([START, *block(start, delta)])


@pytest.mark.parametrize("name", sorted(FIXED))
def test_r25_the_end_of_a_message_does_not_change_what_was_received(name: str) -> None:
    """Else calls could come in whole that never came as blocks."""
    call = {"type": "tool_use", "id": "a", "name": "reserve", "input": {}}
    value = [call] if name == "content" else "x"
    with pytest.raises(UnknownEvent, match=f"changes its {name}"):
        message(START, *text("Hello"), ended("tool_use", **{name: value}), STOP)
    kind, data = ended("tool_use")
    if name != "type":  # beside the delta this is the event's own
        with pytest.raises(UnknownEvent, match=f"changes its {name}"):
            message(START, *text("Hello"), (kind, {**data, name: value}), STOP)


def test_a_long_text_is_put_together_in_time_that_grows_with_its_length() -> None:
    """A megabyte in pieces of four characters; a text that was copied with each would take minutes."""
    accumulator = taken([START, block({"type": "thinking", "thinking": ""})[0]])
    piece = json.dumps({"index": 0, "delta": {"type": "thinking_delta", "thinking": "abcd"}})
    began = time.process_time()
    for number in range(250_000):
        accumulator.take("content_block_delta", piece)
        if number % 25_000 == 0:
            watched = accumulator.message  # people who watch see what has come
            assert watched is not None
            assert len(watched["content"][0]["thinking"]) == accumulator.characters == 4 * (number + 1)
    accumulator.take("content_block_stop", '{"index": 0}')
    seconds = time.process_time() - began
    assert accumulator.message is not None
    assert accumulator.message["content"][0]["thinking"] == "abcd" * 250_000
    assert seconds < 3.0, "0.6 s on a slow machine"


def test_the_known_deltas_are_those_of_the_facts() -> None:
    assert DELTAS.keys() == {
        "text_delta",
        "thinking_delta",
        "signature_delta",
        "citations_delta",
        "input_json_delta",
    }


# B21: streams that end too early

WHOLE: list[Event] = [START, *text("Hello"), *called('{"n": 1}', index=1), ended("tool_use"), STOP]


@pytest.mark.parametrize("count", range(len(WHOLE)))
def test_b21_a_stream_that_ends_anywhere_before_its_end_brings_no_message(count: int) -> None:
    """B21: the SDK's own helper returns the half of it without a word."""
    assert message(*WHOLE)["stop_reason"] == "tool_use"
    with pytest.raises(StreamError, match="ended before the message did"):
        taken(WHOLE[:count]).finish()


@pytest.mark.parametrize("end", [[], [("message_delta", {"delta": {}, "usage": {}})]], ids=str)
def test_a_message_without_a_stop_reason_is_not_whole(end: list[Event]) -> None:
    with pytest.raises(StreamError, match="no stop reason"):
        message(START, *text("Hello"), *end, STOP)


@pytest.mark.parametrize("reason", [None, 7, ["tool_use"], ""], ids=str)
def test_r28_a_stop_reason_that_is_none_is_kept_as_the_provider_gave_it(reason: Any) -> None:
    """The message is whole, so that its record is kept; the stop table ends the task."""
    assert message(START, *called('{"n":'), ended(reason), STOP)["stop_reason"] == reason


def test_r25_what_stands_beside_the_delta_is_the_message_s() -> None:
    name, data = ended("end_turn")
    made = message(START, (name, {**data, "type": name, "context_management": {"applied_edits": []}}), STOP)
    assert made["context_management"] == {"applied_edits": []}
    assert "type" not in made or made["type"] == "message"


def test_r25_a_count_that_is_null_is_kept_where_there_was_none() -> None:
    end = ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"server_tool_use": None}})
    assert message(START, end, STOP)["usage"]["server_tool_use"] is None


@pytest.mark.parametrize("said", [None, {}, {"input_tokens": None}, {"output_tokens": None}], ids=str)
def test_r52_the_start_s_count_of_what_was_written_is_none_of_the_whole(said: Json | None) -> None:
    """A response whose end doesn't say it would have cost next to nothing, and be none of unknown cost."""
    end = ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": said})
    usage = message(START, *text("Hello"), end, STOP)["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (7, None)
    assert message(START, ended(), end, STOP)["usage"]["output_tokens"] == 9, "an end that said it stands"


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("missing", [0, 1], ids=["text", "call"])
def test_a_block_that_never_stopped_is_not_whole(reason: str, missing: int) -> None:
    """A call without input events would run with the empty input of its start."""
    stream = [*text("Hello"), *called(index=1)]
    stream = [event for event in stream if event != ("content_block_stop", {"index": missing})]
    with pytest.raises(StreamError, match="within a block"):
        message(START, *stream, ended(reason), STOP)


CUT_INPUTS = [
    '{"city":"Oslo","un',
    '{"city":"Oslo"',
    '{"city":"Os',
    "{",
    '{"n": 1}}',
    "nonsense",
    '{"n": NaN}',
    '{"n": 1e999}',
    "[" * 100_000,
]


@pytest.mark.parametrize("written", CUT_INPUTS, ids=lambda written: written[:20])
@pytest.mark.parametrize("reason", REASONS)
def test_b16_a_cut_input_is_never_repaired(reason: str, written: str) -> None:
    """B16: with a reason that runs calls, or sends the content back, the attempt failed.

    With another the message stands, and nothing of it runs.

    NaN and infinities are cut here too: no request could send them back.
    """
    stream = [START, *called(written), ended(reason), STOP]
    if reason in RUNNING_REASONS | RETURNED_REASONS:
        with pytest.raises(StreamError, match="within a tool's input"):
            message(*stream)
    else:
        made = message(*stream)
        assert made["content"][0]["input"] == {}
        assert made["stop_reason"] == reason


def test_b16_one_cut_input_among_whole_ones_is_enough() -> None:
    with pytest.raises(StreamError, match="within a tool's input"):
        content(*called('{"n": 1}'), *called('{"n":', index=1), *called('{"n": 3}', index=2), reason="tool_use")


@pytest.mark.parametrize("reason", sorted(RUNNING_REASONS | RETURNED_REASONS))
@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use", "mcp_tool_use"])
def test_b16_r25_a_cut_input_never_goes_back_as_an_empty_one(kind: str, reason: str) -> None:
    """B16, R25: a paused call of the provider's would go on with an input that nobody wrote."""
    start = {"type": kind, "id": "a", "name": "web_search", "input": {}}
    cut = block(start, {"type": "input_json_delta", "partial_json": '{"query":"A'})
    with pytest.raises(StreamError, match="within a tool's input"):
        content(*cut, reason=reason)


def test_the_reasons_are_those_of_the_stop_table() -> None:
    from settled.activities.stop_table import TABLE, Content, Step

    assert {reason for reason, row in TABLE.items() if row[Content.CALLS] is Step.RUN} == RUNNING_REASONS
    assert {reason for reason, row in TABLE.items() if row[Content.WORDS] is Step.SEND_BACK} == RETURNED_REASONS


# Malformed streams

MALFORMED: dict[str, tuple[list[Event], str, str]] = {
    "not JSON": ([START], "content_block_start", "{"),
    "JSON of no object": ([START], "content_block_start", "[1]"),
    "null": ([START], "message_delta", "null"),
    "empty": ([START], "message_stop", ""),
    "a second message": ([START], START[0], json.dumps(START[1])),
    "no message": ([], "message_start", "{}"),
    "a message that is no object": ([], "message_start", '{"message": 5}'),
    "a message without content": ([], "message_start", '{"message": {"type": "message"}}'),
    "a message whose content is no list": ([], "message_start", '{"message": {"type": "message", "content": null}}'),
    "a message whose content is no block": ([], "message_start", '{"message": {"content": ["text"]}}'),
    "a block before the message": ([], "content_block_start", '{"index": 0, "content_block": {"type": "text"}}'),
    "an end before the message": ([], "message_delta", '{"delta": {"stop_reason": "end_turn"}}'),
    "a stop before the message": ([], "message_stop", "{}"),
    "a block out of order": ([START], "content_block_start", '{"index": 1, "content_block": {"type": "text"}}'),
    "a block twice": ([START, *text("a")], "content_block_start", '{"index": 0, "content_block": {"type": "text"}}'),
    "a block that is no object": ([START], "content_block_start", '{"index": 0, "content_block": 5}'),
    "a block without a type": ([START], "content_block_start", '{"index": 0, "content_block": {"text": ""}}'),
    "a delta for no block": (
        [START],
        "content_block_delta",
        '{"index": 0, "delta": {"type": "text_delta", "text": ""}}',
    ),
    "a delta for the last block but one from behind": (
        [START, *text("a")[:-1]],
        "content_block_delta",
        '{"index": -1, "delta": {"type": "text_delta", "text": ""}}',
    ),
    "a delta after the block's stop": (
        [START, *text("a")],
        "content_block_delta",
        '{"index": 0, "delta": {"type": "text_delta", "text": "b"}}',
    ),
    "a delta without a kind": ([START, *text("a")[:-1]], "content_block_delta", '{"index": 0, "delta": {"text": ""}}'),
    "a delta without its text": (
        [START, *text("a")[:-1]],
        "content_block_delta",
        '{"index": 0, "delta": {"type": "text_delta"}}',
    ),
    "a delta whose text is a number": (
        [START, *text("a")[:-1]],
        "content_block_delta",
        '{"index": 0, "delta": {"type": "text_delta", "text": 5}}',
    ),
    "an input piece that is a number": (
        [START, *called()[:-1]],
        "content_block_delta",
        '{"index": 0, "delta": {"type": "input_json_delta", "partial_json": 5}}',
    ),
    "words on a text that is none": (
        [START, block({"type": "text", "text": 7})[0]],
        "content_block_delta",
        '{"index": 0, "delta": {"type": "text_delta", "text": "x"}}',
    ),
    "a stop of no block": ([START], "content_block_stop", '{"index": 0}'),
    "a stop of a block twice": ([START, *text("a")], "content_block_stop", '{"index": 0}'),
}


@pytest.mark.parametrize(("before", "name", "data"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_stream_is_a_failed_attempt(before: list[Event], name: str, data: str) -> None:
    """Whatever it is: an error of its own kind, so that the attempt is retried."""
    accumulator = taken(before)
    with pytest.raises(StreamError, match=f"malformed {name} event"):
        accumulator.take(name, data)


# What people who watch see


def test_r31_progress_counts_the_characters_of_text_and_of_inputs() -> None:
    accumulator = Accumulator()
    assert accumulator.characters == 0
    seen = []
    for name, data in [START, *text("ab", "c"), *called('{"n": 1}', index=1), *text("de", index=2)]:
        accumulator.take(name, json.dumps(data))
        seen.append(accumulator.characters)
    assert seen == [0, 0, 2, 3, 3, 3, 11, 11, 11, 13, 13]
