"""Running `settled` as a person does, in the test's own process or in one of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from settled.worker.cli import app
from settled.workflows.errors import ConfigurationError

SETTLED = str(Path(sys.executable).parent / "settled")


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """What it said on standard output."""
        return self.out.splitlines()


async def settled(url: str, *words: str, **environment: str) -> Said:
    """Run a command on a ledger, in a terminal that is forty characters wide."""
    known = {"SETTLED_DATABASE_URL": url, "COLUMNS": "40", "TZ": "UTC", "LOGNAME": "ada"}
    runner = CliRunner()
    result = await asyncio.to_thread(runner.invoke, app, words, env=known | environment)
    if isinstance(result.exception, ConfigurationError):  # as `main` ends then
        return Said(2, result.stdout, f"settled: {result.exception}\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


async def settled_process(*words: str, program: str = SETTLED, **environment: str) -> Said:
    """Run the command itself, or another program."""
    process = await asyncio.create_subprocess_exec(
        *(program, *words),
        env=os.environ | environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return Said(await process.wait(), out.decode(), err.decode())
