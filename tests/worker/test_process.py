"""R104: the worker as a deployed process: probes, drain on SIGTERM, wrong settings in one line, no secret told."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from temporalio.client import Client

from tests.desk import until

SETTLED = str(Path(sys.executable).parent / "settled")
PROFILE = 'model = "m"\nsystem = "s"\ntools = ["lookup_stock"]\n'
SECRET = "sk-ant-never-to-be-seen"


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@asynccontextmanager
async def worker(folder: Path, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`settled worker` in a process, its output in a file."""
    (folder / "agents").mkdir(exist_ok=True)
    (folder / "agents" / "reader.toml").write_text(PROFILE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SETTLED_", "TEMPORAL_"))}
    with (folder / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            SETTLED, "worker", cwd=folder, env=environment | settings, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_worker_tells_its_health_and_drains_on_sigterm(temporal: Client, tmp_path: Path) -> None:
    """Alive and ready while it serves; exit code 0 after SIGTERM; the key of the provider is nowhere in its output."""
    port = free_port()
    settings = {
        "TEMPORAL_ADDRESS": temporal.service_client.config.target_host,
        "SETTLED_HEALTH_PORT": str(port),
        "SETTLED_TASK_QUEUE": "process-test",
        "ANTHROPIC_API_KEY": SECRET,
    }
    async with worker(tmp_path, **settings) as process, httpx2.AsyncClient(trust_env=False) as http:

        async def answers(path: str) -> bool:
            assert process.returncode is None, (tmp_path / "output").read_text()
            try:
                return (await http.get(f"http://127.0.0.1:{port}{path}")).status_code == 200
            except httpx2.TransportError:
                return False

        await until(lambda: answers("/healthz"))
        await until(lambda: answers("/readyz"))
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    output = (tmp_path / "output").read_text()
    assert "serving task queue process-test with agents reader" in output
    assert "Traceback" not in output
    assert SECRET not in output


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"SETTLED_HEALTH_PORT": "many"}, "SETTLED_HEALTH_PORT: Input should be a valid integer"),
        ({"SETTLED_AGENTS": "nowhere"}, "SETTLED_AGENTS: nowhere is not a folder"),
        ({"SETTLED_DATABASE_URL": "mysql://x/y"}, "SETTLED_DATABASE_URL: mysql"),
        ({"SETTLED_DEFAULT_AGENT": "nobody"}, "SETTLED_DEFAULT_AGENT: name one of the profiles"),
        ({"TEMPORAL_ADDRESS": "127.0.0.1:9"}, "TEMPORAL_ADDRESS: no Temporal server answers at 127.0.0.1:9"),
        (
            {"TEMPORAL_ADDRESS": "127.0.0.1:9", "TEMPORAL_API_KEY": SECRET},
            "TEMPORAL_ADDRESS: no Temporal server answers at 127.0.0.1:9; start one, or name another address, "
            "and see whether TEMPORAL_TLS and TEMPORAL_API_KEY",
        ),
        ({"TEMPORAL_NAMESPACE": "nope"}, "TEMPORAL_NAMESPACE: the server at "),
        ({"TEMPORAL_NAMESPACE": ""}, "TEMPORAL_NAMESPACE: the server at "),
        ({"ANTHROPIC_API_KEY": f"{SECRET}\n"}, "ANTHROPIC_API_KEY: holds white space or a line break"),
        ({"ANTHROPIC_AUTH_TOKEN": f"{SECRET}\u200b"}, "ANTHROPIC_AUTH_TOKEN: holds white space or a line break"),
        ({"STOCK_URL": "nonsense"}, "STOCK_URL: Input should be a valid URL"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
async def test_wrong_settings_are_one_line_and_exit_code_2(
    temporal: Client, tmp_path: Path, settings: dict[str, str], line: str
) -> None:
    """The line names the variable and the mend."""
    right = {"TEMPORAL_ADDRESS": temporal.service_client.config.target_host, "SETTLED_HEALTH_PORT": "0"}
    async with worker(tmp_path, **(right | settings)) as process:
        async with asyncio.timeout(20):
            assert await process.wait() == 2
    lines = (tmp_path / "output").read_text().splitlines()
    assert len([text for text in lines if text.startswith("settled: ")]) == 1
    assert lines[-1].startswith(f"settled: {line}")
    assert SECRET not in "\n".join(lines)
    if line.startswith("TEMPORAL_NAMESPACE"):
        name = settings["TEMPORAL_NAMESPACE"]
        assert lines[-1].endswith(f" has no namespace {name!r}; create it, or name another")


async def test_what_is_most_likely_not_meant_is_a_warning_and_libraries_keep_quiet(
    temporal: Client, tmp_path: Path
) -> None:
    """No key of the provider, a setting that there isn't: the worker serves all the same."""
    settings = {
        "TEMPORAL_ADDRESS": temporal.service_client.config.target_host,
        "SETTLED_HEALTH_PORT": "0",
        "SETTLED_TASK_QUEUE": "process-warned",
        "SETTLED_PATIENCE": "3",
        "ANTHROPIC_API_KEY": "",
        "ANTHROPIC_AUTH_TOKEN": "",
    }
    output = tmp_path / "output"
    async with worker(tmp_path, **settings) as process:

        async def serves() -> bool:
            assert process.returncode is None, output.read_text()
            return "serving task queue" in output.read_text()

        await until(serves)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    lines = output.read_text().splitlines()
    warnings = [line.partition(" WARNING settled.")[2].partition(" ")[2] for line in lines if " WARNING " in line]
    assert warnings[:-1] == [
        "SETTLED_PATIENCE: there is no such setting; passed over",
        "ANTHROPIC_API_KEY is not set; model requests will fail unless the SDK finds credentials elsewhere",
    ]
    assert warnings[-1].startswith("made a new, empty ledger in "), "there is none in a new folder"
    assert not [line for line in lines if "alembic" in line or "httpx2" in line]


async def test_a_write_tool_that_leaves_something_open_keeps_the_worker_from_starting(
    temporal: Client, tmp_path: Path
) -> None:
    """R33: tool and file are named; the family joins by entry point, as a third party's does."""
    package = tmp_path / "site"
    (package / "acme-1.0.dist-info").mkdir(parents=True)
    (package / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (package / "acme-1.0.dist-info" / "entry_points.txt").write_text("[settled.tools]\nacme = acme_tools\n")
    (package / "acme_tools.py").write_text(
        "from settled.activities.toolkit import Answer, Arguments, Call, write\n\n\n"
        "class Order(Arguments):\n    number: str\n\n\n"
        "@write(key=('number',))\n"
        "async def ship_order(order: Order, call: Call) -> Answer:\n"
        '    """Ship an order."""\n'
        "    return Answer(data=order.number, source='acme')\n"
    )
    settings = {"TEMPORAL_ADDRESS": temporal.service_client.config.target_host, "PYTHONPATH": str(package)}
    async with worker(tmp_path, **settings) as process:
        async with asyncio.timeout(20):
            assert await process.wait() == 2
    lines = [line for line in (tmp_path / "output").read_text().splitlines() if line.startswith("settled: ")]
    assert len(lines) == 4
    assert all("tool ship_order" in line and "acme_tools.py" in line for line in lines)
    for word in ("scope", "lookup", "dedupes", "lands_within"):
        assert any(f"says nothing on {word};" in line for line in lines)
