"""Who holds a resource, and who waits for it since when.

One row in `holds` for each resource of an unsettled operation; the primary key refuses a second holder. A claim that
finds a resource held stands in `queue` from then on. Once the resource is free, each waits for a while for those who
came before. It is a courtesy and no lock: who is dead, or waits for something else too, is overtaken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import schema
from settled.activities.journal import Operation

GRACE_SECONDS = 5.0
"""How long a freed resource is left to each of those who came before."""
STALE_SECONDS = 900.0
"""Who has not asked for so long has no place in the queue any more; a waiting task asks more often than that."""
MOST_IN_LINE = 1_000
"""How many of a resource's queue are looked at."""


@dataclass(frozen=True, kw_only=True)
class Busy:
    """Why a claim has to wait for a resource."""

    by: str
    """The operation that holds it, or that came first."""
    after: float | None = None
    """Seconds after which it is this claim's turn at the latest; None: once the holder is settled."""


async def holders(connection: AsyncConnection, operation: Operation) -> list[str]:
    """The other operations that hold a resource of this one."""
    holds = schema.holds.c
    query = select(holds.operation).where(
        holds.resource.in_(operation.subject.resources), holds.operation != operation.key
    )
    return sorted(set((await connection.execute(query)).scalars()))


async def turn(connection: AsyncConnection, operation: Operation, now: float) -> Busy | None:
    """Whether somebody who came first may still take a resource that is free."""
    queue, resources = schema.queue.c, operation.subject.resources
    query = (
        select(schema.queue)
        .where(queue.resource.in_(resources), queue.asked_at > now - STALE_SECONDS)
        .order_by(queue.since, queue.operation)
    )
    rows = list(await connection.execute(query)) if resources else []
    for resource in resources:
        first = [row for row in rows if row.resource == resource]
        own = next((place for place, row in enumerate(first) if row.operation == operation.key), len(first))
        if own and (wait := _freed_at(first) + own * GRACE_SECONDS - now) > 0:
            return Busy(by=first[0].operation, after=wait)
    return None


def _freed_at(rows: list[Row[Any]]) -> float:
    return max(float(row.freed_at) for row in rows)


async def stand_in_line(connection: AsyncConnection, operation: Operation, task: str, now: float) -> None:
    """Note that the task's claim waits for the operation's resources, since now unless it does so already."""
    queue = schema.queue.c
    mine = queue.operation == operation.key
    query = select(queue.resource, queue.since).where(mine)
    standing = {row.resource: row.since for row in await connection.execute(query)}
    if standing:
        await connection.execute(update(schema.queue).where(mine).values(task=task, asked_at=now))
    since = min(standing.values(), default=now)
    for resource in sorted(set(operation.subject.resources) - standing.keys()):
        values = {"operation": operation.key, "task": task, "since": since, "asked_at": now, "freed_at": 0.0}
        await connection.execute(insert(schema.queue).values(resource=resource, **values))


async def leave_line(connection: AsyncConnection, key: str) -> None:
    """Take the operation out of the queue."""
    await connection.execute(delete(schema.queue).where(schema.queue.c.operation == key))


async def forget_task(connection: AsyncConnection, task: str) -> None:
    """Take a task that is gone out of the queue."""
    await connection.execute(delete(schema.queue).where(schema.queue.c.task == task))


async def in_line(connection: AsyncConnection, operation: Operation) -> list[list[str]]:
    """The tasks that wait for each of the operation's resources, those who came first before the others."""
    queue = schema.queue.c
    lines = []
    for resource in operation.subject.resources:
        query = select(queue.task).where(queue.resource == resource).order_by(queue.since, queue.operation)
        lines.append(list((await connection.execute(query.limit(MOST_IN_LINE))).scalars()))
    return lines


async def write_holds(connection: AsyncConnection, operation: Operation, now: float, *, free: bool) -> None:
    """Hold the operation's resources while it isn't settled: all of them or, where another holds one, none.

    Only an operation that was never claimed, as far as the ledger knows, is without its holds: a claim needs them all.
    One that held some of them and waited for others could wait for ever. Of two writers who both saw a resource free,
    one gets a duplicate key.
    """
    holds, queue = schema.holds.c, schema.queue.c
    query = select(holds.resource).where(holds.operation == operation.key)
    held = set((await connection.execute(query)).scalars())
    if operation.state.settled:
        if held:
            await connection.execute(delete(schema.holds).where(holds.operation == operation.key))
            await connection.execute(update(schema.queue).where(queue.resource.in_(held)).values(freed_at=now))
    elif free:
        for resource in sorted(set(operation.subject.resources) - held):
            await connection.execute(insert(schema.holds).values(resource=resource, operation=operation.key))
