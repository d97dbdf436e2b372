"""A task of very many turns with tool outputs of 20 kB: does it end normally, in constant memory and short histories?

python -m tests.measure_long [TURNS]        # 1,000 by default; the last line holds the figures

The worker is a process of its own, so that its memory is nobody else's.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from settled.local.messages_script import Step
from settled.local.messages_server import MessagesServer
from settled.worker.settings import Settings
from settled.worker.wiring import make_worker, parts
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.names import AGENT_TASK
from settled.workflows.contract.result import TaskResult
from settled.workflows.converter import data_converter
from tests.desk import result_of, temporal_server
from tests.mortal import die_with
from tests.readers import PAGE, READER, Reader, library

TURNS = 1_000
LOOKS = 10
"""How many times the worker's memory is looked at."""
MOST_HISTORY = 10_000_000
"""Bytes that the history of one run may have."""
MOST_GROWTH = 1.25
"""How much larger the worker may be at the end than after a tenth of the turns."""


@dataclass
class Watch:
    """A model that reads, and looks at the worker's memory as it does."""

    reader: Reader
    worker: int = 0
    """The process, once there is one."""
    sizes: dict[int, int] = field(default_factory=dict)
    """The worker's resident memory in MB, by the number of turns."""

    def __call__(self, body: dict[str, Any]) -> Step:
        """Answer a request."""
        step = self.reader(body)
        if self.reader.read % max(1, self.reader.pages // LOOKS) == 0 and self.reader.read not in self.sizes:
            self.sizes[self.reader.read] = resident_megabytes(self.worker)
            sys.stdout.write(f"{self.reader.read} turns: the worker has {self.sizes[self.reader.read]} MB\n")
        return step


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What came of it."""

    result: TaskResult
    summaries: int
    seconds: float
    sizes: dict[int, int]
    """The worker's resident memory in MB, by the number of turns."""
    histories: list[int]
    """Bytes of each run's history."""
    received: int
    refusals: list[str]

    def line(self) -> str:
        """All of them, in one line."""
        turns = self.result.counters.turns
        first, last = next(iter(self.sizes.values())), list(self.sizes.values())[-1]
        return (
            f"{turns} turns of {PAGE // 1_000} kB, {self.summaries} summaries: {self.result.end_reason}, "
            f"{1_000 * self.seconds / turns:.0f} ms a turn; worker {first} MB after {next(iter(self.sizes))} turns, "
            f"{last} MB after {list(self.sizes)[-1]}, {max(self.sizes.values())} MB at the most; "
            f"{len(self.histories)} runs, the longest history {max(self.histories) / 1e6:.2f} MB"
        )

    def faults(self) -> list[str]:
        """What is not as it must be."""
        sizes = list(self.sizes.values())
        wrong = {
            "it did not end normally": self.result.end_reason is not EndReason.COMPLETED
            or self.result.status is not Status.UNVERIFIED,
            "the server refused requests": bool(self.refusals),
            "requests were made twice": self.received != self.result.counters.requests,
            "a history is too long": max(self.histories) > MOST_HISTORY,
            "the worker grows": sizes[-1] > MOST_GROWTH * sizes[0],
        }
        return [fault for fault, is_so in wrong.items() if is_so]


def resident_megabytes(process: int) -> int:
    """What a process holds in memory now."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000


async def measured(client: Client, folder: Path, turns: int, **limits: int) -> Figures:
    """Run a task of so many turns.

    Args:
        client: of the Temporal server.
        folder: where the worker's database goes.
        turns: how many.
        limits: of the model.
    """
    watch, queue = Watch(Reader(turns)), f"long-{uuid4().hex[:8]}"
    async with MessagesServer(watch, limits=limits, keep=0) as model:
        settings = {
            "database_url": f"sqlite+aiosqlite:///{folder / 'settled.db'}",
            "task_queue": queue,
            "model_url": model.url,
        }
        async with worker_process(client.service_client.config.target_host, settings) as worker:
            watch.worker = worker
            began = monotonic()
            handle: WorkflowHandle[Any, TaskResult] = await client.start_workflow(
                AGENT_TASK, {"goal": "read"}, id=f"{queue}-task", task_queue=queue, result_type=TaskResult
            )
            result = await result_of(handle, seconds=10 * turns + 60)
            seconds = monotonic() - began
        return Figures(
            result=result,
            summaries=watch.reader.summaries,
            seconds=seconds,
            sizes=watch.sizes,
            histories=await history_bytes(client, handle),
            received=model.received,
            refusals=model.refusals,
        )


async def history_bytes(client: Client, handle: WorkflowHandle[Any, TaskResult]) -> list[int]:
    """The size of the history of each run, the first one first."""
    sizes, run = list[int](), str(handle.first_execution_run_id)
    while run:
        history = await client.get_workflow_handle(handle.id, run_id=run).fetch_history()
        sizes.append(sum(event.ByteSize() for event in history.events))
        run = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return sizes


@asynccontextmanager
async def worker_process(temporal: str, settings: dict[str, Any]) -> AsyncIterator[int]:
    """A worker in a process of its own; gives its process id once it serves."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.measure_long", "serve", str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"temporal": temporal, "settings": settings}).encode() + b"\n")
        assert await process.stdout.readline() == b"serves\n"
        yield process.pid
    finally:
        process.kill()
        await process.wait()


async def serve() -> None:
    """Be the worker; until the process ends."""
    told = json.loads(sys.stdin.readline())
    async with parts(Settings(**told["settings"]), library(), {"reader": READER}) as made_of:
        client = await Client.connect(told["temporal"], data_converter=data_converter)
        await made_of.provider.warm_up()
        async with make_worker(client, made_of):
            sys.stdout.write("serves\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


async def main(turns: int) -> None:
    """Print the figures; leave with an error where something is not as it must be."""
    with tempfile.TemporaryDirectory() as folder:
        async with temporal_server() as client:
            figures = await measured(client, Path(folder), turns)
    sys.stdout.write(figures.line() + "\n")
    if figures.faults():
        sys.exit("; ".join(figures.faults()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        die_with(int(sys.argv[2]))
        asyncio.run(serve())
    else:
        asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else TURNS))
