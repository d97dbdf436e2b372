"""A desk: a real worker on a real Temporal server, with a real stock service and a scripted model, for one test."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from pydantic import HttpUrl
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Interceptor

from settled.activities.agents import AgentProfile
from settled.activities.registry import Registry, discover
from settled.activities.tool_http import trusted
from settled.activities.toolkit import Tool, WriteTool
from settled.activities.tools import stock
from settled.local.messages_script import Reply, Step, tool_use
from settled.local.messages_server import MessagesServer
from settled.local.stock_service import StockService
from settled.worker.settings import Settings
from settled.worker.wiring import Parts, make_worker, parts
from settled.workflows.contract.names import AGENT_TASK, TASK_NOT_SUCCEEDED, settlement_id
from settled.workflows.contract.operation import OperationView, SettlementStep
from settled.workflows.contract.result import StatusReport, TaskResult
from settled.workflows.converter import data_converter
from tests.ledgers import new_ledger

FAST = ["history.transferProcessorMaxPollRPS=5000", "history.timerProcessorMaxPollRPS=5000"]
"""The stock dev server paces single workflows; without that, a turn takes a third of the time."""

CLERK = AgentProfile(
    model="claude-scripted", system="You are the stock clerk.", tools=("lookup_stock", "reserve_stock"), max_tokens=1000
)


@asynccontextmanager
async def temporal_server() -> AsyncIterator[Client]:
    """A Temporal dev server on a free port."""
    extra = [word for value in FAST for word in ("--dynamic-config-value", value)]
    binary = str(Path(sys.executable).parent / "temporal")
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=binary,
        dev_server_extra_args=extra,
        dev_server_log_level="error",
        dev_server_startup_timeout=timedelta(seconds=30),
    ) as environment:
        # A client of our own: the environment's one lets failed assertions fail the workflow, which ours must not.
        yield await Client.connect(environment.client.service_client.config.target_host, data_converter=data_converter)


@dataclass(frozen=True)
class Desk:
    """What a test works at."""

    client: Client
    parts: Parts
    stock: StockService
    model: MessagesServer
    script: list[Step]
    http: httpx2.AsyncClient
    folder: Path
    started: Counter[str] = field(default_factory=Counter)
    """How many tasks were started with a goal: two with the same one ask the same."""
    again: list[int] = field(default_factory=list)
    """How many requests may be made once more, as the test said."""

    def will_say(self, *steps: Step | Mapping[str, Any] | str) -> None:
        """Add to the model's script; text and blocks stand for replies of their own."""
        self.script.extend(step if isinstance(step, Step) else Reply.of(step) for step in steps)

    def may_ask_again(self, times: int) -> None:
        """So many requests may be made once more, because attempts fail, say."""
        self.again.append(times)

    def assert_nothing_was_asked_twice(self) -> None:
        """Each request is paid for: none may equal an earlier one of its task, unless the test said so."""
        asked = Counter(json.dumps(body, sort_keys=True) for body in self.model.requests)
        repeated = {}
        for body, times in asked.items():
            goal = json.loads(body)["messages"][0]["content"][0]["text"]
            if times > max(1, self.started[goal]):
                repeated[goal] = times - max(1, self.started[goal])
        assert sum(repeated.values()) <= sum(self.again), f"asked once more: {repeated}"

    async def start(self, request: Any, task: str | None = None, **options: Any) -> WorkflowHandle[Any, TaskResult]:
        """Start a task."""
        self.started[str(request["goal"] if isinstance(request, dict) and "goal" in request else request).strip()] += 1
        return await self.client.start_workflow(
            AGENT_TASK,
            request,
            id=task or f"task-{uuid4().hex[:12]}",
            task_queue=self.parts.settings.task_queue,
            result_type=TaskResult,
            **options,
        )

    async def run(self, request: Any, task: str | None = None, **options: Any) -> TaskResult:
        """Start a task and wait for its result, whether it is returned or in a failure's details."""
        return await result_of(await self.start(request, task, **options))

    async def result(self, handle: WorkflowHandle[Any, TaskResult], seconds: float = 60.0) -> TaskResult:
        """The result of a task, whether it is returned or in a failure's details."""
        return await result_of(handle, seconds)

    async def arm(self, fault: str, **options: Any) -> None:
        """Arm a fault of the stock service."""
        response = await self.http.post(f"{self.stock.url}/faults", json={"fault": fault, **options})
        response.raise_for_status()

    async def effects(self, **filters: str) -> list[dict[str, Any]]:
        """What really happened, from the stock service's own journal."""
        response = await self.http.get(f"{self.stock.url}/effects", params=filters)
        effects: list[dict[str, Any]] = response.raise_for_status().json()["effects"]
        return effects

    async def requests(self) -> dict[str, Any]:
        """How many requests the stock service received."""
        counts: dict[str, Any] = (await self.http.get(f"{self.stock.url}/requests")).raise_for_status().json()
        return counts

    async def leave_no_settlement(self) -> None:
        """End what still runs: the next desk's equal operations have settlements of the same ids."""
        for listed in await self.parts.stores.ledger.listed():
            with suppress(RPCError):
                await (await self.settlement(listed.view)).terminate()

    async def settlement(self, operation: OperationView) -> WorkflowHandle[Any, SettlementStep]:
        """The settlement of an operation."""
        return self.client.get_workflow_handle(settlement_id(operation.key), result_type=SettlementStep)

    async def record(self, name: str, handle: WorkflowHandle[Any, Any], **which: Any) -> None:
        """Keep the history for the replay tests, where that is asked for (`make histories`)."""
        folder = os.environ.get("RECORD_HISTORIES")
        if folder:
            history = without_places(json.loads((await handle.fetch_history(**which)).to_json()))
            await asyncio.to_thread((Path(folder) / f"{name}.json").write_text, json.dumps(history, indent=0) + "\n")

    async def journal(self, operation: OperationView) -> list[str]:
        """The events of an operation's journal."""
        return [str(row.event) for row in await self.parts.stores.ledger.journal(operation.key)]


