"""The one place that knows foreign errors: whatever comes out of a tool becomes one of ours, with kind and phase."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from settled.activities.artifacts import clean
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.errors import InvalidCall, NotFound, NotSent, RateLimited, Rejected, ToolError, Unclear

MOST_TEXT = 2_000
"""Characters of an error that are kept: some of them stand in history."""


class Phase(StrEnum):
    """How far an attempt had come when it failed."""

    BEFORE_SEND = "before_send"
    """Nothing left this process."""
    REFUSED = "refused"
    """The service answered that it did not, and will not, do it."""
    AFTER_SEND = "after_send"
    """Something may have left, and no answer that can be trusted came back."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A tool's failure, translated."""

    kind: ErrorKind
    phase: Phase
    text: str
    after: float | None = None
    """Seconds after which a retry makes sense, where the service said so."""


def translate(error: BaseException) -> ToolError:
    """Any error out of a tool as one of ours. What nobody classified is `Unclear`: an error proves nothing."""
    if isinstance(error, ToolError):
        return error
    if isinstance(error, TimeoutError):
        return Unclear("no answer before the deadline")
    if isinstance(error, asyncio.CancelledError):
        return Unclear("interrupted while the answer was awaited")
    text = clean(" ".join(_said(error).split()))
    return Unclear(f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__)


def _wait(after: object) -> float | None:
    """A wait that can be waited; a service may ask for any, and a tool may hand on anything."""
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return None
    return max(0.0, seconds)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    # An error that can't even say what it is must not hide that there was one.
    except Exception:
        return ""


def failure_of(error: BaseException) -> Failure:
    """What an error out of a write means."""
    ours = translate(error)
    text = clean(_said(ours)[:MOST_TEXT]) or type(ours).__name__
    match ours:
        case InvalidCall():
            return Failure(kind=ErrorKind.INVALID_ARGUMENTS, phase=Phase.BEFORE_SEND, text=text)
        case NotFound():
            return Failure(kind=ErrorKind.NOT_FOUND, phase=Phase.REFUSED, text=text)
        case Rejected():
            return Failure(kind=ErrorKind.REJECTED, phase=Phase.REFUSED, text=text)
        case RateLimited():
            return Failure(kind=ErrorKind.RATE_LIMITED, phase=Phase.REFUSED, text=text, after=_wait(ours.after))
        case NotSent():
            return Failure(kind=ErrorKind.UNAVAILABLE, phase=Phase.BEFORE_SEND, text=text)
        case _:
            return Failure(kind=ErrorKind.UNKNOWN_RESULT, phase=Phase.AFTER_SEND, text=text)


def read_failure_of(error: BaseException) -> Failure:
    """What an error out of a read means: nothing can have happened, so the unclear is merely unavailable."""
    failure = failure_of(error)
    if failure.kind is not ErrorKind.UNKNOWN_RESULT:
        return failure
    return Failure(kind=ErrorKind.UNAVAILABLE, phase=failure.phase, text=failure.text)
