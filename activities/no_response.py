"""What to do where a model request brought no response: the same again, another model, a lower limit, a summary. Pure.

overloaded              another model, after two overloads in a row, or all attempts, or a plain no
limit too high          a lower limit; an end if it was raised after a cut, and can't be above the one that cut; another
                        model, or an end, where thinking takes up all of it
no room for the limit   the same, if it was raised; else sum up
too long                sum up
anything else           the same again, or none
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from settled.activities.model_errors import Remedy, Trouble
from settled.activities.stop_table import Means, Step, lowered, once_more
from settled.workflows.contract.turn import Compact, End, Resend

OVERLOADS_BEFORE_FALLBACK = 2
"""A model that is overloaded once may not be so a second later; another model costs a conversation of its own."""
OVERLOADS = "overloads"
TOO_LONG = "too_long"
"""Under these names the next attempt is told how many there were."""


def without_response(trouble: Trouble, means: Means, *, tried_enough: bool) -> End | Resend | Compact | None:
    """What the loop is to do; none: the request is tried again, or given up.

    Args:
        trouble: why there is no response.
        means: what is left to go on with.
        tried_enough: whether an overloaded model has had its attempts.
    """
    match trouble.remedy:
        case Remedy.SUM_UP:
            return once_more(Step.SUM_UP, means)
        case Remedy.MAKE_ROOM:
            raised = means.repeats.truncated > 0 and means.kept is not None
            return (lowered(trouble.allowed, means) if raised else None) or once_more(Step.SUM_UP, means)
        case Remedy.LOWER:
            return lowered(trouble.allowed, means)
        case Remedy.FALL_BACK if means.fallback and (tried_enough or not trouble.again):
            return once_more(Step.FALL_BACK, means)
        case _:
            return None


def overloads(trouble: Trouble, noted: Sequence[Any]) -> int:
    """Overloads in a row, this one included; 0 where it is none.

    Args:
        trouble: of this attempt.
        noted: the heartbeat details of the attempt before.
    """
    if trouble.remedy is not Remedy.FALL_BACK:
        return 0
    return 1 + number_of(OVERLOADS, noted)


def number_of(name: str, noted: Sequence[Any]) -> int:
    """A number that the attempt before has noted; 0 where it hasn't.

    Args:
        name: of the number.
        noted: its heartbeat details.
    """
    before = noted[0].get(name) if noted and isinstance(noted[0], Mapping) else None
    return before if isinstance(before, int) else 0
