"""R8: every stop reason, with everything that a response may hold, whole or broken off, through the whole product.

A real Temporal server, the real client, and a server that refuses what the API refuses. It answers each cell of the
matrix with the same response again and again, until it is sent the results of calls; then it says that it is done.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.activities.registry import discover
from settled.local.messages_script import Reply, Step, StreamError, text, tool_use
from settled.local.messages_wire import events
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.result import TaskResult
from tests.desk import Desk, hurried, open_desk

Json = dict[str, Any]
ATTEMPTS = 3
"""Of one model request."""

COMPLETED, INVALID, MODEL_ERROR = EndReason.COMPLETED, EndReason.INVALID_RESPONSE, EndReason.MODEL_ERROR
CUT, REFUSED = EndReason.OUTPUT_TRUNCATED, EndReason.REFUSED


@dataclass(frozen=True)
class Expected:
    """What a cell of the matrix comes to."""

    requests: int
    """Model requests."""
    tools: int
    """Reservations that the stock service really made."""
    end: EndReason
    broken_off: int | None = None
    """Model requests where the first one broke off; one more than otherwise, unless said so."""


# One request, and the end of it.
DONE, NO_ANSWER, NO = Expected(1, 0, COMPLETED), Expected(1, 0, INVALID), Expected(1, 0, REFUSED)
# The calls are run, and their results are sent.
RUN_ONE, RUN_TWO = Expected(2, 1, COMPLETED), Expected(2, 2, COMPLETED)
# The stream ends within an input that is to be run or sent back: a failed attempt, and there are three of them.
NEVER_WHOLE = Expected(ATTEMPTS, 0, MODEL_ERROR, broken_off=ATTEMPTS)
# Asked once more, without effect. Sent back five times. Asked with 1,000, 2,000 and 4,000 tokens.
TWICE, PAUSED, TRUNCATED = Expected(2, 0, INVALID), Expected(6, 0, INVALID), Expected(3, 0, CUT)

# Asked, and then asked for a summary, which is cut off in the same way.
FULL = Expected(2, 0, EndReason.CONTEXT_EXHAUSTED)

CONTENTS = ("no call", "one call", "two calls", "cut call", "server call", "server call and call")
# fmt: off
# stop reason:        no call,   one call,  two calls, cut call,    server call, server call and call
TABLE: dict[str | None, tuple[Expected, ...]] = {
    "tool_use":        (TWICE,     RUN_ONE,   RUN_TWO,   NEVER_WHOLE, TWICE,     RUN_ONE),
    "end_turn":        (DONE,      RUN_ONE,   RUN_TWO,   NEVER_WHOLE, DONE,      RUN_ONE),
    "stop_sequence":   (DONE,      RUN_ONE,   RUN_TWO,   NEVER_WHOLE, DONE,      RUN_ONE),
    "max_tokens":      (TRUNCATED, TRUNCATED, TRUNCATED, TRUNCATED,   TRUNCATED, TRUNCATED),
    "pause_turn":      (PAUSED,    NO_ANSWER, NO_ANSWER, NEVER_WHOLE, PAUSED,    NO_ANSWER),
    "compaction":      (PAUSED,    NO_ANSWER, NO_ANSWER, NEVER_WHOLE, PAUSED,    NO_ANSWER),
    "refusal":         (NO,        NO,        NO,        NO,          NO,        NO),
    "model_context_window_exceeded": (FULL,) * 6,
    "of_a_later_year": (NO_ANSWER, NO_ANSWER, NO_ANSWER, NO_ANSWER,   NO_ANSWER, NO_ANSWER),
    None:              (NO_ANSWER, NO_ANSWER, NO_ANSWER, NO_ANSWER,   NO_ANSWER, NO_ANSWER),
}
# fmt: on
CELLS = {
    f"CELL-{row}-{column}-{way}": (reason, content, way, expected)
    for row, (reason, line) in enumerate(TABLE.items())
    for column, (content, expected) in enumerate(zip(CONTENTS, line, strict=True))
    for way in ("whole", "broken off")
    for way in (way.replace(" ", "-"),)
}
SEARCH: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}


def reservation(cell: str, order: str, **more: Any) -> Json:
    """A call that reserves one of the cell's own article, so that cells don't wait for each other."""
    call_id = f"toolu_{cell}_{order}".replace("-", "_")
    return tool_use("reserve_stock", {"order": order, "sku": cell, "quantity": 1}, call_id, **more)


def response(cell: str) -> Reply:
    """What the model says in this cell."""
    reason, content, _, _ = CELLS[cell]
    held: Mapping[str, list[Json]] = {
        "no call": [],
        "one call": [reservation(cell, "1")],
        "two calls": [reservation(cell, "1"), reservation(cell, "2")],
        "cut call": [{**reservation(cell, "1", partial_json=f'{{"order": "1", "sku": "{cell}", "quan'), "input": {}}],
        "server call": [SEARCH],
        "server call and call": [SEARCH, reservation(cell, "1")],
    }
    return Reply([text("Let me see."), *held[content]], reason)


class Model:
    """Answers each cell by itself."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}

    def __call__(self, body: Json) -> Step:
        found = re.search(r"CELL-\d+-\d+-[a-z-]+", json.dumps(body["messages"][0]))
        assert found, "each goal names its cell"
        cell = found.group()
        self.asked[cell] = self.asked.get(cell, 0) + 1
        last = body["messages"][-1]
        if any(block["type"] == "tool_result" for block in last["content"]):
            return Reply.of("Done.")
        said = response(cell)
        if self.asked[cell] == 1 and cell.endswith("broken-off"):
            # All but the very last event: the text, the calls and the stop reason have arrived.
            return StreamError(reply=said, after_events=len(list(events(said, body))) - 1)
        return said


