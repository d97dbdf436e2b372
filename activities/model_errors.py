"""What a failed model request means: retry, and when, another model, sum up, or give up. One function decides.

Temporal owns the retries; the SDK makes none. Class names of the SDK follow the server's error codes, so a list of
names would leak: the decision is made by status, header and error type.

    the conversation or the request is too long      sum up
    no room for the response's token limit           a lower limit if it was raised, else sum up
    the token limit is above what the model allows   a lower limit
    a cap on spending                                give up
    529, overloaded_error                            another model where there is one; else as below
    x-should-retry                                   as it says
    529, overloaded_error                            retry
    408, 409, 429, 500 and above                     retry
    connection, timeout, a stream that was cut       retry
    anything else                                    give up
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from time import time
from typing import Any

import httpx2
from temporalio.exceptions import ApplicationError

from settled.activities.artifacts import clean
from settled.activities.model_stream import StreamError, UnknownEvent

RETRIED_STATUSES = frozenset({408, 409, 429})
RETRIED_TYPES = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
"""Error types that may pass, where they come as an event within a stream whose status was 200."""
BROKEN = (StreamError, httpx2.RequestError, TimeoutError, UnicodeDecodeError, json.JSONDecodeError)
"""What comes of a connection or a stream that broke. A request that can't be built raises other builtin errors."""
TOO_LONG = "prompt is too long"
NO_ROOM = "exceed context limit"
"""There is no error code for these, only the words."""
TOO_HIGH = "maximum allowed number of output tokens"
ALLOWED = re.compile(r"max_tokens: \d{1,12} > (\d{1,12}), which is the maximum")
"""The one place where the model says which token limit it allows."""
ROOM = re.compile(r"exceed context limit: (\d{1,12}) \+ \d{1,12} > (\d{1,12})")
"""Tokens that were read, and tokens that there are for these and the response."""
MOST_RETRY_AFTER = 300.0
MOST_TEXT = 300
MOST_REQUEST_ID = 128


class Remedy(StrEnum):
    """What can be done about a request that failed."""

    RETRY = "retry"
    """It may pass: the same again, after a while."""
    FALL_BACK = "fall_back"
    """It may pass; another model may be quicker."""
    SUM_UP = "sum_up"
    """The conversation is too long for the model."""
    LOWER = "lower"
    """The response's token limit is above what the model allows."""
    MAKE_ROOM = "make_room"
    """What is read and the response's token limit together are too long for the model."""
    GIVE_UP = "give_up"
    """It won't pass by itself."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why a request failed, and what can be done about it."""

    remedy: Remedy
    message: str
    """In one line, with the provider's request id."""
    request_id: str = ""
    """The provider's id of the request, where it gave one."""
    after: timedelta | None = None
    """How long the provider asked to wait."""
    again: bool = True
    """Whether the same model may be asked again, where another one may be."""
    allowed: int | None = None
    """Tokens that the response may have, as the model says, where its limit was refused."""

    def failure(self, attempt: int = 1) -> ApplicationError:
        """The same, as Temporal is to treat it; its details say how many attempts there were."""
        retried = self.remedy is Remedy.RETRY or (self.remedy is Remedy.FALL_BACK and self.again)
        return ApplicationError(
            self.message,
            attempt,
            type="ModelRequestFailed",
            non_retryable=not retried,
            next_retry_delay=self.after if retried else None,
        )


class RequestFailed(Exception):
    """A model request brought no response."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


def classify(error: Exception) -> Trouble:
    """What a failed model request means.

    Args:
        error: whatever the request raised.
    """
    text = " ".join(clean(f"{error}{_cause(error)}").split())[:MOST_TEXT]
    request_id = clean(str(getattr(error, "request_id", None) or ""))[:MOST_REQUEST_ID]
    message = f"{type(error).__name__}: {text}" + (f" (request {request_id})" if request_id else "")
    remedy = _remedy(error)
    return Trouble(
        remedy=remedy,
        message=message,
        request_id=request_id,
        after=_retry_after(error),
        again=_may_pass(error),
        allowed=_allowed(remedy, str(error)),
    )


def _cause(error: Exception) -> str:
    """What the HTTP library says of an error of which the SDK only says that it is one of the connection."""
    cause = error.__cause__
    # A header that can't be sent is quoted in full; the one that is wrong is the key's, most likely.
    untold = not isinstance(cause, httpx2.TransportError) or isinstance(cause, httpx2.LocalProtocolError)
    return "" if untold else f" ({type(cause).__name__}{f': {cause}' if str(cause) else ''})"


def _remedy(error: Exception) -> Remedy:
    if _is_too_long(error):
        return Remedy.SUM_UP
    if _status(error) in (200, 400) and NO_ROOM in str(error):
        return Remedy.MAKE_ROOM
    if _status(error) in (200, 400) and TOO_HIGH in str(error):
        return Remedy.LOWER
    if _is_overloaded(error):
        return Remedy.FALL_BACK
    return Remedy.RETRY if _may_pass(error) else Remedy.GIVE_UP


def _allowed(remedy: Remedy, said: str) -> int | None:
    if remedy is Remedy.LOWER and (limit := ALLOWED.search(said)):
        return int(limit[1])
    if remedy is Remedy.MAKE_ROOM and (room := ROOM.search(said)):
        return max(0, int(room[2]) - int(room[1]))
    return None


def _is_overloaded(error: Exception) -> bool:
    return (_status(error) == 529 or _type(error) == "overloaded_error") and not _is_capped(error)


def _is_capped(error: Exception) -> bool:
    """Whether spending has come to its cap: that doesn't pass by waiting, nor with another model."""
    return "spend_limit" in str(getattr(error, "error_code", None) or "")


def _status(error: Exception) -> int | None:
    """The HTTP status; 200 where the error came as an event within a stream."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _type(error: Exception) -> object:
    return getattr(error, "type", None)


def _is_too_long(error: Exception) -> bool:
    status = _status(error)
    if status == 413 or (status == 200 and _type(error) == "request_too_large"):
        return True
    return status in (200, 400) and TOO_LONG in str(error)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, UnknownEvent):
        return False
    if isinstance(error, BROKEN):
        return True
    if _is_capped(error):
        return False
    response, status = getattr(error, "response", None), _status(error)
    told = response.headers.get("x-should-retry") if response is not None else None
    if told in ("true", "false"):
        return bool(told == "true")
    if status is None:
        # The SDK's connection and timeout errors carry a request and no response; so do those of getting credentials
        # from a server, at least as their cause. Errors in building the request are builtin ones.
        return hasattr(error, "request") or isinstance(error.__cause__, BROKEN)
    if status == 200:
        return _type(error) in RETRIED_TYPES
    return status in RETRIED_STATUSES or status >= 500


def _retry_after(error: Any) -> timedelta | None:
    response = getattr(error, "response", None)
    headers = response.headers if response is not None else {}
    seconds = _seconds(headers.get("retry-after-ms"), headers.get("retry-after"))
    if seconds is None or math.isnan(seconds):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), MOST_RETRY_AFTER))


def _seconds(milliseconds: str | None, seconds_or_date: str | None) -> float | None:
    try:
        if milliseconds:
            return float(milliseconds) / 1000
        if not seconds_or_date:
            return None
        try:
            return float(seconds_or_date)
        except ValueError:
            return parsedate_to_datetime(seconds_or_date).timestamp() - time()
    except (ValueError, TypeError):
        return None
