"""The settlement's one activity: a step looks at an operation, perhaps asks the service, and says when to return.

It never sends. Each step starts from the journal, so it may be repeated, interrupted, or run twice at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, replace
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from settled.activities.apart import apart
from settled.activities.artifacts import JSON
from settled.activities.attempt import Person, Terms, as_answer, call_tool
from settled.activities.journal import UNSEEN, Entry, Operation
from settled.activities.keys import remote_key, undoes_key_of
from settled.activities.preparing import KEY_RESOURCE
from settled.activities.presenting import answered_apart
from settled.activities.registry import Registry
from settled.activities.settling import Lookup, Move, Patience, Promise, judge, next_move, wait_after
from settled.activities.steady import steady
from settled.activities.stores import Stores
from settled.activities.tool_errors import failure_of
from settled.activities.toolkit import Absent, Found, InFlux, Several, WriteTool
from settled.activities.waking import somebody_waits, stop_waiting, wake_waiters
from settled.workflows.contract.names import NO_SUCH_TOOL, SETTLE
from settled.workflows.contract.operation import OperationState, Question, SettlementStep
from settled.workflows.states import Event

LOOKUP_SECONDS = 20.0
LOST_GENERATIONS = 8
"""How many later generations are looked for where a part of the past is lost: as many as may have been opened then.
Each is a lookup more. An action that was declined, or asked to wait, more often than that is not found."""
RESTING = {
    Move.DONE: "settled",
    Move.AWAIT_ATTEMPT: "an attempt is out",
    Move.AWAIT_TASK: "a permit is issued, and a task is about to spend it",
    Move.AWAIT_PERSON: "only a person can say what happened",
}
"""What a step says that changes nothing."""


@dataclass(frozen=True)
class SettlementActivities:
    """The activity, and what it works with."""

    stores: Stores
    registry: Registry
    patience: Patience

    @activity.defn(name=SETTLE)
    async def settle(self, question: Question) -> SettlementStep:
        """One step of a settlement.

        Raises:
            ApplicationError: this worker doesn't have the operation's tool; it is tried again, for one that has it.
        """
        ledger, client = self.stores.ledger, activity.client()
        operation = await ledger.read(question.key)
        if operation is None:
            return SettlementStep(settled=True, note="the ledger has no such operation")
        if operation.state.settled:
            # Whatever tools this worker has: perhaps a person has said it, where no worker could.
            await wake_waiters(client, ledger, operation)
            return SettlementStep(settled=True, view=operation.view(), note=_at_rest(operation, Move.DONE))
        tool = self._tool_of(operation)
        promise = Promise.of(tool)
        waiting = await somebody_waits(client, ledger, question.key)
        move = next_move(operation, promise, await ledger.now(), waiting=waiting)
        if move is Move.VOID:
            # Whoever waited has forgotten it, or it would have spent the permit. A living task asks again by itself:
            # who does so once the permit is void waits for what becomes of it, so that this comes first.
            await stop_waiting(ledger, question.key)
            waiting = False
        operation, note = await self._make(move, operation, tool, promise, waiting=waiting)
        if move in (Move.EXPIRE, Move.VOID) and operation.state is OperationState.UNKNOWN:
            # What has just become unknown is looked up at once, not a timer later.
            move = next_move(operation, promise, await ledger.now(), waiting=waiting)
            operation, note = await self._make(move, operation, tool, promise, waiting=waiting)
        await wake_waiters(client, ledger, operation)
        level = logging.WARNING if operation.state is OperationState.NEEDS_HUMAN else logging.INFO
        activity.logger.log(level, "%s, operation %s: %s (%s)", tool.name, operation.key[:12], operation.state, note)
        return SettlementStep(
            settled=operation.state.settled,
            view=operation.view(),
            after=wait_after(operation, promise, self.patience, await ledger.now()),
            note=note,
        )

    def _tool_of(self, operation: Operation) -> WriteTool:
        tool, queue = self.registry.named(operation.subject.tool), activity.info().task_queue
        if isinstance(tool, WriteTool):
            return tool
        name, key = operation.subject.tool, operation.key[:12]
        raise ApplicationError(
            f"this worker has no write {name!r}, of which operation {key} is; let one that has it serve {queue}",
            type=NO_SUCH_TOOL,
        )

    async def _make(
        self, move: Move, operation: Operation, tool: WriteTool, promise: Promise, *, waiting: bool
    ) -> tuple[Operation, str]:
        match move:
            case Move.LOOK_UP:
                entry = await self._look_up(operation, tool, promise, waiting=waiting)
            case Move.EXPIRE:
                entry = _entry(operation, Event.EXPIRED, note="no outcome was reported before the deadline")
            case Move.CLOSE:
                entry = _entry(operation, Event.NOTHING_OUT, note="nothing was sent that could still land")
            case Move.HAND_OVER:
                entry = _entry(operation, Event.HANDED_TO_PERSON, note="the service offers no way to look it up")
            case Move.VOID:
                entry = _entry(operation, Event.WITHDRAWN, note="no task waits for it any more")
            case _:
                return operation, _at_rest(operation, move)
        # Only if nothing else happened meanwhile: what was found out was about the operation as it stood then.
        amended = await self.stores.ledger.amend(
            operation.key, lambda current, _now: entry if current and current.seq == operation.seq else None
        )
        return amended.operation or operation, str(entry.body.get("note", ""))

    async def _look_up(self, operation: Operation, tool: WriteTool, promise: Promise, *, waiting: bool) -> Entry:
        key = remote_key(operation.key, operation.generation)
        asked_at = await self.stores.ledger.now()
        if not operation.subject.arguments:
            note = "the ledger has lost its arguments"
            lookup, stored = Lookup(answer=None, asked_at=asked_at, note=note), b"{}"
        else:
            stored = await self.stores.artifacts.get(operation.subject.arguments)
            lookup = await _ask(operation, tool, stored, key, asked_at)
            for other in _keys_of_a_lost_past(operation) if isinstance(lookup.answer, Absent) else ():
                elsewhere = await _ask(operation, tool, stored, other, asked_at)
                if not isinstance(elsewhere.answer, Absent):
                    # Found under a key that this ledger never gave, or not known: nobody but a person can say.
                    lookup = elsewhere
                    break

        def judged(found: Lookup) -> Entry:
            return judge(
                operation,
                promise,
                found,
                remote_key=key,
                arguments=json.loads(stored),
                waiting=waiting,
                patience=self.patience,
            )

        try:
            entry = judged(lookup)
        # A tool may put anything into what it found; what can't be compared is no answer.
        except Exception as error:
            return judged(replace(lookup, answer=None, note=f"what the lookup found can't be read: {error}"[:500]))
        if entry.event not in (Event.FOUND, Event.FOUND_UNDONE) or not isinstance(lookup.answer, Found):
            return entry
        answer = await answered_apart(as_answer(lookup.answer.answer, tool.name))
        text = await apart(lambda: json.dumps(answer, sort_keys=True), answer)
        return _entry(operation, entry.event, **entry.body, result=await self.stores.artifacts.put(text, JSON))


async def _ask(operation: Operation, tool: WriteTool, stored: bytes, key: str, asked_at: float) -> Lookup:
    """Ask the service. A lookup that raises says nothing about the operation; nor does one that can't be made."""
    assert callable(tool.lookup), "only a tool with a lookup is looked up"
    assert tool.arguments is not None, "the registry refuses a tool without an input model"
    person = Person.behind(operation.subject)
    try:
        # As they were sent; a deploy may have changed the model since.
        arguments = tool.arguments.model_validate_json(stored, strict=True)
        terms = Terms(key=key, undoes_key=undoes_key_of(operation.subject), deadline=steady() + LOOKUP_SECONDS)
        answer: Any = await call_tool(tool.lookup, arguments, person, terms)
    except asyncio.CancelledError:
        raise
    # A service that can't be asked may fail in any way, SystemExit included; the settlement asks again.
    except BaseException as error:
        return Lookup(answer=None, asked_at=asked_at, note=failure_of(error).text)
    if not isinstance(answer, Found | Absent | InFlux | Several):
        return Lookup(answer=None, asked_at=asked_at, note=f"the lookup returned a {type(answer).__name__}")
    return Lookup(answer=answer, asked_at=asked_at)


def _keys_of_a_lost_past(operation: Operation) -> list[str]:
    """Other idempotency keys that the action may have been sent with in a time of which the ledger knows nothing.

    Generations may have been closed and opened then; and an earlier release may have made the key in another way.
    """
    if all(attempt.permit != UNSEEN for attempt in operation.attempts):
        return []
    last = operation.generation + LOST_GENERATIONS
    unseen = (*operation.skipped, *range(operation.generation + 1, last + 1))
    later = [remote_key(operation.key, number) for number in unseen]
    others = [name.removeprefix(KEY_RESOURCE) for name in operation.subject.resources if name.startswith(KEY_RESOURCE)]
    earlier = [
        remote_key(key, number) for key in others if key != operation.key for number in range(1, LOST_GENERATIONS + 1)
    ]
    return later + earlier


def _at_rest(operation: Operation, move: Move) -> str:
    return str((operation.result or {}).get("note") or RESTING[move])


def _entry(operation: Operation, event: Event, **body: Any) -> Entry:
    return Entry(event=event, generation=operation.generation, permit=operation.permit, body=body)
