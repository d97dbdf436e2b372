"""A worker in a process of its own, which stops or kills itself at a point of its work, once.

    python -m tests.crash.worker_process PID-OF-THE-TEST

It reads one line, its `Instructions`, and says, a line each, that it serves, that it falls into its trap, and what
becomes of its claims and activities. `tests.crash.nursery` makes many of them from one.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, HttpUrl
from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkerConfig

from settled.activities.registry import Registry, discover
from settled.activities.tools import stock
from settled.worker.settings import Settings
from settled.worker.wiring import make_worker, parts
from settled.workflows.converter import data_converter
from settled.workflows.states import Event
from tests.crash.notes import note_order
from tests.crash.traps import Act, Point, Trap, TrappedActivities, TrappedLedger, say
from tests.desk import CLERK, hurried
from tests.mortal import die_with

__all__ = ["Act", "Instructions", "Point", "Trap", "TrappedActivities", "TrappedLedger", "die_with", "say", "serve"]


class Instructions(BaseModel):
    """What the test tells the process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temporal: str
    """The server's address."""
    settings: dict[str, Any]
    """The worker's settings."""
    stock_url: str
    """The stock service."""
    seconds: float
    """The time budget of a write's attempt."""
    lands_within: float
    """What the write's tool says of its service, in seconds."""
    one_hand: bool = False
    """Serve activities only, one at a time: a frozen process then holds nothing but the activity that it froze in."""
    serves: tuple[str, ...] = ()
    """The activities to serve, one at a time, and nothing else. None named: all of them."""
    trap: Point | None = None
    """Where to fall into the trap."""
    act: Act = Act.STOP
    """What the trap does."""
    row: Event | None = None
    """The row after which to fall into it, where it is after a row."""


BUILD = "of the tests"
"""By default each process reads all the code that it has imported, for a name of its build."""


class OneHand(SimplePlugin):
    """A worker that serves activities only, one at a time.

    Args:
        serves: which; all if none is named.
    """

    def __init__(self, serves: tuple[str, ...] = ()) -> None:
        super().__init__("one-hand")
        self._serves = serves

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Take the worker its workflows, and all hands but one."""
        config["build_id"] = BUILD
        config["workflows"] = []
        config["max_concurrent_activities"] = 1
        if self._serves:
            config["activities"] = [each for each in config["activities"] if each.__name__ in self._serves]
        return super().configure_worker(config)


class Mortal(SimplePlugin):
    """A worker whose workflows are given to others soon after it has died."""

    def __init__(self) -> None:
        super().__init__("mortal")

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Shorten what a dead worker's workflows wait for it: ten seconds by default."""
        config["build_id"] = BUILD
        config["sticky_queue_schedule_to_start_timeout"] = timedelta(seconds=1)
        return super().configure_worker(config)


def tools(seconds: float, lands_within: float, **changes: Any) -> Registry:
    """The shipped tools with a short time budget for writes, and one that writes to the ledger's own database.

    Args:
        seconds: the budget.
        lands_within: what the shipped ones say of their service, in seconds.
        changes: other changes to what they say.
    """
    promised = hurried(discover(), seconds=seconds, lands_within=timedelta(seconds=lands_within), **changes)
    return Registry({**promised.tools, note_order.name: replace(note_order, timeout=timedelta(seconds=seconds))})


async def serve(told: Instructions) -> None:
    """Serve until the process ends."""
    trap = Trap(told.trap, told.act, told.row)
    stock.SETTINGS = stock.StockSettings(url=HttpUrl(told.stock_url))
    trapped = trap.around(tools(told.seconds, told.lands_within))
    async with parts(Settings(**told.settings), trapped, {"stock-clerk": CLERK}) as made_of:
        stores = replace(made_of.stores, ledger=TrappedLedger(made_of.stores.database, trap))
        kind = OneHand(told.serves) if told.one_hand or told.serves else Mortal()
        client = await Client.connect(told.temporal, data_converter=data_converter, plugins=[kind])
        if not told.serves:
            await made_of.provider.warm_up()
        async with make_worker(client, replace(made_of, stores=stores), [TrappedActivities(trap)]):
            say("serves")
            await asyncio.Event().wait()


def main() -> None:
    """The process. It imports everything before it is told what to do."""
    die_with(int(sys.argv[1]))
    importlib.import_module("anthropic")
    asyncio.run(serve(Instructions.model_validate_json(sys.stdin.readline())))


if __name__ == "__main__":
    main()
