"""A person's word on an operation: checked strictly when it is said, read leniently when it stands in history. Pure.

A slip in the name of a field must not drop what the person meant by it; a word that a newer release took must be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from settled.workflows.contract.operation import Resolution, Resolved

SHAPE = '{"outcome": …, "because": …, "who": …}'
MOST_NAME, MOST_SHOWN = 80, 60


def faults_of(words: Sequence[Any]) -> list[str]:
    """What is wrong with what a person says, a line for each fault, with the mend; none if it is a word."""
    given = words[0] if len(words) == 1 else None
    if isinstance(given, Resolution):
        given = given.model_dump(mode="json")
    if not isinstance(given, dict):
        return [f"input: expected one, {SHAPE}"]
    wrong = [f"{name}: {fault}" for name, check in CHECKS.items() if (fault := check(given, name))]
    unknown = [_short(str(name), MOST_NAME) for name in given if name not in CHECKS]
    return wrong + [f"{name}: unknown field; the fields are {', '.join(CHECKS)}" for name in unknown]


def word_in(words: Sequence[Any]) -> Resolution | None:
    """The word, whatever else is said with it; None if it is none of this release's."""
    try:
        word = Resolution.model_validate(words[0] if len(words) == 1 else None)
    except ValidationError:
        return None
    return word if word.outcome.known else None


def _outcome(given: Mapping[str, Any], name: str) -> str:
    *others, last = Resolved
    said, known = given.get(name), f"{', '.join(others)} or {last}"
    if said is None:
        return f"say what has become of it: {known}"
    known_one = isinstance(said, str) and Resolved(said).known
    return "" if known_one else f"must be {known}, not {_short(repr(said), MOST_SHOWN)}"


def _text(missing: str, most: int) -> Callable[[Mapping[str, Any], str], str]:
    def check(given: Mapping[str, Any], name: str) -> str:
        said = given.get(name)
        if said is None or (isinstance(said, str) and not said.strip()):
            return missing
        if not isinstance(said, str):
            return "must be text"
        return f"at most {most:,} characters" if len(said.strip()) > most else ""

    return check


def _generation(given: Mapping[str, Any], name: str) -> str:
    said = given.get(name)
    if said is None or (isinstance(said, int) and not isinstance(said, bool) and said >= 1):
        return ""
    return "must be the number of the generation that you have looked at, from 1; or leave it out"


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


CHECKS: dict[str, Callable[[Mapping[str, Any], str], str]] = {
    "outcome": _outcome,
    "because": _text("say how you know", 2_000),
    "who": _text("say who you are", 200),
    "generation": _generation,
}
"""What is checked of each field of a `Resolution`, in the order in which faults are told."""
