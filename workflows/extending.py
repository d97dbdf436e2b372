"""Extending a task's budget: what a person may say, and what it makes of the limits. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from settled.workflows import budgets
from settled.workflows.contract.loop import LoopState
from settled.workflows.contract.task import Budget, Extension

SHAPE = 'one JSON object like {"turns": 5, "cost": "2.50", "because": "…", "who": "…"}'
MOST_NAME = 80
MOST_FAULTS = 10
MOST_UPDATES = 50
"""Ids of updates that are kept. An id is only used again by who didn't hear the answer, and soon then."""


class BadExtension(Exception):
    """What was said can't be added to the budget. The text is one line that names the fields, and the mend."""


def extension(words: Sequence[Any]) -> Extension:
    """What is to be added.

    Args:
        words: the inputs of the update.

    Raises:
        BadExtension: it is no extension.
    """
    if len(words) != 1 or not isinstance(words[0], dict):
        raise BadExtension(f"input: expected {SHAPE}")
    try:
        # By way of JSON, in which an amount of money may be a number, too, and nothing else is taken for another.
        # What is no number (nan) is one of its forms here, so that its field is named.
        given = Extension.model_validate_json(json.dumps(words[0]), strict=True)
    except ValidationError as error:
        raise BadExtension("; ".join(_lines(error))) from None
    except (TypeError, ValueError):
        raise BadExtension(f"input: not a JSON object; expected {SHAPE}") from None
    if not amounts(given):
        raise BadExtension(f"input: nothing is added; give at least one of {', '.join(Budget.model_fields)}")
    return given


def amounts(given: Extension) -> dict[str, Any]:
    """What is added, by the name of the limit."""
    return {name: getattr(given, name) for name in Budget.model_fields if getattr(given, name) is not None}


def extended(state: LoopState, given: Extension, now: float) -> LoopState:
    """The state with its limits extended. Time that is over already doesn't count: the new one begins now.

    Raises:
        BadExtension: the task has no such limit.
    """
    limits, changed = budgets.limits_of(state), {}
    for name, amount in amounts(given).items():
        limit = getattr(limits, name)
        if limit is None:
            raise BadExtension(f"{name}: the task has no such limit, so there is nothing to extend; leave it out")
        over = max(limit, now - state.opened_at) if name == budgets.WALL_TIME.limit else limit
        changed[name] = over + amount
    opened = state.opened.model_copy(update={"limits": limits.model_copy(update=changed)})
    return state.model_copy(update={"opened": opened})


def noted(state: LoopState, update: str) -> LoopState:
    """The state that knows that this update was taken, so that it counts once: also in a later run of the task."""
    return state.model_copy(update={"extended_by": (*state.extended_by, update)[-MOST_UPDATES:]})


def _lines(error: ValidationError) -> list[str]:
    """A line for each fault; never the value."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_FAULTS]
    lines = []
    for fault in faults:
        place = " ".join(".".join(map(str, fault["loc"])).split())[:MOST_NAME]
        if fault["type"] == "extra_forbidden":
            lines.append(f"{place}: unknown field; the fields are {', '.join(Extension.model_fields)}")
        elif fault["type"] == "greater_than":
            lines.append(f"{place}: {fault['msg']}; give the amount that is added to the limit")
        else:
            lines.append(f"{place or 'input'}: {fault['msg']}")
    return lines
