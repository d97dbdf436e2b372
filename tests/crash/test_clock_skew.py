"""Workers whose clocks are a minute apart (on PostgreSQL: those who share an SQLite file share a machine's clock)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from settled.activities.registry import discover
from tests.crash.operator import time_out_soon
from tests.crash.outcomes import TASK, assert_reserved_once, in_ledger
from tests.crash.processes import LANDS_WITHIN, SECONDS, Bench, Crew, a_head
from tests.crash.worker_process import Point
from tests.desk import Desk, hurried, open_desk, reserve

MINUTE = 60.0
LATE = 20.0
"""More than a settlement takes to look at an attempt whose time is over, and far less than a minute."""


@pytest.fixture
async def desk(temporal: Client, tmp_path: Path, postgres_url: str) -> AsyncIterator[Desk]:
    """A desk on PostgreSQL, without a worker."""
    registry = hurried(discover(), seconds=SECONDS, lands_within=timedelta(seconds=LANDS_WITHIN))
    async with open_desk(temporal, tmp_path, registry=registry, working=False, database_url=postgres_url) as opened:
        yield opened


@pytest.fixture
async def crew(desk: Desk, bench: Bench) -> AsyncIterator[Crew]:
    """Worker processes for the desk; none of them outlives the test."""
    hired = Crew(desk, bench)
    try:
        yield hired
    finally:
        await hired.leave()


@pytest.mark.long
@pytest.mark.parametrize("skew", [MINUTE, -MINUTE], ids=["the sender's is fast", "the sender's is slow"])
async def test_a_minute_between_two_workers_clocks_breaks_nothing(desk: Desk, crew: Crew, skew: float) -> None:
    """A claim by one of them is expired by the other one: not before its deadline, nor a minute late."""
    desk.will_say(reserve(), "Reserved.")
    async with a_head(desk):
        one, other = await asyncio.gather(crew.bench.skewed(skew), crew.bench.skewed(-skew))
        sender = await crew.hire(trap=Point.AFTER_CLAIM, one_hand=True, worker=one)
        handle = await desk.start(TASK)
        await sender.is_frozen()
        settler = await crew.hire(one_hand=True, worker=other)
        await time_out_soon(desk, handle, seconds=SECONDS)
        result = await desk.result(handle, 60.0)
        sender.wake()
        await sender.says("dispatch answers settled")
    journal = ("claimed", "expired", "absent_resend", "claimed", "succeeded", "late_no")
    await assert_reserved_once(desk, result, *journal)
    assert "granted" in settler.said()
    (operation,) = await in_ledger(desk)
    rows = await desk.parts.stores.ledger.journal(operation.key)
    now = await desk.parts.stores.ledger.now()
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    assert now - 2 * LATE < rows[0].at < now
    deadline = rows[0].body["deadline"]
    assert deadline == rows[0].at + SECONDS
    assert deadline <= rows[1].at < deadline + LATE
