"""What a task's history costs: events and bytes at several lengths, with tool outputs of 20 kB.

python -m tests.measure_history        # prints the table that stands in the README
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from settled.activities.registry import Registry
from settled.local.messages_script import tool_use
from tests.desk import Desk, open_desk, temporal_server
from tests.readers import READER, page


@dataclass(frozen=True)
class Size:
    """What a history holds."""

    events: int
    bytes: int


async def history_sizes(client: Client, folder: Path, lengths: Iterable[int]) -> dict[int, Size]:
    """The size of the history of a task of so many turns, a read of 20 kB each, by its number of turns."""
    # A context that takes all of it: what is measured is a turn, and no summary.
    model = {"limits": {"max_input_tokens": 10_000_000}}
    registry, profiles = Registry({"page": page}), {"reader": READER}
    async with open_desk(client, folder, registry=registry, profiles=profiles, model=model) as desk:
        return {turns: await _size_of_a_task(desk, turns) for turns in lengths}


async def _size_of_a_task(desk: Desk, turns: int) -> Size:
    desk.will_say(*(tool_use("page", {"number": number}) for number in range(turns)), "Read.")
    handle = await desk.start("read")
    result = await desk.result(handle, seconds=300)
    assert result.counters.turns == turns, result
    history = await handle.fetch_history()
    return Size(events=len(history.events), bytes=sum(event.ByteSize() for event in history.events))


async def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        async with temporal_server() as client:
            sizes = await history_sizes(client, Path(folder), (10, 100, 200))
    sys.stdout.write("| turns | events | events per turn | bytes | bytes per turn |\n|---|---|---|---|---|\n")
    for turns, size in sizes.items():
        row = (turns, size.events, f"{size.events / turns:.1f}", f"{size.bytes:,}", f"{size.bytes / turns:,.0f}")
        sys.stdout.write("| " + " | ".join(str(cell) for cell in row) + " |\n")


if __name__ == "__main__":
    asyncio.run(main())
