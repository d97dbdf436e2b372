"""What a response means: the stop reason and the content blocks, judged together by one table. Pure.

    stop reason                      complete calls        no calls
    tool_use                         run them              invalid_response
    end_turn, stop_sequence          run them              completed (empty: invalid_response)
    pause_turn, compaction           invalid_response      resend          (too many in a row: invalid_response)
    max_tokens                       output_truncated      output_truncated
    refusal                          refused               refused
    model_context_window_exceeded    context_exhausted     context_exhausted
    anything else, or none           invalid_response      invalid_response

Only the first two rows run anything: a cut call may parse and still not be what the model was about to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from settled.activities.calls import is_blank, is_call
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.turn import End, Resend

MOST_RESENDS = 5
MOST_CALLS = 256
"""Calls of one response; their proposals stand in history, in one value."""


class Content(StrEnum):
    """What a response holds, as far as going on depends on it."""

    CALLS = "calls"
    WORDS = "words"
    NOTHING = "nothing"


class Run(StrEnum):
    """Stands for "run the calls"; admission makes batches of them."""

    CALLS = "calls"


INVALID = EndReason.INVALID_RESPONSE

TABLE: dict[str, dict[Content, EndReason | type[Resend] | Run]] = {
    "tool_use": {Content.CALLS: Run.CALLS, Content.WORDS: INVALID, Content.NOTHING: INVALID},
    "end_turn": {Content.CALLS: Run.CALLS, Content.WORDS: EndReason.COMPLETED, Content.NOTHING: INVALID},
    "stop_sequence": {Content.CALLS: Run.CALLS, Content.WORDS: EndReason.COMPLETED, Content.NOTHING: INVALID},
    "pause_turn": {Content.CALLS: INVALID, Content.WORDS: Resend, Content.NOTHING: Resend},
    "compaction": {Content.CALLS: INVALID, Content.WORDS: Resend, Content.NOTHING: Resend},
    "max_tokens": dict.fromkeys(Content, EndReason.OUTPUT_TRUNCATED),
    "refusal": dict.fromkeys(Content, EndReason.REFUSED),
    "model_context_window_exceeded": dict.fromkeys(Content, EndReason.CONTEXT_EXHAUSTED),
}

DETAIL = {
    EndReason.OUTPUT_TRUNCATED: "the response was cut off at its token limit; none of its calls was run",
    EndReason.REFUSED: "the model refused to answer; nothing of its response was run",
    EndReason.CONTEXT_EXHAUSTED: "the conversation no longer fits the model's context",
}


def kind_of(content: Sequence[Any]) -> Content:
    """What the response holds. Blank text is nothing; a thinking block alone is no answer."""
    if any(is_call(block) for block in content):
        return Content.CALLS
    said = any(block.get("type") == "text" and not is_blank(block) for block in content)
    return Content.WORDS if said else Content.NOTHING


def judge(stop_reason: str | None, content: Sequence[Any], resends: int) -> End | Resend | Run:
    """What to do with a response.

    Args:
        stop_reason: as received.
        content: the content blocks, as received.
        resends: how many times in a row the transcript was already sent again as it stood.
    """
    calls = sum(is_call(block) for block in content)
    if calls > MOST_CALLS:
        return End(reason=INVALID, detail=f"the response holds {calls} calls; at most {MOST_CALLS} are run")
    kind = kind_of(content)
    decided = TABLE.get(stop_reason, {}).get(kind, INVALID) if isinstance(stop_reason, str) else INVALID
    if decided is Run.CALLS:
        return Run.CALLS
    if decided is Resend:
        if resends < MOST_RESENDS:
            return Resend()
        return End(reason=INVALID, detail=f"the provider paused its turn {resends + 1} times in a row")
    assert isinstance(decided, EndReason)
    if decided is INVALID:
        return End(reason=INVALID, detail=f"the response stopped with {repr(stop_reason)[:80]} and held {kind}")
    return End(reason=decided, detail=DETAIL.get(decided, ""))
