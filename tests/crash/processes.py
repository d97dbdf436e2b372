"""Worker processes that a test starts, freezes, wakes and kills; and other workers, in the test's own process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

from temporalio.worker import Interceptor, Worker

from settled.worker.wiring import WORKFLOWS, make_worker
from tests.crash.operator import address_of
from tests.crash.worker_process import Act, Instructions, Point
from tests.desk import Desk, until

ROOT = Path(__file__).parents[2]
"""Where `python -m` finds the tests."""
START_SECONDS = 60.0

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

    async def is_told(self, line: str) -> None:
        """Write a line to its standard input."""
        stdin = self.process.stdin
        assert stdin is not None, "it was started with one"
        stdin.write(f"{line}\n".encode())
        with suppress(ConnectionError):  # it has ended: who waits for what it says will tell
            await stdin.drain()

    async def is_frozen(self) -> None:
        """Wait until the kernel says that it is stopped."""

        async def stopped() -> bool:
            assert self.process.returncode is None, f"it has ended:\n{self.said()}"
            return is_stopped(self.process.pid)

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


class Bench:
    """Worker processes that have imported everything and wait to be told what to do, one at a time.

    Python takes seconds to import it all; most tests wait for a timeout meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[WorkerProcess] = []
        self._numbers = count()
        self._next: asyncio.Task[WorkerProcess] | None = None

    async def take(self) -> WorkerProcess:
        """A worker process that reads its instructions from its standard input."""
        taken = await (self._next or self._start())
        self._next = asyncio.create_task(self._start())
        return taken

    async def skewed(self, seconds: float) -> WorkerProcess:
        """A worker process whose clock is wrong, and that reads its instructions like any other."""
        return await self._start("tests.crash.skewed", str(seconds))

    async def _start(self, module: str = "tests.crash.worker_process", *words: str) -> WorkerProcess:
        command = (sys.executable, "-m", module, str(os.getpid()), *words)
        worker = await started(command, self.folder / f"{next(self._numbers)}.log")
        self._started.append(worker)
        return worker

    async def close(self) -> None:
        """Kill all that is left."""
        if self._next is not None:
            await self._next
        for worker in self._started:
            await worker.kill()


class Crew:
    """The worker processes of a test; none of them outlives it."""

    def __init__(self, desk: Desk, bench: Bench) -> None:
        self.desk = desk
        self.bench = bench
        self._hired: list[WorkerProcess] = []

    async def hire(
        self,
        *,
        trap: Point | None = None,
        act: Act = Act.STOP,
        one_hand: bool = False,
        worker: WorkerProcess | None = None,
    ) -> WorkerProcess:
        """Put a worker process to work, the bench's next one unless it is given; it serves when this returns."""
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
        worker = worker or await self.bench.take()
        self._hired.append(worker)
        await worker.is_told(told.model_dump_json())
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
        command = (str(Path(sys.executable).parent / "settled"), "worker")
        worker = await started(command, self.desk.folder / "settled-worker.log", **environment | settings)
        self._hired.append(worker)
        await worker.says("serving task queue")
        return worker

    async def leave(self) -> None:
        """Kill all that is left."""
        for worker in self._hired:
            await worker.kill()


async def started(command: Sequence[str], log: Path, **environment: str) -> WorkerProcess:
    """Start a process, with its output in a file."""
    with opened(log) as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
    return WorkerProcess(process, log)


def is_stopped(child: int) -> bool:
    """Whether the kernel says that a child process is stopped."""
    return os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


def written(path: Path, text: str) -> Path:
    """Write a file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def opened(path: Path) -> BinaryIO:
    """Open a file to write to."""
    return path.open("wb")


def another_worker(desk: Desk, interceptors: Sequence[Interceptor] = ()) -> Worker:
    """Another whole worker of the same task queue."""
    return make_worker(desk.client, desk.parts, interceptors)


def a_head(desk: Desk) -> Worker:
    """Another worker, which serves workflows only. A frozen worker with workflows would hold on to their tasks."""
    return Worker(desk.client, task_queue=desk.parts.settings.task_queue, workflows=WORKFLOWS)


def other_hands(desk: Desk) -> Worker:
    """Another worker, which serves activities only."""
    return Worker(desk.client, task_queue=desk.parts.settings.task_queue, activities=desk.parts.activities())
