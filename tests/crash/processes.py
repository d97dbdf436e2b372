"""Worker processes that a test starts, freezes, wakes and kills, and the `temporal` command of an operator."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from settled.worker.wiring import WORKFLOWS, make_worker
from tests.crash.worker_process import Act, Instructions, Point
from tests.desk import Desk, until

ROOT = Path(__file__).parents[2]
START_SECONDS = 15.0

SECONDS = 1.0
"""The time budget of a write's attempt."""
LANDS_WITHIN = 0.5
"""What the write's tool says of its service."""
MARGIN = 1.0
"""What Temporal's timeout of a dispatch has on top."""


@dataclass(frozen=True)
class WorkerProcess:
    """A worker in a process of its own."""

    process: asyncio.subprocess.Process
    log: Path
    """What it says and writes, to a file: a pipe that nobody drains would freeze it."""

    def said(self) -> list[str]:
        """What it has said so far."""
        return self.log.read_text(errors="replace").splitlines()

    async def says(self, line: str, seconds: float = START_SECONDS) -> None:
        """Wait until it has said something.

        Raises:
            AssertionError: it ended without a word, or was silent for too long.
        """

        async def heard() -> bool:
            return line in self.said() or self.process.returncode is not None

        with suppress(TimeoutError):
            await until(heard, seconds)
        assert line in self.said(), f"it never said {line!r}:\n{self.log.read_text(errors='replace')}"

    async def is_frozen(self) -> None:
        """Wait until the kernel says that it is stopped."""

        async def stopped() -> bool:
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None

        await until(stopped)

    async def freeze(self) -> None:
        """Stop it, whatever it is doing."""
        self.process.send_signal(signal.SIGSTOP)
        await self.is_frozen()

    def wake(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill it, stopped or not."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


class Crew:
    """The worker processes of a test; none of them outlives it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._processes: list[WorkerProcess] = []

    async def hire(self, *, trap: Point | None = None, act: Act = Act.STOP, one_hand: bool = False) -> WorkerProcess:
        """Start a worker process; it serves when this returns."""
        folder, number = self.desk.folder, len(self._processes)
        told = Instructions(
            temporal=address_of(self.desk.client),
            settings=self.desk.parts.settings.model_dump(mode="json"),
            stock_url=self.desk.stock.url,  # type: ignore[arg-type]  # pydantic makes a URL of it
            seconds=SECONDS,
            lands_within=LANDS_WITHIN,
            margin=MARGIN,
            one_hand=one_hand,
            trap=trap,
            act=act,
        )
        instructions, log = folder / f"worker-{number}.json", folder / f"worker-{number}.log"
        with prepared(instructions, told.model_dump_json(), log) as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.crash.worker_process", str(os.getpid()), str(instructions)),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        worker = WorkerProcess(process, log)
        self._processes.append(worker)
        await worker.says("serves")
        return worker

    async def leave(self) -> None:
        """Kill all that is left."""
        for worker in self._processes:
            await worker.kill()


def prepared(instructions: Path, text: str, log: Path) -> BinaryIO:
    """Write the instructions, and open the log."""
    instructions.write_text(text, encoding="utf-8")
    return log.open("wb")


@asynccontextmanager
async def crew_for(desk: Desk) -> AsyncIterator[Crew]:
    """Worker processes for a desk, for as long as the context lasts."""
    crew = Crew(desk)
    try:
        yield crew
    finally:
        await crew.leave()


@asynccontextmanager
async def the_head(desk: Desk) -> AsyncIterator[AsyncExitStack]:
    """Serve the desk's workflows, and no activity, from this process. What is entered into it ends with it."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            Worker(desk.client, task_queue=desk.parts.settings.task_queue, workflows=WORKFLOWS)
        )
        yield stack


def another_worker(desk: Desk) -> Worker:
    """Another worker of the same task queue, in this process."""
    return make_worker(desk.client, desk.parts)


def address_of(client: Client) -> str:
    """The server's address."""
    return client.service_client.config.target_host


async def temporal(desk: Desk, *words: str) -> dict[str, Any]:
    """Run the `temporal` command as an operator does; returns what it answers.

    Raises:
        AssertionError: it failed.
    """
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).parent / "temporal"), *words),
        *("--address", address_of(desk.client), "--disable-config-file", "--disable-config-env", "--output", "json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate()
    assert process.returncode == 0, f"temporal {' '.join(words)}: {complained.decode()}{said.decode()}"
    answer: dict[str, Any] = json.loads(said or b"{}")
    return answer


async def scheduled(handle: WorkflowHandle[Any, Any], activity: str) -> list[HistoryEvent]:
    """The events that schedule an activity of this type, in order."""
    return [
        event
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        and event.activity_task_scheduled_event_attributes.activity_type.name == activity
    ]