async def run(desk: Desk, cell: str) -> TaskResult:
    return await desk.result(await desk.start({"goal": f"Work on {cell}."}), seconds=120.0)


def expected(cell: str) -> tuple[int, int, EndReason]:
    """Requests, reservations and the end that the table wants of this cell."""
    _, _, way, wanted = CELLS[cell]
    one_more = wanted.requests + 1 if wanted.broken_off is None else wanted.broken_off
    return wanted.requests if way == "whole" else one_more, wanted.tools, wanted.end


async def assert_each_call_has_its_result(desk: Desk, result: TaskResult) -> None:
    """R13, R29: also where the task ended in the middle of it."""
    chain = await desk.parts.stores.transcripts.chain(result.head)
    blocks = [block for node in chain[1:] for block in node.content]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert calls == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


@pytest.mark.parametrize("reason", TABLE, ids=str)
async def test_r8_every_stop_reason_with_every_content(temporal: Client, tmp_path: Path, reason: str | None) -> None:
    """R8, R13, R28, R40, R61, R82, B12, B13, B14, B16, B21: requests made, tools run and end reason.

    A row of the matrix is played at once: twelve tasks, each of them a cell.
    """
    cells = [cell for cell, (which, *_) in CELLS.items() if which == reason]
    model = Model()
    # A dozen tasks at once: a write may take its time.
    unhurried: dict[str, Any] = {"registry": hurried(discover(), seconds=30.0), "model_attempts": ATTEMPTS}
    articles = dict.fromkeys(cells, 10)
    async with open_desk(temporal, tmp_path, model={"script": model}, articles=articles, **unhurried) as desk:
        desk.may_ask_again(len(cells) * ATTEMPTS)
        results = dict(zip(cells, await asyncio.gather(*(run(desk, cell) for cell in cells)), strict=True))
        assert desk.model.refusals == [], "each request was one that the API takes"
        reserved = [effect["sku"] for effect in await desk.effects()]
        came_to = {cell: (model.asked[cell], reserved.count(cell), results[cell].end_reason) for cell in cells}
        assert came_to == {cell: expected(cell) for cell in cells}
        for cell, result in results.items():
            assert result.counters.attempts == model.asked[cell], cell
            assert result.tally.operations == reserved.count(cell), cell
            await assert_each_call_has_its_result(desk, result)
