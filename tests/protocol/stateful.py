"""A service in memory, and the processes that send to it: what the stateful test lets happen to the real ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from settled.activities.keys import remote_key
from settled.activities.settling import Promise
from settled.activities.toolkit import Absent, Answer, Found, InFlux, LookupAnswer
from tests.protocol.stories import SECONDS

LANDS_WITHIN, A_WHILE, ALWAYS = 100.0, 1_500.0, 1e12


class Phase(StrEnum):
    """How far a process has got. It may freeze between any two of these, and go on later, or never."""

    CLAIMED = "claimed"
    SENT = "sent"
    DONE = "done"
    DECLINED = "declined"


@dataclass
class Process:
    """One dispatch that has spent its permit, and the request that it makes."""

    key: str
    generation: int
    permit: int
    claimed_at: float
    phase: Phase = Phase.CLAIMED
    lives: bool = True
    """Whether it still reports; its request goes on without it."""

    @property
    def remote(self) -> str:
        """The idempotency key that the service sees."""
        return remote_key(self.key, self.generation)

    @property
    def deadline(self) -> float:
        """After this time it sends nothing."""
        return self.claimed_at + SECONDS


@dataclass
class Service:
    """A service that keeps the promises of its tool, and no others."""

    promise: Promise
    effects: dict[str, list[float]] = field(default_factory=dict)
    """When each remote key had an effect."""
    landed: list[Process] = field(default_factory=list)
    """The requests that had an effect, or would have had one."""
    first_claims: dict[str, float] = field(default_factory=dict)
    absent_at: dict[str, float] = field(default_factory=dict)
    """When a lookup of the key was last asked that said absent."""

    def count(self, key: str, generation: int) -> int:
        """How many effects there are."""
        return len(self.effects.get(remote_key(key, generation), []))

    def may_land(self, process: Process, now: float) -> bool:
        """Whether a request may still arrive."""
        if process.phase is not Phase.SENT:
            return False
        if self.promise.lands_within is not None:
            return now <= process.deadline + self.promise.lands_within
        # Without that promise, a key that is remembered for a while must be remembered for as long as a request is
        # under way (README). Otherwise, nobody knows.
        return self.promise.dedupes is None or now <= self.first_claims[process.remote] + self.promise.dedupes

    def land(self, process: Process, now: float) -> None:
        """The request arrives, and is carried out unless its key is known."""
        done, dedupes = self.effects.setdefault(process.remote, []), self.promise.dedupes
        if dedupes is None or not done or now > self.first_claims[process.remote] + dedupes:
            done.append(now)
        process.phase = Phase.DONE
        self.landed.append(process)

    def may_decline(self, process: Process, now: float) -> bool:
        """Whether it may say no: not to what it knows that it has done."""
        return self.may_land(process, now) and (self.promise.dedupes is None or not self.effects.get(process.remote))

    def look_up(self, key: str, generation: int, mood: str, now: float) -> LookupAnswer | None:
        """What a lookup says. It may lag behind for as long as a request may be on its way, may fail, or be in flux."""
        remote, within = remote_key(key, generation), self.promise.lands_within
        mine = [process for process in self.landed if process.remote == remote]
        lags = any(within is None or now <= process.deadline + within for process in mine)
        if mood == "fails":
            return None
        if mood == "is in flux":
            return InFlux()
        if self.effects.get(remote) and not (mood == "lags" and lags):
            return Found(key=remote, request=None, answer=Answer(data=None, source="service"))
        self.absent_at[remote] = now
        return Absent()
