"""The worker processes, and what is done to them: killed, asked to stop, frozen for a while, and replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.chaos.pace import Pace
from tests.chaos.worker import Duty
from tests.crash.processes import ROOT
from tests.crash.worker_process import Act, Point

START_SECONDS = 90.0
FREEZE_SECONDS = (1.0, 4.0)
BETWEEN_SECONDS = (2.0, 6.0)
"""Between two things that are done to a worker; longer where not enough has happened meanwhile."""
BETWEEN_EFFECTS = 8
MOST_SECONDS = 20.0
DEEDS = {"kill": 35, "terminate": 15, "freeze": 50}
TRAPPED = 0.7
"""How many of the workers fall into a trap some time, if they live so long."""
MOST_PASSES = 25


@dataclass
class Worker:
    """A worker process."""

    pid: int
    ended: bool = False
    killed: bool = False
    """Whether it was the storm that ended it."""
    wakes: asyncio.Task[None] | None = None
    """While it is frozen: what will wake it."""

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if not self.ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def is_stopped(self) -> bool:
        """Whether the kernel says that it is stopped."""
        try:
            said = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return said.rpartition(")")[2].split()[0] == "T"


@dataclass
class Crew:
    """The workers of a storm; none of them outlives it."""

    duty: Duty
    size: int
    folder: Path
    random: Random
    pace: Pace
    done: Counter[str] = field(default_factory=Counter)
    """What was done to them, by kind."""
    quiet: bool = False
    """Whether they are left alone."""
    workers: dict[int, Worker] = field(default_factory=dict)
    """Those that live, by process id."""
    _asked: int = 0
    _starter: asyncio.subprocess.Process | None = None
    _listening: asyncio.Task[None] | None = None

    @property
    def deeds(self) -> int:
        """How much was done to them."""
        return sum(self.done[deed] for deed in DEEDS)

    async def begin(self) -> None:
        """Start the process that starts workers, and hire the first ones."""
        with (self.folder / "workers.log").open("wb") as errors:
            self._starter = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.chaos.worker", str(os.getpid())),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._listen(self._starter, ready))
        async with asyncio.timeout(START_SECONDS):
            await ready.wait()
        await self._fill()
        async with asyncio.timeout(START_SECONDS):
            while len(self.workers) < self.size:  # noqa: ASYNC110  # another process says so, line by line
                await asyncio.sleep(0.05)

    async def _listen(self, starter: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert starter.stdout is not None, "it was started with one"
        async for line in starter.stdout:
            match line.decode().split():
                case ["ready"]:
                    ready.set()
                case ["started", pid, _]:
                    self.workers[int(pid)] = Worker(int(pid))
                    self.done["hired"] += 1
                case ["ended", pid, code]:
                    worker = self.workers.pop(int(pid))
                    worker.ended = True
                    self._asked -= 1
                    self.done["trapped" if not worker.killed and int(code) == -signal.SIGKILL else "gone"] += 1

    async def storm(self) -> None:
        """Do things to them, without an end, and see that there are always enough."""
        watching = asyncio.create_task(self._watch())
        try:
            while True:
                await self.pace.wait(self.random.uniform(*BETWEEN_SECONDS), BETWEEN_EFFECTS, MOST_SECONDS)
                if not self.quiet and self._awake():
                    self._do(self.random.choices(list(DEEDS), weights=list(DEEDS.values()))[0])
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        """Replace who has gone, and wake who has fallen into a trap that stops him; without an end."""
        while True:
            for worker in self._awake():
                if worker.is_stopped():
                    self.done["trapped"] += 1
                    self._wake_later(worker)
            await self._fill()
            await asyncio.sleep(0.1)

    def _awake(self) -> list[Worker]:
        return [each for each in self.workers.values() if each.wakes is None]

    def _do(self, deed: str) -> None:
        worker = self.random.choice(self._awake())
        self.done[deed] += 1
        match deed:
            case "kill":
                worker.killed = True
                worker.signal(signal.SIGKILL)
            case "terminate":
                worker.signal(signal.SIGTERM)
            case "freeze":
                worker.signal(signal.SIGSTOP)
                self._wake_later(worker)

    def _wake_later(self, worker: Worker) -> None:
        async def wake() -> None:
            try:
                await asyncio.sleep(self.random.uniform(*FREEZE_SECONDS))
            finally:
                worker.signal(signal.SIGCONT)
                worker.wakes = None

        worker.wakes = asyncio.create_task(wake())

    async def _fill(self) -> None:
        assert self._starter is not None, "it was started"
        assert self._starter.stdin is not None, "it was started with one"
        while self._asked < self.size:
            self._asked += 1
            log = self.folder / f"worker-{self.done['asked']}.log"
            self.done["asked"] += 1
            self._starter.stdin.write(f"{log} {self._next_duty().model_dump_json()}\n".encode())
            await self._starter.stdin.drain()

    def _next_duty(self) -> Duty:
        told = self.duty
        if self.quiet or told.naive or self.random.random() >= TRAPPED:
            return told
        trap = {"trap": self.random.choice(list(Point)), "passes": self.random.randrange(MOST_PASSES)}
        # Who has stopped himself is only found where the kernel tells of other processes' children.
        acts = list(Act) if Path("/proc/self/stat").exists() else [Act.KILL]
        return told.model_copy(update={**trap, "act": self.random.choice(acts)})

    async def calm(self) -> None:
        """Let all be well: everybody awake, and enough of them. Traps that are set stay: they spring once."""
        self.quiet = True
        frozen = [worker.wakes for worker in self.workers.values() if worker.wakes is not None]
        await asyncio.gather(*frozen, return_exceptions=True)

    async def end(self) -> None:
        """Kill all that is left."""
        for worker in list(self.workers.values()):
            if worker.wakes is not None:
                worker.wakes.cancel()
            worker.signal(signal.SIGKILL)
        if self._starter is not None:
            with suppress(ProcessLookupError):
                self._starter.kill()  # the kernel kills whoever it has started meanwhile
            await self._starter.wait()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
