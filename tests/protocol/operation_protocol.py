"""Exhaustive check of the operation protocol: every interleaving of up to three dispatches, over two generations.

    python -m tests.protocol.operation_protocol    # each kind of service, then what each broken rule leads to

Modelled here are the world outside of the ledger (dispatches that freeze, die, answer late or never; a service that is
slow, forgets keys, and whose lookups lag) and the order in which things happen, which is any. Not modelled but called,
as they ship, are the decisions (`activities.protocol`, `activities.settling`), the state table (`workflows.states`) and
the fold (`activities.journal`): what is checked is what runs. A change of a rule belongs there; this shows what it does.

Time is what a world makes of it. A claim is made at `NOW` and a lookup at `LOOK`, just after the attempt's deadline; an
attempt that has grown old has a deadline of long ago, so that `lands_within` has passed since. A service that remembers
keys for a while may forget them as soon as the attempts' deadlines and the service's own promises allow it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from settled.activities import protocol, settling
from settled.activities.journal import Entry, Operation, Row, Subject, advance
from settled.activities.keys import remote_key
from settled.activities.settling import Lookup, Move, Patience, Promise
from settled.activities.toolkit import Absent, Answer, Found, InFlux, LookupAnswer
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import IllegalTransition
from settled.workflows.states import TRANSITIONS, Event

MOST_DISPATCHES = 3
"""Dispatches at a time of which something may still come."""
MOST_PERMITS = 3
GENERATIONS = (1, 2)

KEY = "0" * 64
SUBJECT = Subject(tool="t", tenant="t", principal="p", fingerprint="f", arguments="a", resources=())
NOW, LOOK = 1000.0, 1011.0
SECONDS, LANDS_WITHIN, REMEMBERS = 10.0, 100.0, 10_000.0
LONG_AGO = 0.0
"""The deadline of an attempt that has grown old: `lands_within` has passed since."""
FORGOTTEN = NOW - 2 * REMEMBERS
"""When the first attempt was made, if the service has forgotten its key since."""
PATIENT, IMPATIENT = Patience(total=1e9), Patience(total=0.0)
UNSETTLED = frozenset(
    {OperationState.DISPATCHED, OperationState.UNKNOWN, OperationState.RESENDABLE, OperationState.NEEDS_HUMAN}
)


class Kind(NamedTuple):
    """A kind of service, by what its tool states."""

    dedupes: str
    """For how long there is one effect per key: "never", "a while" or "always"."""
    bounded: bool
    """Whether it states `lands_within`."""
    looks_up: bool = True
    """Whether it has a lookup."""

    def __str__(self) -> str:
        if not self.looks_up:
            return "no lookup"
        return f"dedupes {self.dedupes}, lands_within {'stated' if self.bounded else 'None'}"

    @property
    def promise(self) -> Promise:
        """The same, as the shipped decisions are told."""
        return Promise(
            dedupes={"never": None, "a while": REMEMBERS, "always": 1e12}[self.dedupes],
            lands_within=LANDS_WITHIN if self.bounded else None,
            seconds=SECONDS,
            can_look_up=self.looks_up,
        )


KINDS = [
    *(Kind(dedupes, bounded) for dedupes in ("always", "a while", "never") for bounded in (True, False)),
    Kind("never", bounded=False, looks_up=False),
]


class Attempt(NamedTuple):
    """A dispatch of which something may still come. One that can do nothing more is left out of the world."""

    generation: int
    permit: int
    phase: str = "idle"
    """idle ─claim▶ claimed ─send▶ flying ─▶ done (at the service) | declined"""
    old: bool = False
    """Whether `lands_within` has passed since its deadline: it can't send or land any more."""
    heard: bool = True
    """Whether it lives, and will report what it hears."""
    until: float | None = None
    """If its permit was issued because the service dedupes: the latest deadline that the permit allowed."""

    @property
    def may_land(self) -> bool:
        """Whether it may still have an effect."""
        return self.phase in ("claimed", "flying") and not self.old


class World(NamedTuple):
    """Everything there is."""

    ledger: int = 0
    """The operation as the ledger has it, by its number in `Model.operations`; 0: no row."""
    attempts: tuple[Attempt, ...] = ()
    effects: tuple[int, ...] = (0, 0)
    """At the service, by generation: each has its own key there."""
    proposed: int = 1
    """The newest generation that a proposal named."""
    closed: int = 0
    """The newest generation that was said to have had no effect."""
    forgets: bool = False
    """Whether the service has forgotten the current generation's key."""
    asked: Entry | Seen | None = None
    """What a lookup that was made will add to the journal, or saw; the journal may move before it is written."""


class Seen(NamedTuple):
    """What a lookup saw, where it is judged only when it is written (a broken rule)."""

    found: bool
    waiting: bool


@dataclass(frozen=True)
class Rules:
    """The decisions, each as it ships unless a broken rule takes its place."""

    claim: Callable[[Operation | None, protocol.Claim, float], Entry | None] = protocol.claim
    report: Callable[[Operation, protocol.Report, float], Entry | None] = protocol.report
    miss: Callable[[Operation | None, protocol.Claim, float], Entry | None] = protocol.miss
    next_generation: Callable[[Operation | None], int] = protocol.next_generation
    judge: Callable[[Operation, Promise, Lookup, bool, Patience], Entry] = lambda operation, promise, lookup, waiting, (
        patience
    ): settling.judge(
        operation, promise, lookup, remote_key=remote_key(KEY, operation.generation), arguments={}, waiting=waiting,
        patience=patience,
    )
