"""The ledger: all journals, the current row of each operation, who holds which resource, and who waits for what.

It decides nothing: it runs the protocol's pure decisions inside a transaction, and lets the primary keys refuse a late
writer. A claim is committed, and on disk, before its caller sends the first byte.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol, schema
from settled.activities.database import Database
from settled.activities.journal import Entry, Operation, Row, advance, fold
from settled.activities.ledger_rows import (
    WaitsFor,
    columns_of,
    holders,
    next_row,
    rows_of,
    view_of,
    write_current,
    write_holds,
    write_interest,
)
from settled.workflows.contract.operation import LedgerView, OperationState, OperationView, Tally
from settled.workflows.errors import JournalConflict
from settled.workflows.states import Event

MAX_TRIES = 20
UNSETTLED = [
    OperationState.DISPATCHED,
    OperationState.UNKNOWN,
    OperationState.RESENDABLE,
    OperationState.NEEDS_HUMAN,
]
MOST_UNSETTLED_SHOWN = 20

T = TypeVar("T")
Decide = Callable[[Operation | None, float], Entry | None]


@dataclass(frozen=True, kw_only=True)
class Amended:
    """What became of a decision."""

    operation: Operation | None
    """The operation after it."""
    entry: Entry | None
    """The row that was appended, if one was."""
    blocked_by: str | None = None
    """The operation that holds one of the resources that a claim needs; nothing was appended then."""


@dataclass(frozen=True, kw_only=True)
class Waiter:
    """A task that waits at an operation."""

    task: str
    waits_for: WaitsFor
    woken_seq: int
    """The journal's row that it was last woken for."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An operation in a list of all of them."""

    view: OperationView
    changed_at: float
    """When its state last changed."""
    task: str
    """The task whose proposal opened its current generation."""
    shown: str
    """That proposal's arguments as JSON, cut."""


