"""Worker processes that a test starts, freezes, wakes and kills; and other workers, in the test's own process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from temporalio.worker import Interceptor, Worker

from settled.worker.wiring import WORKFLOWS, make_worker
from tests.crash.operator import address_of
from tests.crash.worker_process import Act, Instructions, Point
from tests.desk import Desk, until

ROOT = Path(__file__).parents[2]
START_SECONDS = 15.0

SECONDS = 1.5
"""The time budget of a write's attempt."""
LANDS_WITHIN = 0.5
"""What the write's tool says of its service."""

PROFILE = """
model = "claude-scripted"
system = "You are the stock clerk."
tools = ["lookup_stock", "reserve_stock"]
"""


@dataclass(frozen=True)
class WorkerProcess:
    """A worker in a process of its own."""

    process: asyncio.subprocess.Process
    log: Path
    """What it says and writes, in a file: a pipe that nobody drains would freeze it."""

    async def says(self, words: str, seconds: float = START_SECONDS) -> None:
        """Wait until it has said something.

        Raises:
            AssertionError: it ended without a word, or was silent for too long.
        """

        async def heard() -> bool:
            return words in self.said() or self.process.returncode is not None

        with suppress(TimeoutError):
            await until(heard, seconds)
        assert words in self.said(), f"it never said {words!r}:\n{self.said()}"

    def said(self) -> str:
        """What it has said so far."""
        return self.log.read_text(errors="replace")

    async def is_frozen(self) -> None:
        """Wait until the kernel says that it is stopped."""

        async def stopped() -> bool:
            assert self.process.returncode is None, f"it has ended:\n{self.said()}"
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

        await until(stopped)

    async def freeze(self) -> None:
        """Stop it, whatever it is doing."""
        self.process.send_signal(signal.SIGSTOP)
        await self.is_frozen()

    def wake(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    async def ends(self, seconds: float = START_SECONDS) -> int:
        """Wait until it has ended; returns its exit code."""
        return await asyncio.wait_for(self.process.wait(), seconds)

    async def kill(self) -> None:
        """Kill it, stopped or not."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Crew:
    """The worker processes of a test; none of them outlives it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._hired: list[WorkerProcess] = []

    async def hire(self, *, trap: Point | None = None, act: Act = Act.STOP, one_hand: bool = False) -> WorkerProcess:
        """Start a worker process; it serves when this returns."""
        told = Instructions(
            temporal=address_of(self.desk),
            settings=self.desk.parts.settings.model_dump(mode="json"),
            stock_url=self.desk.stock.url,
            seconds=SECONDS,
            lands_within=LANDS_WITHIN,
            one_hand=one_hand,
            trap=trap,
            act=act,
        )
        file = await asyncio.to_thread(written, self.desk.folder / "instructions.json", told.model_dump_json())
        module = (sys.executable, "-m", "tests.crash.worker_process")
        worker = await self._start([*module, str(os.getpid()), str(file)], {"PYTHONPATH": str(ROOT)})
        await worker.says("serves")
        return worker

    async def employ(self, **settings: str) -> WorkerProcess:
        """Start `settled worker`, the command, as a deployment does; it serves when this returns."""
        await asyncio.to_thread(written, self.desk.folder / "agents" / "stock-clerk.toml", PROFILE)
        known = self.desk.parts.settings
        environment = {
            "TEMPORAL_ADDRESS": address_of(self.desk),
            "STOCK_URL": self.desk.stock.url,
            "SETTLED_DATABASE_URL": known.database_url,
            "SETTLED_TASK_QUEUE": known.task_queue,
            "SETTLED_MODEL_URL": str(known.model_url),
            "SETTLED_AGENTS": str(self.desk.folder / "agents"),
            "SETTLED_HEALTH_PORT": "0",
        }
        worker = await self._start([str(Path(sys.executable).parent / "settled"), "worker"], environment | settings)
        await worker.says("serving task queue")
        return worker

    async def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> WorkerProcess:
        log = self.desk.folder / f"worker-{len(self._hired)}.log"
        with opened(log) as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        worker = WorkerProcess(process, log)
        self._hired.append(worker)
        return worker

    async def leave(self) -> None:
        """Kill all that is left."""
        for worker in self._hired:
            await worker.kill()


def written(path: Path, text: str) -> Path:
    """Write a file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def opened(path: Path) -> BinaryIO:
    """Open a file to write to."""
    return path.open("wb")


@asynccontextmanager
async def crew_for(desk: Desk) -> AsyncIterator[Crew]:
    """Worker processes for a desk, for as long as the context lasts."""
    crew = Crew(desk)
    try:
        yield crew
    finally:
        await crew.leave()


def another_worker(desk: Desk, interceptors: Sequence[Interceptor] = ()) -> Worker:
    """Another whole worker of the same task queue."""
    return make_worker(desk.client, desk.parts, interceptors)


def a_head(desk: Desk) -> Worker:
    """Another worker, which serves workflows only. A frozen worker with workflows would hold on to their tasks."""
    return Worker(desk.client, task_queue=desk.parts.settings.task_queue, workflows=WORKFLOWS)


def other_hands(desk: Desk) -> Worker:
    """Another worker, which serves activities only."""
    return Worker(desk.client, task_queue=desk.parts.settings.task_queue, activities=desk.parts.activities())
