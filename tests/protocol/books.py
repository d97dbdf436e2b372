"""A ledger to test with: its clock, and the shortest ways of bringing an operation into a state."""

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import protocol, schema
from settled.activities.database import Database
from settled.activities.journal import Entry, Operation
from settled.activities.ledger import Amended, Ledger
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.stories import KEY, ended, order

S, E = OperationState, Event
OTHER = "cd" * 32
RESOURCE = "acme/stock/A1"
AFTER_A_CLAIM = [state for state in S if state is not S.NONE]
UNSETTLED = [state for state in AFTER_A_CLAIM if not state.settled]


@dataclass
class Clock:
    """The store's clock, as the test sets it."""

    at: float = 1_000.0
    breaks_after: int | None = None
    """After so many questions it fails: whoever asks is in the midst of a transaction."""

    async def __call__(self, connection: AsyncConnection) -> float:
        if self.breaks_after is not None:
            self.breaks_after -= 1
            if self.breaks_after < 0:
                raise ZeroDivisionError("the clock is broken")
        return self.at


def key(name: str) -> str:
    return sha256(name.encode()).hexdigest()


async def report(
    books: Ledger, event: Event, *, at: str = KEY, generation: int = 1, permit: int = 1, task: str = "task-a"
) -> Amended:
    """An attempt says how it ended."""

    def decide(operation: Operation | None, now: float) -> Entry | None:
        assert operation is not None
        return protocol.report(operation, replace(ended(event, generation, permit, result="r1"), task=task), now)

    return await books.amend(at, decide)


async def note(
    books: Ledger, event: Event, *, at: str = KEY, generation: int = 1, permit: int = 1, **body: Any
) -> Amended:
    """A settlement writes a row."""
    entry = Entry(event=event, generation=generation, permit=permit, body=body)
    return await books.amend(at, lambda _operation, _now: entry)


async def reach(books: Ledger, state: OperationState, at: str = KEY) -> None:
    """Bring an operation into the state."""
    if state is S.NOT_EXECUTED:
        await books.amend(at, lambda operation, now: protocol.withdraw(operation, order(), now, others_wait=False))
        return
    await books.claim(at, order())
    if state in (S.COMPLETED, S.UNDONE):
        await report(books, E.SUCCEEDED, at=at)
    elif state is S.REJECTED:
        await report(books, E.DECLINED, at=at)
    elif state is not S.DISPATCHED:
        await report(books, E.UNCLEAR, at=at)
    if state is S.RESENDABLE:
        await note(books, E.ABSENT_RESEND, at=at, permit=2, until=None)
    elif state is S.NEEDS_HUMAN:
        await note(books, E.HANDED_TO_PERSON, at=at)
    elif state is S.UNDONE:
        await note(books, E.UNDONE, at=at)
    operation = await books.read(at)
    assert operation is not None
    assert operation.state is state


async def rows_of(database: Database, query: Any) -> list[Any]:
    async with database.read() as connection:
        return list(await connection.execute(query))


async def holds(database: Database) -> dict[str, str]:
    return {row.resource: row.operation for row in await rows_of(database, select(schema.holds))}


async def everything(database: Database) -> list[list[Any]]:
    """All that the ledger's tables hold."""
    tables = (schema.journal, schema.operations, schema.holds, schema.interests)
    return [sorted(await rows_of(database, select(table))) for table in tables]
