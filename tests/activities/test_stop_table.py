"""R8: what a response means, by its stop reason and its content together, over the whole matrix."""

from itertools import product
from typing import Any

import pytest

from settled.activities.stop_table import MOST_RESENDS, TABLE, Content, Run, judge, kind_of
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.turn import End, Resend

Json = dict[str, Any]
CALL: Json = {"type": "tool_use", "id": "a", "name": "look_up", "input": {}}
WORDS: Json = {"type": "text", "text": "There are 3."}
BLANK: Json = {"type": "text", "text": " \n"}
THINKING: Json = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
SERVER: Json = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
UNKNOWN: Json = {"type": "of_a_later_year", "text": "words"}

HOLDS_CALLS = [
    [CALL],
    [WORDS, CALL],
    [CALL, WORDS],
    [THINKING, BLANK, CALL, CALL],
    [SERVER, CALL],
]
HOLDS_WORDS = [[WORDS], [THINKING, WORDS], [BLANK, WORDS], [SERVER, WORDS], [WORDS, UNKNOWN]]
HOLDS_NOTHING: list[list[Json]] = [
    [],
    [BLANK],
    [{"type": "text", "text": ""}],
    [{"type": "text", "text": None}],
    [{"type": "text"}],
    [THINKING],
    [SERVER],
    [UNKNOWN],
]

RUN, GO_ON = Run.CALLS, Resend()
INVALID, DONE = EndReason.INVALID_RESPONSE, EndReason.COMPLETED
CUT, REFUSED, FULL = EndReason.OUTPUT_TRUNCATED, EndReason.REFUSED, EndReason.CONTEXT_EXHAUSTED

# stop reason: with calls, with words, with neither
EXPECTED: dict[Any, tuple[Any, Any, Any]] = {
    "tool_use": (RUN, INVALID, INVALID),
    "end_turn": (RUN, DONE, INVALID),
    "stop_sequence": (RUN, DONE, INVALID),
    "pause_turn": (INVALID, GO_ON, GO_ON),
    "compaction": (INVALID, GO_ON, GO_ON),
    "max_tokens": (CUT, CUT, CUT),
    "refusal": (REFUSED, REFUSED, REFUSED),
    "model_context_window_exceeded": (FULL, FULL, FULL),
    None: (INVALID, INVALID, INVALID),
    "": (INVALID, INVALID, INVALID),
    "of_a_later_year": (INVALID, INVALID, INVALID),
    "END_TURN": (INVALID, INVALID, INVALID),
}

MATRIX = [
    (reason, content, decided)
    for reason, decisions in EXPECTED.items()
    for contents, decided in zip((HOLDS_CALLS, HOLDS_WORDS, HOLDS_NOTHING), decisions, strict=True)
    for content in contents
]


@pytest.mark.parametrize(("reason", "content", "decided"), MATRIX, ids=lambda value: str(value)[:60])
def test_r8_stop_reason_and_content_are_judged_together(reason: Any, content: list[Json], decided: Any) -> None:
    judged = judge(reason, content, 0)
    if isinstance(decided, EndReason):
        assert isinstance(judged, End)
        assert judged.reason is decided
        assert judged.detail or decided is DONE, "every other end says why"
        assert "\n" not in judged.detail
    else:
        assert judged == decided


def test_r8_every_row_of_the_table_is_tested_and_whole() -> None:
    assert TABLE.keys() <= EXPECTED.keys()
    assert all(row.keys() == set(Content) for row in TABLE.values())


def test_r82_only_a_response_that_ended_by_itself_runs_anything() -> None:
    """R82, B16: a cut call may parse and still not be what the model was about to write."""
    runs = {reason for reason, content in product(EXPECTED, HOLDS_CALLS) if judge(reason, content, 0) is Run.CALLS}
    assert runs == {"tool_use", "end_turn", "stop_sequence"}


def test_b16_a_cut_response_runs_no_call_that_came_out_empty() -> None:
    judged = judge("max_tokens", [CALL], 0)
    assert judged == End(reason=CUT, detail="the response was cut off at its token limit; none of its calls was run")


def test_b13_a_stop_for_tools_without_a_call_is_an_invalid_response() -> None:
    judged = judge("tool_use", [], 0)
    assert judged == End(reason=INVALID, detail="the response stopped with 'tool_use' and held nothing")


def test_b14_a_refusal_is_an_end_of_its_own() -> None:
    judged = judge("refusal", [], 0)
    assert judged == End(reason=REFUSED, detail="the model refused to answer; nothing of its response was run")


def test_r28_an_invalid_response_is_told_by_what_it_stopped_with_and_held() -> None:
    assert judge(None, [WORDS], 0) == End(reason=INVALID, detail="the response stopped with None and held words")
    assert judge("later", [CALL], 0) == End(reason=INVALID, detail="the response stopped with 'later' and held calls")


@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
@pytest.mark.parametrize("content", [[SERVER], [WORDS]], ids=["server call", "words"])
def test_b12_a_paused_turn_is_sent_again_a_bounded_number_of_times(reason: str, content: list[Json]) -> None:
    """B12: twice, and then the answer: fine. For ever: a typed end."""
    assert [judge(reason, content, resends) for resends in range(MOST_RESENDS)] == [Resend()] * MOST_RESENDS
    assert MOST_RESENDS == 5
    for resends in (MOST_RESENDS, MOST_RESENDS + 1, 10**9):
        assert judge(reason, content, resends) == End(
            reason=INVALID, detail=f"the provider paused its turn {resends + 1} times in a row"
        )


@pytest.mark.parametrize("resends", [0, MOST_RESENDS, 10**9])
def test_resends_bound_nothing_but_resends(resends: int) -> None:
    assert judge("end_turn", [WORDS], resends) == End(reason=DONE)
    assert judge("tool_use", [CALL], resends) is Run.CALLS


@pytest.mark.parametrize(
    ("contents", "kind"),
    [(HOLDS_CALLS, Content.CALLS), (HOLDS_WORDS, Content.WORDS), (HOLDS_NOTHING, Content.NOTHING)],
    ids=str,
)
def test_a_response_holds_calls_words_or_nothing(contents: list[list[Json]], kind: Content) -> None:
    assert [kind_of(content) for content in contents] == [kind] * len(contents)


@pytest.mark.parametrize("reason", [7, ["tool_use"], {"a": 1}, True], ids=repr)
def test_a_stop_reason_that_is_no_text_is_an_invalid_response(reason: Any) -> None:
    """A server that isn't the provider may send anything; its response ends the task, and not the worker."""
    judged = judge(reason, [CALL], 0)
    assert isinstance(judged, End)
    assert judged.reason is INVALID
