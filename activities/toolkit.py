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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict

from settled.activities.answers import Absent, Answer, Found, InFlux, LookupAnswer, Several
from settled.activities.steady import steady
from settled.workflows.errors import NotFound, NotSent, RateLimited, Rejected

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from sqlalchemy.ext.asyncio import AsyncConnection

    from settled.activities.output_store import TaskOutputs

__all__ = [
    "FOREVER",
    "Absent",
    "Answer",
    "Arguments",
    "Call",
    "Found",
    "InFlux",
    "LookupAnswer",
    "NotFound",
    "NotSent",
    "RateLimited",
    "ReadTool",
    "Rejected",
    "Scope",
    "Several",
    "ShownTo",
    "Supersedes",
    "WriteTool",
    "read",
    "transaction",
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


class ShownTo(StrEnum):
    """Who may see what another one's equal action came to, and with which arguments. A business scope is shared."""

    PRINCIPAL = "principal"
    """Only the principal in whose name it was done; others are told that it was done."""
    TENANT = "tenant"
    """Every principal of the tenant."""


class Unsaid:
    """Stands where a write says nothing. Nothing has a default that could mean a promise."""

    def __repr__(self) -> str:
        return "unsaid"


UNSAID: Final = Unsaid()


@dataclass(frozen=True, kw_only=True)
class Supersedes:
    """How a tool made its keys before. What was done under those keys is found, and not done again."""

    key: tuple[str, ...]
    """The arguments that made up the key then; all of them must still be arguments."""
    scope: Scope
    """The scope then."""
    tool: str = ""
    """The tool's name then, where it was another one."""
    types: Mapping[str, type] = field(default_factory=dict)
    """The types of those key fields that were of another type then: `str` or `int`, e.g. `{"order": str}`."""
    undoes: str | Unsaid | None = UNSAID
    """The tool that it took back then, where that was another one; None if it took nothing back."""


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
    undoes_key: str = ""
    """For a write that undoes another one: the idempotency key that the other one was sent with."""
    connection: AsyncConnection | None = None
    """For a transactional tool: the ledger's own connection, in the transaction that also marks the write as done."""
    outputs: TaskOutputs | None = None
    """For `read_output`: what calls of the same task have answered."""

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
    undoes: str | None = None
    """The tool whose action this one takes back: the one with the same values in that tool's key fields."""
    supersedes: tuple[Supersedes, ...] = ()
    """How this tool made its keys before, newest first."""
    shown_to: ShownTo = ShownTo.PRINCIPAL
    """Who may see what another one's equal action came to."""
    transactional: bool = False
    """Whether it writes to the ledger's own database, in the transaction that marks it as done."""


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
    undoes: str | None = None,
    supersedes: tuple[Supersedes, ...] = (),
    shown_to: ShownTo = ShownTo.PRINCIPAL,
) -> Callable[[Handler], WriteTool]:
    """Make a tool of a function that changes something.

    The first five must be given, or the worker refuses to start.

    Args:
        key: the arguments that name the business action: not free text, not the whole request.
        scope: where that key is unique.
        lookup: finds out by the idempotency key what became of a request; None where there is no way.
        dedupes: for how long the service gives one effect per key; None if it doesn't; `FOREVER`.
        lands_within: after this time no attempt can land any more; None if nobody knows.
        resources: what it touches, as names made from the arguments; without, it runs alone in its turn.
        timeout: the time budget of one attempt.
        undoes: the write that this one takes back; its key fields must be arguments of this one, too. A write that was
            undone may be proposed again, and so may this one after that.
        supersedes: how the keys were made before, where that has changed since the first operation.
        shown_to: who may see the stored result and arguments of another one's equal action.
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
            undoes=undoes,
            supersedes=supersedes,
            shown_to=shown_to,
        )

    return make


def transaction(
    *,
    key: tuple[str, ...] | Unsaid = UNSAID,
    scope: Scope | Unsaid = UNSAID,
    resources: Resources | None = None,
    timeout: timedelta = timedelta(seconds=3),
    undoes: str | None = None,
    supersedes: tuple[Supersedes, ...] = (),
    shown_to: ShownTo = ShownTo.PRINCIPAL,
) -> Callable[[Handler], WriteTool]:
    """Make a tool of a function that writes to the ledger's own database, and to nothing else.

    It is given `call.connection`. What it writes there is committed together with the mark that it was done, or not at
    all: its outcome is never unknown, and needs no lookup. It must neither commit nor roll back, nor send anything:
    that could not be taken back. The database's writers wait for it, so it must be quick.

    Args:
        key, scope, resources, undoes, supersedes, shown_to: as for `write`.
        timeout: the time budget; at most four seconds.
    """

    def make(handler: Handler) -> WriteTool:
        return WriteTool(
            **_common(handler),
            timeout=timeout,
            resources=resources,
            key=key,
            scope=scope,
            lookup=None,
            dedupes=None,
            lands_within=timedelta(0),
            undoes=undoes,
            supersedes=supersedes,
            shown_to=shown_to,
            transactional=True,
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
