"""`resolve`: a person says what became of an operation that only a person can settle. Who, when and why is a row."""

from __future__ import annotations

import json
from dataclasses import dataclass

from temporalio import activity

from settled.activities import protocol
from settled.activities.answers import Answer
from settled.activities.artifacts import JSON
from settled.activities.journal import Entry, Operation, Row
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
        """Take a person's word, once, where it is asked for; and tell the tasks that wait.

        A word that isn't taken is noted, too: a settlement that is reset hears its old updates again, and by then they
        may be asked for.
        """
        ledger, said = self.stores.ledger, asked.resolution
        body = {**await self._body(said), "update": asked.update}

        def decide(operation: Operation | None, _now: float) -> Entry | None:
            if operation is None or asked.update in operation.heard:
                return None
            taken = protocol.resolve(operation, EVENTS[said.outcome], body, said.generation)
            return taken or protocol.refuse(operation, {**body, "note": why_not(operation, said)})

        amended = await ledger.amend(asked.key, decide)
        if amended.operation is None:
            return ResolveAnswer(refused="the ledger has no such operation")
        if amended.entry is None:
            rows = await ledger.journal(asked.key)
            return _heard_before(next(row for row in rows if row.body.get("update") == asked.update), amended.operation)
        view = amended.operation.view()
        if amended.entry.event is Event.WORD_REFUSED:
            return ResolveAnswer(view=view, refused=amended.entry.body["note"])
        await wake_waiters(activity.client(), ledger, amended.operation)
        return ResolveAnswer(view=view)

    async def _body(self, resolution: Resolution) -> dict[str, str]:
        said = {"who": resolution.who, "because": resolution.because}
        if resolution.outcome is not Resolved.COMPLETED:
            return said
        answer = answered(Answer(data=None, source=f"{resolution.who}, a person"))
        text = json.dumps({**answer, "note": resolution.because}, ensure_ascii=False, sort_keys=True)
        return said | {"result": await self.stores.artifacts.put(text, JSON)}


def _heard_before(row: Row, operation: Operation) -> ResolveAnswer:
    """The answer to a word that was heard already: what it came to then, if that is what it would mean now."""
    view = operation.view()
    if row.event is Event.WORD_REFUSED:
        return ResolveAnswer(view=view, refused=row.body["note"])
    if row.generation != operation.generation:
        return ResolveAnswer(
            view=view, refused=f"this update was heard for generation {row.generation}; say it anew, under another id"
        )
    return ResolveAnswer(view=view)


def why_not(operation: Operation, word: Resolution) -> str:
    """Why a person's word is not taken, in one line."""
    name = f"operation {operation.key[:12]}"
    if word.generation not in (None, operation.generation):
        return f"{name} is at generation {operation.generation}, not {word.generation}: look at that one"
    if word.outcome is Resolved.UNDONE and operation.subject.undoes_key:
        return f"{name} takes another one back; what was done anew by hand after that, the ledger can't be told"
    if word.outcome is Resolved.UNDONE:
        return f"{name} is {operation.state}, not {OperationState.COMPLETED}: only what is done can be taken back"
    if operation.state.settled:
        said = operation.result or {}
        by = f", says {said['who']}" if "who" in said else ""
        return f"{name} is {operation.state} already{by}"
    why = WHY_NOT.get(operation.state, "nobody is asked")
    return f"{name} is {operation.state}, not {OperationState.NEEDS_HUMAN}: {why}"
