"""The pace of a storm: on a slow machine everything takes longer, so less must be done to it in the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Waits by what has happened, and not by the clock alone."""

    happened: Callable[[], int]
    """How much has happened so far."""

    async def wait(self, seconds: float, happenings: int, most: float) -> None:
        """Wait so long, and until so much has happened since; not longer than `most` in all."""
        begun, before = time.monotonic(), self.happened()
        await asyncio.sleep(seconds)
        while self.happened() - before < happenings and time.monotonic() - begun < most:  # noqa: ASYNC110  # no event tells
            await asyncio.sleep(0.2)
