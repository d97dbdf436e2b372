"""A task told while it runs: every line is an event of its Temporal history, or a row of an operation's journal.

Both records are merged by their own times; the seconds that a line begins with are theirs, counted from the start.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle

from settled.activities.calls import proposed_calls
from settled.activities.stores import Stores
from settled.local import facts
from settled.local.facts import Fact, Said
from settled.workflows.contract import names
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.operation import Outcome
from settled.workflows.contract.result import TaskResult
from settled.workflows.contract.task import Opened
from settled.workflows.contract.turn import RunBatches, Turn
from settled.workflows.contract.values import Value
from settled.workflows.converter import data_converter
from settled.workflows.reporting import headline

V = TypeVar("V", bound=Value)

POLL_SECONDS = 0.1
VISIBLE_AFTER_SECONDS = 0.25
"""So long after its own time at the latest a record can be read. Younger ones wait, for the sake of the order."""

ENDS = {f"workflow_execution_{end}" for end in ("completed", "failed", "canceled", "terminated", "timed_out")}


class Narrator:
    """Tells one task, each fact once.

    Args:
        task: the task.
        stores: where its ledger, transcript and artifacts are.
    """

    def __init__(self, task: WorkflowHandle[Any, Any], stores: Stores) -> None:
        self._task = task
        self._stores = stores
        self._told: set[tuple[str, int, int]] = set()
        self._known: dict[tuple[str, int], list[Fact]] = {}
        self._activities: dict[int, str] = {}
        """The activity that an event of scheduling asked for, by the event's number."""
        self._keys: dict[str, None] = {}
        """The operations that were proposed, in their order."""
        self._began = math.inf

    async def follow(self, tell: Callable[[float, Fact], None]) -> None:
        """Tell the facts in the order in which they happened, until the task has ended.

        Args:
            tell: takes the seconds since the task's start, and the fact.
        """
        over = False
        while not over:
            asked_at = time.time()
            over = await self._read_history()
            happened = [fact for known in self._known.values() for fact in known] + await self._journals()
            horizon = math.inf if over else asked_at - VISIBLE_AFTER_SECONDS
            for fact in sorted(happened, key=lambda fact: fact.at):
                if fact.at <= horizon and fact.record not in self._told:
                    self._told.add(fact.record)
                    tell(fact.at - self._began, fact)
            if not over:
                await asyncio.sleep(POLL_SECONDS)

    async def _read_history(self) -> bool:
        """Take in the new events; says whether the task has ended."""
        over = False
        history = await self._task.fetch_history()
        run = history.run_id
        for event in history.events:
            kind = _kind(event)
            over = over or kind in ENDS
            if (run, event.event_id) not in self._known:
                said = await self._said(kind, event)
                self._known[run, event.event_id] = [
                    Fact(at=_time(event), record=(run, event.event_id, place), about=about, text=facts.printable(text))
                    for place, (about, text) in enumerate(said)
                ]
        return over

    async def _journals(self) -> list[Fact]:
        made = []
        for key in self._keys:
            for row in await self._stores.ledger.journal(key):
                if row.at >= self._began:  # an operation can be older than the task
                    about, text = facts.of_row(key, row)
                    made.append(Fact(at=row.at, record=(key, row.seq, 0), about=about, text=facts.printable(text)))
        return made

    async def _said(self, kind: str, event: HistoryEvent) -> Sequence[Said]:
        """What is to be said of an event; most are Temporal's own business, and nothing is."""
        attributes: Any = getattr(event, f"{kind}_event_attributes")
        match kind:
            case "activity_task_scheduled":
                self._activities[event.event_id] = attributes.activity_type.name
            case "activity_task_completed":
                return await self._said_of_result(
                    self._activities[attributes.scheduled_event_id], attributes.result.payloads
                )
            case "activity_task_failed" | "activity_task_timed_out":
                activity = self._activities[attributes.scheduled_event_id]
                return [("failure", f"{activity}: {facts.short(attributes.failure.message)}")]
            case "workflow_task_failed":
                return [("failure", f"the workflow's own code: {facts.short(attributes.failure.message)}")]
            case "workflow_execution_signaled":
                return [("signal", f"{attributes.signal_name}: the operation has changed")]
            case _:
                return self._said_of_run(kind, event, attributes)
        return []

    def _said_of_run(self, kind: str, event: HistoryEvent, attributes: Any) -> list[Said]:
        match kind:
            case "workflow_execution_started":
                self._began = min(self._began, _time(event))
                asked: Any = data_converter.payload_converter.from_payloads(attributes.input.payloads)[0]
                goal = asked.get("goal", asked) if isinstance(asked, dict) else asked
                return [("task", f"{self._task.id}: {facts.short(str(goal))}")]
            case "workflow_execution_completed":
                return [("status", headline(_decoded(attributes.result.payloads, TaskResult)))]
            case "workflow_execution_failed":
                return [("status", facts.short(attributes.failure.message))]
            case _ if kind in ENDS:
                return [("status", kind.removeprefix("workflow_execution_"))]
        return []

    async def _said_of_result(self, activity: str, payloads: Sequence[Payload]) -> list[Said]:
        match activity:
            case names.OPEN_TASK:
                return facts.of_opening(_decoded(payloads, Opened))
            case names.REQUEST_MODEL:
                turn = _decoded(payloads, Turn)
                content = (await self._stores.transcripts.node(turn.head)).content
                if isinstance(turn.next, RunBatches):
                    self._keys |= {call.intent.key: None for call in turn.next.calls if call.intent is not None}
                return facts.of_turn(turn, proposed_calls(content))
            case names.RUN_READ:
                return [
                    ("read", f"the model will read {facts.short(await self._text(_decoded(payloads, CallResult)))}")
                ]
            case names.DISPATCH | names.RECONCILE:
                outcome = _decoded(payloads, Outcome)
                return facts.of_outcome(outcome, await self._text(outcome.result) if outcome.result else "")
            case names.CLOSE_TASK:
                return facts.of_result(_decoded(payloads, TaskResult))
        return []

    async def _text(self, result: CallResult) -> str:
        """The text that the model reads."""
        if result.content is None:
            return result.note
        return (await self._stores.artifacts.get(result.content)).decode(errors="replace")


def _kind(event: HistoryEvent) -> str:
    return str(event.WhichOneof("attributes")).removesuffix("_event_attributes")


def _time(event: HistoryEvent) -> float:
    return event.event_time.ToNanoseconds() / 1e9


def _decoded(payloads: Sequence[Payload], kind: type[V]) -> V:
    value: V = data_converter.payload_converter.from_payloads(payloads, [kind])[0]
    return value
