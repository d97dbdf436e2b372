"""The storm: everything is started, things are done to everything, all becomes quiet, and what is left is judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client

from settled.activities.migrating import migrate
from settled.local.messages_server import MessagesServer
from tests.chaos import ground
from tests.chaos.crew import Crew
from tests.chaos.evidence import Books, action_of, seen, told
from tests.chaos.model import Provider
from tests.chaos.operator import Operator
from tests.chaos.oracle import Ended, Judgement, Known, judge
from tests.chaos.pace import Pace
from tests.chaos.plan import Plan, stock
from tests.chaos.proxy import Proxy
from tests.chaos.tasks import Tasks
from tests.chaos.worker import Duty

SECONDS = 1.5
"""The time budget of a write's attempt."""
LANDS_WITHIN = 8.0
"""What the tool says of the service: longer than the longest freeze, hold and processing together."""
PROCESSING_LIMIT = 0.5
TASK_QUEUE = "agents"
PROGRESS_SECONDS = 5.0
QUIET_SECONDS = 180.0
"""How long everything may take to come to its end once all is quiet."""
LEAST_QUIET_SECONDS = 4.0
"""How long the last request may still be under way."""
SERVER_BETWEEN_SHARE, SERVER_MOST_SECONDS = 12, 120.0
"""The server is killed not before a twelfth of all effects has come since; or after two minutes."""
SERVER_AWAY_SECONDS = (0.1, 2.5)
LEAST_KILLS, LEAST_DEEDS = 1, 3
"""Kills of the server, and deeds to workers and to tasks each, before all becomes quiet: else it was no storm."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Verdict:
    """How a storm ended."""

    judgement: Judgement
    ended: list[Ended]
    """What each task came to."""
    lines: list[str]
    """What is wrong in words, with journals and records."""


@dataclass
class Storm:
    """A storm that goes on."""

    plan: Plan
    naive: bool
    folder: Path
    say: Say
    server: ground.TemporalServer
    client: Client
    service: str
    proxy: Proxy
    pace: Pace
    provider: Provider
    crew: Crew
    tasks: Tasks
    operator: Operator
    books: Books | None
    quiet: bool = False
    away: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the server is away."""
    begun: float = field(default_factory=time.monotonic)

    async def blow(self) -> None:
        """Do things to everything until there were enough operations; then let all become quiet."""
        winds = [self.crew.storm(), self.operator.storm(), self._kill_servers(), self._tell()]
        blowing = [asyncio.create_task(wind) for wind in winds]
        feeding = asyncio.create_task(self.tasks.feed())
        try:
            await asyncio.wait([feeding, *blowing], return_when=asyncio.FIRST_COMPLETED)
            for ended in blowing:
                if ended.done():
                    ended.result()  # none ends by itself: this raises why it did
            await feeding
            await self._become_quiet()
        finally:
            for task in (feeding, *blowing):
                task.cancel()
            await asyncio.gather(feeding, *blowing, return_exceptions=True)

    async def _become_quiet(self) -> None:
        self.say(f"{self._elapsed}  quiet: no more faults; what is still open may come to its end")
        self.quiet = self.proxy.quiet = self.provider.quiet = True
        await self.crew.calm()
        async with self.away:
            pass  # it is back
        await self.operator.let_all_go_on()
        await asyncio.sleep(LEAST_QUIET_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_SECONDS):
                while not await self._at_rest():  # noqa: ASYNC110  # it happens in other processes: no event tells
                    await asyncio.sleep(0.5)

    async def _at_rest(self) -> bool:
        await self.tasks.look()
        unsettled = (await self.books.counts())[1] if self.books else 0
        return not self.tasks.running and not unsettled

    async def _kill_servers(self) -> None:
        random = self.plan.random("server")
        while True:
            between = random.uniform(*self.plan.server_seconds)
            share = self.plan.operations // SERVER_BETWEEN_SHARE
            await self.pace.wait(between, share, SERVER_MOST_SECONDS)
            async with self.away:
                if not self.quiet:
                    await self.server.kill()
                    await asyncio.sleep(random.uniform(*SERVER_AWAY_SECONDS))
                    await self.server.start()

    @property
    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.begun:6.1f} s"

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            operations, unsettled = await self.books.counts() if self.books else (0, 0)
            effects = len(await ground.effects_of(self.service))
            known = f"operations {operations} ({operations - unsettled} settled)  " if self.books else ""
            self.say(
                f"{self._elapsed}  tasks {len(self.tasks.closed)} closed, {len(self.tasks.running)} running  {known}"
                f"effects {effects}  faults: {self.faults}"
            )

    @property
    def faults(self) -> str:
        """How much was done so far, by whom."""
        return (
            f"network {self.proxy.faults}, workers {self.crew.deeds}, traps {self.crew.done['trapped']}, "
            f"server {self.server.kills}, operator {self.operator.deeds}, model {self.provider.faults}"
        )

    async def judged(self) -> Verdict:
        """How it ended."""
        effects = await ground.effects_of(self.service)
        ended = await self.tasks.ended()
        operations = await self._operations(ended, effects)
        judgement = judge(seen(effects), operations, ended)
        lines = [line for task in ended if not task.closed for line in await self.tasks.waiting(task.id)]
        for finding in judgement.findings if self.books else ():
            lines += await told(finding, self.books, effects, LANDS_WITHIN)
        return Verdict(judgement, ended, lines)

    async def _operations(self, ended: list[Ended], effects: list[dict[str, Any]]) -> list[Known]:
        actions = {action for task in ended for action in task.actions} | {action_of(effect) for effect in effects}
        return await self.books.operations(actions) if self.books else []


