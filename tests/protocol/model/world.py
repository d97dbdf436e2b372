"""What there is in a world: kinds of services, attempts, what a settlement is about to write, and who has spoken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from settled.activities.settling import Patience, Promise
from settled.workflows.states import Event

GENERATIONS = 2

SECONDS, LANDS_WITHIN, REMEMBERS = 10.0, 100.0, 10_000.0
NOW, LOOK = 1_000.0, 1_011.0
LATER = LOOK + 3_600.0
"""When a permit has been open for too long."""
LONG_AGO = 0.0
"""The deadline of an attempt that has grown old."""
FORGOTTEN = NOW - 2 * REMEMBERS
"""When the first attempt was claimed, if the service has forgotten its key since."""
PATIENT, IMPATIENT = Patience(total=1e9), Patience(total=0.0)


class Kind(NamedTuple):
    """A kind of service, by what its tool states."""

    dedupes: str
    """For how long there is one effect per key: "never", "a while" or "always"."""
    bounded: bool
    """Whether it states `lands_within`."""
    looks_up: bool = True

    def __str__(self) -> str:
        if not self.looks_up:
            return "no lookup"
        return f"dedupes {self.dedupes:7} lands_within {'stated' if self.bounded else 'None'}"

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
ALWAYS, ALWAYS_LATE, A_WHILE, A_WHILE_LATE, NEVER, NEVER_LATE, NO_LOOKUP = KINDS
"""`LATE`: nobody knows how late an attempt may land."""


class Attempt(NamedTuple):
    """An attempt of which something may still come; one that can do nothing more is left out of the world."""

    generation: int
    permit: int
    phase: str = "claimed"
    """claimed ─send▶ flying ─▶ done or declined, at the service; what the ledger is told is another matter."""
    old: bool = False
    """Whether `lands_within` has passed since its deadline: it can neither send nor land any more."""
    lives: bool = True
    """Whether its process will report what it hears."""
    until: float = 0.0
    """When its deadline had to lie at the latest, if its permit was issued because the service remembers the key."""
    lost: bool = False
    """Whether its claim came after the copy that the ledger is, or may be, set back to."""
    late: bool = False
    """Whether the ledger has noted that its deadline has passed; noted only in worlds in which people speak."""

    @property
    def may_land(self) -> bool:
        """Whether it may still have an effect."""
        return self.phase in ("claimed", "flying") and not self.old

    @property
    def over(self) -> bool:
        """Whether nothing comes of it any more: no effect, no report, and no lookup that misses it."""
        return not self.lives and (self.old or self.phase in ("claimed", "declined"))


class Note(NamedTuple):
    """The row that a settlement is about to write; meanwhile, anything may happen."""

    event: Event
    generation: int
    permit: int
    until: float | None = None
    proven: bool = False
    """Whether no attempt can land any more, where the row issues a permit."""
    seen: str | None = None
    """What the lookup said, where it is judged when it is written, which is against the rules."""
    waiting: bool = False


class Past(NamedTuple):
    """The copy that the ledger may be set back to, and what workflows still know once it was."""

    copy: int = 0
    """The operation as the copy has it, by its number; 0: the copy has none."""
    earlier: int = 0
    """The permits that earlier generations had in the copy."""
    closed: tuple[int, ...] = ()
    """The generations of which the copy says that they have no effect."""
    restored: bool = False
    """Whether the ledger is that copy, or what has become of it."""
    opened: int = 0
    """The newest generation that was opened before the ledger was set back."""
    permits: tuple[int, ...] = ()
    """How many permits were issued by then, by generation."""
    old: bool = False
    """Whether nothing that was lost can land any more."""


class World(NamedTuple):
    """Everything there is about one operation."""

    ledger: int = 0
    """The operation as the ledger has it, by its number in `Books.operations`; 0: it has none."""
    attempts: tuple[Attempt, ...] = ()
    effects: tuple[int, ...] = (0,) * GENERATIONS
    """At the service, by generation: each has its own key there."""
    earlier: int = 0
    """The permits that earlier generations had."""
    proposed: int = 1
    """The newest generation that a proposal meant."""
    closed: tuple[int, ...] = ()
    """The generations of which was said that they have no effect."""
    forgets: bool = False
    """Whether the service has forgotten the current generation's key."""
    notes: tuple[Note, ...] = ()
    """What settlements are about to write."""
    said: tuple[int, ...] = ()
    """The generations of which a person has said what became of them, and was heard."""
    tasks: tuple[str, ...] = ()
    """What each task is at, where it matters: "new", "waits" or "gone"."""
    past: Past | None = None
    """The copy of the ledger, once one was made."""
    wrong: str = ""
    """What has just gone wrong, where the world itself doesn't show it."""


def changed(world: World, attempt: Attempt, to: Attempt | None) -> World:
    """The world with this attempt changed, or done with."""
    rest = list(world.attempts)
    rest.remove(attempt)
    if to is not None and not to.over:
        rest.append(to)
    return world._replace(attempts=tuple(sorted(rest)))


def way_to(world: Any, came_from: Mapping[Any, tuple[Any, str] | None]) -> Iterator[str]:
    """The steps that led to the world, the last one first."""
    while (came := came_from[world]) is not None:
        world, step = came
        yield step
