"""The ledger on a real SQLite and a real PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from settled.activities.database import Database
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.books import Clock

S, E = OperationState, Event


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def database(url: str, clock: Clock) -> AsyncIterator[Database]:
    opened = Database(url, clock=clock)
    await migrate(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def second(database: Database, clock: Clock) -> AsyncIterator[Database]:
    """The same database, as another worker has it open."""
    opened = Database(database.url, clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
def books(database: Database) -> Ledger:
    return Ledger(database)
