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

from settled.local.messages_script import Reply
from tests.desk import Desk, open_desk
from tests.end_to_end.test_streams import PUBLISH, TELLER, WORDS, opened, reading, replays, runs_of


@pytest.fixture
async def teller(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose agent publishes what it writes."""
    async with open_desk(temporal, tmp_path, profiles={"teller": TELLER}) as desk:
        yield desk


def piece(data: bytes | str) -> dict[str, Any]:
    """A publication of one piece, which holds this."""
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"items": [{"topic": "text", "data": text}], "publisher_id": "somebody", "sequence": 1}


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
    for words in SENT:
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
