"""Which worlds are walked: one operation alone, and each of the other features in small worlds of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.protocol.model.model import Model, walk
from tests.protocol.model.people import Peopled
from tests.protocol.model.restore import Restored
from tests.protocol.model.rules import Rules
from tests.protocol.model.two_tasks import TwoTasks
from tests.protocol.model.undo import Undoing
from tests.protocol.model.world import (
    A_WHILE,
    A_WHILE_LATE,
    ALWAYS,
    ALWAYS_LATE,
    KINDS,
    NEVER,
    NEVER_LATE,
    NO_LOOKUP,
    Kind,
)

Walk = Callable[[], str]


def one(make: Callable[..., Model], kind: Kind, most: int) -> str:
    """Walk the worlds of one operation."""
    return walk(make(kind, Rules(), most))


def two(target: Kind, undo: Kind) -> str:
    """Walk the worlds of an operation and its undo."""
    return walk(Undoing(target, undo, Rules()))


def named(what: str, make: Callable[..., Model], kinds: list[Kind], most: int) -> dict[str, Walk]:
    """Walks by name."""
    return {f"{what} {kind}": partial(one, make, kind, most) for kind in kinds}


def undone(*pairs: tuple[Kind, Kind]) -> dict[str, Walk]:
    """Walks by name."""
    return {f"undo: {target}; its undo {undo}": partial(two, target, undo) for target, undo in pairs}


WORLDS: dict[str, Walk] = (
    named("one operation:", Model, KINDS, 3)
    | named("people:", Peopled, KINDS, 2)
    | named("two tasks:", TwoTasks, [ALWAYS_LATE, A_WHILE_LATE, NEVER, NEVER_LATE, NO_LOOKUP], 2)
    | undone((NEVER, NEVER_LATE), (NEVER_LATE, NEVER), (ALWAYS_LATE, NEVER_LATE), (NEVER_LATE, ALWAYS_LATE))
    | named("restored:", Restored, [ALWAYS_LATE, NEVER, NEVER_LATE, NO_LOOKUP], 2)
)
"""What the test walks, in seconds each."""

LONG: dict[str, Walk] = (
    named("people, three permits:", Peopled, [ALWAYS, ALWAYS_LATE, A_WHILE_LATE, NEVER, NEVER_LATE], 3)
    | named("two tasks:", TwoTasks, [ALWAYS, A_WHILE], 2)
    | undone((ALWAYS, NEVER_LATE), (NEVER, NEVER), (ALWAYS_LATE, ALWAYS_LATE), (NEVER_LATE, A_WHILE))
    | named("restored:", Restored, [ALWAYS], 2)
    | named("restored, three permits:", Restored, [ALWAYS_LATE], 3)
)
"""What takes longer."""
