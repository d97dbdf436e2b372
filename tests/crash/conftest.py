"""Fixtures of the crash tests: a desk that nobody serves yet, and a crew of worker processes to serve it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
from temporalio.client import Client

from settled.activities.registry import discover
from tests.crash.processes import LANDS_WITHIN, SECONDS, Bench, Crew
from tests.crash.stage import Stage, open_stage
from tests.desk import Desk, hurried, open_desk


@pytest.fixture
async def empty_desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk without a worker."""
    registry = hurried(discover(), seconds=SECONDS, lands_within=timedelta(seconds=LANDS_WITHIN))
    async with open_desk(temporal, tmp_path, registry=registry, working=False) as opened:
        yield opened


@pytest.fixture(scope="session")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """Worker processes as they are needed; none of them outlives the tests."""
    reserve = Bench(tmp_path_factory.mktemp("workers"))
    try:
        yield reserve
    finally:
        await reserve.close()


@pytest.fixture
async def crew(empty_desk: Desk, bench: Bench) -> AsyncIterator[Crew]:
    """Worker processes for the empty desk; none of them outlives the test."""
    hired = Crew(empty_desk, bench)
    try:
        yield hired
    finally:
        await hired.leave()


@pytest.fixture
async def patient_desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk where a write takes as long as the test likes, and who waits for it has to be woken."""
    registry = hurried(discover(), seconds=12.0)
    async with open_desk(temporal, tmp_path, registry=registry, recheck_seconds=60.0) as opened:
        yield opened


class OnStage(Protocol):
    """Opens a stage."""

    def __call__(self, activity: str, **which: Any) -> AbstractAsyncContextManager[Stage]:
        """With this activity left to the victim; see `open_stage`."""


@pytest.fixture
def on_stage(temporal: Client, tmp_path: Path, bench: Bench) -> OnStage:
    """Opens the test's stage."""

    def opened(activity: str, **which: Any) -> AbstractAsyncContextManager[Stage]:
        return open_stage(temporal, tmp_path, bench, activity, **which)

    return opened
