"""The ledger: all journals, the current row of each operation, who holds which resource, and who waits for what.

It decides nothing: it runs the protocol's pure decisions inside a transaction, and lets the primary keys refuse a late
writer. A claim is committed, and on disk, before its caller sends the first byte.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol, schema
from settled.activities.database import Database
from settled.activities.journal import Entry, Operation, Row, advance, fold
from settled.workflows.contract.operation import Evidence, LedgerView, OperationState, OperationView, Tally
from settled.workflows.errors import JournalConflict
from settled.workflows.states import Event, after

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


class WaitsFor(StrEnum):
    """What a task waits for at an operation."""

    NOTHING = "nothing"
    RESULT = "result"
    RESOURCE = "resource"


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
            return fold(key, await _rows(connection, key))

    async def journal(self, key: str) -> list[Row]:
        """Every row of the operation's journal, in order."""
        async with self.database.read() as connection:
            return await _rows(connection, key)

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
        before = fold(key, await _rows(connection, key))
        now = await self.database.now(connection)
        entry = decide(before, now)
        if entry is None:
            return Amended(operation=before, entry=None)
        row = _row(before, entry, now)
        operation = advance(key, before, row)
        others = await _holders(connection, operation)
        if entry.event is Event.CLAIMED and others:
            return Amended(operation=before, entry=None, blocked_by=others[0])
        await connection.execute(insert(schema.journal).values(_columns(key, row)))
        await _write_current(connection, before, operation)
        await _write_holds(connection, operation, free=not others)
        if row.task:
            # Who claims is about to send, and waits for nobody.
            await _join(connection, key, row.task, WaitsFor.NOTHING if entry.event is Event.CLAIMED else None)
        return Amended(operation=operation, entry=entry)

    async def join(
        self, key: str, task: str, waits_for: WaitsFor | None = None, *, woken_seq: int | None = None
    ) -> None:
        """Note that the operation belongs to the task (unless it only waits for a resource), and what it waits for."""
        await self._write(key, lambda connection: _join(connection, key, task, waits_for, woken_seq))

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
            return [_view(row) for row in await connection.execute(query)]

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
                    view=_view(row),
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


async def _rows(connection: AsyncConnection, key: str) -> list[Row]:
    columns = schema.journal.c
    query = select(schema.journal).where(columns.operation == key).order_by(columns.seq)
    return [
        Row(
            seq=row.seq,
            at=row.at,
            generation=row.generation,
            permit=row.permit,
            event=Event(row.event),
            state=OperationState(row.state),
            task=row.task,
            body=json.loads(row.body),
        )
        for row in await connection.execute(query)
    ]


def _row(before: Operation | None, entry: Entry, now: float) -> Row:
    """The next row. An entry of an older generation leaves the current one's state as it is."""
    if before is not None and entry.generation < before.generation:
        state = before.state
    else:
        fresh = before is None or entry.generation > before.generation
        state = after(OperationState.NONE if fresh else before.state, entry.event)  # type: ignore[union-attr]
    # A tool's lookup may have put anything into the body, and what is kept in mind must equal what is stored.
    body = json.loads(json.dumps(entry.body, default=str))
    return Row(**vars(entry) | {"body": body}, seq=before.seq + 1 if before else 1, at=now, state=state)


def _columns(key: str, row: Row) -> dict[str, Any]:
    return {"operation": key, **vars(row), "body": json.dumps(row.body)}


async def _write_current(connection: AsyncConnection, before: Operation | None, operation: Operation) -> None:
    view = operation.view()
    values = {
        "seq": operation.seq,
        "tool": view.tool,
        "tenant": operation.subject.tenant,
        "principal": operation.subject.principal,
        "state": view.state,
        "generation": view.generation,
        "sends": view.sends,
        "evidence": view.evidence,
        "opened_at": operation.opened_at,
        "changed_at": operation.changed_at,
    }
    if before is None:
        await connection.execute(insert(schema.operations).values(key=operation.key, **values))
    else:
        await connection.execute(
            update(schema.operations).where(schema.operations.c.key == operation.key).values(values)
        )


async def _holders(connection: AsyncConnection, operation: Operation) -> list[str]:
    """The other operations that hold a resource of this one."""
    holds = schema.holds.c
    query = select(holds.operation).where(
        holds.resource.in_(operation.subject.resources), holds.operation != operation.key
    )
    return sorted(set((await connection.execute(query)).scalars()))


async def _write_holds(connection: AsyncConnection, operation: Operation, *, free: bool) -> None:
    """Hold the operation's resources while it isn't settled: all of them or, where another holds one, none.

    Only an operation that never sent anything is without its holds: a claim needs them all. One that held some of them
    and waited for others could wait for ever. Of two writers who both saw a resource free, one gets a duplicate key.
    """
    holds = schema.holds.c
    if operation.state.settled:
        await connection.execute(delete(schema.holds).where(holds.operation == operation.key))
    elif free:
        query = select(holds.resource).where(holds.operation == operation.key)
        held = set((await connection.execute(query)).scalars())
        for resource in sorted(set(operation.subject.resources) - held):
            await connection.execute(insert(schema.holds).values(resource=resource, operation=operation.key))


async def _join(
    connection: AsyncConnection,
    key: str,
    task: str,
    waits_for: WaitsFor | None = None,
    woken_seq: int | None = None,
) -> None:
    interests = schema.interests.c
    mine = (interests.operation == key) & (interests.task == task)
    member = waits_for is not WaitsFor.RESOURCE
    changes: dict[str, Any] = {"member": True} if member else {}
    if waits_for is not None:
        changes["waits_for"] = waits_for
    if woken_seq is not None:
        changes["woken_seq"] = woken_seq
    found = (await connection.execute(select(interests.task).where(mine))).first()
    if found is None:
        values = {"member": member, "waits_for": WaitsFor.NOTHING, "woken_seq": 0, **changes}
        await connection.execute(insert(schema.interests).values(operation=key, task=task, **values))
    elif changes:
        await connection.execute(update(schema.interests).where(mine).values(changes))


def _view(row: Any) -> OperationView:
    return OperationView(
        key=row.key,
        tool=row.tool,
        state=OperationState(row.state),
        generation=row.generation,
        sends=row.sends,
        evidence=Evidence(row.evidence) if row.evidence else None,
    )
