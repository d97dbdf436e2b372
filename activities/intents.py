"""Which operation a call means: its key, its generation, and what it takes back. The ledger is read for it.

The answer is recorded in the proposal. So a retry, a reset or a deploy means the same operation, whatever the ledger
says by then; and a claim finds out whether it may still be done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from settled.activities import protocol
from settled.activities.journal import Operation
from settled.activities.keys import Realm, key_forms, operation_key
from settled.activities.registry import Registry
from settled.activities.toolkit import WriteTool
from settled.workflows.contract.operation import Intent, Target

Read = Callable[[str], Awaitable[Operation | None]]
"""Reads an operation's current generation from the ledger."""


@dataclass(frozen=True, kw_only=True)
class Meant:
    """The operation that a call means."""

    key: str
    operation: Operation | None
    """As the ledger has it; None if its journal is empty."""
    generation: int
    """Which intent under that key."""
    undoes: Target | None = None
    """What it takes back."""
    expected: bool = False
    """Whether the generation is one that the earlier calls of the response are to lead to."""


@dataclass
class Earlier:
    """What the earlier calls of the same response mean: they run first."""

    meant: dict[str, int] = field(default_factory=dict)
    """The generation that each key was last meant with."""
    undone: dict[str, int] = field(default_factory=dict)
    """The generation of each key that will have been taken back."""

    def add(self, intent: Intent) -> None:
        """Note one more call."""
        self.meant[intent.key] = intent.generation
        if intent.undoes is not None:
            self.undone[intent.undoes.key] = intent.undoes.generation

    def generation(self, key: str, operation: Operation | None) -> int:
        """The generation that a call on this key means after them."""
        standing = max(protocol.next_generation(operation), self.meant.get(key, 0))
        return max(standing, self.undone.get(key, 0) + 1)


@dataclass(frozen=True, kw_only=True)
class Meanings:
    """What is needed to tell which operation a call means."""

    registry: Registry
    read: Read
    realm: Realm

    async def of(self, tool: WriteTool, arguments: BaseModel, earlier: Earlier) -> Meant:
        """The operation that the call means.

        Args:
            tool: whose call it is.
            arguments: the validated arguments.
            earlier: what the earlier calls of the same response mean.
        """
        undoes = await self.target(tool, arguments, earlier)
        keys = self.keys(tool, arguments, undoes)
        first: Meant | None = None
        for key in keys:
            operation = await self.read(key)
            generation = earlier.generation(key, operation)
            meant = Meant(
                key=key,
                operation=operation,
                generation=generation,
                undoes=undoes,
                expected=generation > protocol.next_generation(operation),
            )
            if meant.operation is not None and not meant.operation.state.closed:
                return meant  # it stands, perhaps under a key of an earlier form
            first = first or meant
        assert first is not None, "a tool has at least one form of keys"
        return first

    async def target(self, tool: WriteTool, arguments: BaseModel, earlier: Earlier) -> Target | None:
        """What a call takes back: the generation that stands or is out, or the next one to come."""
        if tool.undoes is None:
            return None
        meant = await self.of(self.registry.write(tool.undoes), arguments, earlier)
        if meant.key in earlier.meant or meant.key in earlier.undone:
            last = max(earlier.meant.get(meant.key, 0), earlier.undone.get(meant.key, 0))
            return Target(key=meant.key, generation=last)
        operation = meant.operation
        if operation is not None and operation.undone:
            return Target(key=meant.key, generation=operation.generation)
        return Target(key=meant.key, generation=protocol.next_generation(operation))

    def may_undo(self, tool: WriteTool, arguments: BaseModel, undoes: Target | None) -> bool:
        """Whether the target is one that a call with these arguments takes back."""
        if undoes is None or tool.undoes is None:
            return undoes is None and tool.undoes is None
        return undoes.key in self.keys(self.registry.write(tool.undoes), arguments, None)

    def keys(self, tool: WriteTool, arguments: BaseModel, undoes: Target | None) -> list[str]:
        """The keys under which the action may stand, that of today first."""
        return [operation_key(form, arguments, self.realm, undoes) for form in key_forms(tool)]
