"""The ledger: all journals, the current row of each operation, who holds which resource, and who waits for what.

It decides nothing: it runs the protocol's pure decisions inside a transaction, and lets the primary keys refuse a late
writer. A claim is committed, and on disk, before its caller sends the first byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol, schema
from settled.activities.database import MAX_TRIES, collided
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.epochs import open_epoch
from settled.activities.journal import Entry, Operation, Row, advance, fold
from settled.activities.ledger_holds import (
    Busy,
    forget_task,
    holders,
    in_line,
    leave_line,
    stand_in_line,
    turn,
    write_holds,
)
from settled.activities.ledger_lists import LedgerLists
from settled.activities.ledger_rows import WaitsFor, columns_of, next_row, rows_of, write_current, write_interest
from settled.activities.protocol import Blocked, Refused
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import JournalConflict
from settled.workflows.states import Event

T = TypeVar("T")
Decide = Callable[[Operation | None, float], Entry | Blocked | Refused | None]
Work = Callable[[AsyncConnection, Operation], Awaitable[protocol.Report]]
"""What a transactional tool does in the ledger's own transaction, with the operation as it was claimed there."""


@dataclass(frozen=True, kw_only=True)
class Amended:
    """What became of a decision."""

    operation: Operation | None
    """The operation after it."""
    entry: Entry | None
    """The row that was appended, if one was."""
    blocked_by: str | None = None
    """The operation that the claim has to wait for; nothing was appended then."""
    turn_after: float | None = None
    """Seconds until it is the claim's turn, where a free resource is left to those who came first."""
    refused: str = ""
    """Why the claim can't be granted, where waiting doesn't help; nothing was appended then."""


@dataclass(frozen=True, kw_only=True)
class Waiter:
    """A task that waits at an operation."""

    task: str
    waits_for: WaitsFor
    woken_seq: int
    """The journal's row that it was last woken for."""


