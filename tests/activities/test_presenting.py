"""What the model is told of an outcome: short JSON, true, storable, and cut where it is too long."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from settled.activities.artifacts import clean
from settled.activities.journal import Operation, Subject
from settled.activities.lines import MOST_LINE
from settled.activities.outputs import MOST_SHOWN
from settled.activities.presenting import (
    ADVICE,
    MOST_STORED,
    answered,
    completed_text,
    failure_text,
    standing_text,
)
from settled.activities.tool_errors import Failure, Phase
from settled.activities.toolkit import Answer
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import OperationState


class Stock(BaseModel):
    sku: str
    price: Decimal


@dataclass
class Line:
    sku: str
    at: datetime


class Colour(Enum):
    RED = "red"


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def data_of(data: Any) -> Any:
    """How a tool's data are stored. Whatever they are, they can be stored."""
    body = answered(Answer(data=data, source="bank"))
    stored = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    assert json.loads(stored) == body
    return body["data"]


# B33, R36: a tool's answer


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, None),
        ("3 pieces", "3 pieces"),
        ({"at": NOON}, {"at": "2026-01-02T12:00:00Z"}),
        ({"amount": Decimal("0.10")}, {"amount": "0.10"}),
        ({"id": UUID(int=1)}, {"id": "00000000-0000-0000-0000-000000000001"}),
        ({1}, [1]),
        (frozenset({"a"}), ["a"]),
        ((1, 2), [1, 2]),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        (timedelta(seconds=90), "PT1M30S"),
        (Stock(sku="A1", price=Decimal("1.50")), {"sku": "A1", "price": "1.50"}),
        ([Line("A1", NOON)], [{"sku": "A1", "at": "2026-01-02T12:00:00Z"}]),
        (Colour.RED, "red"),
        (Path("a/b"), "a/b"),
        (b"text", "text"),
        (10**30, 10**30),
        ("", ""),
    ],
    ids=repr,
)
def test_b33_what_a_tool_hands_back_is_stored_in_its_json_form(data: Any, shown: Any) -> None:
    assert data_of(data) == shown


class Unserialisable:
    def __repr__(self) -> str:
        return "a socket"


def loop() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


@pytest.mark.parametrize(
    "data",
    [Unserialisable(), {"deep": [Unserialisable()]}, loop(), deep(), b"\xff\xfe", {"ok \ud83d": 1}, lambda: 1],
    ids=["object", "deep object", "loop", "too deep", "bytes", "surrogate key", "function"],
)
def test_b33_a_call_whose_result_has_no_json_form_has_succeeded_all_the_same(data: Any) -> None:
    """B33: it is a note in place of the data, and never a failure that somebody would try again."""
    body = answered(Answer(data=data, source="bank", version="v1"))
    assert (body["data"], body["source"], body["version"]) == (None, "bank", "v1")
    assert body["note"].startswith("the call succeeded, but its result has no JSON form (")
    assert len(body["note"]) <= 500
    told = json.loads(completed_text(body))
    assert told["status"] == "completed"
    json.dumps(body, ensure_ascii=False).encode()


def test_b33_a_call_whose_result_is_too_large_to_store_has_succeeded_too() -> None:
    largest = "x" * (MOST_STORED - 2)  # two quotation marks
    assert answered(Answer(data=largest, source="bank"))["data"] == largest
    body = answered(Answer(data=largest + "x", source="bank"))
    assert body == {
        "source": "bank",
        "data": None,
        "note": f"the call succeeded, but its result of {MOST_STORED + 1} bytes is too large",
    }


