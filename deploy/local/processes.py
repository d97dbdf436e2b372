"""The processes of the local stack: each writes to its own log file, none outlives the one that started it.

Each part leads a session of its own, so that a Ctrl-C in the terminal reaches only us, who end the parts in order. On
Linux the kernel kills a part whose starter was killed; elsewhere a part survives that (and only that).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""How long a part may take to end after SIGTERM."""
TAIL_LINES = 15

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
"""Loaded here and not after the fork, where a lock of another thread could be held for ever."""


class PartFailed(Exception):
    """A part did not start, or ended by itself. The text is one line."""

    def __init__(self, part: Part, reason: str) -> None:
        super().__init__(f"{part.name} {reason}")
        self.part = part


@dataclass(frozen=True)
class Part:
    """A process that was started."""

    name: str
    """What people know it by; its log is NAME.log."""
    process: asyncio.subprocess.Process
    log: Path

    @property
    def ended(self) -> str | None:
        """How it ended, in a few words; None while it runs."""
        code = self.process.returncode
        if code is None:
            return None
        return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"

    async def until(self, ready: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Wait until it is ready.

        Args:
            ready: asks it; a connection that can't be made is a no.
            seconds: how long to ask.

        Raises:
            PartFailed: it ended, or was not ready in time.
        """
        try:
            async with asyncio.timeout(seconds):
                while not await ready():
                    if self.ended:
                        raise PartFailed(self, self.ended)
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise PartFailed(self, f"was not ready within {seconds:.0f} s") from None

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End it, and whatever it has started: asked first, killed if that doesn't help within `grace` seconds."""
        if self.process.returncode is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), grace)
        self._signal(signal.SIGKILL)
        await self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


async def start_part(name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Part:
    """Start a process.

    Args:
        name: what people know it by.
        command: the program and its arguments.
        folder: where it runs, and its log goes.
        environment: all of its environment variables.
    """
    log = folder / f"{name}.log"
    with _fresh(log) as output:  # a file and not a pipe: a pipe that nobody drains freezes its writer
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_dies_with_us(),
        )
    return Part(name, process, log)


def _fresh(path: Path) -> BinaryIO:
    return path.open("wb")


def _dies_with_us() -> Callable[[], None] | None:
    """What a child does between fork and exec, so that the kernel kills it when we are killed. Linux only."""
    if LIBC is None:
        return None
    libc, parent = LIBC, os.getpid()

    def ask_the_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # we were killed before the kernel was asked
            os._exit(1)

    return ask_the_kernel


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work that a cancellation must not cut short, such as stopping what was started."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
