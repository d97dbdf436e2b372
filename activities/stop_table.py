"""What a response means: the stop reason and the content blocks, judged together by one table. Pure.

    stop reason                      complete calls        words          nothing
    tool_use                         run them              ask again      ask again
    end_turn, stop_sequence          run them              completed      say that it was empty
    pause_turn, compaction           invalid_response      send back      send back
    max_tokens                       ask again with a higher limit, whatever it holds
    refusal                          the fallback model, whatever it holds
    model_context_window_exceeded    sum up, whatever it holds
    anything else, or none           invalid_response, whatever it holds

What is empty but for a call that the provider hasn't finished is sent back. Only the first two rows run anything: a cut
call may parse and still not be what the model was about to write. What is asked again is bounded, reason by reason;
after that the task ends, and says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from settled.activities.artifacts import clean
from settled.activities.calls import awaits_server, is_blank, is_call, is_server_call
from settled.activities.odd_blocks import is_unfit
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.turn import Again, Compact, End, Repeats, Resend

MOST_CALLS = 256
"""Calls of one response; their proposals stand in history, in one value."""
MOST_CATEGORY = 80


class Content(StrEnum):
    """What a response holds, as far as going on depends on it."""

    CALLS = "calls"
    WORDS = "words"
    NOTHING = "nothing"


class Run(StrEnum):
    """Stands for "run the calls"; admission makes batches of them."""

    CALLS = "calls"


class Step(StrEnum):
    """What the table says."""

    RUN = "run"
    FINISH = "finish"
    SEND_BACK = "send_back"
    RAISE = "raise"
    ASK_AGAIN = "ask_again"
    SAY_SO = "say_so"
    FALL_BACK = "fall_back"
    LOWER = "lower"
    SUM_UP = "sum_up"
    INVALID = "invalid"


TABLE: dict[str, dict[Content, Step]] = {
    "tool_use": {Content.CALLS: Step.RUN, Content.WORDS: Step.ASK_AGAIN, Content.NOTHING: Step.ASK_AGAIN},
    "end_turn": {Content.CALLS: Step.RUN, Content.WORDS: Step.FINISH, Content.NOTHING: Step.SAY_SO},
    "stop_sequence": {Content.CALLS: Step.RUN, Content.WORDS: Step.FINISH, Content.NOTHING: Step.SAY_SO},
    "pause_turn": {Content.CALLS: Step.INVALID, Content.WORDS: Step.SEND_BACK, Content.NOTHING: Step.SEND_BACK},
    "compaction": {Content.CALLS: Step.INVALID, Content.WORDS: Step.SEND_BACK, Content.NOTHING: Step.SEND_BACK},
    "max_tokens": dict.fromkeys(Content, Step.RAISE),
    "refusal": dict.fromkeys(Content, Step.FALL_BACK),
    "model_context_window_exceeded": dict.fromkeys(Content, Step.SUM_UP),
}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How often a step may be taken in a row, and the end if that isn't enough."""

    why: Again
    most: int
    end: EndReason
    detail: str


