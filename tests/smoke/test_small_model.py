"""An unscripted model: whatever it says, the task comes to an end, and all of it is on record.

Its quality is poor, and it never calls a tool by itself, so nothing here asserts on what it says. `SMOKE_PYTHON` names
another Python that has the model's packages; otherwise they are looked for in this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from settled.workflows.contract.ending import EndReason, Status
from tests.desk import CLERK, open_desk
from tests.worker.command import settled

SERVER = str(Path(__file__).parent / "small_model.py")
PYTHON = os.environ.get("SMOKE_PYTHON", sys.executable)
ENDS = {EndReason.COMPLETED, EndReason.OUTPUT_TRUNCATED, EndReason.INVALID_RESPONSE}
"""What an honest end with such a model may be. Never an error of the wire, nor one of ours."""
PATIENCE = 300.0


def why_not(python: str = PYTHON) -> str:
    """Why there is no such model here; empty: there is one."""
    try:
        asked = subprocess.run([python, SERVER, "--installed"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"SMOKE_PYTHON ({python}) can't be run: {error.strerror}"
    if asked.stdout.strip() == "installed":
        return ""
    said = asked.stderr.strip().splitlines() or [f"SMOKE_PYTHON ({python}) is no Python: it says nothing of the model"]
    return said[-1]


WHY_NOT = why_not()
needs_the_model = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there is one")


@pytest.fixture
async def model_url() -> AsyncIterator[str]:
    """The address of a small model that answers."""
    process = await asyncio.create_subprocess_exec(
        *(PYTHON, SERVER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with asyncio.timeout(PATIENCE):
            yield json.loads(await process.stdout.readline())["listening"]
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("/nowhere/python", "can't be run: No such file or directory"),
        (str(Path(__file__).parent), "can't be run: Permission denied"),
        ("true", "is no Python: it says nothing of the model"),
        ("false", "is no Python: it says nothing of the model"),
    ],
)
def test_what_is_no_python_is_a_reason_to_skip(python: str, why: str) -> None:
    assert why_not(python) == f"SMOKE_PYTHON ({python}) {why}"


@needs_the_model
@pytest.mark.parametrize("tools", [(), CLERK.tools], ids=["no tools", "tools"])
async def test_a_task_on_a_real_small_model_ends_and_is_on_record(
    temporal: Client, tmp_path: Path, model_url: str, tools: tuple[str, ...]
) -> None:
    profile = CLERK.model_copy(
        update={"model": "smollm2", "tools": tools, "max_tokens": 128, "max_tokens_most": 512, "stream": True}
    )
    async with open_desk(temporal, tmp_path, profiles={"small": profile}, model_url=model_url) as desk:
        handle = await desk.start("Say good morning, in one short sentence.", "smoke")
        result = await desk.result(handle, PATIENCE)
        assert result.end_reason in ENDS, result
        assert result.status in (Status.UNVERIFIED, Status.FAILED)
        assert result.counters.attempts == result.counters.requests >= 1
        assert result.usage.output_tokens > 0
        assert result.usage.read_tokens > 0
        url = desk.parts.stores.database.url
        whole = json.loads((await settled(url, "transcript", "smoke", "--json")).out)
        assert len(whole["requests"]) == result.counters.requests
        for number in range(1, result.counters.requests + 1):
            one = json.loads((await settled(url, "transcript", "smoke", "--turn", str(number), "--json")).out)
            assert one["exact"]
            assert one["request"]["model"] == "smollm2"
            assert one["stop_reason"]
        assert desk.model.received == 0, "the scripted server was not asked"
