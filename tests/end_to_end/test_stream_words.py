"""What anybody may send to a task's stream, and what its readers are told of a text that is discarded."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client

from settled.local.messages_script import Reply, text
from tests.desk import Desk, open_desk
from tests.end_to_end.test_streams import PUBLISH, TELLER, WORDS, opened, reading, replays, runs_of


@pytest.fixture
async def teller(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose agent publishes what it writes."""
    async with open_desk(temporal, tmp_path, profiles={"teller": TELLER}) as desk:
        yield desk


def piece(data: bytes | str) -> dict[str, Any]:
    """A publication of one piece, which holds this."""
    held = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"items": [{"topic": "text", "data": held}], "publisher_id": "somebody", "sequence": 1}


UNREADABLE = Payload(metadata={"encoding": b"json/plain"}, data=b"{").SerializeToString()
NO_PIECE = Payload(metadata={"encoding": b"json/plain"}, data=b"5").SerializeToString()
SENT: list[list[Any]] = [
    *([], [None], [5], ["x"], [[]], [{"items": None}], [{"items": [{"topic": 3}]}], [{}, {}]),
    *([piece("abc")], [piece("!!!")], [piece(b"\xff\xff\xff")], [piece(b"")], [piece(UNREADABLE)], [piece(NO_PIECE)]),
]
"""What no client of the library's sends."""


async def test_whatever_is_sent_to_a_stream_the_task_goes_on_and_readers_read_on(
    teller: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the task is open, and after; what failed the workflow's task in an earlier release replays now."""
    held = asyncio.Event()
    teller.will_say(Reply.of(WORDS, hold=held))
    handle = await teller.start("go", "spoilt")
    for words in ([], [piece("abc")]):  # the library's own handler would be the first to take these
        await handle.signal(PUBLISH, args=words)
    await opened(teller)
    for words in SENT:
        await handle.signal(PUBLISH, args=words)
    async with reading(teller, "spoilt") as pieces:
        held.set()
        assert (await teller.result(handle, 20)).final_text == WORDS
    assert "".join(one.text for one in pieces) == WORDS
    assert "what was sent to the task's stream is dropped" in caplog.text
    assert await replays(await runs_of(teller, handle))


async def test_a_reader_is_told_that_a_text_is_discarded_and_given_the_one_that_replaces_it(teller: Desk) -> None:
    """The last piece of a request says why the model stopped; the next request has another name."""
    held = asyncio.Event()
    cut = Reply(content=[text("Half a tho")], stop_reason="max_tokens", hold=held)
    teller.will_say(cut, "A whole thought.")
    handle = await teller.start("think", "cut-off")
    await opened(teller)
    async with reading(teller, "cut-off") as pieces:
        held.set()
        await teller.result(handle, 20)
    lasts = [one for one in pieces if one.whole]
    assert [(one.text, one.stop_reason) for one in lasts] == [
        ("Half a tho", "max_tokens"),
        ("A whole thought.", "end_turn"),
    ]
    assert len({one.request for one in lasts}) == 2
