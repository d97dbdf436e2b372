"""Fixtures that every test may use: one real server of each kind for the whole run, a store or a desk for each test."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from settled.activities.schema import metadata
from tests.desk import Desk, open_desk, temporal_server
from tests.ledgers import make_tables, new_ledger
from tests.postgres import PostgresServer, postgres_server


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection of garbage has to look through all of it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
async def temporal() -> AsyncIterator[Client]:
    """A client of a real Temporal dev server of this run's own."""
    async with temporal_server() as client:
        yield client


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[PostgresServer]:
    """A real PostgreSQL server of this run's own."""
    async with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_ledgers() -> list[str]:
    """Ledgers on PostgreSQL that have been used and emptied again: to make their tables takes far longer."""
    return []


@pytest.fixture
async def postgres_url(postgres: PostgresServer, postgres_ledgers: list[str]) -> AsyncIterator[str]:
    """A ledger on PostgreSQL that nobody has used."""
    if not postgres_ledgers:
        postgres_ledgers.append(await postgres.new_database())
        await make_tables(postgres_ledgers[-1])
    url = postgres_ledgers.pop()
    yield url
    await postgres.clear(url, kept=set(metadata.tables))
    postgres_ledgers.append(url)


@pytest.fixture
async def sqlite_url(tmp_path: Path) -> str:
    """A ledger on SQLite that nobody has used."""
    return await new_ledger(tmp_path / "settled.db")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """A ledger that nobody has used, on each of the stores that are supported."""
    made: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url")
    return made


@pytest.fixture
async def desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """Everything that a task needs, real, with its own databases and its own task queue."""
    async with open_desk(temporal, tmp_path) as opened:
        yield opened
