"""What a tool answers, and what its lookup finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a tool answers."""

    data: Any
    """The data: a pydantic model, or anything that has a JSON form."""
    source: str
    """Where it comes from, as a person would name it."""
    version: str = ""
    """The version or the time (ISO 8601) that the data stand for, as the source states it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A lookup's answer: the service has a record of the request."""

    key: str | None
    """The idempotency key that the record carries; it counts as ours only if it is the one that was asked for."""
    request: dict[str, Any] | None
    """The request that the record shows, in the tool's own argument names; compared with what was sent."""
    answer: Answer
    """What the tool would have answered, had its reply not been lost."""
    stands: bool = True
    """Whether what was done still stands. Somebody else may have taken it back since: it was done all the same, but
    acceptance asks for what stands."""


@dataclass(frozen=True)
class Absent:
    """A lookup's answer: a complete read shows no record."""


@dataclass(frozen=True)
class InFlux:
    """A lookup's answer: the service is still working on the request, or its read was not complete."""

    note: str = ""


@dataclass(frozen=True)
class Several:
    """A lookup's answer: more than one record could be ours."""

    records: list[dict[str, Any]] = field(default_factory=list)


LookupAnswer = Found | Absent | InFlux | Several
