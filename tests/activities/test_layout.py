"""JSON with an item a line is what the library makes of it, whatever the value is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settled.activities.layout import laid_out_json

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\n", '"},\n  {"', "]"])
ROWS = st.lists(st.lists(LEAVES, min_size=1)) | st.lists(st.dictionaries(st.text(), LEAVES, min_size=1))


def by_the_library(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


@settings(deadline=None)
@given(st.recursive(LEAVES | ROWS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
def test_any_value_is_laid_out_as_by_the_library(value: Any) -> None:
    assert laid_out_json(value) == by_the_library(value)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        [[]],
        [[], [1]],
        [{}, {"a": 1}],
        [{"a": 1}, [1]],
        [[1, "],\n  ["], ["],", "["]],
        [{"},": "{"}, {"a": "},\n  {"}],
        {"rows": [{"a": 1, "b": None}, {"a": 2, "b": "\u2028é"}]},
        {"deep": [[[1, 2], [3]], [[4]]]},
        [1e22, -0.0, 1.5, 10**30],
    ],
    ids=repr,
)
def test_tables_and_what_only_looks_like_one_are_laid_out_as_by_the_library(value: Any) -> None:
    """Rows are encoded in one call, and parted afterwards: no text in them may be taken for their ends."""
    assert laid_out_json(value) == by_the_library(value)