class Ledger(LedgerLists):
    """The journals in one database."""

    async def read(self, key: str) -> Operation | None:
        """The operation's current generation; None if its journal is empty."""
        async with self.database.read() as connection:
            return await _folded(connection, key)

    async def journal(self, key: str) -> list[Row]:
        """Every row of the operation's journal, in order."""
        async with self.database.read() as connection:
            return await rows_of(connection, key)

    async def claim(self, key: str, ask: protocol.Claim) -> Amended:
        """Spend a permit, unless the protocol refuses, or another operation has to be settled first.

        Raises:
            OutdatedWorker: the tool makes its keys in another way by now.
        """
        return await self._write(key, lambda connection: self._claim(connection, key, ask), _names(key, ask))

    async def transact(self, key: str, ask: protocol.Claim, work: Work) -> Amended:
        """Claim, do the work, and note its outcome, in one transaction: all of it is kept, or nothing.

        Raises:
            BaseException: whatever the work raises; nothing is kept then.
        """

        async def both(connection: AsyncConnection) -> Amended:
            claimed = await self._claim(connection, key, ask)
            if claimed.entry is None or claimed.entry.event is not Event.CLAIMED:
                return claimed
            assert claimed.operation is not None, "it was claimed"
            report = await work(connection, claimed.operation)
            ended = await self._amend(connection, key, lambda operation, now: protocol.report(operation, report, now))
            return Amended(operation=ended.operation, entry=claimed.entry)

        return await self._write(key, both, _names(key, ask))

    async def miss(self, key: str, ask: protocol.Claim) -> Amended:
        """Void the permit of a dispatch that left no trace, if it left none."""

        async def missed(connection: AsyncConnection) -> Amended:
            around = protocol.Around(epoch=await open_epoch(connection))
            return await self._amend(connection, key, lambda operation, now: protocol.miss(operation, ask, now, around))

        return await self._write(key, missed, _names(key, ask))

    async def withdraw(self, key: str, ask: protocol.Claim, *, others_wait: bool) -> Amended:
        """Void the permit of a task that gives up, unless another one waits for the same operation."""

        async def withdrawn(connection: AsyncConnection) -> Amended:
            around = protocol.Around(epoch=await open_epoch(connection))

            def decide(operation: Operation | None, now: float) -> Entry | None:
                return protocol.withdraw(operation, ask, now, around, others_wait=others_wait)

            return await self._amend(connection, key, decide)

        return await self._write(key, withdrawn, _names(key, ask))

    async def amend(self, key: str, decide: Decide) -> Amended:
        """Append the row that the decision asks for, if any, with the operation as it is now.

        Raises:
            IllegalTransition: the state table has no arrow for that row.
            JournalConflict: other writers were faster, again and again.
        """
        standing = await self.read(key)
        # What its generation touches never changes; should another one open meanwhile, its holds still keep it apart.
        about = {key, *(standing.subject.resources if standing else ())}
        about |= {standing.subject.undoes_key} - {""} if standing else set()
        return await self._write(key, lambda connection: self._amend(connection, key, decide), about)

    async def _write(
        self, key: str, change: Callable[[AsyncConnection], Awaitable[T]], about: Collection[str] = ()
    ) -> T:
        try:
            return await self.database.transact(change, {key, *about})
        except DBAPIError as error:
            if not collided(error):
                raise
        raise JournalConflict(f"operation {key[:12]}: other writers were faster {MAX_TRIES} times; try again")

    async def _claim(self, connection: AsyncConnection, key: str, ask: protocol.Claim) -> Amended:
        await DeclaredKeys.check(connection, ask.subject.tool, ask.declaration)
        undoes = ask.subject.undoes_key
        namesakes = [await _folded(connection, other) for other in ask.namesakes]
        around = protocol.Around(
            epoch=await open_epoch(connection),
            target=await _folded(connection, undoes) if undoes else None,
            namesakes=tuple(other for other in namesakes if other is not None),
        )

        def decide(operation: Operation | None, now: float) -> Entry | Blocked | Refused | None:
            return protocol.obstacle(operation, ask, around) or protocol.claim(operation, ask, now, around)

        return await self._amend(connection, key, decide, asked_by=ask)

    async def _amend(
        self, connection: AsyncConnection, key: str, decide: Decide, asked_by: protocol.Claim | None = None
    ) -> Amended:
        before = await _folded(connection, key)
        now = await self.database.now(connection)
        decided = decide(before, now)
        if isinstance(decided, Refused):
            return Amended(operation=before, entry=None, refused=decided.text)
        if isinstance(decided, Blocked):
            if asked_by is not None:
                await write_interest(connection, decided.by, asked_by.task, WaitsFor.RESOURCE, member=False)
            return await self._waits(connection, before, key, Busy(by=decided.by), asked_by)
        if decided is None:
            return Amended(operation=before, entry=None)
        row = next_row(before, decided, now)
        operation = advance(key, before, row)
        others = await holders(connection, operation)
        if decided.event is Event.CLAIMED:
            first = "subject" in decided.body  # a resend holds its resources already
            busy = Busy(by=others[0]) if others else await turn(connection, operation, now) if first else None
            if busy is not None:
                if asked_by is not None:
                    await stand_in_line(connection, operation, asked_by.task, now)
                return await self._waits(connection, before, key, busy, asked_by)
        await self._append(connection, before, operation, row, free=not others)
        return Amended(operation=operation, entry=decided)

    async def _waits(
        self,
        connection: AsyncConnection,
        before: Operation | None,
        key: str,
        busy: Busy,
        asked_by: protocol.Claim | None,
    ) -> Amended:
        if asked_by is not None:
            # Two tasks may want the same: what one of them gives up is not given up by the other one. What will stand
            # under the key may be another request, though: the operation is this task's once it opens, or joins, it.
            await write_interest(connection, key, asked_by.task, WaitsFor.RESULT, member=False)
        return Amended(operation=before, entry=None, blocked_by=busy.by, turn_after=busy.after)

    async def _append(
        self, connection: AsyncConnection, before: Operation | None, operation: Operation, row: Row, *, free: bool
    ) -> None:
        key = operation.key
        await connection.execute(insert(schema.journal).values(columns_of(key, row)))
        await write_current(connection, before, operation)
        await write_holds(connection, operation, row.at, free=free)
        if row.event is Event.CLAIMED or operation.state.settled:
            await leave_line(connection, key)
        if row.task:
            # Who claims is about to send, and waits for nobody.
            await write_interest(connection, key, row.task, WaitsFor.NOTHING if row.event is Event.CLAIMED else None)
        undoes = operation.subject.undoes_key
        if undoes and operation.state is OperationState.COMPLETED:
            await self._amend(connection, undoes, lambda target, _now: protocol.undone(target, operation))

    async def join(self, key: str, task: str, waits_for: WaitsFor | None = None) -> None:
        """Note that the operation belongs to the task, and what the task waits for."""
        await self._write(key, lambda connection: write_interest(connection, key, task, waits_for))

    async def wait(self, key: str, task: str, waits_for: WaitsFor) -> None:
        """Note what the task waits for at the operation, whether that belongs to it or not."""
        await self._write(key, lambda connection: write_interest(connection, key, task, waits_for, member=False))

    async def woken(self, operation: Operation, waiter: Waiter) -> None:
        """Note that the task was told of the operation as it stands, if it still waits: it may have left meanwhile."""
        interests = schema.interests.c
        mine = (interests.operation == operation.key) & (interests.task == waiter.task)
        told = update(schema.interests).where(mine, interests.waits_for == waiter.waits_for)
        change = told.values(woken_seq=operation.seq)
        await self.database.transact(lambda connection: connection.execute(change), {operation.key})

    async def leave(self, key: str, task: str) -> None:
        """Take back the task's wait. An operation that doesn't belong to it has nothing to do with it from here on."""
        interests = schema.interests.c
        mine = (interests.operation == key) & (interests.task == task)

        async def left(connection: AsyncConnection) -> None:
            await connection.execute(delete(schema.interests).where(mine, ~interests.member))
            await connection.execute(update(schema.interests).where(mine).values(waits_for=WaitsFor.NOTHING))

        await self.database.transact(left, {key})

    async def waiters(self, key: str) -> list[Waiter]:
        """The tasks that wait at this operation."""
        interests = schema.interests.c
        query = select(interests.task, interests.waits_for, interests.woken_seq).where(
            interests.operation == key, interests.waits_for != WaitsFor.NOTHING
        )
        async with self.database.read() as connection:
            rows = await connection.execute(query)
            return [Waiter(task=row.task, waits_for=WaitsFor(row.waits_for), woken_seq=row.woken_seq) for row in rows]

    async def in_line(self, operation: Operation) -> list[list[str]]:
        """The tasks that wait for each of the operation's resources, in their order."""
        async with self.database.read() as connection:
            return await in_line(connection, operation)

    async def forget_task(self, task: str) -> None:
        """Take a task that is gone out of every queue."""
        await self.database.transact(lambda connection: forget_task(connection, task), {task})

    async def now(self) -> float:
        """The store's time."""
        async with self.database.read() as connection:
            return await self.database.now(connection)


def _names(key: str, ask: protocol.Claim) -> set[str]:
    """All that a claim depends on: its operation, those of its other keys, what it takes back, and its resources."""
    return {key, *ask.namesakes, ask.subject.undoes_key, *ask.subject.resources} - {""}


async def _folded(connection: AsyncConnection, key: str) -> Operation | None:
    return fold(key, await rows_of(connection, key))
