"""What to do where a model request brought no response, and how often an overload is waited for."""

from dataclasses import replace
from typing import Any

import pytest

from settled.activities.model_errors import Remedy, Trouble
from settled.activities.no_response import OVERLOADS, overloads, without_response
from settled.activities.stop_table import Means
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.turn import Again, Compact, End, Repeats, Resend


def means(repeats: Repeats | None = None, *, kept: int | None = None, fallback: bool = True) -> Means:
    return Means(
        repeats=repeats or Repeats(), max_tokens=kept or 1_000, max_tokens_most=4_000, fallback=fallback, kept=kept
    )


def thinking(budget: int, *, fallback: bool) -> Means:
    """What is left where the model may think so many of its 1,000 tokens."""
    return replace(means(fallback=fallback), thinking=budget)


def trouble(remedy: Remedy, **more: Any) -> Trouble:
    return Trouble(remedy=remedy, message="x", **more)


CUT = Repeats(truncated=1)


@pytest.mark.parametrize(
    ("given", "left", "decided"),
    [
        (trouble(Remedy.SUM_UP), means(), Compact()),
        (trouble(Remedy.SUM_UP), means(CUT, kept=2_000), Compact()),
        (trouble(Remedy.MAKE_ROOM, allowed=900), means(), Compact()),
        (trouble(Remedy.MAKE_ROOM, allowed=1_900), means(CUT, kept=2_000), Resend(why=Again.LOWERED, max_tokens=1_900)),
        (trouble(Remedy.MAKE_ROOM, allowed=1_000), means(CUT, kept=2_000), EndReason.OUTPUT_TRUNCATED),
        (trouble(Remedy.MAKE_ROOM), means(CUT, kept=2_000), EndReason.OUTPUT_TRUNCATED),
        (trouble(Remedy.LOWER, allowed=500), means(), Resend(why=Again.LOWERED, max_tokens=500)),
        (trouble(Remedy.LOWER), means(), None),
        (trouble(Remedy.LOWER, allowed=500), thinking(499, fallback=True), Resend(why=Again.LOWERED, max_tokens=500)),
        (trouble(Remedy.LOWER, allowed=500), thinking(500, fallback=True), Resend(why=Again.FALLBACK)),
        (trouble(Remedy.LOWER, allowed=500), thinking(500, fallback=False), EndReason.MODEL_ERROR),
        (trouble(Remedy.RETRY), means(), None),
        (trouble(Remedy.GIVE_UP), means(), None),
        (trouble(Remedy.FALL_BACK), means(), None),
        (trouble(Remedy.FALL_BACK, again=False), means(), Resend(why=Again.FALLBACK)),
        (trouble(Remedy.FALL_BACK, again=False), means(fallback=False), None),
    ],
    ids=str,
)
def test_b18_each_remedy_is_a_step_of_its_own(given: Trouble, left: Means, decided: Any) -> None:
    """B18: a raise that has no room is taken back before anything is summed up."""
    made = without_response(given, left, tried_enough=False)
    assert (made.reason if isinstance(made, End) else made) == decided


def test_r95_who_has_tried_enough_goes_to_the_next_model() -> None:
    assert without_response(trouble(Remedy.FALL_BACK), means(), tried_enough=True) == Resend(why=Again.FALLBACK)
    assert without_response(trouble(Remedy.RETRY), means(), tried_enough=True) is None


@pytest.mark.parametrize(
    ("noted", "count"),
    [([], 1), ([{}], 1), ([{"model": "m", "attempt": 1}], 1), ([{OVERLOADS: 1}], 2), ([{OVERLOADS: "x"}], 1), ([7], 1)],
    ids=str,
)
def test_r95_overloads_are_counted_in_a_row(noted: list[Any], count: int) -> None:
    """A cut stream in between is none."""
    assert overloads(trouble(Remedy.FALL_BACK), noted) == count
    assert overloads(trouble(Remedy.RETRY), noted) == 0
