"""The one SQL database: ledger, transcript and artifacts. SQLite by default, PostgreSQL by another URL.

The store's clock is the only clock in the ledger: workers' clocks differ, and a frozen process has an old one.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import event, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from settled.activities.ledger_file import LedgerFile
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
RETRY_PAUSE_SECONDS = 0.5
MOST_PORT = 65_535
MAX_TRIES, COLLISION_PAUSE_SECONDS = 20, 0.005
ALL = 0x5E771EE
"""Names the lock that who changes something for all takes alone, and everybody else together, on PostgreSQL."""
T = TypeVar("T")
WAL_TRIES, WAL_PAUSE_SECONDS = 600, 0.05


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On which terms a connection works. Who is frozen loses his locks before those who wait for them give up.

    SQLite knows only the wait for its lock: a process that is frozen inside a transaction keeps it, until it is woken
    or killed. Its transactions come one after the other anyway.
    """

    connect: float = 10.0
    """Seconds that a new connection may take."""
    idle: float = 5.0
    """Seconds that PostgreSQL waits for a transaction's next statement; then it ends it, and frees its locks."""
    lock: float = 30.0
    """Seconds that a statement waits for a lock."""
    answer: float = 45.0
    """Seconds that a statement may take; then the server counts as out of reach: frozen itself, or cut off."""
    writes: bool = True
    """Whether anything is written; otherwise an SQLite file is left as it is, also one that is no database."""


WORK = Terms()
READING = Terms(writes=False)
MIGRATION = Terms(idle=600.0, lock=3_600.0, answer=3_600.0)
"""A table may be large, and all workers of a deployment wait for the first one's migration."""


def _sqlite_options(terms: Terms) -> dict[str, Any]:
    return {"connect_args": {"timeout": terms.lock}}


def _postgresql_options(terms: Terms) -> dict[str, Any]:
    server_settings = {
        "idle_in_transaction_session_timeout": f"{terms.idle * 1_000:.0f}",
        "lock_timeout": f"{terms.lock * 1_000:.0f}",
    }
    connect_args = {"timeout": terms.connect, "command_timeout": terms.answer, "server_settings": server_settings}
    return {"pool_pre_ping": True, "connect_args": connect_args}


DRIVERS: dict[str, Callable[[Terms], dict[str, Any]]] = {
    "sqlite+aiosqlite": _sqlite_options,
    "postgresql+asyncpg": _postgresql_options,
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
        terms: how its connections work.

    Raises:
        ConfigurationError: the URL is none, or names a database that isn't supported.
    """

    def __init__(self, url: str, *, clock: Clock = store_clock, terms: Terms = WORK) -> None:
        self.url = url
        self._clock = clock
        self.engine = _engine(url, terms)
        self._file = LedgerFile.of(self.engine.url)
        self._file.watch(self.engine)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction for rows that depend on nothing that was read before; see `transact` for others.

        Raises:
            FileGone: the file was deleted or replaced; what was committed may be lost with it.
        """
        self._file.check()
        async with self.engine.begin() as connection:
            yield connection
        # Once more: a claim counts only in a file that the next process will find.
        self._file.check()

    async def transact(
        self, change: Callable[[AsyncConnection], Awaitable[T]], about: Iterable[str] | None = None
    ) -> T:
        """Make a change in a transaction in which what was read still holds at the commit.

        SQLite's transactions come one after the other. On PostgreSQL those about the same thing do, by locks: its
        serializable ones would end each other over rows that only lie side by side in an index.

        Args:
            change: what reads and writes; run again if it was in another one's way.
            about: names of all that it reads and depends on; None: everything, so that it runs alone.

        Raises:
            DBAPIError: something else was in the way, again and again (`collided`); or whatever went wrong.
        """
        locks = _locks(about) if self.engine.dialect.name == "postgresql" else []
        for tries in range(1, MAX_TRIES):
            try:
                return await self._transact(change, locks)
            except DBAPIError as error:
                if not collided(error):
                    raise
            await asyncio.sleep(random.uniform(0, tries * COLLISION_PAUSE_SECONDS))
        return await self._transact(change, locks)

    async def _transact(self, change: Callable[[AsyncConnection], Awaitable[T]], locks: Sequence[Any]) -> T:
        async with self.write() as connection:
            if locks:
                await connection.execute(select(*locks))
            return await change(connection)

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


def _locks(about: Iterable[str] | None) -> list[Any]:
    """The locks of a transaction, in an order that is the same for all, so that no two wait for each other."""
    if about is None:
        return [func.pg_advisory_xact_lock(ALL)]
    names = {int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True) for name in about}
    return [func.pg_advisory_xact_lock_shared(ALL), *(func.pg_advisory_xact_lock(name) for name in sorted(names))]


def _engine(url: str, terms: Terms) -> AsyncEngine:
    driver = ""
    try:
        if (make_url(url).port or 0) > MOST_PORT:
            raise ConfigurationError(f"SETTLED_DATABASE_URL: a port is at most {MOST_PORT}")
        driver = make_url(url).drivername
        engine = create_async_engine(url, hide_parameters=True, **DRIVERS[driver](terms)) if driver in DRIVERS else None
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
    if terms.writes:
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


PASSING_STATES = ("08", "25006", "25P03", "40", "53", "55P03", "57")
"""SQLSTATEs, and classes of them, of what may pass.

No connection; a server that became a standby; a transaction that was idle for too long, or rolled back; no room; a lock
that wasn't had; a statement that somebody ended; a server that comes or goes.
"""


def unavailable(error: BaseException) -> bool:
    """Whether the error says that the database can't be reached now, rather than that the statement is wrong."""
    # OSError: refused, no route, no name, or "multiple exceptions" where a name stands for several addresses.
    if isinstance(error, OperationalError | InterfaceError | PoolTimeout | OSError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    # A driver's own errors come as they are: asyncpg says by SQLSTATE, or only in words, that its connection is gone.
    gone = error.connection_invalidated or "connection was closed" in str(error.orig)
    return gone or _state(error).startswith(PASSING_STATES)


def collided(error: DBAPIError) -> bool:
    """Whether another writer was in the way, so that the same transaction, run again, may succeed.

    It wrote the same row first, or the server ended one of two transactions that waited for each other.
    """
    return isinstance(error, IntegrityError) or _state(error).startswith("40")


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")
