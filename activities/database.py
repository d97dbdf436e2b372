"""The one SQL database: ledger, transcript and artifacts. SQLite by default, PostgreSQL by another URL.

The store's clock is the only clock in the ledger: workers' clocks differ, and a frozen process has an old one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from settled.activities.steady import steady
from settled.workflows.errors import ConfigurationError

Clock = Callable[[AsyncConnection], Awaitable[float]]
"""Tells the time in seconds since 1970, asked on a connection."""

STORE_CLOCKS = {
    # Not now(): that is the start of the transaction, and a writer may have waited since.
    # By the Julian day, since unixepoch('subsec') needs an SQLite newer than many a Python's.
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "SELECT extract(epoch FROM clock_timestamp())::double precision",
}
BUSY_SECONDS = 30
RETRY_PAUSE_SECONDS = 0.5
T = TypeVar("T")
WAL_TRIES, WAL_PAUSE_SECONDS = 600, 0.05
DRIVERS: dict[str, dict[str, Any]] = {
    "sqlite+aiosqlite": {"connect_args": {"timeout": BUSY_SECONDS}},
    "postgresql+asyncpg": {"pool_pre_ping": True},
}
"""The drivers that are supported, and how an engine of each is made."""


async def store_clock(connection: AsyncConnection) -> float:
    """The database server's own time."""
    return float((await connection.execute(text(STORE_CLOCKS[connection.dialect.name]))).scalar_one())


class Database:
    """An engine, its clock, and the two ways of talking to it.

    Args:
        url: an SQLAlchemy URL of an async driver, such as `sqlite+aiosqlite:///settled.db`.
        clock: who tells the time; the store itself unless a test says otherwise.

    Raises:
        ConfigurationError: the URL is none, or names a database that isn't supported.
    """

    def __init__(self, url: str, *, clock: Clock = store_clock) -> None:
        self.url = url
        self._clock = clock
        self.engine = _engine(url)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction; SQLite's is exclusive from its start, so that what was read still holds at the commit."""
        async with self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A connection for reading, without a lock."""
        async with self.engine.connect() as connection:
            yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    async def now(self, connection: AsyncConnection) -> float:
        """Seconds since 1970, by the ledger's clock."""
        return await self._clock(connection)

    async def close(self) -> None:
        """Give back every connection."""
        await self.engine.dispose()


def _engine(url: str) -> AsyncEngine:
    driver = ""
    try:
        driver = make_url(url).drivername
        engine = create_async_engine(url, hide_parameters=True, **DRIVERS[driver]) if driver in DRIVERS else None
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "SETTLED_DATABASE_URL: not a database URL; write one like sqlite+aiosqlite:///settled.db"
        ) from None
    except ImportError as error:
        raise ConfigurationError(
            f"SETTLED_DATABASE_URL: {driver} needs a package that isn't there ({error}); install settled[postgres]"
        ) from None
    if engine is None:
        raise ConfigurationError(f"SETTLED_DATABASE_URL: {driver} is not supported; use {' or '.join(DRIVERS)}")
    if engine.dialect.name != "sqlite":
        return engine
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    """WAL so that readers don't wait for the writer; FULL so that a claim is on disk before the first byte is sent."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for left in reversed(range(WAL_TRIES)):
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            # A new file, opened by several at once: this change, of all, doesn't wait for a lock by itself.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or not left:
                raise
            await_only(asyncio.sleep(WAL_PAUSE_SECONDS))
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: Any) -> None:
    """Take the write lock at once: a transaction that reads first and writes later would fail as "busy"."""
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


async def patiently(action: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Do it, again and again while the database can't be reached, for so long at the most.

    Raises:
        Exception: what the action raised last.
    """
    give_up = steady() + seconds
    while True:
        try:
            return await action()
        except Exception as error:
            if not unavailable(error) or steady() > give_up:
                raise
            await asyncio.sleep(RETRY_PAUSE_SECONDS)


PASSING_STATES = ("08", "40", "53", "57P")
"""SQLSTATE classes of what may pass: no connection, a rolled-back transaction, no room, a server on its way."""


def unavailable(error: BaseException) -> bool:
    """Whether the error says that the database can't be reached now, rather than that the statement is wrong."""
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout | ConnectionError | TimeoutError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    # A driver's own errors come as they are: asyncpg says by SQLSTATE, or only in words, that its connection is gone.
    state = str(getattr(error.orig, "sqlstate", None) or "")
    gone = error.connection_invalidated or "connection was closed" in str(error.orig)
    return gone or state.startswith(PASSING_STATES)
