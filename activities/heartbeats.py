"""Heartbeats while something is awaited: an activity that doesn't send them never learns that it was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from temporalio import activity

NOTED_SECONDS = 1.0
"""Between two notes of how it goes on; they stay in this process, but for the last one before a heartbeat is sent."""
SENT_SECONDS = 3.0
"""Between two heartbeats at the most: people want to see something, and a cancelled activity is to learn of it."""


@asynccontextmanager
async def heartbeats(progress: Callable[[], object] | None = None) -> AsyncIterator[None]:
    """Send a heartbeat several times within the activity's heartbeat timeout, until the block is left.

    Args:
        progress: tells what to send along, for people who watch.
    """
    timeout = activity.info().heartbeat_timeout
    every = min(NOTED_SECONDS, timeout.total_seconds() / 4) if timeout else NOTED_SECONDS

    async def beat() -> None:
        while True:
            activity.heartbeat(*([progress()] if progress else []))
            await asyncio.sleep(every)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
