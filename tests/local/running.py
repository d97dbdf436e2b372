"""`settled local` as a real process, and finding what it has left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from settled.local.places import program

PATIENCE = 60.0  # seconds until a wait counts as a failure; nothing passes because time went by
PROCESSES = Path("/proc")
MARK = "SESSION_MARK"
"""An environment variable that children inherit: by its value the processes of one run are found."""


@dataclass(frozen=True)
class Local:
    """A run of `settled local`."""

    process: asyncio.subprocess.Process
    mark: str
    temporary: Path
    """Its temporary folder, which it should leave empty."""
    errors: Path

    async def until(self, word: str) -> list[str]:
        """The lines of its output up to the first one that has this word."""
        assert self.process.stdout is not None
        lines = []
        async with asyncio.timeout(PATIENCE):
            async for line in self.process.stdout:
                lines.append(line.decode())
                if word in lines[-1]:
                    return lines
        raise AssertionError(f"no line with {word!r}: {lines}; it said: {self.said()}")

    async def output(self) -> list[str]:
        """Read its output to the end."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return (await self.process.stdout.read()).decode().splitlines()

    async def exit_code(self) -> int:
        """Wait until it has ended."""
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    def said(self) -> str:
        """What it said on standard error."""
        return self.errors.read_text()

    def left(self) -> list[str]:
        """The commands of all its processes that run."""
        return [command for _, command in marked(self.mark)]

    def part(self, word: str) -> int:
        """The id of the one process of it whose command has this word."""
        (found,) = [number for number, command in marked(self.mark) if word in command]
        return found


@asynccontextmanager
async def running_local(folder: Path, *options: str, **variables: str) -> AsyncIterator[Local]:
    """Run `settled local`, as on a fresh machine: an empty home, and none of our environment."""
    mark, home, temporary = uuid4().hex, folder / "home", folder / "temporary"
    home.mkdir()
    temporary.mkdir()
    errors = folder / "errors"
    # PATH has the system's programs only: a person need not have activated the virtual environment.
    environment = {"HOME": str(home), "TMPDIR": str(temporary), "PATH": os.defpath, MARK: mark, **variables}
    with errors.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(program("settled"), "local", *options),
            env=environment,
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield Local(process, mark, temporary, errors)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        for number, _ in marked(mark):
            os.kill(number, signal.SIGKILL)


def marked(mark: str) -> list[tuple[int, str]]:
    """The processes, other than this one, whose environment has the mark: id and command."""
    found = []
    for folder in PROCESSES.glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # it has ended meanwhile, or is another user's
            continue
        if f"{MARK}={mark}".encode() in environment:
            found.append((int(folder.name), command))
    return found


async def until_none_is_left(mark: str) -> None:
    """Wait until the kernel has removed them all."""
    async with asyncio.timeout(PATIENCE):
        while marked(mark):  # noqa: ASYNC110 - no event tells of the end of a process that isn't our child
            await asyncio.sleep(0.02)