def test_the_size_of_a_result_is_counted_in_bytes() -> None:
    assert answered(Answer(data="\u20ac" * (MOST_STORED // 3 + 1), source="bank"))["data"] is None


@pytest.mark.parametrize(
    ("number", "shown"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (1.5, 1.5)], ids=str
)
def test_b32_a_number_that_json_does_not_have_is_named_and_not_dropped(number: float, shown: Any) -> None:
    """B32: the same in ledger, history and prompt; a silent null would be another answer."""
    assert data_of({"ratio": number, "list": [number]}) == {"ratio": shown, "list": [shown]}
    assert data_of(number) == shown


def test_r36_an_answer_carries_source_and_version_beside_its_data() -> None:
    body = answered(Answer(data={"n": 3}, source="stock service", version="version 7, as of 2026-01-02"))
    assert json.loads(completed_text(body)) == {
        "status": "completed",
        "source": "stock service",
        "version": "version 7, as of 2026-01-02",
        "data": {"n": 3},
    }
    assert "version" not in answered(Answer(data=1, source="stock service"))


def test_r73_an_action_that_was_not_done_again_is_told_as_such() -> None:
    body = answered(Answer(data=1, source="bank"))
    assert "repeated" not in json.loads(completed_text(body))
    assert "not executed again" in json.loads(completed_text(body, repeated=True))["repeated"]


def test_what_is_told_is_plain_text_and_not_escapes() -> None:
    assert '"caf\u00e9"' in completed_text(answered(Answer(data="caf\u00e9", source="bank")))


# B23: surrogates

SPOILT = ["ok \ud83d", "\udc00\ud83d", "\ud83d" * 3, "\ufeffab\ud800"]


@pytest.mark.parametrize("text", SPOILT, ids=ascii)
def test_b23_lone_surrogates_are_replaced_where_the_output_is_produced(text: str) -> None:
    """B23: one of them would make every later request of the conversation invalid."""
    shown = data_of({"said": [text]})["said"][0]
    assert "\ufffd" in shown
    shown.encode()
    body = answered(Answer(data=1, source=text, version=text))
    json.dumps(body, ensure_ascii=False).encode()
    assert "\ufffd" in body["source"]
    assert "\ufffd" in body["version"]


@settings(deadline=None)
@given(st.text(st.characters()))
def test_b23_clean_text_is_utf8_and_whole_text_stays_as_it_is(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert cleaned == text


def test_b23_two_halves_of_a_character_become_it() -> None:
    assert clean("\ud83d\ude00") == "\U0001f600"
    assert clean("\ufeffx") == "\ufeffx"
    assert clean("a\ud83db") == "a\ufffdb"


# R87, R88: the cut


def shown_in_full(length: int) -> str:
    """A completed call's text of exactly this many characters."""
    bare = len(completed_text(answered(Answer(data="", source="s"))))
    return completed_text(answered(Answer(data="x" * (length - bare), source="s")))


def test_r88_what_fits_is_shown_whole() -> None:
    text = shown_in_full(MOST_SHOWN)
    assert len(text) == MOST_SHOWN
    assert json.loads(text)["status"] == "completed"


@pytest.mark.parametrize("more", [100, 1000, 10**6])
def test_r87_r88_what_is_too_long_keeps_head_and_tail_and_says_what_is_missing(more: int) -> None:
    text = shown_in_full(MOST_SHOWN + more)
    head, mark, *lines = text.split("\n")
    length = MOST_SHOWN + more - len(completed_text(answered(Answer(data="", source="s"))))
    count = -(-length // MOST_LINE)
    assert json.loads(head) == {"status": "completed", "source": "s"}
    assert mark.startswith(f"[This output has {length} characters in {count} lines (one of more than")
    assert lines[0] == "1\t" + "x" * MOST_LINE
    assert lines[-1].startswith(f"{count}\tx")
    assert any(line.startswith("[… lines ") and line.endswith(" are left out here …]") for line in lines)
    assert len(text) <= MOST_SHOWN


@pytest.mark.parametrize("text", ["\U0001f600" * 40_000, "a" + "\U0001f600" * 40_000], ids=["even", "odd"])
def test_b23_a_cut_cuts_no_character(text: str) -> None:
    shown = completed_text(answered(Answer(data=text, source="s")))
    shown.encode()
    assert "\ufffd" not in shown


def test_a_failure_that_talks_too_much_is_cut_too() -> None:
    failure = Failure(kind=ErrorKind.REJECTED, phase=Phase.REFUSED, text="x" * 100_000)
    assert len(failure_text(failure, status="rejected")) < MOST_SHOWN + 100


# Failures


def test_r37_a_failure_is_told_with_status_kind_and_words() -> None:
    failure = Failure(kind=ErrorKind.REJECTED, phase=Phase.REFUSED, text="not enough (3 available)")
    assert json.loads(failure_text(failure, status="rejected")) == {
        "status": "rejected",
        "error": "rejected",
        "message": "not enough (3 available)",
    }


@pytest.mark.parametrize("after", [0.0, 7.5])
def test_r37_a_failure_says_when_to_come_back_where_that_is_known(after: float) -> None:
    failure = Failure(kind=ErrorKind.RATE_LIMITED, phase=Phase.REFUSED, text="slow down", after=after)
    assert json.loads(failure_text(failure, status="failed"))["retry_after_seconds"] == after


# R30: the truth about what has no result


def operation(state: OperationState) -> Operation:
    subject = Subject(tool="pay", tenant="t", principal="p", fingerprint="", arguments="", resources=())
    return Operation(
        key="1" * 64,
        seq=1,
        subject=subject,
        state=state,
        generation=1,
        permit=1,
        opened_at=0.0,
        changed_at=0.0,
    )


@pytest.mark.parametrize(
    ("state", "kind", "status", "words"),
    [
        (None, ErrorKind.NOT_EXECUTED, "not_executed", "It was not sent."),
        (OperationState.NOT_EXECUTED, ErrorKind.NOT_EXECUTED, "not_executed", "It did not happen and will not."),
        (OperationState.REJECTED, ErrorKind.NOT_EXECUTED, "not_executed", "nothing happened"),
        (OperationState.DISPATCHED, ErrorKind.UNKNOWN_RESULT, "dispatched", "Do not try it again by other means"),
        (OperationState.UNKNOWN, ErrorKind.UNKNOWN_RESULT, "unknown", "It may have happened. It is being looked up."),
        (OperationState.RESENDABLE, ErrorKind.UNKNOWN_RESULT, "resendable", "Do not try it by other means"),
        (OperationState.NEEDS_HUMAN, ErrorKind.UNKNOWN_RESULT, "needs_human", "a person has to find out"),
        (OperationState.COMPLETED, ErrorKind.UNKNOWN_RESULT, "completed", "It was done."),
        (OperationState("quantum"), ErrorKind.UNKNOWN_RESULT, "quantum", "It may have happened."),
    ],
    ids=str,
)
def test_r30_a_filler_tells_the_truth_from_the_ledger(
    state: OperationState | None, kind: ErrorKind, status: str, words: str
) -> None:
    """R30: not executed, done, or unknown; what isn't known to have not happened is never called so."""
    told_kind, text = standing_text(operation(state) if state else None)
    told = json.loads(text)
    assert (told_kind, told["status"]) == (kind, status)
    assert words in told["message"]


def test_r66_every_state_has_its_words() -> None:
    assert set(ADVICE) == set(OperationState)
    assert len(set(ADVICE.values())) == len(OperationState)
    for state in OperationState:
        open_ended = not state.settled and state is not OperationState.NONE
        assert ("other means" in ADVICE[state]) is open_ended
