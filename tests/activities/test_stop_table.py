"""R8: what a response means, by its stop reason and its content together, over the whole matrix."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from settled.activities.stop_table import (
    BOUNDS,
    MOST_CALLS,
    TABLE,
    Content,
    Means,
    Run,
    Step,
    judge,
    kind_of,
    lowered,
    once_more,
)
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.turn import Again, Compact, End, Repeats, Resend

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
    [UNKNOWN],
]


def means(
    repeats: Repeats | None = None, *, max_tokens: int = 100, max_tokens_most: int = 400, fallback: bool = True
) -> Means:
    """Everything is left to go on with, unless a test says otherwise."""
    return Means(
        repeats=repeats or Repeats(), max_tokens=max_tokens, max_tokens_most=max_tokens_most, fallback=fallback
    )


RUN, FULL = Run.CALLS, Compact()
BACK, AGAIN, SAY_SO = Resend(why=Again.PAUSED), Resend(why=Again.MALFORMED), Resend(why=Again.EMPTY)
RAISED, OTHER = Resend(why=Again.TRUNCATED, max_tokens=200), Resend(why=Again.FALLBACK)
INVALID, DONE = EndReason.INVALID_RESPONSE, EndReason.COMPLETED

# stop reason: with calls, with words, with neither
EXPECTED: dict[Any, tuple[Any, Any, Any]] = {
    "tool_use": (RUN, AGAIN, AGAIN),
    "end_turn": (RUN, DONE, SAY_SO),
    "stop_sequence": (RUN, DONE, SAY_SO),
    "pause_turn": (INVALID, BACK, BACK),
    "compaction": (INVALID, BACK, BACK),
    "max_tokens": (RAISED, RAISED, RAISED),
    "refusal": (OTHER, OTHER, OTHER),
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
    judged = judge(reason, content, means())
    if isinstance(decided, EndReason):
        assert isinstance(judged, End)
        assert judged.reason is decided
        assert judged.detail or decided is DONE, "every other end says why"
        assert "\n" not in judged.detail
    else:
        assert judged == decided


@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
@pytest.mark.parametrize("call_id", [None, 7, ["x"]], ids=repr)
def test_r8_a_pause_is_sent_back_only_with_the_call_that_it_stands_in(reason: str, call_id: Any) -> None:
    judged = judge(reason, [WORDS, SERVER | {"id": call_id}], means())
    assert isinstance(judged, End)
    assert (judged.reason, judged.detail) == (INVALID, "the provider paused in a call that can't be sent back")


def test_r40_an_empty_response_is_sent_back_where_it_goes_on_from_a_call_of_the_providers() -> None:
    found = {"type": "web_search_tool_result", "tool_use_id": SERVER["id"], "content": []}
    assert judge("end_turn", [], replace(means(), said=[SERVER])) == BACK
    assert judge("end_turn", [], replace(means(), said=[SERVER | {"id": None}])) == SAY_SO
    assert judge("end_turn", [found], replace(means(), said=[SERVER, found])) == SAY_SO


def test_r8_every_row_of_the_table_is_tested_and_whole() -> None:
    assert TABLE.keys() <= EXPECTED.keys()
    assert all(row.keys() == set(Content) for row in TABLE.values())


def test_r82_only_a_response_that_ended_by_itself_runs_anything() -> None:
    """R82, B16: a cut call may parse and still not be what the model was about to write."""
    runs = {reason for reason, content in product(EXPECTED, HOLDS_CALLS) if judge(reason, content, means()) is RUN}
    assert runs == {"tool_use", "end_turn", "stop_sequence"}


# What is asked again, and what it comes to if that doesn't help: step, reason, how often, end.
BOUNDED: dict[Step, tuple[Again, int, EndReason]] = {
    Step.SEND_BACK: (Again.PAUSED, 5, EndReason.INVALID_RESPONSE),
    Step.RAISE: (Again.TRUNCATED, 3, EndReason.OUTPUT_TRUNCATED),
    Step.ASK_AGAIN: (Again.MALFORMED, 1, EndReason.INVALID_RESPONSE),
    Step.SAY_SO: (Again.EMPTY, 2, EndReason.INVALID_RESPONSE),
    Step.FALL_BACK: (Again.FALLBACK, 10, EndReason.REFUSED),
    Step.LOWER: (Again.LOWERED, 2, EndReason.MODEL_ERROR),
    Step.SUM_UP: (Again.COMPACTED, 1, EndReason.CONTEXT_EXHAUSTED),
}


@pytest.mark.parametrize(("step", "bounded"), BOUNDED.items(), ids=lambda value: str(value)[:10])
def test_r8_each_step_is_bounded_by_itself(step: Step, bounded: tuple[Again, int, EndReason]) -> None:
    """However often the model was asked again for other reasons: that neither adds nor takes away."""
    why, most, end = bounded
    others = Repeats(**{name: 99 for name in Repeats.model_fields if name != why})
    for done in range(most):
        again = once_more(step, means(others.model_copy(update={why: done})))
        assert again == FULL if step is Step.SUM_UP else isinstance(again, Resend) and again.why is why
    for done in (most, most + 1, 10**9):
        ended = once_more(step, means(Repeats(**{why: done})))
        assert isinstance(ended, End)
        assert ended.reason is end
        assert ended.detail
        assert "\n" not in ended.detail


def test_r8_every_step_that_asks_again_has_a_bound() -> None:
    assert BOUNDED.keys() == BOUNDS.keys()
    assert set(Step) - BOUNDS.keys() == {Step.RUN, Step.FINISH, Step.INVALID}, "these ask nothing"


@pytest.mark.parametrize(
    "repeats", [Repeats(), Repeats(**dict.fromkeys(Repeats.model_fields, 10**9))], ids=["no", "yes"]
)
def test_what_was_asked_again_is_in_the_way_of_nothing_else(repeats: Repeats) -> None:
    assert judge("end_turn", [WORDS], means(repeats)) == End(reason=DONE)
    assert judge("tool_use", [CALL], means(repeats)) is RUN


@pytest.mark.parametrize(
    ("limit", "most", "raised"),
    [(100, 400, 200), (200, 400, 400), (300, 400, 400), (399, 400, 400), (400, 400, None), (500, 400, None)],
)
def test_b16_the_limit_is_doubled_up_to_the_highest_that_is_allowed(limit: int, most: int, raised: int | None) -> None:
    """B16: with {} as its input or with anything else, nothing of a cut response is run."""
    judged = judge("max_tokens", [CALL], means(max_tokens=limit, max_tokens_most=most))
    if raised is None:
        detail = "the response was cut off at its token limit; none of its calls was run"
        assert judged == End(reason=EndReason.OUTPUT_TRUNCATED, detail=detail)
    else:
        assert judged == Resend(why=Again.TRUNCATED, max_tokens=raised)


@pytest.mark.parametrize(
    ("reason", "content", "kept"),
    [
        ("pause_turn", [SERVER], 200),
        ("tool_use", [], 200),
        ("end_turn", [], 200),
        ("refusal", [], None),
        ("max_tokens", [], 400),
    ],
)
def test_b16_a_raised_limit_is_kept_over_a_pause_and_not_by_another_model(
    reason: str, content: list[Json], kept: int | None
) -> None:
    raised = Means(repeats=Repeats(truncated=1), max_tokens=200, max_tokens_most=400, fallback=True, kept=200)
    judged = judge(reason, content, raised)
    assert isinstance(judged, Resend)
    assert judged.max_tokens == kept


@pytest.mark.parametrize(
    ("allowed", "repeats", "kept", "decided"),
    [
        (500, Repeats(), None, 500),
        (500, Repeats(lowered=1), 1_000, 500),
        (500, Repeats(lowered=2), 1_000, EndReason.MODEL_ERROR),
        (None, Repeats(), None, None),
        (0, Repeats(), None, None),
        (1_000, Repeats(), None, None),
        (501, Repeats(truncated=1), 1_000, 501),
        (500, Repeats(truncated=1), 1_000, EndReason.OUTPUT_TRUNCATED),
        (1_000, Repeats(truncated=1), 1_000, EndReason.OUTPUT_TRUNCATED),
        (None, Repeats(truncated=1), 1_000, EndReason.OUTPUT_TRUNCATED),
        (700, Repeats(truncated=1, lowered=2), 1_000, EndReason.OUTPUT_TRUNCATED),
        (500, Repeats(truncated=1), None, 500),
    ],
)
def test_a_limit_that_was_refused_is_lowered_unless_it_was_raised_for_more(
    allowed: int | None, repeats: Repeats, kept: int | None, decided: int | EndReason | None
) -> None:
    """What was cut at 500 is not asked for with 500 again."""
    judged = lowered(allowed, Means(repeats=repeats, max_tokens=1_000, max_tokens_most=4_000, fallback=True, kept=kept))
    match judged:
        case Resend(why=Again.LOWERED):
            assert judged.max_tokens == decided
        case End():
            assert judged.reason is decided
        case _:
            assert (judged, decided) == (None, None)


@pytest.mark.parametrize("content", [[], [WORDS]], ids=["nothing", "words"])
def test_b13_a_stop_for_tools_without_a_call_is_asked_again_once(content: list[Json]) -> None:
    """B13: then it is an invalid response, and no silent end."""
    assert judge("tool_use", content, means()) == AGAIN
    assert judge("tool_use", content, means(Repeats(malformed=1))) == End(
        reason=INVALID, detail="the response said twice that it calls a tool, and held no call"
    )


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"type": "refusal", "category": "cyber"}, " (category: cyber)"),
        ({"category": "of\n a later\ud83d year"}, " (category: of a later\ufffd year)"),
        ({"category": "x" * 10_000}, f" (category: {'x' * 80})"),
        ({"category": None}, ""),
        ({"category": ["cyber"]}, ""),
        ({}, ""),
        ("cyber", ""),
        (None, ""),
    ],
    ids=lambda value: str(value)[:40].encode("ascii", "replace").decode(),
)
def test_b14_a_refusal_is_an_end_of_its_own_and_says_what_was_refused(details: Any, told: str) -> None:
    """B14: never tried again with the same model, whatever calls it had emitted."""
    for content in ([], [CALL], [WORDS]):
        judged = judge("refusal", content, means(fallback=False), details)
        detail = f"the model refused to answer; nothing of its response was run{told}"
        assert judged == End(reason=EndReason.REFUSED, detail=detail)
        assert judge("refusal", content, means(), details) == OTHER


def test_the_details_of_a_stop_are_told_of_a_refusal_only() -> None:
    judged = judge("max_tokens", [], means(max_tokens_most=100), {"category": "cyber"})
    assert isinstance(judged, End)
    assert "cyber" not in judged.detail


def test_r28_an_invalid_response_is_told_by_what_it_stopped_with_and_held() -> None:
    for reason, content, told in ((None, [WORDS], "None and held words"), ("later", [CALL], "'later' and held calls")):
        assert judge(reason, content, means()) == End(reason=INVALID, detail=f"the response stopped with {told}")


@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
@pytest.mark.parametrize("content", [[SERVER], [WORDS], []], ids=["server call", "words", "nothing"])
def test_b12_a_paused_turn_is_sent_back_a_bounded_number_of_times(reason: str, content: list[Json]) -> None:
    """B12: twice, and then the answer: fine. For ever: a typed end."""
    assert [judge(reason, content, means(Repeats(paused=done))) for done in range(5)] == [BACK] * 5
    assert judge(reason, content, means(Repeats(paused=5))) == End(
        reason=INVALID, detail="the provider paused its turn more than 5 times in a row"
    )


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence"])
def test_r40_an_end_with_a_server_call_that_isn_t_finished_is_sent_back(reason: str) -> None:
    """The API takes no word of ours after it; a finished one is an empty answer like any other."""
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    assert judge(reason, [THINKING, SERVER], means()) == BACK
    assert judge(reason, [SERVER, found], means()) == SAY_SO
    assert judge(reason, [SERVER, WORDS], means()) == End(reason=DONE)


def test_more_calls_than_fit_into_history_are_not_run() -> None:
    assert judge("tool_use", [CALL] * MOST_CALLS, means()) is RUN
    judged = judge("tool_use", [CALL] * (MOST_CALLS + 1), means())
    assert judged == End(reason=INVALID, detail="the response holds 257 calls; at most 256 are run")


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
    judged = judge(reason, [CALL], means())
    assert isinstance(judged, End)
    assert judged.reason is INVALID
