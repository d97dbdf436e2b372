"""What a failed model request means: retry, and after how long, or give up. One function decides.

Temporal owns the retries; the SDK makes none. Class names of the SDK follow the server's error codes, so a list of
names would leak: the decision is made by status, header and error type.
"""

from __future__ import annotations

import math
from datetime import timedelta
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

import httpx2
from temporalio.exceptions import ApplicationError

from settled.activities.model_stream import StreamError, UnknownEvent

RETRIED_STATUSES = frozenset({408, 409, 429})
RETRIED_TYPES = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
"""Error types that may pass, where they come as an event within a stream whose status was 200."""
MOST_RETRY_AFTER = 300.0


def classify(error: Exception) -> ApplicationError:
    """The failure of a model request, as Temporal is to treat it.

    Args:
        error: whatever the request raised.
    """
    text = " ".join(str(error).split())[:300]
    request_id = getattr(error, "request_id", None)
    message = f"{type(error).__name__}: {text}" + (f" (request {request_id})" if request_id else "")
    retry = _may_pass(error)
    return ApplicationError(
        message,
        type="ModelRequestFailed",
        non_retryable=not retry,
        next_retry_delay=_retry_after(error) if retry else None,
    )


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
