"""One process that has imported everything, and the worker processes that it forks, each in some milliseconds.

    python -m tests.crash.nursery PID-OF-THE-TEST

It reads a line for each worker, a `Birth`, and says the process id of its child. To import it all takes a child of its
own more time than most tests need for everything else.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import traceback
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from settled.activities.tool_http import trusted
from tests.crash.traps import say
from tests.crash.worker_process import Instructions, serve
from tests.mortal import die_with


class Birth(BaseModel):
    """What the nursery is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    log: Path
    """Where the child's output goes."""
    told: Instructions
    """What the child does."""


class Forked:
    """A process that somebody else has forked; handled like one of asyncio's.

    Args:
        pid: which.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # A number may be given to another process once this one is gone; the descriptor stays with this one.
        self._descriptor: int | None = os.pidfd_open(pid)

    @property
    def returncode(self) -> int | None:
        """None while it runs. How it ended is known to its parent only; a child ends by a signal."""
        try:
            self.send_signal(0)
        except ProcessLookupError:
            return -signal.SIGKILL
        return None

    def send_signal(self, number: int) -> None:
        """Send it a signal.

        Raises:
            ProcessLookupError: it has ended.
        """
        if self._descriptor is None:
            raise ProcessLookupError
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            os.close(self._descriptor)
            self._descriptor = None
            raise

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, stopped or not."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait until it has ended."""
        while (code := self.returncode) is None:  # noqa: ASYNC110  # it is no child of ours: no event tells
            await asyncio.sleep(0.005)
        return code


def live(told: Instructions, output: int, parent: int) -> None:
    """The child's life."""
    die_with(parent)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    asyncio.run(serve(told))


def main() -> None:
    """The process. It has one thread and no event loop, so that it may be forked."""
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel is to bury them
    parent = os.getpid()
    trusted()  # read once, for all that are still to come
    for line in iter(sys.stdin.readline, ""):
        birth = Birth.model_validate_json(line)
        if not birth.told.serves:
            importlib.import_module("anthropic")  # once, for all that are still to come
        output = os.open(birth.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        child = os.fork()
        if child:
            os.close(output)
            say(str(child))
            continue
        try:
            live(birth.told, output, parent)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(1)


if __name__ == "__main__":
    main()
