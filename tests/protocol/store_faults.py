"""Real faults of a real PostgreSQL: each is made to happen, and raises whatever it raises."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from sqlalchemy import text

from settled.activities.database import Database, Terms
from tests.desk import until
from tests.postgres import PostgresServer

SHORT = Terms(connect=1.0, idle=0.3, lock=0.6, answer=1.0)
NOTED = "INSERT INTO key_declarations VALUES ('{}', '')"


async def run(database: Database, *statements: str, pause: float = 0.0) -> None:
    """Run the statements in one transaction, with a pause after each."""
    async with database.write() as connection:
        for statement in statements:
            await connection.execute(text(statement))
            await asyncio.sleep(pause)


async def sleepers(server: PostgresServer, state: str) -> list[int]:
    """The server's processes whose connection is in this state, sleeping."""
    query = f"SELECT pid FROM pg_stat_activity WHERE state = '{state}' AND query LIKE 'SELECT pg_sleep%'"
    return [int(str(pid)) for (pid,) in await server.tell(query)]


async def interrupted(server: PostgresServer, database: Database, what: Callable[[], Awaitable[object]]) -> None:
    """Do something to the server while a statement runs."""
    running = asyncio.create_task(run(database, "SELECT pg_sleep(20)"))
    await until(lambda: sleepers(server, "active"))
    await what()
    await running


async def stopped(server: PostgresServer, database: Database) -> None:
    try:
        await interrupted(server, database, server.stop)
    finally:
        await server.start()


async def killed(server: PostgresServer, database: Database) -> None:
    try:
        await interrupted(server, database, server.kill)
    finally:
        await server.start()


async def refused(server: PostgresServer, database: Database) -> None:
    await server.stop()
    try:
        await run(database, "SELECT 1")
    finally:
        await server.start()


async def shutting_down(server: PostgresServer, database: Database) -> None:
    """It waits for those who are connected, and lets nobody else in."""
    late = Database(database.url)
    assert server.process is not None
    try:
        async with database.write() as connection:
            await connection.execute(text("SELECT 1"))
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                while True:
                    await run(late, "SELECT 1")
                    await late.close()
    finally:
        await late.close()
        await database.close()
        await server.stop()
        await server.start()


async def thrown_out(server: PostgresServer, database: Database) -> None:
    await interrupted(server, database, lambda: end_all(server, "pg_terminate_backend", "active"))


async def thrown_out_between_statements(server: PostgresServer, database: Database) -> None:
    running = asyncio.create_task(run(database, "SELECT pg_sleep(0)", "SELECT 1", pause=0.5))
    await until(lambda: end_all(server, "pg_terminate_backend", "idle in transaction"))
    await running


async def cancelled(server: PostgresServer, database: Database) -> None:
    await interrupted(server, database, lambda: end_all(server, "pg_cancel_backend", "active"))


async def end_all(server: PostgresServer, how: str, state: str) -> list[int]:
    found = await sleepers(server, state)
    for pid in found:
        await server.tell(f"SELECT {how}({pid})")
    return found


async def idle_for_too_long(server: PostgresServer, database: Database) -> None:
    hurried = Database(database.url, terms=SHORT)
    try:
        await run(hurried, "SELECT 1", "SELECT 1", pause=1.0)
    finally:
        await hurried.close()


async def locked_for_too_long(server: PostgresServer, database: Database) -> None:
    hurried = Database(database.url, terms=SHORT)
    try:
        async with database.write() as connection:
            await connection.execute(text(NOTED.format("a")))
            await run(hurried, NOTED.format("a"))
    finally:
        await hurried.close()


async def deadlocked(server: PostgresServer, database: Database) -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def cross(mine: asyncio.Event, other: asyncio.Event, *names: str) -> None:
        async with database.write() as connection:
            await connection.execute(text(NOTED.format(names[0])))
            mine.set()
            await other.wait()
            await connection.execute(text(NOTED.format(names[1])))

    async with asyncio.TaskGroup() as both:
        both.create_task(cross(first, second, "a", "b"))
        both.create_task(cross(second, first, "b", "a"))


async def not_serializable(server: PostgresServer, database: Database) -> None:
    begin = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    count = "SELECT count(*) FROM key_declarations"
    async with database.write() as connection:
        await connection.execute(text(begin))
        await connection.execute(text(count))
        await run(database, begin, count, NOTED.format("a"))
        await connection.execute(text(NOTED.format("b")))


async def read_only(server: PostgresServer, database: Database) -> None:
    """As it is after a failover, on a connection to what was the primary."""
    await run(database, "SET TRANSACTION READ ONLY", NOTED.format("a"))


async def full(server: PostgresServer, database: Database) -> None:
    name = database.url.rpartition("/")[2]
    await server.tell(f"CREATE ROLE guest LOGIN; ALTER DATABASE {name} CONNECTION LIMIT 0")
    guest = Database(database.url.replace("settled@", "guest@"))
    try:
        await run(guest, "SELECT 1")
    finally:
        await guest.close()
        await server.tell(f"ALTER DATABASE {name} CONNECTION LIMIT -1; DROP ROLE guest")


async def nameless(server: PostgresServer, database: Database) -> None:
    await run(Database(database.url.replace("127.0.0.1", "nowhere.invalid")), "SELECT 1")


async def no_route(server: PostgresServer, database: Database) -> None:
    await run(Database(database.url.replace("127.0.0.1", "255.255.255.255")), "SELECT 1")


async def frozen(server: PostgresServer, database: Database) -> None:
    """The whole server, or the network to it: connections stay, and nobody answers."""
    hurried = Database(database.url, terms=SHORT)

    async def freeze() -> None:
        server.freeze()

    try:
        await interrupted(server, hurried, freeze)
    finally:
        server.wake()
        await hurried.close()


Fault = Callable[[PostgresServer, Database], Awaitable[None]]
FAULTS: list[Fault] = [
    *(refused, stopped, killed, shutting_down, thrown_out, thrown_out_between_statements, cancelled),
    *(idle_for_too_long, locked_for_too_long, deadlocked, not_serializable, read_only, full, nameless, no_route),
    frozen,
]
