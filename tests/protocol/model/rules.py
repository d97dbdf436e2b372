"""The decisions that a model runs: as they ship, unless a broken rule takes the place of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from settled.activities import protocol, settling
from settled.activities.journal import Entry, Operation
from settled.activities.keys import remote_key
from settled.activities.protocol import Around, Blocked, Refused
from settled.activities.settling import Lookup, Patience, Promise
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import TRANSITIONS, Event

Arrows = Mapping[tuple[OperationState, Event], OperationState]


def claim(
    operation: Operation | None, ask: protocol.Claim, now: float, around: Around
) -> Entry | Blocked | Refused | None:
    """The shipped judgement of a claim, as the ledger makes it."""
    return protocol.obstacle(operation, ask, around) or protocol.claim(operation, ask, now, around)


def judge(operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience) -> Entry:
    """The shipped judgement of a lookup."""
    return settling.judge(
        operation,
        promise,
        lookup,
        remote_key=remote_key(operation.key, operation.generation),
        arguments={},
        waiting=waiting,
        patience=patience,
    )


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The decisions."""

    claim: Callable[[Operation | None, protocol.Claim, float, Around], Entry | Blocked | Refused | None] = claim
    report: Callable[[Operation, protocol.Report, float], Entry | None] = protocol.report
    miss: Callable[[Operation | None, protocol.Claim, float, Around], Entry | None] = protocol.miss
    withdraw: Callable[..., Entry | None] = protocol.withdraw
    resolve: Callable[..., Entry | None] = protocol.resolve
    undone: Callable[[Operation | None, Operation], Entry | None] = protocol.undone
    next_generation: Callable[[Operation | None], int] = protocol.next_generation
    judge: Callable[[Operation, Promise, Lookup, bool, Patience], Entry] = judge
    arrows: Arrows = field(default_factory=dict)
    """Arrows that the state table doesn't have."""
    judges_late: bool = False
    """Whether a lookup counts for the time at which its answer is written, instead of that before it was asked."""
    writes_stale: bool = False
    """Whether a row is written although the journal has moved on since it was decided."""
    restored: Callable[[Operation, protocol.Epoch, float], Entry | None] = protocol.restored
    opens_epoch: bool = True
    """Whether somebody says that the ledger was set back to a copy."""


@contextmanager
def table_with(arrows: Arrows) -> Iterator[None]:
    """The state table with more, or other, arrows."""
    before: dict[OperationState, dict[Event, Any]] = {state: dict(row) for state, row in TRANSITIONS.items()}
    try:
        for (state, event), to in arrows.items():
            TRANSITIONS[state][event] = to
        yield
    finally:
        for state, row in before.items():
            TRANSITIONS[state].clear()
            TRANSITIONS[state].update(row)
