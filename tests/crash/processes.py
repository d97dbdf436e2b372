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
from settled.workflows.states import Event
from tests.crash.nursery import Birth, Forked
from tests.crash.operator import address_of
from tests.crash.traps import Act, Point
from tests.crash.worker_process import Instructions
from tests.desk import Desk, until

ROOT = Path(__file__).parents[2]
"""Where `python -m` finds the tests."""
START_SECONDS = 60.0
IMPORT_SECONDS = 120.0

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

    process: asyncio.subprocess.Process | Forked
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
        assert isinstance(self.process, asyncio.subprocess.Process), "a fork was told before it was born"
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

        try:
            await until(stopped)
        except TimeoutError:
            raise AssertionError(f"it is not stopped:\n{self.said()}") from None

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
    """Worker processes as they are needed, out of one that has imported everything.

    To import it all takes seconds; most tests would wait for a timeout meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nursery: asyncio.subprocess.Process | None = None
        self._workers: list[WorkerProcess] = []
        self._numbers = count()
        self._one_at_a_time = asyncio.Lock()

    async def take(self, told: Instructions) -> WorkerProcess:
        """A worker process that does as it is told."""
        log = self._log()
        async with self._one_at_a_time:
            pid = await self._birth(Birth(log=log, told=told))
        try:
            child = Forked(pid)
        except ProcessLookupError:
            raise AssertionError(f"it has ended at once:\n{log.read_text(errors='replace')}") from None
        self._workers.append(WorkerProcess(child, log))
        return self._workers[-1]

    async def skewed(self, seconds: float) -> WorkerProcess:
        """A worker process whose clock is wrong, and that is still to be told what to do."""
        command = (sys.executable, "-m", "tests.crash.skewed", str(os.getpid()), str(seconds))
        self._workers.append(await started(command, self._log()))
        return self._workers[-1]

    def _log(self) -> Path:
        return self.folder / f"{next(self._numbers)}.log"

    async def _birth(self, birth: Birth) -> int:
        if self._nursery is None:
            self._nursery = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.crash.nursery", str(os.getpid())),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        assert self._nursery.stdin is not None, "it was started with a pipe"
        assert self._nursery.stdout is not None, "it was started with a pipe"
        self._nursery.stdin.write(f"{birth.model_dump_json()}\n".encode())
        await self._nursery.stdin.drain()
        said = await asyncio.wait_for(self._nursery.stdout.readline(), IMPORT_SECONDS)
        assert said, "the nursery has ended; see what it said above"
        return int(said)

    async def close(self) -> None:
        """Kill all that is left."""
        for worker in self._workers:
            await worker.kill()
        if self._nursery is not None:
            self._nursery.kill()
            await self._nursery.wait()


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
        row: Event | None = None,
        one_hand: bool = False,
        serves: tuple[str, ...] = (),
        task_queue: str = "",
        worker: WorkerProcess | None = None,
    ) -> WorkerProcess:
        """Put a worker process to work, a new one unless it is given; it serves when this returns.

        The other arguments are those of its instructions.
        """
        settings = self.desk.parts.settings
        told = Instructions(
            temporal=address_of(self.desk),
            settings={**settings.model_dump(mode="json"), "task_queue": task_queue or settings.task_queue},
            stock_url=self.desk.stock.url,
            seconds=SECONDS,
            lands_within=LANDS_WITHIN,
            one_hand=one_hand,
            serves=serves,
            trap=trap,
            act=act,
            row=row,
        )
        if worker is None:
            worker = await self.bench.take(told)
        else:
            await worker.is_told(told.model_dump_json())
        self._hired.append(worker)
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


def is_stopped(pid: int) -> bool:
    """Whether the kernel says that a process is stopped, with every thread that it has."""
    with suppress(FileNotFoundError):  # a thread, or all of it, has ended
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
        return bool(states) and set(states) == {"T"}
    return False


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
