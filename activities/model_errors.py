"""What a failed model request means: retry, and when, another model, sum up, or give up. One function decides.

Temporal owns the retries; the SDK makes none. Class names of the SDK follow the server's error codes, so a list of
names would leak: the decision is made by status, header and error type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from time import time
from typing import Any

import httpx2
from temporalio.exceptions import ApplicationError

from settled.activities.model_stream import StreamError, UnknownEvent

RETRIED_STATUSES = frozenset({408, 409, 429})
RETRIED_TYPES = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
"""Error types that may pass, where they come as an event within a stream whose status was 200."""
MOST_RETRY_AFTER = 300.0


class Remedy(StrEnum):
    """What can be done about a request that failed."""

    RETRY = "retry"
    """It may pass: the same again, after a while."""
    FALL_BACK = "fall_back"
    """It may pass; another model may be quicker."""
    SUM_UP = "sum_up"
    """The conversation is too long for the model."""
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

    def failure(self, attempt: int = 1) -> ApplicationError:
        """The same, as Temporal is to treat it; the workflow learns how many attempts there were."""
        retried = self.remedy in (Remedy.RETRY, Remedy.FALL_BACK)
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
    text = " ".join(str(error).split())[:300]
    request_id = getattr(error, "request_id", None)
    message = f"{type(error).__name__}: {text}" + (f" (request {request_id})" if request_id else "")
    remedy = _remedy(error)
    return Trouble(remedy=remedy, message=message, request_id=str(request_id or ""), after=_retry_after(error))


def _remedy(error: Exception) -> Remedy:
    if _is_too_long(error):
        return Remedy.SUM_UP
    if not _may_pass(error):
        return Remedy.GIVE_UP
    return Remedy.FALL_BACK if _is_overloaded(error) else Remedy.RETRY


def _is_overloaded(error: Any) -> bool:
    return getattr(error, "status_code", None) == 529 or getattr(error, "type", None) == "overloaded_error"


def _is_too_long(error: Any) -> bool:
    status, text = getattr(error, "status_code", None), str(error)
    return status == 413 or (status == 400 and "prompt is too long" in text)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, UnknownEvent):
        return False
    if isinstance(error, StreamError | httpx2.RequestError | TimeoutError | UnicodeDecodeError):
        return True
    response = getattr(error, "response", None)
    if response is None:
        # The SDK's connection and timeout errors carry no response; errors in building the request are builtin ones.
        return hasattr(error, "request")
    told = response.headers.get("x-should-retry")
    if told in ("true", "false"):
        return bool(told == "true")
    if _is_spend_limit(error):
        return False
    status = int(getattr(error, "status_code", 0))
    if status == 200:
        return getattr(error, "type", None) in RETRIED_TYPES
    return status in RETRIED_STATUSES or status >= 500


def _is_spend_limit(error: Any) -> bool:
    """A cap on spending doesn't pass by waiting."""
    return "spend_limit" in str(getattr(error, "error_code", "") or "")


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
