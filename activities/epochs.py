"""The epochs of a ledger that was restored from an older copy: what came after the copy was made is lost.

While one is open, no row is not "no claim": the first claim of an action is looked up before anything is sent. And what
wasn't settled in the copy may have been sent again since: each such operation gets a row that says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol, schema
from settled.activities.database import Database
from settled.activities.journal import Operation, advance, fold
from settled.activities.ledger_lists import UNSETTLED
from settled.activities.ledger_rows import columns_of, next_row, rows_of, write_current
from settled.activities.protocol import Epoch

LONGEST_SECONDS = 86_400.0
"""Where no attempt is known: the longest time budget that a tool may have."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An epoch as it was opened."""

    epoch: Epoch
    before: Epoch | None = None
    """The epoch that was open already: the ledger was restored again, and what either has lost is lost."""


class Epochs:
    """The epochs in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def open(self, who: str, because: str) -> Opened:
        """Open an epoch: the ledger was restored, perhaps not for the first time.

        Args:
            who: opens it.
            because: of what.
        """

        async def change(connection: AsyncConnection) -> Opened:
            standing = await open_epoch(connection)
            number, last = schema.epochs.c.number, schema.journal.c.at
            count = (await connection.execute(select(func.coalesce(func.max(number), 0)))).scalar_one()
            since = (await connection.execute(select(func.coalesce(func.max(last), 0.0)))).scalar_one()
            since = min(since, standing.since) if standing else since
            epoch = Epoch(number=count + 1, since=since, opened_at=await self.database.now(connection))
            await connection.execute(
                insert(schema.epochs).values(
                    number=epoch.number, since=epoch.since, opened_at=epoch.opened_at, opened_by=who, because=because
                )
            )
            await _note_what_is_lost(connection, epoch)
            return Opened(epoch=epoch, before=standing)

        return await self.database.transact(change)

    async def close(self, who: str) -> Epoch | None:
        """Close what is open: what was lost doesn't matter any more. None if nothing is open."""

        async def change(connection: AsyncConnection) -> Epoch | None:
            standing = await open_epoch(connection)
            if standing is None:
                return None
            closed = {"closed_at": await self.database.now(connection), "closed_by": who}
            still_open = schema.epochs.c.closed_at.is_(None)
            await connection.execute(update(schema.epochs).where(still_open).values(closed))
            return standing

        return await self.database.transact(change)


async def _note_what_is_lost(connection: AsyncConnection, epoch: Epoch) -> None:
    current = schema.operations.c
    query = select(current.key).where(current.state.in_(UNSETTLED)).order_by(current.key)
    for key in list((await connection.execute(query)).scalars()):
        operation = fold(key, await rows_of(connection, key))
        assert operation is not None, "what has a current row has a journal"
        entry = protocol.restored(operation, epoch, _seconds(operation))
        assert entry is not None, "it isn't settled"
        row = next_row(operation, entry, epoch.opened_at)
        await connection.execute(insert(schema.journal).values(columns_of(key, row)))
        await write_current(connection, operation, advance(key, operation, row))


def _seconds(operation: Operation) -> float:
    """The time budget of an attempt that was lost: what the ones that are known had."""
    return max((attempt.deadline - attempt.claimed_at for attempt in operation.attempts), default=LONGEST_SECONDS)


async def open_epoch(connection: AsyncConnection) -> Epoch | None:
    """The epoch that is open; None if the ledger's past is whole."""
    epochs = schema.epochs.c
    query = select(schema.epochs).where(epochs.closed_at.is_(None)).order_by(epochs.number.desc()).limit(1)
    row = (await connection.execute(query)).first()
    return None if row is None else Epoch(number=row.number, since=row.since, opened_at=row.opened_at)
