"""What a person says of an operation: every slip is named with its mend, and history is read leniently."""

from __future__ import annotations

from typing import Any

import pytest

from settled.workflows.contract.operation import Resolution, Resolved
from settled.workflows.words import faults_of, word_in

WORD = {"outcome": "completed", "because": "I asked them", "who": "ann"}
KNOWN = "the fields are outcome, because, who, generation"
OUTCOMES = "completed, not_executed or undone"


@pytest.mark.parametrize("more", [{}, {"generation": 2}, {"generation": None}, {"outcome": "undone"}])
def test_a_word_has_no_fault(more: dict[str, Any]) -> None:
    assert faults_of([WORD | more]) == []
    assert word_in([WORD | more]) == Resolution.model_validate(WORD | more)


def test_every_field_of_a_word_is_checked_and_what_is_checked_is_read() -> None:
    """A field that is new in the contract needs its check here."""
    word = Resolution(outcome=Resolved.COMPLETED, because="x" * 2_000, who="y" * 200, generation=1)
    assert faults_of([word]) == []
    assert faults_of([word.model_dump() | dict.fromkeys(Resolution.model_fields, "")]) != []
    assert [line for line in faults_of([dict.fromkeys(Resolution.model_fields)]) if "unknown field" in line] == []


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"genration": 2}, f"genration: unknown field; {KNOWN}"),
        ({"a\nb" + "x" * 200: 2}, f"a b{'x' * 77}…: unknown field; {KNOWN}"),
        ({"outcome": None}, f"outcome: say what has become of it: {OUTCOMES}"),
        ({"outcome": "done"}, f"outcome: must be {OUTCOMES}, not 'done'"),
        ({"outcome": ["x"]}, f"outcome: must be {OUTCOMES}, not ['x']"),
        ({"because": ""}, "because: say how you know"),
        ({"because": " \n"}, "because: say how you know"),
        ({"because": None}, "because: say how you know"),
        ({"because": 5}, "because: must be text"),
        ({"because": "x" * 2_001}, "because: at most 2,000 characters"),
        ({"who": ""}, "who: say who you are"),
        ({"who": ["ann"]}, "who: must be text"),
        ({"who": "x" * 201}, "who: at most 200 characters"),
        *(
            (
                {"generation": odd},
                "generation: must be the number of the generation that you have looked at, from 1; or leave it out",
            )
            for odd in (0, -1, "2", 1.5, True, [1])
        ),
    ],
    ids=str,
)
def test_each_slip_is_one_line_with_the_field_and_the_mend(more: dict[str, Any], line: str) -> None:
    """R103: in words, not in those of a library."""
    assert faults_of([WORD | more]) == [line]


def test_every_slip_is_named_at_once() -> None:
    assert faults_of([{"outcome": "done", "whom": "ann", "generation": 0}]) == [
        f"outcome: must be {OUTCOMES}, not 'done'",
        "because: say how you know",
        "who: say who you are",
        "generation: must be the number of the generation that you have looked at, from 1; or leave it out",
        f"whom: unknown field; {KNOWN}",
    ]


@pytest.mark.parametrize("words", [[], [WORD, WORD], [None], ["completed"], [[WORD]]], ids=str)
def test_what_is_no_object_is_none(words: list[Any]) -> None:
    (line,) = faults_of(words)
    assert line == 'input: expected one, {"outcome": …, "because": …, "who": …}'
    assert word_in(words) is None


def test_r106_a_word_that_a_newer_release_took_is_read_from_history() -> None:
    """A rollback: fields that are new are ignored there, and only there."""
    assert word_in([WORD | {"until": "tomorrow"}]) == Resolution.model_validate(WORD)
    assert word_in([WORD | {"outcome": "postponed"}]) is None
