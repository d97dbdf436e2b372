"""The worker processes of the storm: the shipped worker with a storm's patience, and traps at points of its work.

    python -m tests.chaos.worker PID-OF-THE-STORM

This process imports everything once, which takes seconds, and forks a worker for each `Duty` that it is told. A worker
serves until SIGTERM or death. What differs from `settled worker` are waits: a storm of minutes can't wait ten minutes
for an activity whose worker was killed. Nothing that decides anything is changed.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import select
import signal
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, HttpUrl
from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig

from settled.activities import settling
from settled.activities.agents import AgentProfile
from settled.activities.registry import discover
from settled.activities.sweeping import Sweep
from settled.activities.tools import stock
from settled.worker.process import sweeping
from settled.worker.settings import Settings
from settled.worker.wiring import make_worker, parts
from settled.workflows import asks
from settled.workflows.converter import data_converter
from tests.chaos.hasty import Hasty
from tests.chaos.naive import naive_worker
from tests.crash.worker_process import Act, Point, Trap, TrappedActivities, TrappedLedger, say
from tests.desk import hurried
from tests.mortal import die_with

CLERK = AgentProfile(
    model="claude-scripted", system="You are the stock clerk.", tools=("lookup_stock", "reserve_stock"), max_tokens=4000
)


class Duty(BaseModel):
    """What the storm tells a worker process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    naive: bool
    """Whether it serves the plain workflow instead of the product."""
    temporal: str
    """The server's address."""
    task_queue: str
    settings: dict[str, Any]
    """The worker's settings."""
    stock_url: str
    """Where it finds the stock service: the proxy."""
    seconds: float
    """The time budget of a write's attempt."""
    lands_within: float
    """What the write's tool says of its service."""
    dedupes: bool
    """The same."""
    trap: Point | None = None
    """Where it falls into a trap."""
    passes: int = 0
    """How often it comes past the trap before that."""
    act: Act = Act.KILL
    """What the trap does: kill it, or stop it until the storm wakes it up."""


class LaterTrap(Trap):
    """A trap that lets some pass."""

    def __init__(self, point: Point | None, act: Act, passes: int) -> None:
        super().__init__(point, act)
        self._passes = passes

    def at(self, point: Point) -> None:
        """Say that the process has come to this point."""
        if point is self.point and self._passes:
            self._passes -= 1
            return
        super().at(point)


class Mortal(SimplePlugin):
    """A worker whose workflows are given to others soon after it has died."""

    def __init__(self) -> None:
        super().__init__("mortal")

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Shorten what a dead worker's workflows wait for it: ten seconds by default."""
        config["sticky_queue_schedule_to_start_timeout"] = timedelta(seconds=1)
        config["max_cached_workflows"] = 400
        return super().configure_worker(config)


@dataclass(frozen=True)
class Serving:
    """A worker that serves until it is told to stop."""

    worker: Worker
    stop: asyncio.Event

    async def run(self) -> None:
        """Serve."""
        running = asyncio.create_task(self.worker.run())
        stopping = asyncio.create_task(self.stop.wait())
        say("serves")
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not running.done():
            await self.worker.shutdown()
        await running


def hurry() -> None:
    """Shorten the waits that a storm can't wait for, besides those of `hasty`."""
    asks.ATTEMPT_MARGIN = timedelta(seconds=3)
    asks.LONGEST_QUEUE = timedelta(seconds=15)
    settling.PERMIT_SECONDS = 10.0


async def serve(duty: Duty) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    client = await Client.connect(duty.temporal, data_converter=data_converter, plugins=[Mortal()])
    if duty.naive:
        await Serving(naive_worker(client, duty.task_queue, duty.stock_url, duty.seconds), stop).run()
        return
    hurry()
    trap = LaterTrap(duty.trap, duty.act, duty.passes)
    stock.SETTINGS = stock.StockSettings(url=HttpUrl(duty.stock_url))
    promises = {"lands_within": timedelta(seconds=duty.lands_within)} | ({} if duty.dedupes else {"dedupes": None})
    tools = hurried(discover(), seconds=duty.seconds, **promises)
    settings = Settings(**duty.settings)
    async with parts(settings, trap.around(tools), {"stock-clerk": CLERK}) as made_of:
        stores = replace(made_of.stores, ledger=TrappedLedger(made_of.stores.database, trap))
        await made_of.provider.warm_up()
        worker = make_worker(client, replace(made_of, stores=stores), [TrappedActivities(trap), Hasty()])
        sweep = Sweep(client, stores, tools, settings.task_queue)
        async with sweeping(sweep, settings.sweep_seconds):
            await Serving(worker, stop).run()


def begin(log: str, duty: str) -> None:
    """The life of a process that has just been forked; it doesn't return."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 1
    try:
        asyncio.run(serve(Duty.model_validate_json(duty)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the SDK's native threads can crash an interpreter that takes its time to exit


def fork(log: str, duty: str) -> int:
    """Fork a worker; returns its process id."""
    starter = os.getpid()
    if child := os.fork():
        return child
    die_with(starter)
    begin(log, duty)
    return 0


def reap() -> None:
    """Say which workers have ended."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            say(f"ended {ended[0]} {os.waitstatus_to_exitcode(ended[1])}")


def main() -> None:
    """The process: it has imported everything, and forks a worker for each line, `LOG DUTY`, that it reads."""
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the storm's own business
    importlib.import_module("anthropic")
    say("ready")
    unread = b""
    while True:
        reap()
        if not select.select([0], [], [], 0.05)[0]:
            continue
        if not (read := os.read(0, 65_536)):
            os._exit(0)
        *lines, unread = (unread + read).split(b"\n")
        for line in lines:
            log, duty = line.decode().split(" ", 1)
            say(f"started {fork(log, duty)} {log}")


if __name__ == "__main__":
    main()
