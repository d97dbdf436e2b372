"""The sweep: starts the settlements that are missing, and does nothing else.

A settlement is started by whoever needs an outcome. Where task and dispatch were both lost before that, nobody does.
"""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.client import Client

from settled.activities.registry import Registry
from settled.activities.stores import Stores
from settled.activities.waking import start_settlement

MOST_AT_ONCE = 100


@dataclass
class Sweep:
    """Goes through the unsettled operations, a number of them each time, and begins anew at the end."""

    client: Client
    stores: Stores
    registry: Registry
    task_queue: str
    _reached: str = ""

    async def step(self, quiet_seconds: float) -> int:
        """See to it that the next unsettled operations have a settlement; returns how many were looked at.

        Args:
            quiet_seconds: operations that have changed since so long are left alone: somebody is at work on them.
        """
        before = await self.stores.ledger.now() - quiet_seconds
        # Of tools that this worker has: the settlement runs on its task queue.
        keys = await self.stores.ledger.forsaken(before, self.registry.names, self._reached, MOST_AT_ONCE)
        for key in keys:
            await start_settlement(self.client, key, self.task_queue, look=False)
        self._reached = keys[-1] if len(keys) == MOST_AT_ONCE else ""
        return len(keys)
