"""What the author of a tool needs: two decorators, the answers a tool gives, and the call it is given.

    class Reserve(Arguments):
        order: str
        sku: str
        quantity: int = Field(gt=0)

    @write(key=("order", "sku"), scope=Scope.BUSINESS, lookup=find_reservation, dedupes=timedelta(days=1),
           lands_within=timedelta(seconds=30), resources=lambda reserve: [f"stock/{reserve.sku}"])
    async def reserve_stock(reserve: Reserve, call: Call) -> Answer:
        \"\"\"Reserve stock for an order …\"\"\"

The function's name is the tool's name, its docstring what the model reads, its first parameter the input schema.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict

from settled.activities.steady import steady
from settled.workflows.errors import NotFound, NotSent, RateLimited, Rejected

if TYPE_CHECKING:
    from httpx2 import AsyncClient

__all__ = [
    "FOREVER",
    "Absent",
    "Answer",
    "Arguments",
    "Call",
    "Found",
    "InFlux",
    "NotFound",
    "NotSent",
    "RateLimited",
    "ReadTool",
    "Rejected",
    "Scope",
    "Several",
    "WriteTool",
    "read",
    "write",
]

FOREVER: Final = timedelta.max
"""For `dedupes`: the service never forgets a key."""


class Arguments(BaseModel):
    """The base of a tool's input: strict, frozen, and no field but the declared ones.

    A write's input is stored and read back. So its fields are text, numbers, dates, UUIDs, Enums, and models, lists and
    objects of these, without aliases or serializers; the worker refuses to start with others.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Scope(StrEnum):
    """Where a write's key is unique."""

    TASK = "task"
    """Within one task: another task's equal action is another action."""
    BUSINESS = "business"
    """Everywhere: an equal action of any task is the same action."""


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


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a tool is given besides its arguments."""

    tenant: str
    """Whose data to work on: from the task, never from the model."""
    principal: str
    """In whose name: from the task, never from the model."""
    http: AsyncClient
    """The client to use: no retries, no redirects, and it knows whether a request was begun."""
    deadline: float
    """When to stop, on `settled.activities.steady.steady()`."""
    idempotency_key: str = ""
    """For writes and lookups: the key to send with the request, or to look for."""

    def seconds_left(self) -> float:
        """Seconds until the deadline, never below zero."""
        return max(0.0, self.deadline - steady())


Handler = Callable[[Any, Call], Awaitable[Answer]]
Lookup = Callable[[Any, Call], Awaitable[LookupAnswer]]
Resources = Callable[[Any], Iterable[str]]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """What every tool is: a name, a description, an input model, a handler and limits."""

    name: str
    description: str
    arguments: type[BaseModel] | None
    handler: Handler
    timeout: timedelta
    resources: Resources | None
    source_file: str

    @property
    def seconds(self) -> float:
        """The time budget of one attempt."""
        return self.timeout.total_seconds()


@dataclass(frozen=True, kw_only=True)
class ReadTool(Tool):
    """A tool that changes nothing: it may run again, and beside others."""


class Unsaid:
    """Stands where a write says nothing. Nothing has a default that could mean a promise."""

    def __repr__(self) -> str:
        return "unsaid"


UNSAID: Final = Unsaid()


@dataclass(frozen=True, kw_only=True)
class WriteTool(Tool):
    """A tool that changes something: it goes through the operation protocol."""

    key: tuple[str, ...] | Unsaid
    """The arguments that name the business action."""
    scope: Scope | Unsaid
    """Where the key is unique."""
    lookup: Lookup | Unsaid | None
    """How to find out what became of a request; None where the service offers no way."""
    dedupes: timedelta | Unsaid | None
    """For how long the service gives one effect per key; None if it doesn't."""
    lands_within: timedelta | Unsaid | None
    """After this time no attempt can land any more, and a lookup misses none; None if nobody knows."""


def read(
    *, timeout: timedelta = timedelta(seconds=30), resources: Resources | None = None
) -> Callable[[Handler], ReadTool]:
    """Make a tool of a function that changes nothing.

    Args:
        timeout: the time budget of one attempt.
        resources: what it looks at, as names made from the arguments.
    """

    def make(handler: Handler) -> ReadTool:
        return ReadTool(**_common(handler), timeout=timeout, resources=resources)

    return make


def write(
    *,
    key: tuple[str, ...] | Unsaid = UNSAID,
    scope: Scope | Unsaid = UNSAID,
    lookup: Lookup | Unsaid | None = UNSAID,
    dedupes: timedelta | Unsaid | None = UNSAID,
    lands_within: timedelta | Unsaid | None = UNSAID,
    resources: Resources | None = None,
    timeout: timedelta = timedelta(seconds=30),
) -> Callable[[Handler], WriteTool]:
    """Make a tool of a function that changes something.

    Every argument but the last two must be given, or the worker refuses to start.

    Args:
        key: the arguments that name the business action: not free text, not the whole request.
        scope: where that key is unique.
        lookup: finds out by the idempotency key what became of a request; None where there is no way.
        dedupes: for how long the service gives one effect per key; None if it doesn't; `FOREVER`.
        lands_within: after this time no attempt can land any more; None if nobody knows.
        resources: what it touches, as names made from the arguments; without, it runs alone in its turn.
        timeout: the time budget of one attempt.
    """

    def make(handler: Handler) -> WriteTool:
        return WriteTool(
            **_common(handler),
            timeout=timeout,
            resources=resources,
            key=key,
            scope=scope,
            lookup=lookup,
            dedupes=dedupes,
            lands_within=lands_within,
        )

    return make


def _common(handler: Handler) -> dict[str, Any]:
    """What a tool is by its function. Of an odd one as much as there is: the registry refuses it, and says why."""
    hint = _input_of(handler)
    is_model = isinstance(hint, type) and issubclass(hint, BaseModel)
    return {
        "name": str(getattr(handler, "__name__", "")),
        "description": inspect.getdoc(handler) or "",
        "arguments": hint if is_model else None,
        "handler": handler,
        "source_file": _file_of(handler),
    }


def _input_of(handler: Handler) -> object:
    """The type of the first parameter; None if there is none that can be made out."""
    try:
        first = next(iter(inspect.signature(handler).parameters))
        return get_type_hints(handler if inspect.isroutine(handler) else type(handler).__call__).get(first)
    # An annotation is any expression, and may raise anything.
    except Exception:
        return None


def _file_of(handler: Handler) -> str:
    try:
        return inspect.getsourcefile(handler) or ""
    except TypeError:  # no function: the file in which it was made a tool
        return sys._getframe(3).f_code.co_filename
