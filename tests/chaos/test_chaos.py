"""A short storm, with a fixed seed: the whole product, real processes, everything that `make chaos` does to them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.oracle import Fault
from tests.chaos.plan import Plan
from tests.chaos.storm import LEAST_DEEDS, LEAST_KILLS, opened

SHORT = Plan(seed=12, operations=30, tasks_at_once=10, workers=2, server_seconds=(3.0, 5.0), dedupes=False)
"""Over a service that ignores keys: nothing but the ledger stands in the way of a second effect."""


async def test_a_storm_does_nothing_twice_and_loses_nothing(tmp_path: Path) -> None:
    """R30, R63, R91: one effect for each action at the most, and a ledger that says the same as the service."""
    said: list[str] = []
    async with AsyncExitStack() as stack:
        storm = await opened(stack, SHORT, "sqlite", tmp_path, said.append, naive=False)
        await storm.blow()
        verdict = await storm.judged()
    judgement = verdict.judgement
    assert not judgement.findings, "\n".join([*said, *verdict.lines, judgement.counts])
    assert judgement.operations >= SHORT.operations
    assert judgement.effects >= SHORT.operations // 2
    assert storm.proxy.faults > 5, "it was no storm"
    assert storm.server.kills >= LEAST_KILLS
    assert min(storm.crew.deeds, storm.operator.deeds) >= LEAST_DEEDS


@pytest.mark.long
async def test_the_same_storm_over_a_plain_activity_has_duplicates(tmp_path: Path) -> None:
    """What the product is for, and a proof that the storm is one: here the service has one effect for each key."""
    async with AsyncExitStack() as stack:
        plan = replace(SHORT, operations=15, dedupes=True)
        storm = await opened(stack, plan, "none", tmp_path, lambda _: None, naive=True)
        await storm.blow()
        verdict = await storm.judged()
    assert verdict.judgement.count(Fault.DUPLICATE) > 0
