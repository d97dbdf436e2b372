"""The ground that the storm passes over: a Temporal server that is killed and comes back, the stock service, the store.

Each is a process of its own, with its own database, and is killed by the kernel when the storm's own process dies.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from settled.local.places import HOST, Ports, environment, program
from settled.local.processes import Part, start_part
from settled.workflows.converter import data_converter
from tests.desk import FAST
from tests.postgres import postgres_server

NAMESPACE = "default"
START_SECONDS = 60.0


class TemporalServer:
    """A Temporal dev server on one port and one database file, however often it is killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = Ports.choose().temporal
        self._part: Part | None = None
        self.kills = 0

    @property
    def address(self) -> str:
        """As `TEMPORAL_ADDRESS` takes it."""
        return f"{HOST}:{self._port}"

    async def start(self) -> Client:
        """Start it; returns a client once it answers."""
        command = [program("temporal"), "server", "start-dev", "--headless", "--ip", HOST, "--port", str(self._port)]
        command += ["--log-level", "error", "--db-filename", str(self._folder / "temporal.db")]
        command += [word for value in FAST for word in ("--dynamic-config-value", value)]
        name = f"temporal-{self.kills}"
        self._part = await start_part(name, command, self._folder, environment(self._folder))
        clients: list[Client] = []

        async def answers() -> bool:
            with suppress(RuntimeError, RPCError):  # the SDK's words for "nobody there" and "not yet"
                client = await Client.connect(self.address, namespace=NAMESPACE, data_converter=data_converter)
                await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
                clients.append(client)
            return bool(clients)

        await self._part.until(answers, START_SECONDS)
        return clients[-1]

    async def kill(self) -> None:
        """Kill it, without a word."""
        assert self._part is not None, "it was started"
        self.kills += 1
        self._part.process.kill()
        await self._part.process.wait()

    async def stop(self) -> None:
        """End it for good."""
        if self._part is not None:
            await self._part.stop(grace=2.0)


@asynccontextmanager
async def stock_service(
    folder: Path, stock: dict[str, int], *, processing_limit: float, dedupes: bool
) -> AsyncIterator[str]:
    """The stock service; gives its URL."""
    pieces = [word for sku, number in stock.items() for word in ("--stock", f"{sku}={number}")]
    command = [sys.executable, "-P", "-m", "settled.local.stock_service", "--database", str(folder / "stock.db")]
    command += ["--processing-limit", str(processing_limit), *([] if dedupes else ["--no-dedupe"]), *pieces]
    part = await start_part("stock", command, folder, environment(folder))
    try:
        await part.until(lambda: _listens(part), START_SECONDS)
        yield str(_first_line(part)["listening"])
    finally:
        await part.stop(grace=2.0)


async def _listens(part: Part) -> bool:
    return bool(_first_line(part))


def _first_line(part: Part) -> dict[str, Any]:
    for line in part.log.read_text(errors="replace").splitlines(keepends=True):
        if line.startswith('{"listening"') and line.endswith("\n"):
            said: dict[str, Any] = json.loads(line)
            return said
    return {}


async def effects_of(service: str) -> list[dict[str, Any]]:
    """What really happened, from the service's own journal."""
    async with aiohttp.ClientSession() as session, session.get(f"{service}/effects") as response:
        said: dict[str, Any] = await response.json()
        effects: list[dict[str, Any]] = said["effects"]
        return effects


@asynccontextmanager
async def store(kind: str, folder: Path) -> AsyncIterator[str]:
    """The ledger's database; gives its URL.

    Raises:
        SystemExit: there is no such store here.
    """
    match kind:
        case "sqlite":
            yield f"sqlite+aiosqlite:///{folder / 'settled.db'}"
        case "postgres":
            async with postgres_server() as server:
                yield await server.new_database()
        case _:
            sys.exit(f"chaos: there is no store {kind!r}; it is sqlite or postgres")
