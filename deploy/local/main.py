"""`settled local`: the local stack until Ctrl-C, or for the time of the demo."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientError
from temporalio.service import RPCError

from settled.local.commands import to_try
from settled.local.demo import DemoFailed, run_demo
from settled.local.places import Ports, held, program
from settled.local.processes import Part, PartFailed
from settled.local.screen import Screen
from settled.local.stack import Stack, running_stack
from settled.workflows.errors import ConfigurationError

DEFAULT_PORT, DEFAULT_WEB_PORT = 7233, 8233
"""Temporal's own; the stack without the demo is where every Temporal tool looks first."""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAILED = 1


async def run_local(
    *, demo: bool, keep: bool, port: int | None = None, ui_port: int | None = None, data: Path | None = None
) -> int:
    """Run the stack; everything that was started is gone afterwards.

    Args:
        demo: run the demo on it, on free ports, then stop.
        keep: after a demo that went well, go on until a signal comes.
        port: of the Temporal server, instead of the default one, or of a free one for the demo.
        ui_port: of Temporal's web page, likewise.
        data: the folder for databases and logs, which stays; without it a temporary one, which stays after a failure.

    Returns:
        The exit code: 0 if it went well, 1 if something failed, 128 + the signal's number if one cut it short.

    Raises:
        ConfigurationError: a port is taken, a program is missing, the folder can't be used or is in use, or `keep`
            without `demo`.
    """
    if keep and not demo:
        raise ConfigurationError("--keep: goes with --demo; without it, everything runs until Ctrl-C anyway")
    program("temporal")
    with work_folder(data) as folder:  # first, as its message says more than that of the port which is taken as well
        ports = Ports.choose(
            temporal=port or (None if demo else DEFAULT_PORT), web=ui_port or (None if demo else DEFAULT_WEB_PORT)
        )
        stop = Stop()
        return await stop.ends(_run(ports, stop, Screen(), folder, demo=demo, keep=keep))


class Stop:
    """The first signal ends the work in order; those after it find that being done."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.expected = False
        """Whether all is done, and a signal is the way to end."""

    async def ends(self, work: Coroutine[Any, Any, int]) -> int:
        """The exit code of the work, or of the signal that ended it."""
        loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN or number is not signal.SIGHUP:  # nohup keeps its word
                loop.add_signal_handler(number, self._take, number, task)
        try:
            return await task
        except asyncio.CancelledError:
            if self.signal is None:
                raise
            return 0 if self.expected else 128 + self.signal

    def _take(self, number: int, task: asyncio.Task[int]) -> None:
        if self.signal is None:
            self.signal = number
            task.cancel()


@dataclass
class WorkFolder:
    """Where databases and logs are."""

    path: Path
    kept: bool


async def _run(ports: Ports, stop: Stop, screen: Screen, folder: WorkFolder, *, demo: bool, keep: bool) -> int:
    parts: tuple[Part, ...] = ()
    try:
        async with running_stack(folder.path, ports, screen.part) as stack:
            parts = stack.parts
            if demo:
                await stack.serve(_show(stack, screen, keep=keep))
            else:
                screen.whereabouts(stack, to_try(stack, "1001"))
            if keep or not demo:
                stop.expected = True
                screen.hint("Ctrl-C stops everything.")
                await stack.serve(asyncio.Event().wait())
    except PartFailed as failed:
        screen.failure(str(failed), [failed.part])
    except (DemoFailed, ClientError, RPCError) as failed:
        screen.failure(str(failed) or repr(failed), parts)
    else:
        return 0
    folder.kept = True
    screen.hint(f"databases and logs are in {folder.path}")
    return FAILED


async def _show(stack: Stack, screen: Screen, *, keep: bool) -> None:
    """Run the demo; its last line is the last one on standard output.

    Raises:
        DemoFailed: it did not come to what it promises.
    """
    summary = await run_demo(stack, screen)
    if keep and not summary.wrong:
        screen.whereabouts(stack, to_try(stack, "1002"))
    screen.last(json.dumps(summary.line))
    if summary.wrong:
        raise DemoFailed("; ".join(summary.wrong))


@contextmanager
def work_folder(data: Path | None) -> Iterator[WorkFolder]:
    """The folder that was named, or a temporary one.

    Raises:
        ConfigurationError: the one that was named can't be used, or is in use.
    """
    if data is None:
        folder = WorkFolder(Path(tempfile.mkdtemp(prefix="settled-")), kept=False)
        try:
            yield folder
        finally:
            if not folder.kept:
                shutil.rmtree(folder.path, ignore_errors=True)
    else:
        try:
            data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"--data: {data} can't be used as a folder ({error.strerror})") from error
        with held(data.resolve()):
            yield WorkFolder(data.resolve(), kept=True)