class Ledger:
    """The journals in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def read(self, key: str) -> Operation | None:
        """The operation's current generation; None if its journal is empty."""
        async with self.database.read() as connection:
            return fold(key, await rows_of(connection, key))

    async def journal(self, key: str) -> list[Row]:
        """Every row of the operation's journal, in order."""
        async with self.database.read() as connection:
            return await rows_of(connection, key)

    async def claim(self, key: str, ask: protocol.Claim) -> Amended:
        """Spend a permit, unless the protocol refuses or a resource is held by another unsettled operation."""
        return await self.amend(key, lambda operation, now: protocol.claim(operation, ask, now))

    async def amend(self, key: str, decide: Decide) -> Amended:
        """Append the row that the decision asks for, if any, with the operation as it is now.

        Raises:
            IllegalTransition: the state table has no arrow for that row.
            JournalConflict: other writers were faster, again and again.
        """
        return await self._write(key, lambda connection: self._amend(connection, key, decide))

    async def _write(self, key: str, change: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        for _ in range(MAX_TRIES):
            try:
                async with self.database.write() as connection:
                    return await change(connection)
            except IntegrityError:
                continue  # another writer's row, or hold, was there first: look again
        raise JournalConflict(f"operation {key[:12]}: other writers were faster {MAX_TRIES} times; try again")

    async def _amend(self, connection: AsyncConnection, key: str, decide: Decide) -> Amended:
        before = fold(key, await rows_of(connection, key))
        now = await self.database.now(connection)
        entry = decide(before, now)
        if entry is None:
            return Amended(operation=before, entry=None)
        row = next_row(before, entry, now)
        operation = advance(key, before, row)
        others = await holders(connection, operation)
        if entry.event is Event.CLAIMED and others:
            return Amended(operation=before, entry=None, blocked_by=others[0])
        await connection.execute(insert(schema.journal).values(columns_of(key, row)))
        await write_current(connection, before, operation)
        await write_holds(connection, operation, free=not others)
        if row.task:
            # Who claims is about to send, and waits for nobody.
            await write_interest(connection, key, row.task, WaitsFor.NOTHING if entry.event is Event.CLAIMED else None)
        return Amended(operation=operation, entry=entry)

    async def join(
        self, key: str, task: str, waits_for: WaitsFor | None = None, *, woken_seq: int | None = None
    ) -> None:
        """Note that the operation belongs to the task (unless it only waits for a resource), and what it waits for."""
        await self._write(key, lambda connection: write_interest(connection, key, task, waits_for, woken_seq))

    async def waiters(self, key: str) -> list[Waiter]:
        """The tasks that wait at this operation."""
        interests = schema.interests.c
        query = select(interests.task, interests.waits_for, interests.woken_seq).where(
            interests.operation == key, interests.waits_for != WaitsFor.NOTHING
        )
        async with self.database.read() as connection:
            rows = await connection.execute(query)
            return [Waiter(task=row.task, waits_for=WaitsFor(row.waits_for), woken_seq=row.woken_seq) for row in rows]

    async def now(self) -> float:
        """The store's time."""
        async with self.database.read() as connection:
            return await self.database.now(connection)

    async def of_task(self, task: str, states: Iterable[OperationState] = (), limit: int = 200) -> list[OperationView]:
        """The task's operations, oldest first, optionally only those in these states."""
        mine = schema.interests.c
        query = (
            select(schema.operations)
            .join(schema.interests, mine.operation == schema.operations.c.key)
            .where(mine.task == task, mine.member)
            .order_by(schema.operations.c.opened_at, schema.operations.c.key)
            .limit(limit)
        )
        if states := list(states):
            query = query.where(schema.operations.c.state.in_(states))
        async with self.database.read() as connection:
            return [view_of(row) for row in await connection.execute(query)]

    async def unsettled_keys(self, task: str) -> list[str]:
        """Every operation of the task whose outcome isn't known."""
        mine, current = schema.interests.c, schema.operations.c
        query = (
            select(current.key)
            .join(schema.interests, mine.operation == current.key)
            .where(mine.task == task, mine.member, current.state.in_(UNSETTLED))
            .order_by(current.opened_at, current.key)
        )
        async with self.database.read() as connection:
            return list((await connection.execute(query)).scalars())

    async def view(self, task: str) -> LedgerView:
        """The counts of the task's operations, and those that aren't settled."""
        mine, current = schema.interests.c, schema.operations.c
        query = (
            select(current.state, func.count().label("number"))
            .join(schema.interests, mine.operation == current.key)
            .where(mine.task == task, mine.member)
            .group_by(current.state)
        )
        async with self.database.read() as connection:
            counts = {row.state: row.number for row in await connection.execute(query)}
        unsettled = sum(counts.get(state, 0) for state in UNSETTLED)
        shown = tuple(await self.of_task(task, UNSETTLED, MOST_UNSETTLED_SHOWN)) if unsettled else ()
        tally = Tally(
            operations=sum(counts.values()), completed=counts.get(OperationState.COMPLETED, 0), unsettled=unsettled
        )
        return LedgerView(tally=tally, unsettled=shown)

    async def listed(self, states: Iterable[OperationState] = (), limit: int = 100) -> list[Listed]:
        """Operations, the latest change first, optionally only those in these states."""
        current, rows, others = schema.operations.c, schema.journal.c, schema.journal.alias().c
        opening = (
            select(func.min(others.seq))
            .where(others.operation == current.key, others.generation == current.generation)
            .scalar_subquery()
        )
        query = (
            select(schema.operations, rows.task, rows.body)
            .select_from(schema.operations)
            .join_from(schema.operations, schema.journal, (rows.operation == current.key) & (rows.seq == opening))
            .order_by(current.changed_at.desc(), current.key)
            .limit(limit)
        )
        if states := list(states):
            query = query.where(current.state.in_(states))
        async with self.database.read() as connection:
            return [
                Listed(
                    view=view_of(row),
                    changed_at=row.changed_at,
                    task=row.task,
                    shown=json.loads(row.body).get("subject", {}).get("shown", ""),
                )
                for row in await connection.execute(query)
            ]

    async def declared_keys(self) -> dict[str, str]:
        """Each tool's key declaration, as it was when its first operations were made."""
        async with self.database.read() as connection:
            rows = await connection.execute(select(schema.key_declarations))
            return {row.tool: row.declaration for row in rows}

    async def declare_keys(self, declarations: dict[str, str]) -> None:
        """Note the declarations of tools that the ledger doesn't know yet."""
        known = await self.declared_keys()
        new = [{"tool": tool, "declaration": text} for tool, text in declarations.items() if tool not in known]
        for values in new:
            try:
                async with self.database.write() as connection:
                    await connection.execute(insert(schema.key_declarations).values(values))
            except IntegrityError:
                continue  # another worker noted it at the same time; the caller compares what stands there