BOUNDS: dict[Step, Bound] = {
    Step.SEND_BACK: Bound(
        why=Again.PAUSED,
        most=5,
        end=EndReason.INVALID_RESPONSE,
        detail="the provider paused its turn more than 5 times in a row",
    ),
    Step.RAISE: Bound(
        why=Again.TRUNCATED,
        most=3,
        end=EndReason.OUTPUT_TRUNCATED,
        detail="the response was cut off at its token limit; none of its calls was run",
    ),
    Step.ASK_AGAIN: Bound(
        why=Again.MALFORMED,
        most=1,
        end=EndReason.INVALID_RESPONSE,
        detail="the response said twice that it calls a tool, and held no call",
    ),
    Step.SAY_SO: Bound(
        why=Again.EMPTY,
        most=2,
        end=EndReason.INVALID_RESPONSE,
        detail="the response was empty, though the model was told so twice",
    ),
    Step.FALL_BACK: Bound(
        why=Again.FALLBACK,
        most=10,
        end=EndReason.REFUSED,
        detail="the model refused to answer; nothing of its response was run",
    ),
    Step.LOWER: Bound(
        why=Again.LOWERED,
        most=2,
        end=EndReason.MODEL_ERROR,
        detail="the model allows no token limit that it was asked with",
    ),
    Step.SUM_UP: Bound(
        why=Again.COMPACTED,
        most=1,
        end=EndReason.CONTEXT_EXHAUSTED,
        detail="the conversation doesn't fit the model's context, not even summed up",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Means:
    """What is left to go on with."""

    repeats: Repeats
    """What was done in a row already."""
    max_tokens: int
    """The response's token limit."""
    max_tokens_most: int
    """The highest that it may have."""
    fallback: bool
    """Whether another model may take over."""
    kept: int | None = None
    """The response's token limit where it isn't the profile's: what only goes on keeps it."""
    said: Sequence[Any] = ()
    """The blocks of the model's last words, those before a pause of the provider's among them."""
    thinking: int = 0
    """Tokens that the model may think of these; a limit that leaves no more is refused."""


def kind_of(content: Sequence[Any]) -> Content:
    """What the response holds. Blank text is nothing; a thinking block alone is no answer."""
    if any(is_call(block) for block in content):
        return Content.CALLS
    said = any(block.get("type") == "text" and not is_blank(block) for block in content)
    return Content.WORDS if said else Content.NOTHING


def judge(
    stop_reason: object, content: Sequence[Any], means: Means, details: object = None
) -> End | Resend | Compact | Run:
    """What to do with a response.

    Args:
        stop_reason: as received.
        content: the content blocks, as received.
        means: what is left to go on with.
        details: what the provider says about the stop, as received; it names the category of a refusal.
    """
    calls = sum(is_call(block) for block in content)
    if calls > MOST_CALLS:
        return _invalid(f"the response holds {calls} calls; at most {MOST_CALLS} are run")
    kind = kind_of(content)
    step = TABLE.get(stop_reason, {}).get(kind, Step.INVALID) if isinstance(stop_reason, str) else Step.INVALID
    if step is Step.SAY_SO and awaits_server([*means.said, *content]):
        step = Step.SEND_BACK  # no word of ours may stand after a call that the provider hasn't finished
    if step is Step.SEND_BACK and any(is_server_call(block) and is_unfit(block) for block in content):
        return _invalid("the provider paused in a call that can't be sent back")
    match step:
        case Step.RUN:
            return Run.CALLS
        case Step.FINISH:
            return End(reason=EndReason.COMPLETED)
        case Step.INVALID:
            return _invalid(f"the response stopped with {repr(stop_reason)[:80]} and held {kind}")
        case _:
            return once_more(step, means, _category(details) if step is Step.FALL_BACK else "")


def lowered(allowed: int | None, means: Means) -> End | Resend | None:
    """What to do where a token limit was refused; none: nobody knows a lower one that would do.

    A limit that was raised because a response had been cut is no use any more where it can't be above the one that
    cut: each raise doubles it at the most. One that leaves nothing besides the thinking calls for another model.

    Args:
        allowed: tokens that the response may have, as far as that is known.
        means: what is left to go on with.
    """
    cut = BOUNDS[Step.RAISE]
    was_raised = means.repeats.truncated > 0 and means.kept is not None
    if was_raised and (allowed is None or not means.max_tokens // 2 < allowed < means.max_tokens):
        return End(reason=cut.end, detail=f"{cut.detail}; the model allows no higher one")
    if allowed is None or not 0 < allowed < means.max_tokens:
        return None
    bound = BOUNDS[Step.LOWER]
    if allowed <= means.thinking:
        another = once_more(Step.FALL_BACK, means)
        detail = f"the model allows {allowed:,} tokens, and the profile's thinking.budget_tokens are {means.thinking:,}"
        return another if isinstance(another, Resend) else End(reason=bound.end, detail=detail)
    if means.repeats.lowered < bound.most:
        return Resend(why=bound.why, max_tokens=allowed)
    return End(reason=cut.end if was_raised else bound.end, detail=cut.detail if was_raised else bound.detail)


def is_discarded(stop_reason: object) -> bool:
    """Whether what a response holds is shown to nobody: what was refused is no answer, not even the half of it."""
    return stop_reason == "refusal"


def once_more(step: Step, means: Means, category: str = "") -> End | Resend | Compact:
    """The step, if it may be taken once more; else the end.

    Args:
        step: one of those that are bounded.
        means: what is left to go on with.
        category: the provider's word for what was refused.
    """
    bound = BOUNDS[step]
    exhausted = getattr(means.repeats, bound.why) >= bound.most
    if step is Step.FALL_BACK:
        exhausted = exhausted or not means.fallback
    limit = None if step is Step.FALL_BACK else means.kept  # another model begins with the profile's
    if step is Step.RAISE:
        limit = min(2 * means.max_tokens, means.max_tokens_most)
        exhausted = exhausted or limit <= means.max_tokens
    if exhausted:
        return End(reason=bound.end, detail=bound.detail + (f" (category: {category})" if category else ""))
    return Compact() if step is Step.SUM_UP else Resend(why=bound.why, max_tokens=limit)


def _category(details: object) -> str:
    category = details.get("category") if isinstance(details, Mapping) else None
    return " ".join(clean(category).split())[:MOST_CATEGORY] if isinstance(category, str) else ""


def _invalid(detail: str) -> End:
    return End(reason=EndReason.INVALID_RESPONSE, detail=detail)
