"""Traps: where a worker process stops or kills itself in the middle of its work, once.

Their seams are the ones that everybody has: an interceptor, a tool's handler and lookup, and the ledger that is handed
to the worker's parts.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from enum import StrEnum
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from settled.activities import protocol
from settled.activities.database import Database
from settled.activities.ledger import Amended, Decide, Ledger, Work
from settled.activities.registry import Registry
from settled.activities.toolkit import Answer, Call, Handler, Lookup, LookupAnswer, WriteTool
from settled.workflows.contract.names import DISPATCH, REQUEST_MODEL, RESOLVE, SETTLE
from settled.workflows.contract.operation import Outcome, ResolveAnswer, SettlementStep
from settled.workflows.states import Event

REPORTS = frozenset({Event.SUCCEEDED, Event.DECLINED, Event.NOT_SENT, Event.UNCLEAR})


class Point(StrEnum):
    """Where a trap can be."""

    BEFORE_DISPATCH = "before_dispatch"
    """The dispatch activity was started; its code was not, so nothing is claimed."""
    BEFORE_CLAIM = "before_claim"
    """The order is made ready, and the attempt's time runs; the claim's transaction is still to begin."""
    AFTER_CLAIM = "after_claim"
    """The claim is committed; the last look at the clock is still to come."""
    BEFORE_SEND = "before_send"
    """The tool was called, after the last look at the clock; it has sent nothing."""
    IN_FLIGHT = "in_flight"
    """The service has done it; its answer is on the way. No trap: it is the test that sees it, and acts."""
    AFTER_ANSWER = "after_answer"
    """The tool has its answer; nothing is stored. A transactional tool's effect is not committed."""
    BEFORE_STORE = "before_store"
    """The outcome is made ready; the transaction with its row is still to begin."""
    AFTER_STORE = "after_store"
    """The outcome is stored; the activity has not returned it."""
    BEFORE_RETURN = "before_return"
    """All of the activity's code has run; its completion was not sent."""
    AFTER_RESPONSE = "after_response"
    """The model's response is stored, and the turn is made; the activity's completion was not sent."""

    BEFORE_SETTLE = "before_settle"
    """A settlement's step was started; it has read nothing."""
    BEFORE_LOOKUP = "before_lookup"
    """The step has read how things stand; the service was not asked."""
    AFTER_LOOKUP = "after_lookup"
    """The service has answered the lookup; no row says so."""
    BEFORE_RESOLVE = "before_resolve"
    """A person's word was handed on; nobody has looked at it."""
    BEFORE_WORD = "before_word"
    """A person's word was looked at; the transaction with its row is still to begin."""
    AFTER_ROW = "after_row"
    """The trap's row is in the journal; who waits for it was not woken."""
    AFTER_WAKE = "after_wake"
    """The trap's row is in the journal, and who waits for it was woken; the activity's completion was not sent."""


class Act(StrEnum):
    """What happens there."""

    STOP = "stop"
    KILL = "kill"


STARTS = {DISPATCH: Point.BEFORE_DISPATCH, SETTLE: Point.BEFORE_SETTLE, RESOLVE: Point.BEFORE_RESOLVE}
"""Before any code of an activity."""
ROWS = {DISPATCH: Point.BEFORE_STORE, RESOLVE: Point.BEFORE_WORD}
"""Before the transaction in which an activity writes its row."""


class Trap:
    """The trap: it springs once.

    Args:
        point: where it is; none springs never.
        act: what it does.
        row: for `AFTER_ROW` and `AFTER_WAKE`, which row.
    """

    def __init__(self, point: Point | None, act: Act, row: Event | None = None) -> None:
        self.point = point
        self.act = act
        self.row = row
        self._written = False

    def at(self, point: Point) -> None:
        """Say that the process has come to this point; it may be the last thing that it does for a while."""
        if point is not self.point:
            return
        self.point = None
        say(f"trapped {point}")
        os.kill(os.getpid(), signal.SIGSTOP if self.act is Act.STOP else signal.SIGKILL)

    def written(self, event: Event) -> None:
        """Say that a row is committed."""
        if event in REPORTS:
            self.at(Point.AFTER_STORE)
        if event is self.row:
            self._written = True
            self.at(Point.AFTER_ROW)

    def returning(self, activity: str) -> None:
        """Say that all of an activity's code has run."""
        if activity == DISPATCH:
            self.at(Point.BEFORE_RETURN)
        if activity == REQUEST_MODEL:
            self.at(Point.AFTER_RESPONSE)
        if self._written:
            self.at(Point.AFTER_WAKE)

    def around(self, registry: Registry) -> Registry:
        """The same tools, with the trap around their writes and their lookups."""
        tools = {
            name: self._around(tool) if isinstance(tool, WriteTool) else tool for name, tool in registry.tools.items()
        }
        return Registry(tools)

    def _around(self, tool: WriteTool) -> WriteTool:
        lookup = self._around_lookup(tool.lookup) if callable(tool.lookup) else tool.lookup
        return replace(tool, handler=self._around_handler(tool.handler), lookup=lookup)

    def _around_handler(self, handler: Handler) -> Handler:
        async def handle(arguments: Any, call: Call) -> Answer:
            self.at(Point.BEFORE_SEND)
            answer = await handler(arguments, call)
            self.at(Point.AFTER_ANSWER)
            return answer

        return handle

    def _around_lookup(self, lookup: Lookup) -> Lookup:
        async def look_up(arguments: Any, call: Call) -> LookupAnswer:
            self.at(Point.BEFORE_LOOKUP)
            answer = await lookup(arguments, call)
            self.at(Point.AFTER_LOOKUP)
            return answer

        return look_up


class TrappedLedger(Ledger):
    """The ledger, with the trap before and after its transactions. No trap holds one open."""

    def __init__(self, database: Database, trap: Trap) -> None:
        super().__init__(database)
        self._trap = trap

    async def claim(self, key: str, ask: protocol.Claim) -> Amended:
        """Claim, and say what came of it."""
        self._trap.at(Point.BEFORE_CLAIM)
        amended = await super().claim(key, ask)
        if claimed(amended, ask):
            self._trap.at(Point.AFTER_CLAIM)
        return amended

    async def transact(self, key: str, ask: protocol.Claim, work: Work) -> Amended:
        """Claim, work and note the outcome in one transaction, and say what came of it."""
        self._trap.at(Point.BEFORE_CLAIM)
        amended = await super().transact(key, ask, work)
        if claimed(amended, ask):
            self._trap.at(Point.AFTER_STORE)
        return amended

    async def amend(self, key: str, decide: Decide) -> Amended:
        """Append a row."""
        point = ROWS.get(activity.info().activity_type) if activity.in_activity() else None
        if point is not None:
            self._trap.at(point)
        amended = await super().amend(key, decide)
        if amended.entry is not None:
            self._trap.written(amended.entry.event)
        return amended


def claimed(amended: Amended, ask: protocol.Claim) -> bool:
    """Whether the claim was granted; says so."""
    granted = amended.entry is not None and amended.entry.event is Event.CLAIMED
    say(f"claim of permit {ask.permit} {'granted' if granted else 'refused'}")
    return granted


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
        if name in STARTS:
            self._trap.at(STARTS[name])
        result = await super().execute_activity(input)
        self._trap.returning(name)
        match result:
            case Outcome():
                say(f"{name} answers {result.standing}")
            case SettlementStep():
                say(f"{name} answers {result.note}")
            case ResolveAnswer():
                say(f"{name} answers {result.refused or 'heard'}")
        return result


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
