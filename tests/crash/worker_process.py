"""A worker in a process of its own, which stops or kills itself at a point of its work, once.

    python -m tests.crash.worker_process PID-OF-THE-TEST

It reads one line, its `Instructions`, and says, a line each, that it serves, that it falls into its trap, and what
becomes of its claims and dispatches. Its seams are the ones that everybody has: an interceptor, a tool's handler, and
the ledger that is handed to the worker's parts.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, HttpUrl
from temporalio import activity
from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, WorkerConfig

from settled.activities import protocol
from settled.activities.database import Database
from settled.activities.ledger import Amended, Decide, Ledger
from settled.activities.registry import Registry, discover
from settled.activities.toolkit import Answer, Call, Handler, WriteTool
from settled.activities.tools import stock
from settled.worker.settings import Settings
from settled.worker.wiring import make_worker, parts
from settled.workflows.contract.names import DISPATCH, REQUEST_MODEL
from settled.workflows.contract.operation import Outcome
from settled.workflows.converter import data_converter
from settled.workflows.states import Event
from tests.desk import CLERK, hurried
from tests.mortal import die_with

REPORTS = frozenset({Event.SUCCEEDED, Event.DECLINED, Event.NOT_SENT, Event.UNCLEAR})


class Point(StrEnum):
    """Where a trap can be."""

    BEFORE_DISPATCH = "before_dispatch"
    """The dispatch activity was started; its code was not, so nothing is claimed."""
    AFTER_CLAIM = "after_claim"
    """The claim is committed; the last look at the clock is still to come."""
    BEFORE_SEND = "before_send"
    """The tool was called, after the last look at the clock; it has sent nothing."""
    AFTER_ANSWER = "after_answer"
    """The tool has its answer; nothing is stored."""
    AFTER_STORE = "after_store"
    """The outcome is stored; the activity has not returned it."""
    AFTER_RESPONSE = "after_response"
    """The model's response is stored, and the turn is made; the activity's completion was not sent."""


class Act(StrEnum):
    """What happens there."""

    STOP = "stop"
    KILL = "kill"


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
    trap: Point | None = None
    """Where to fall into the trap."""
    act: Act = Act.STOP
    """What the trap does."""


class Trap:
    """The trap: it springs once."""

    def __init__(self, point: Point | None, act: Act) -> None:
        self.point = point
        self.act = act

    def at(self, point: Point) -> None:
        """Say that the process has come to this point; it may be the last thing that it does for a while."""
        if point is not self.point:
            return
        self.point = None
        say(f"trapped {point}")
        os.kill(os.getpid(), signal.SIGSTOP if self.act is Act.STOP else signal.SIGKILL)

    def around(self, registry: Registry) -> Registry:
        """The same tools, with the trap around their writes."""
        tools = {
            name: replace(tool, handler=self._around(tool.handler)) if isinstance(tool, WriteTool) else tool
            for name, tool in registry.tools.items()
        }
        return Registry(tools)

    def _around(self, handler: Handler) -> Handler:
        async def handle(arguments: Any, call: Call) -> Answer:
            self.at(Point.BEFORE_SEND)
            answer = await handler(arguments, call)
            self.at(Point.AFTER_ANSWER)
            return answer

        return handle


class TrappedLedger(Ledger):
    """The ledger, with the trap after a claim and after a report. Neither holds a transaction open."""

    def __init__(self, database: Database, trap: Trap) -> None:
        super().__init__(database)
        self._trap = trap

    async def claim(self, key: str, ask: protocol.Claim) -> Amended:
        """Claim, and say what came of it."""
        amended = await super().claim(key, ask)
        claimed = amended.entry is not None and amended.entry.event is Event.CLAIMED
        say(f"claim of permit {ask.permit} {'granted' if claimed else 'refused'}")
        if claimed:
            self._trap.at(Point.AFTER_CLAIM)
        return amended

    async def amend(self, key: str, decide: Decide) -> Amended:
        """Append a row."""
        amended = await super().amend(key, decide)
        if amended.entry is not None and amended.entry.event in REPORTS:
            self._trap.at(Point.AFTER_STORE)
        return amended


class TrappedActivities(Interceptor):
    """The trap around activities."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Put the trap around each activity."""
        return TrappedActivity(next, self._trap)


class TrappedActivity(ActivityInboundInterceptor):
    """The trap around one activity."""

    def __init__(self, next: ActivityInboundInterceptor, trap: Trap) -> None:
        super().__init__(next)
        self._trap = trap

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run the activity."""
        name = activity.info().activity_type
        if name == DISPATCH:
            self._trap.at(Point.BEFORE_DISPATCH)
        result = await super().execute_activity(input)
        if name == REQUEST_MODEL:
            self._trap.at(Point.AFTER_RESPONSE)
        if isinstance(result, Outcome) and name == DISPATCH:
            say(f"dispatch answers {result.standing}")
        return result


class OneHand(SimplePlugin):
    """A worker that serves activities only, one at a time."""

    def __init__(self) -> None:
        super().__init__("one-hand")

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Take the worker its workflows, and all hands but one."""
        config["workflows"] = []
        config["max_concurrent_activities"] = 1
        return super().configure_worker(config)


class Mortal(SimplePlugin):
    """A worker whose workflows are given to others soon after it has died."""

    def __init__(self) -> None:
        super().__init__("mortal")

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Shorten what a dead worker's workflows wait for it: ten seconds by default."""
        config["sticky_queue_schedule_to_start_timeout"] = timedelta(seconds=1)
        return super().configure_worker(config)


async def serve(told: Instructions) -> None:
    """Serve until the process ends."""
    trap = Trap(told.trap, told.act)
    stock.SETTINGS = stock.StockSettings(url=HttpUrl(told.stock_url))
    tools = hurried(discover(), seconds=told.seconds, lands_within=timedelta(seconds=told.lands_within))
    async with parts(Settings(**told.settings), trap.around(tools), {"stock-clerk": CLERK}) as made_of:
        stores = replace(made_of.stores, ledger=TrappedLedger(made_of.stores.database, trap))
        kind = OneHand() if told.one_hand else Mortal()
        client = await Client.connect(told.temporal, data_converter=data_converter, plugins=[kind])
        await made_of.provider.warm_up()
        async with make_worker(client, replace(made_of, stores=stores), [TrappedActivities(trap)]):
            say("serves")
            await asyncio.Event().wait()


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """The process. It imports everything before it is told what to do."""
    die_with(int(sys.argv[1]))
    importlib.import_module("anthropic")
    asyncio.run(serve(Instructions.model_validate_json(sys.stdin.readline())))


if __name__ == "__main__":
    main()
