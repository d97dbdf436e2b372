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

from tests.chaos.worker import Duty
from tests.crash.processes import WorkerProcess, is_stopped, started
from tests.crash.worker_process import Act, Point

START_SECONDS = 90.0
FREEZE_SECONDS = (1.0, 4.0)
BETWEEN_SECONDS = (3.0, 9.0)
"""Between two things that are done to a worker."""
DEEDS = {"kill": 35, "terminate": 15, "freeze": 50}
TRAPPED = 0.7
"""How many of the workers fall into a trap some time, if they live so long."""
POINTS = (
    Point.BEFORE_DISPATCH,
    Point.AFTER_CLAIM,
    Point.BEFORE_SEND,
    Point.AFTER_ANSWER,
    Point.AFTER_STORE,
    Point.AFTER_RESPONSE,
)


@dataclass
class Crew:
    """The workers of a storm; none of them outlives it."""

    duty: Duty
    size: int
    folder: Path
    random: Random
    done: Counter[str] = field(default_factory=Counter)
    """What was done to them, by kind."""
    quiet: bool = False
    """Whether they are left alone."""
    _serving: list[WorkerProcess] = field(default_factory=list)
    _hired: list[WorkerProcess] = field(default_factory=list)
    _spare: asyncio.Task[WorkerProcess] | None = None
    _frozen: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    async def begin(self) -> None:
        """Put them all to work."""
        while len(self._serving) < self.size:
            await self._hire()

    async def storm(self) -> None:
        """Do things to them, without an end, and see that there are always enough."""
        watching = asyncio.create_task(self.watch())
        try:
            while True:
                await asyncio.sleep(self.random.uniform(*BETWEEN_SECONDS))
                if not self.quiet and self._awake():
                    await self._do(self.random.choices(list(DEEDS), weights=list(DEEDS.values()))[0])
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def watch(self) -> None:
        """Replace who has gone, and wake who has fallen into a trap that stops him; without an end."""
        while True:
            for worker in [each for each in self._serving if each.process.returncode is not None]:
                self._serving.remove(worker)
                self.done["deaths"] += 1
            for worker in self._awake():
                if worker.process.returncode is None and is_stopped(worker.process.pid):
                    self.done["trapped"] += 1
                    self._wake_later(worker)
            if len(self._serving) < self.size:
                await self._hire()
            await asyncio.sleep(0.1)

    def _awake(self) -> list[WorkerProcess]:
        return [each for each in self._serving if each.process.pid not in self._frozen]

    async def _do(self, deed: str) -> None:
        worker = self.random.choice(self._awake())
        self.done[deed] += 1
        with suppress(ProcessLookupError):
            match deed:
                case "kill":
                    worker.process.kill()
                case "terminate":
                    worker.process.terminate()
                case "freeze":
                    worker.process.send_signal(signal.SIGSTOP)
                    self._wake_later(worker)

    def _wake_later(self, worker: WorkerProcess) -> None:
        pid, seconds = worker.process.pid, self.random.uniform(*FREEZE_SECONDS)

        async def wake() -> None:
            try:
                await asyncio.sleep(seconds)
            finally:
                with suppress(ProcessLookupError):
                    worker.wake()
            # Until the kernel has told the state that it is in now, it would be taken for a second freeze.
            await asyncio.sleep(0.2)
            self._frozen.pop(pid, None)

        self._frozen[pid] = asyncio.create_task(wake())

    async def _hire(self) -> None:
        worker = await (self._spare or self._start())
        self._spare = asyncio.create_task(self._start())
        told = self.duty
        if not self.quiet and not told.naive and self.random.random() < TRAPPED:
            trap = {"trap": self.random.choice(POINTS), "passes": self.random.randint(2, 60)}
            told = told.model_copy(update={**trap, "act": self.random.choice(list(Act))})
        await worker.is_told(told.model_dump_json())
        self._serving.append(worker)
        self.done["hired"] += 1

    async def _start(self) -> WorkerProcess:
        command = (sys.executable, "-m", "tests.chaos.worker", str(os.getpid()))
        worker = await started(command, self.folder / f"worker-{len(self._hired)}.log")
        self._hired.append(worker)
        return worker

    async def calm(self) -> None:
        """Let all be well: everybody awake, and enough of them."""
        self.quiet = True
        await asyncio.gather(*self._frozen.values(), return_exceptions=True)

    async def end(self) -> None:
        """Kill all that is left."""
        if self._spare is not None:
            await asyncio.gather(self._spare, return_exceptions=True)
        for task in self._frozen.values():
            task.cancel()
        for worker in self._hired:
            await worker.kill()