async def result_of(handle: WorkflowHandle[Any, TaskResult], seconds: float = 60.0) -> TaskResult:
    """The result of a task, whether it is returned or in a failure's details.

    Raises:
        WorkflowFailureError: it has none.
        TimeoutError: the task doesn't end.
    """
    try:
        async with asyncio.timeout(seconds):
            return await handle.result()
    except WorkflowFailureError as failure:
        cause = failure.cause
        if isinstance(cause, ApplicationError) and cause.type == TASK_NOT_SUCCEEDED:
            return TaskResult.model_validate(cause.details[0])
        raise


async def status_of(handle: WorkflowHandle[Any, TaskResult]) -> StatusReport:
    """The answer to the query `status`."""
    report: StatusReport = await handle.query("status", result_type=StatusReport)
    return report


def without_places(value: Any) -> Any:
    """A history without what tells the machine that it was recorded on: identities, sticky queues and stack traces."""
    if isinstance(value, list):
        return [without_places(item) for item in value]
    if not isinstance(value, dict):
        return value
    scrubbed = {"identity": "recorder", "stackTrace": ""}
    if value.get("kind") == "TASK_QUEUE_KIND_STICKY":
        scrubbed["name"] = "sticky"
    return {name: scrubbed.get(name, without_places(item)) for name, item in value.items()}


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
    """Ask again and again until the answer is true; returns it.

    Raises:
        TimeoutError: it doesn't become true in time.
    """
    async with asyncio.timeout(seconds):
        while not (answer := await condition()):  # noqa: ASYNC110  # it happens in another process: no event tells
            await asyncio.sleep(0.04)
        return answer


def reserve(quantity: int = 2, order: str = "1001", sku: str = "A1", **more: Any) -> dict[str, Any]:
    """A call of `reserve_stock`."""
    return tool_use("reserve_stock", {"order": order, "sku": sku, "quantity": quantity, **more})


def look_up(sku: str = "A1") -> dict[str, Any]:
    """A call of `lookup_stock`."""
    return tool_use("lookup_stock", {"sku": sku})


def hurried(registry: Registry, *, seconds: float, **changes: Any) -> Registry:
    """The same tools with a short time budget for writes, and other changes to what they state."""
    tools: dict[str, Tool] = dict(registry.tools)
    for name, tool in tools.items():
        if isinstance(tool, WriteTool):
            tools[name] = replace(tool, timeout=timedelta(seconds=seconds), **changes)
    return Registry(tools)


@asynccontextmanager
async def open_desk(
    client: Client,
    folder: Path,
    *,
    registry: Registry | None = None,
    profiles: Mapping[str, AgentProfile] | None = None,
    interceptors: Sequence[Interceptor] = (),
    working: bool = True,
    model: Mapping[str, Any] | None = None,
    articles: Mapping[str, int] | None = None,
    **settings: Any,
) -> AsyncIterator[Desk]:
    """A desk with everything at work.

    Args:
        client: of the Temporal server.
        folder: where its databases go.
        registry: the tools; the shipped ones, with three seconds for a write, unless given.
        profiles: the agent profiles; the clerk unless given.
        interceptors: of the worker.
        working: whether a worker of this process serves the desk.
        model: of the Messages server: its `limits`, say, or another `script` than the desk's own.
        articles: what the stock service has; a few of A1, B2 and C3, unless given.
        settings: of the worker; `database_url`, say, for another store than SQLite in the folder.
    """
    quick: dict[str, Any] = {
        "lookup_first_seconds": 0.1,
        "lookup_most_seconds": 0.5,
        "recheck_seconds": 2.0,
        "drain_seconds": 1.0,
    }
    async with AsyncExitStack() as stack:
        stocked = articles or {"A1": 3, "B2": 10, "C3": 1000}
        service = await stack.enter_async_context(StockService(folder / "stock.db", stocked))
        script: list[Step] = []
        served = await stack.enter_async_context(MessagesServer(**{"script": script, **(model or {})}))
        stock.SETTINGS = stock.StockSettings(url=HttpUrl(service.url))
        known = registry or hurried(discover(), seconds=3.0, lands_within=timedelta(seconds=1))
        places: dict[str, Any] = {
            "database_url": f"sqlite+aiosqlite:///{folder / 'settled.db'}",
            "task_queue": f"agents-{uuid4().hex[:8]}",
            "model_url": served.url,
        }
        if not (file := folder / "settled.db").exists():
            await new_ledger(file)
        configured = Settings(**(places | quick | settings))
        made_of = await stack.enter_async_context(parts(configured, known, profiles or {"stock-clerk": CLERK}))
        http = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, verify=trusted()))
        desk = Desk(client, made_of, service, served, script, http, folder)
        stack.push_async_callback(desk.leave_no_settlement)  # the worker starts none any more by then
        if working:
            await stack.enter_async_context(make_worker(client, made_of, interceptors))
        yield desk
        desk.assert_nothing_was_asked_twice()
