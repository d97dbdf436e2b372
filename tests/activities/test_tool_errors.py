"""Whatever comes out of a tool is one of ours, with its kind and the phase that it proves. R37, R75."""

import asyncio
import json
import math
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from settled.activities.tool_errors import MOST_TEXT, Failure, Phase, failure_of, read_failure_of, translate
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.errors import (
    InvalidCall,
    NotFound,
    NotSent,
    RateLimited,
    Rejected,
    SettledError,
    ToolError,
    Unclear,
)


class Speechless(Exception):
    def __str__(self) -> str:
        raise AttributeError("no such thing as a message")


OURS: list[tuple[ToolError, ErrorKind, Phase]] = [
    (InvalidCall("no"), ErrorKind.INVALID_ARGUMENTS, Phase.BEFORE_SEND),
    (NotFound("no"), ErrorKind.NOT_FOUND, Phase.REFUSED),
    (Rejected("no"), ErrorKind.REJECTED, Phase.REFUSED),
    (NotSent("no"), ErrorKind.UNAVAILABLE, Phase.BEFORE_SEND),
    (Unclear("no"), ErrorKind.UNKNOWN_RESULT, Phase.AFTER_SEND),
    (ToolError("no"), ErrorKind.UNKNOWN_RESULT, Phase.AFTER_SEND),
]

request = httpx2.Request("POST", "http://127.0.0.1:9/")
FOREIGN: list[tuple[BaseException, str]] = [
    (ValueError("bad\n  news"), "ValueError: bad news"),
    (ValueError(), "ValueError"),
    (KeyError("x"), "KeyError: 'x'"),
    (SystemExit(0), "SystemExit: 0"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit(), "GeneratorExit"),
    (asyncio.CancelledError(), "interrupted while the answer was awaited"),
    (TimeoutError(), "no answer before the deadline"),
    (httpx2.ConnectError("refused"), "ConnectError: refused"),
    (httpx2.ConnectTimeout("slow"), "ConnectTimeout: slow"),
    (httpx2.ReadTimeout(""), "ReadTimeout"),
    (httpx2.HTTPStatusError("502", request=request, response=httpx2.Response(502)), "HTTPStatusError: 502"),
    (json.JSONDecodeError("no JSON", "<", 0), "JSONDecodeError: no JSON: line 1 column 1 (char 0)"),
    (SettledError("ours, but said of no call"), "SettledError: ours, but said of no call"),
    (ExceptionGroup("several", [NotSent("one of them")]), "ExceptionGroup: several (1 sub-exception)"),
    (Speechless(), "Speechless"),
]

each_of_ours = pytest.mark.parametrize(("error", "kind", "phase"), OURS, ids=lambda value: type(value).__name__)
each_foreign_one = pytest.mark.parametrize(("error", "text"), FOREIGN, ids=lambda value: type(value).__name__)


@each_of_ours
def test_r37_r75_each_of_our_errors_has_its_kind_and_its_phase(error: ToolError, kind: ErrorKind, phase: Phase) -> None:
    assert translate(error) is error
    assert failure_of(error) == Failure(kind=kind, phase=phase, text="no")


def test_r37_a_limit_says_when_to_come_back() -> None:
    assert failure_of(RateLimited("slow down", after=7.5)) == Failure(
        kind=ErrorKind.RATE_LIMITED, phase=Phase.REFUSED, text="slow down", after=7.5
    )


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        *((0.0, 0.0), (-5.0, 0.0), (1e9, 1e9), (math.inf, None), (-math.inf, None), (math.nan, None)),
        *((timedelta(seconds=7), 7.0), ("7", None), (None, None)),
    ],
    ids=str,
)
def test_r37_a_wait_that_is_no_time_is_not_passed_on(asked: Any, after: float | None) -> None:
    """It becomes a retry's delay, and JSON in the ledger."""
    assert failure_of(RateLimited("slow down", after=asked)).after == after


@each_foreign_one
def test_r75_an_error_that_nobody_classified_proves_nothing(error: BaseException, text: str) -> None:
    """R75, B28: not even a connection that was refused, unless our own client says that it was the first request."""
    ours = translate(error)
    assert type(ours) is Unclear
    assert str(ours) == text
    assert failure_of(error) == Failure(kind=ErrorKind.UNKNOWN_RESULT, phase=Phase.AFTER_SEND, text=text)


@each_foreign_one
def test_a_read_that_failed_in_any_way_is_merely_unavailable(error: BaseException, text: str) -> None:
    """A read has no outcome that could be unknown."""
    assert read_failure_of(error) == Failure(kind=ErrorKind.UNAVAILABLE, phase=Phase.AFTER_SEND, text=text)


@each_of_ours
def test_a_read_keeps_every_kind_that_is_known(error: ToolError, kind: ErrorKind, phase: Phase) -> None:
    known = ErrorKind.UNAVAILABLE if kind is ErrorKind.UNKNOWN_RESULT else kind
    assert read_failure_of(error) == Failure(kind=known, phase=phase, text="no")


def test_a_read_that_is_limited_says_when_to_come_back() -> None:
    assert read_failure_of(RateLimited("slow down", after=7.5)).after == 7.5


def test_r75_what_a_tool_raises_from_another_error_counts_as_what_it_says() -> None:
    """A tool may know better than we do: it then says so itself."""
    error = Rejected("the service's journal has no such request")
    error.__cause__ = httpx2.ReadError("reset")
    assert failure_of(error).phase is Phase.REFUSED


@pytest.mark.parametrize("error", [Rejected(), NotSent(""), RateLimited("", after=1.0)], ids=lambda e: type(e).__name__)
def test_an_error_without_words_is_told_by_its_name(error: ToolError) -> None:
    assert failure_of(error).text == type(error).__name__


@pytest.mark.parametrize("error", [ValueError("x" * 10**6), Rejected("x" * 10**6)], ids=["foreign", "ours"])
def test_the_text_of_an_error_is_bounded(error: Exception) -> None:
    """Some of it stands in history, where the payload of a turn is constant."""
    assert 400 < len(failure_of(error).text) <= MOST_TEXT


@pytest.mark.parametrize("error", [ValueError("ok \ud83d"), Rejected("ok \ud83d")], ids=["foreign", "ours"])
def test_b23_the_text_of_an_error_holds_no_lone_surrogate(error: Exception) -> None:
    """B23: the outcome of a write could not be stored with one."""
    assert failure_of(error).text.encode().decode().endswith("ok \ufffd")


def test_b23_nor_does_a_foreign_error_once_it_is_ours() -> None:
    """A lookup's failure stands in a settlement's note, without a `Failure`."""
    assert str(translate(ValueError("ok \ud83d"))) == "ValueError: ok \ufffd"


def test_b23_cutting_an_error_cuts_no_character() -> None:
    failure_of(Rejected("\U0001f600" * 10_000)).text.encode()