async def opened(stack: AsyncExitStack, plan: Plan, store: str, folder: Path, say: Say, *, naive: bool) -> Storm:
    """Start everything; it ends with the stack."""
    server = ground.TemporalServer(folder)
    stack.push_async_callback(server.stop)
    client = await server.start()
    standing = ground.stock_service(folder, stock(), processing_limit=PROCESSING_LIMIT, dedupes=plan.dedupes)
    service = await stack.enter_async_context(standing)
    faulty = Proxy(service, plan.random("proxy"), may_repeat=plan.dedupes)
    proxy = await stack.enter_async_context(faulty)
    provider = Provider(plan.random("model"))
    model = await stack.enter_async_context(MessagesServer(provider))
    books = None
    settings: dict[str, Any] = {}
    if not naive:
        url = await stack.enter_async_context(ground.store(store, folder))
        books = Books(url)
        stack.push_async_callback(books.close)
        await migrate(books.database)
        settings = settings_of(url, model.url)
    duty = Duty(
        naive=naive,
        temporal=server.address,
        task_queue=TASK_QUEUE,
        settings=settings,
        stock_url=proxy.url,
        seconds=SECONDS,
        lands_within=LANDS_WITHIN,
        dedupes=plan.dedupes,
    )
    pace = Pace(lambda: proxy.commits)
    crew = Crew(duty, plan.workers, folder, plan.random("crew"), pace)
    stack.push_async_callback(crew.end)
    await crew.begin()

    async def enough() -> bool:
        # On a slow machine there are many operations before anything is done to anybody.
        if server.kills < LEAST_KILLS or crew.deeds < LEAST_DEEDS or operator.deeds < LEAST_DEEDS:
            return False
        if books is not None:
            return (await books.counts())[0] >= plan.operations
        return len({action_of(effect) for effect in await ground.effects_of(service)}) >= plan.operations

    tasks = Tasks(client, plan, TASK_QUEUE, SECONDS, naive, enough)
    operator = Operator(
        client, plan.random("operator"), pace, lambda: sorted(tasks.running), lambda: tasks.closed, tasks.run_again
    )
    return Storm(plan, naive, folder, say, server, client, service, proxy, pace, provider, crew, tasks, operator, books)


def settings_of(url: str, model: str) -> dict[str, Any]:
    """The workers' settings: waits of seconds, and patience without an end."""
    return {
        "database_url": url,
        "task_queue": TASK_QUEUE,
        "model_url": model,
        "health_port": 0,
        "drain_seconds": 4.0,
        "model_seconds": 20.0,
        "model_attempts": 30,
        "read_attempts": 10,
        "recheck_seconds": 3.0,
        "sweep_seconds": 5.0,
        "cut_events": 60,
        "lookup_first_seconds": 0.3,
        "lookup_most_seconds": 2.0,
        "patience_seconds": 86_400.0,
    }
