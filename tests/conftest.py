"""Fixtures that every test may use: one real Temporal server for the whole run, and a desk for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.desk import Desk, open_desk, temporal_server


@pytest.fixture(scope="session")
async def temporal() -> AsyncIterator[Client]:
    """A client of a real Temporal dev server of this run's own."""
    async with temporal_server() as client:
        yield client


@pytest.fixture
async def desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """Everything that a task needs, real, with its own databases and its own task queue."""
    async with open_desk(temporal, tmp_path) as opened:
        yield opened
