"""Canonical JSON: one value, one text, whichever way it was written down."""

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from settled.activities.canonical import canonical, digest_of

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Price(Enum):
    LOW = Decimal("1.50")


class Point(BaseModel):
    x: int
    y: Decimal = Decimal("2.0")


class Ratio(BaseModel):
    value: float


calm = settings(deadline=None)  # how long one example takes depends on what else the machine does


def json_values() -> st.SearchStrategy[Any]:
    """What JSON can hold. No two keys of an object are equal in NFC, which is refused."""
    text = st.text(st.characters(exclude_categories=["Cs"]))
    # Python reads 1E400 as an infinity, and a float's text as that float again.
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
    keys = st.text(st.characters(max_codepoint=0x7F))
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


@calm
@given(json_values())
@example({"a": [1.0, -0.0, 1e16, 2.0**53, 5e-324], "b": DECOMPOSED})
def test_the_way_through_json_changes_nothing(value: Any) -> None:
    """What was read back from history, from the ledger or from the wire has the digest of what was written."""
    once = canonical(value)
    assert canonical(json.loads(json.dumps(value))) == once
    assert canonical(json.loads(once)) == once


@calm
@given(json_values())
def test_the_text_is_compact_sorted_json(value: Any) -> None:
    read = json.loads(canonical(value))
    assert canonical(value).decode() == json.dumps(read, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@calm
@given(st.dictionaries(st.sampled_from("abcdef"), st.integers()), st.randoms())
def test_the_order_in_which_fields_were_written_does_not_matter(value: dict[str, int], random: Any) -> None:
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert canonical(dict(shuffled)) == canonical(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ({"b": 1, "a": [1, "x"]}, '{"a":[1,"x"],"b":1}'),
        (COMPOSED, '"caf\u00e9"'),
        (DECOMPOSED, '"caf\u00e9"'),
        ({DECOMPOSED: 1}, '{"caf\u00e9":1}'),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (Decimal("0.10"), '"0.1"'),
        (Decimal("0.1"), '"0.1"'),
        (Decimal("100"), '"100"'),
        (Decimal("1E+2"), '"100"'),
        (Decimal("100.00"), '"100"'),
        (Decimal("-0"), '"0"'),
        (Decimal("0E-7"), '"0"'),
        (Decimal("0E+7"), '"0"'),
        (Decimal("-1.50"), '"-1.5"'),
        (Decimal("0.000001"), '"0.000001"'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), '"2026-01-02T03:04:05+00:00"'),
        (datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"'),  # noqa: DTZ001 - a wall clock's time
        (date(2026, 1, 2), '"2026-01-02"'),
        (time(3, 4), '"03:04:00"'),
        (timedelta(seconds=90), "90"),
        (timedelta(milliseconds=1500), "1.5"),
        (UUID("12345678123456781234567812345678"), '"12345678-1234-5678-1234-567812345678"'),
        (Colour.RED, '"red"'),
        (Level.HIGH, "3"),
        (Price.LOW, '"1.5"'),
        ({Colour.RED: 1}, '{"red":1}'),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        ((1, 2), "[1,2]"),
        (Point(x=1), '{"x":1,"y":"2"}'),
    ],
    ids=lambda value: repr(sorted(value) if isinstance(value, frozenset) else value),  # in one order, in each process
)
def test_each_value_has_one_text(value: Any, text: str) -> None:
    assert canonical(value).decode() == text


def test_one_instant_has_one_text_in_whatever_zone_it_is_written() -> None:
    """Two texts would make two keys of one business action, and two effects."""
    here = datetime(2026, 1, 2, 3, 4, tzinfo=timezone(timedelta(hours=2)))
    assert canonical(here) == canonical(here.astimezone(UTC)) == b'"2026-01-02T01:04:00+00:00"'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("12345678901234567890123456789.01"), Decimal("12345678901234567890123456789.02")),
        (Decimal(10**40), Decimal(10**40 + 1)),
        (Decimal("1E+999999999"), Decimal("1E+999999998")),
        (Decimal("1E+999999999"), Decimal("-1E+999999999")),
        (Decimal(1), Decimal(-1)),
        (Decimal("1E-999999999"), Decimal("1E-999999998")),
        (2**53, 2**53 + 1),
        (1, True),
        ("1", 1),
        ([1, 2], [2, 1]),
        ({"a": None}, {}),
        ("a", "A"),
        ("a ", "a"),
        ([[1], 2], [[1, 2]]),
    ],
    ids=repr,
)
def test_different_values_have_different_texts(one: Any, other: Any) -> None:
    """A text that rounds or folds would make one action of two."""
    assert canonical(one) != canonical(other)


@calm
@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
@example(Decimal("1E+30"), Decimal(10**30))
@example(Decimal("1E+999999999"), Decimal("10E+999999998"))
@example(Decimal("1E-999999999"), Decimal("10E-1000000000"))
def test_decimals_have_one_text_exactly_if_they_are_equal(one: Decimal, other: Decimal) -> None:
    assert (canonical(one) == canonical(other)) is (one == other)


def test_a_decimal_with_a_monstrous_exponent_stays_a_short_text() -> None:
    """A model may write 1E+999999999; spelled out, that would fill the memory."""
    assert len(canonical(Decimal("1E+999999999"))) < 50
    assert len(canonical(Decimal("-1E-999999999"))) < 50


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("-Infinity"),
        "ok \ud83d",
        {"ok \ud83d": 1},
        b"bytes",
        object(),
        {1: "a key that is no text"},
        {COMPOSED: 1, DECOMPOSED: 2},
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        Ratio(value=math.inf),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: {"deep": [[value]]}], ids=["bare", "deep"])
def test_b32_what_has_no_faithful_json_form_is_refused(value: Any, wrap: Any) -> None:
    """B32: no silent null, and no loss: what can't be told apart in JSON is no key and no fingerprint."""
    with pytest.raises(ValueError, match=r"has no JSON form|must be text|surrogates not allowed|the same in NFC"):
        canonical(wrap(value))


@pytest.mark.parametrize(
    ("one", "other"),
    [(("ab", "c"), ("a", "bc")), (("a",), ("a", "")), (("1:a",), ("1", "a")), ((), ("",)), (("a", "b"), ("b", "a"))],
    ids=repr,
)
def test_a_digest_tells_where_one_part_ends_and_the_next_begins(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert digest_of(*one) != digest_of(*other)


def test_a_digest_is_of_the_bytes() -> None:
    assert digest_of("caf\u00e9") == digest_of("caf\u00e9".encode())
    assert digest_of("a", b"b") == digest_of(b"a", "b")
    # Fixed for ever: transcripts are chains of these.
    assert digest_of("", "user", b"[]") == "d6ebc90e108a3894ecc9a110967b24662bbf78009445a0635fff41d8d79d92e5"
