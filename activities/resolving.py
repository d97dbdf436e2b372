"""`resolve`: a person says what became of an operation that only a person can settle. Who, when and why is a row."""

from __future__ import annotations

import json
from dataclasses import dataclass

from temporalio import activity

from settled.activities import protocol
from settled.activities.answers import Answer
from settled.activities.artifacts import JSON
from settled.activities.journal import Entry, Operation
from settled.activities.presenting import answered
from settled.activities.stores import Stores
from settled.activities.waking import wake_waiters
from settled.workflows.contract.names import RESOLVE
from settled.workflows.contract.operation import OperationState, Resolution, Resolve, ResolveAnswer, Resolved
from settled.workflows.states import Event

EVENTS = {
    Resolved.COMPLETED: Event.RESOLVED_COMPLETED,
    Resolved.NOT_EXECUTED: Event.RESOLVED_NOT_EXECUTED,
    Resolved.UNDONE: Event.UNDONE,
}
WHY_NOT = {
    OperationState.DISPATCHED: "an attempt is on its way; wait for its answer",
    OperationState.UNKNOWN: "it is being looked up; a person is asked once that leads nowhere",
    OperationState.RESENDABLE: "it is about to be sent again",
}


@dataclass(frozen=True)
class ResolvingActivities:
    """The activity, and what it works with."""

    stores: Stores

    @activity.defn(name=RESOLVE)
    async def resolve(self, asked: Resolve) -> ResolveAnswer:
        """Take a person's word, once, where it is asked for; and tell the tasks that wait."""
        ledger = self.stores.ledger
        heard = {row.body.get("update") for row in await ledger.journal(asked.key)}
        if asked.update in heard:
            # A settlement that is reset hears its old updates again; by now they may mean another generation.
            standing = await ledger.read(asked.key)
            return ResolveAnswer(view=standing.view() if standing else None)
        body = {**await self._body(asked.resolution), "update": asked.update}

        def decide(operation: Operation | None, _now: float) -> Entry | None:
            said = asked.resolution
            return protocol.resolve(operation, EVENTS[said.outcome], body, said.generation) if operation else None

        amended = await ledger.amend(asked.key, decide)
        if amended.operation is None:
            return ResolveAnswer(refused="the ledger has no such operation")
        view = amended.operation.view()
        if amended.entry is None:
            return ResolveAnswer(view=view, refused=why_not(amended.operation, asked.resolution))
        await wake_waiters(activity.client(), ledger, amended.operation)
        return ResolveAnswer(view=view)

    async def _body(self, resolution: Resolution) -> dict[str, str]:
        said = {"who": resolution.who, "because": resolution.because}
        if resolution.outcome is not Resolved.COMPLETED:
            return said
        answer = answered(Answer(data=None, source=f"{resolution.who}, a person"))
        text = json.dumps({**answer, "note": resolution.because}, ensure_ascii=False, sort_keys=True)
        return said | {"result": await self.stores.artifacts.put(text, JSON)}


def why_not(operation: Operation, word: Resolution) -> str:
    """Why a person's word is not taken, in one line."""
    name = f"operation {operation.key[:12]}"
    if word.generation not in (None, operation.generation):
        return f"{name} is at generation {operation.generation}, not {word.generation}: look at that one"
    if word.outcome is Resolved.UNDONE:
        return f"{name} is {operation.state}, not {OperationState.COMPLETED}: only what is done can be taken back"
    if operation.state.settled:
        said = operation.result or {}
        by = f", says {said['who']}" if "who" in said else ""
        return f"{name} is {operation.state} already{by}"
    why = WHY_NOT.get(operation.state, "nobody is asked")
    return f"{name} is {operation.state}, not {OperationState.NEEDS_HUMAN}: {why}"
