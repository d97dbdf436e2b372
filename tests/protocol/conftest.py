"""The ledger on a real SQLite and a real PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from settled.activities.database import Database
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.postgres import PostgresServer
from tests.protocol.books import Clock

S, E = OperationState, Event


@pytest.fixture
def empty_sqlite(tmp_path: Path) -> str:
    """A database on SQLite without a table."""
    return f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}"


@pytest.fixture
async def empty_postgres(postgres: PostgresServer) -> AsyncIterator[str]:
    """A database on PostgreSQL without a table."""
    made = await postgres.new_database()
    yield made
    await postgres.take_back(made)


@pytest.fixture(params=["empty_sqlite", "empty_postgres"])
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without a table, on each of the stores that are supported."""
    made: str = request.getfixturevalue(request.param)
    return made


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
