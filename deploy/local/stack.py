"""The local stack: a real Temporal dev server, the worker, the demo's stock service and a scripted model, on loopback.

Everything is real but the business and, without an `ANTHROPIC_API_KEY`, the model. All files are in one folder.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from sqlalchemy import URL
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from settled.local.places import HOST, Ports, environment, program, provider_variables
from settled.local.processes import Part, PartFailed, start_part, to_its_end
from settled.workflows.converter import data_converter

T = TypeVar("T")
Tell = Callable[[str, str], None]
"""Takes a progress line: what it is about, and what is to be said."""

NAMESPACE = "default"
AGENTS = Path(__file__).parent / "agents"
STOCK = {"A1": 3, "B2": 10, "C3": 100}
LANDS_WITHIN_SECONDS = 5
"""The stock service commits nothing later than this after it received a request, and its tool counts on that."""
START_SECONDS = 60.0
"""How long one part may take to start: the first time on a machine it is compiled, and read from a cold disk."""
SCRIPTED = "scripted: no ANTHROPIC_API_KEY is set; its tokens are estimates, at the prices of the real model"
UNPACED = ("history.transferProcessorMaxPollRPS=5000", "history.timerProcessorMaxPollRPS=5000")
"""The dev server paces single workflows; without these a turn takes three times as long."""
WORKER = {
    "SETTLED_AGENTS": str(AGENTS),
    "SETTLED_DEFAULT_AGENT": "stock-clerk",
    "SETTLED_HEALTH_HOST": HOST,
    "SETTLED_LOOKUP_FIRST_SECONDS": "0.5",
    "SETTLED_LOOKUP_MOST_SECONDS": "10",
    "SETTLED_RECHECK_SECONDS": "5",
    "SETTLED_DRAIN_SECONDS": "4",
    "STOCK_TIMEOUT_SECONDS": "2",
    "STOCK_LANDS_WITHIN_SECONDS": str(LANDS_WITHIN_SECONDS),
}


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Where everything is, while it runs."""

    folder: Path
    """The databases and the logs."""
    client: Client
    http: aiohttp.ClientSession
    temporal: str
    """The Temporal server, as `TEMPORAL_ADDRESS` takes it."""
    web: str
    """Temporal's web page."""
    stock: str
    """The stock service's URL."""
    model: str | None
    """The scripted model's URL; None: the provider's own."""
    ledger: str
    """The ledger, as `SETTLED_DATABASE_URL` takes it."""
    parts: tuple[Part, ...]

    async def serve(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work while everything runs.

        Raises:
            PartFailed: a part ended by itself; the work is given up.
        """
        task = asyncio.create_task(work)
        deaths = [asyncio.create_task(part.process.wait()) for part in self.parts]
        try:
            await asyncio.wait([task, *deaths], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise next(PartFailed(part, part.ended) for part in self.parts if part.ended)
            return task.result()
        finally:
            for each in (task, *deaths):
                each.cancel()
            await asyncio.gather(task, *deaths, return_exceptions=True)


@asynccontextmanager
async def running_stack(folder: Path, ports: Ports, tell: Tell) -> AsyncIterator[Stack]:
    """The stack, ready to be used; all of it is gone afterwards, whatever happens.

    Args:
        folder: for its databases and logs; what is there from an earlier time is used again.
        ports: where Temporal and the worker's health are to be.
        tell: is told of each part that is ready.

    Raises:
        ConfigurationError: a program is missing.
        PartFailed: a part did not start.
    """
    async with AsyncExitStack() as cleanup:
        http = await cleanup.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)))
        start = _Start(folder, ports, tell, http)
        cleanup.push_async_callback(lambda: to_its_end(start.stop()))
        yield await start.run()


@dataclass
class _Start:
    """Starting the parts, and stopping as many as were started."""

    folder: Path
    ports: Ports
    tell: Tell
    http: aiohttp.ClientSession
    parts: list[Part] = field(default_factory=list)

    async def stop(self) -> None:
        """Stop the parts, last one first: the worker drains while Temporal is still there."""
        for part in reversed(self.parts):
            await part.stop()

    async def run(self) -> Stack:
        """Start everything. What needs nobody starts at once; the worker needs the others."""
        temporal = await self._start("temporal", *self._temporal_command())
        stock = await self._start("stock", *self._stock_command())
        model = await self._start("model", *_python("messages_server", "--script", "clerk")) if _scripted() else None
        client = await self._until_temporal_answers(temporal)
        stock_url = await self._until_listening(stock)
        self.tell("stock service", f"{stock_url} ({', '.join(f'{pieces} of {sku}' for sku, pieces in STOCK.items())})")
        model_url = await self._until_listening(model) if model else None
        self.tell("model", f"{model_url}, {SCRIPTED}" if model_url else "the provider's own")
        stack = Stack(
            folder=self.folder,
            client=client,
            http=self.http,
            temporal=f"{HOST}:{self.ports.temporal}",
            web=f"http://{HOST}:{self.ports.web}",
            stock=stock_url,
            model=model_url,
            ledger=URL.create("sqlite+aiosqlite", database=str(self.folder / "settled.db")).render_as_string(),
            parts=(),
        )
        await self._start_worker(stack)
        return replace(stack, parts=tuple(self.parts))

    def _temporal_command(self) -> list[str]:
        command = [program("temporal"), "server", "start-dev", "--ip", HOST, "--log-level", "error"]
        command += ["--port", str(self.ports.temporal), "--ui-port", str(self.ports.web), "--ui-disable-news-fetch"]
        command += ["--db-filename", str(self.folder / "temporal.db")]
        return [*command, *(word for value in UNPACED for word in ("--dynamic-config-value", value))]

    def _stock_command(self) -> list[str]:
        pieces = [word for sku, number in STOCK.items() for word in ("--stock", f"{sku}={number}")]
        limit = ["--processing-limit", str(LANDS_WITHIN_SECONDS)]
        return _python("stock_service", "--database", str(self.folder / "stock.db"), *limit, *pieces)

    async def _start_worker(self, stack: Stack) -> None:
        variables = {
            **WORKER,
            **provider_variables(),
            "SETTLED_DATABASE_URL": stack.ledger,
            "SETTLED_HEALTH_PORT": str(self.ports.health),
            "STOCK_URL": stack.stock,
            "TEMPORAL_ADDRESS": stack.temporal,
        }
        if stack.model:
            variables["SETTLED_MODEL_URL"] = stack.model
        worker = await self._start("worker", program("settled"), "worker", **variables)
        await worker.until(lambda: self._answers(f"http://{HOST}:{self.ports.health}/readyz"), START_SECONDS)
        self.tell("worker", "`settled worker`, which serves the task queue agents")

    async def _start(self, name: str, *command: str, **variables: str) -> Part:
        part = await start_part(name, command, self.folder, environment(self.folder, **variables))
        self.parts.append(part)
        return part

    async def _until_temporal_answers(self, part: Part) -> Client:
        address, web = f"{HOST}:{self.ports.temporal}", f"http://{HOST}:{self.ports.web}"
        clients: list[Client] = []

        async def answers() -> bool:
            try:
                client = await Client.connect(address, namespace=NAMESPACE, data_converter=data_converter)
                await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
            except (RuntimeError, RPCError):  # the SDK's words for "nobody there" and "not yet"
                return False
            clients.append(client)
            return True

        await part.until(answers, START_SECONDS)
        await part.until(lambda: self._answers(web), START_SECONDS)
        self.tell("temporal", f"{address}, a dev server; its web page is {web}")
        return clients[-1]

    async def _until_listening(self, part: Part) -> str:
        """The URL at which the part says that it listens, once it answers there."""

        async def answers() -> bool:
            url = _said_url(part)
            return url is not None and await self._answers(f"{url}/healthz")

        await part.until(answers, START_SECONDS)
        return str(_said_url(part))

    async def _answers(self, url: str) -> bool:
        try:
            async with self.http.get(url) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


def _scripted() -> bool:
    return not provider_variables()


def _python(module: str, *options: str) -> list[str]:
    """The command for a server of ours. -P: whatever lies in the folder where it runs is not imported."""
    return [sys.executable, "-P", "-m", f"settled.local.{module}", *options]


def _said_url(part: Part) -> str | None:
    """Our own servers say where they listen in a line of JSON; whatever else they say may come before it."""
    for line in part.log.read_text(errors="replace").splitlines(keepends=True):
        if line.startswith('{"listening"') and line.endswith("\n"):
            return str(json.loads(line)["listening"])
    return None
