"""The PostgreSQL that the tests start: it comes from wherever it can, and never stays."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.desk import until
from tests.postgres import ROOT, installations, postgres_server

PROGRAM = """
import asyncio
from tests.postgres import postgres_server

async def main():
    async with postgres_server() as server:
        print(server.process.pid, server.folder, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def sources() -> Sequence[Path]:
    """Each place that a server can come from, once."""
    return list(dict.fromkeys(installations()))


def is_there(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("binaries", sources(), ids=lambda path: "-".join(path.parts[-4:]))
async def test_what_was_committed_outlives_a_server_that_is_killed(binaries: Path) -> None:
    """Whether it is the machine's server or the package's."""
    async with postgres_server(binaries) as server:
        await server.tell("CREATE TABLE kept (it integer); INSERT INTO kept VALUES (1)")
        await server.kill()
        await server.start()
        await server.tell("INSERT INTO kept VALUES (2)")
        await server.stop()
        await server.start()
        assert await server.tell("SELECT it FROM kept ORDER BY it") == [(1,), (2,)]
    assert not server.folder.exists()


async def test_no_server_outlives_a_run_that_is_killed() -> None:
    run = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert run.stdout is not None
    words = (await run.stdout.readline()).decode().split()
    pid, folder = int(words[0]), Path(words[1])
    assert is_there(pid)
    run.kill()
    await run.communicate()

    async def gone() -> bool:
        return not is_there(pid)

    await until(gone)
    await asyncio.to_thread(shutil.rmtree, folder)  # nobody else is left to do it
