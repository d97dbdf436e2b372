"""A Temporal dev server of a test's own, on a database file: killed, stopped, started again, without its past."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from settled.workflows.converter import data_converter
from tests.crash.processes import WorkerProcess, started
from tests.desk import FAST, until

FLAGS = (*FAST, "frontend.WorkflowPauseEnabled=true")


class Server:
    """The server; always at the same address."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "temporal.db"
        self.log = folder / "temporal.log"
        self.port = a_free_port()
        self._process: WorkerProcess | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it on its database file; it serves when this returns."""
        command = [str(Path(sys.executable).parent / "temporal"), "server", "start-dev", "--headless"]
        command += ["--ip", "127.0.0.1", "--port", str(self.port), "--db-filename", str(self.database)]
        command += ["--log-level", "error", *(word for flag in FLAGS for word in ("--dynamic-config-value", flag))]
        self._process = await started(command, self.log)
        await until(self._serves)

    async def _serves(self) -> bool:
        assert self._process is not None, "it was started"
        assert self._process.process.returncode is None, f"it has ended:\n{self._process.said()}"
        try:
            client = await self.connect()
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
        except (RuntimeError, RPCError):  # the SDK's words for "nobody there" and "not yet"
            return False
        return True

    async def connect(self) -> Client:
        """A client of it."""
        return await Client.connect(self.address, data_converter=data_converter)

    async def stop(self) -> None:
        """Stop it, and wait until its database file is whole."""
        if self._process is not None:
            self._process.process.terminate()
            await self._process.ends()

    async def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            await self._process.kill()

    async def copy_to(self, folder: Path) -> None:
        """Copy its database, while it is stopped."""
        await asyncio.to_thread(shutil.copy, self.database, folder / "temporal-copy.db")

    async def forget(self, copy: Path | None = None) -> None:
        """Delete its database, while it is stopped, and put a copy of an earlier time in its place, if there is one."""
        for path in self.database.parent.glob(f"{self.database.name}*"):
            path.unlink()
        if copy is not None:
            await asyncio.to_thread(shutil.copy, copy, self.database)


def a_free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
