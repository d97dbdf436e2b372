"""`make long` in small: it runs, and what it would complain about is complained about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.workflows.contract.ending import EndReason, Status
from tests.measure_long import MOST_HISTORY, Figures, measured

pytestmark = pytest.mark.long
TURNS = 30


@pytest.fixture(scope="module")
async def figures(temporal: Client, tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """What came of a task with a small context and a worker in a process of its own."""
    folder: Path = tmp_path_factory.mktemp("long")
    return await measured(temporal, folder, TURNS, max_input_tokens=30_000)


async def test_b46_a_long_task_ends_normally_in_constant_memory_and_short_histories(figures: Figures) -> None:
    """B46, R86: no request is made twice, none is refused, and each of the summaries is one request."""
    assert figures.faults() == []
    assert figures.result.counters.turns == TURNS
    assert figures.summaries >= 4
    assert figures.received == TURNS + 1 + figures.summaries
    assert max(figures.histories) < 4_000 * (TURNS + figures.summaries)
    assert figures.line().startswith(f"{TURNS} turns of 20 kB, {figures.summaries} summaries: completed, ")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"sizes": {100: 180, 1_000: 300}}, "the worker grows"),
        ({"histories": [1, MOST_HISTORY + 1]}, "a history is too long"),
        ({"received": 10_000}, "requests were made twice"),
        ({"refusals": ["messages: …"]}, "the server refused requests"),
    ],
    ids=str,
)
async def test_what_is_not_as_it_must_be_is_named(figures: Figures, changed: dict[str, Any], fault: str) -> None:
    assert replace(figures, **changed).faults() == [fault]


async def test_a_task_that_did_not_end_normally_is_named(figures: Figures) -> None:
    ended = figures.result.model_copy(update={"end_reason": EndReason.CONTEXT_EXHAUSTED, "status": Status.FAILED})
    assert replace(figures, result=ended).faults() == ["it did not end normally"]
