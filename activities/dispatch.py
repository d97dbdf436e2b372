"""The write side of the operation protocol, as activities: `dispatch` sends once, `reconcile` asks how things stand.

Neither ever fails a write: `dispatch` catches everything and returns an outcome. What holds is the permit, not
Temporal's attempt count: the claim is committed before the first byte, and the ledger refuses it to all who come late.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from temporalio import activity
from temporalio.exceptions import ApplicationError

from settled.activities import protocol
from settled.activities.artifacts import JSON
from settled.activities.attempt import Ended, Person, send
from settled.activities.composing import settled_or_open
from settled.activities.database import patiently, unavailable
from settled.activities.journal import Entry, Operation
from settled.activities.keys import fingerprint, remote_key
from settled.activities.ledger import Amended
from settled.activities.ledger_rows import WaitsFor
from settled.activities.recall import recall
from settled.activities.registry import Registry
from settled.activities.standing import stand
from settled.activities.steady import steady
from settled.activities.stores import Stores
from settled.activities.toolkit import WriteTool
from settled.activities.waking import start_settlement, wake_waiters
from settled.activities.withdrawing import subject_of, withdraw
from settled.workflows.contract.names import AGENT_TASK, DISPATCH, RECONCILE
from settled.workflows.contract.operation import Order, Outcome, Standing
from settled.workflows.errors import InvalidCall, ProtocolError
from settled.workflows.states import Event

BUSY_RECHECK_SECONDS = 5.0
STORE_RETRY_SECONDS = 600.0
"""How long an outcome is tried to be stored before the dispatch ends without it; a lookup finds it then."""
RECHECK_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An order, made ready: the tool, the arguments, and what the claim says."""

    order: Order
    task: str
    tool: WriteTool
    arguments: BaseModel
    person: Person
    claim: protocol.Claim


@dataclass(frozen=True)
class WriteActivities:
    """The activities, and what they work with."""

    stores: Stores
    registry: Registry

    @activity.defn(name=DISPATCH)
    async def dispatch(self, order: Order) -> Outcome:
        """Spend the order's permit: claim, send once, store the outcome, and say how things stand."""
        task = _task_of_this_activity()
        try:
            return await self._dispatch(order, task)
        # Whatever happens here, a failed activity would say less than an outcome does: the workflow asks again.
        except BaseException as error:
            activity.logger.warning("dispatch of %s did not end in order: %r", order.intent.key[:12], error)
            return Outcome(standing=Standing.WAIT, permit=order.permit, after=1.0)

    @activity.defn(name=RECONCILE)
    async def reconcile(self, order: Order) -> Outcome:
        """Say how the operation stands. A dispatch that left no trace is void from here on, and looked up."""
        task = _task_of_this_activity()
        try:
            prepared = await self._prepare(order, task)
        except InvalidCall as refused:
            return await self._refuse(order, task, str(refused))
        amended = await self.stores.ledger.amend(
            order.intent.key, lambda operation, now: protocol.miss(operation, prepared.claim, now)
        )
        return await self._stand(order, task, amended.operation)

    async def _dispatch(self, order: Order, task: str) -> Outcome:
        begun = steady()
        key = order.intent.key
        try:
            prepared = await self._prepare(order, task)
            amended = await self.stores.ledger.claim(key, prepared.claim)
        except InvalidCall as refused:
            return await self._refuse(order, task, str(refused))
        except Exception as error:
            if not unavailable(error):
                raise
            # Nothing was sent. If the claim was committed after all, asking again finds the permit spent.
            return Outcome(standing=Standing.SEND, permit=order.permit, after=BUSY_RECHECK_SECONDS)
        if amended.blocked_by:
            return await self._busy(order, task, amended.blocked_by)
        if amended.entry is None or amended.entry.event is not Event.CLAIMED:
            return await self._stand(order, task, amended.operation, repeated=True)
        ended = await send(
            prepared.tool,
            prepared.arguments,
            prepared.person,
            key=remote_key(key, order.intent.generation),
            deadline=begun + order.seconds,
        )
        if ended.failure is not None:
            activity.logger.warning(
                "%s, operation %s, permit %d: %s (%s)",
                order.tool,
                key[:12],
                order.permit,
                ended.event,
                ended.failure.text,
            )
        operation = await asyncio.shield(self._store_outcome(prepared, ended))
        if operation is None:
            await start_settlement(activity.client(), key, activity.info().task_queue)
            return Outcome(standing=Standing.WAIT, permit=order.permit, after=RECHECK_SECONDS)
        return await self._stand(order, task, operation)

    async def _prepare(self, order: Order, task: str) -> Prepared:
        """Everything that the claim needs, from the transcript and the tool's declaration.

        Raises:
            InvalidCall: the call can't be run by this worker as it was admitted.
        """
        record = await self.stores.tasks.get(task)
        if record is None:
            # The task is open, or it would not be here: the ledger has lost its past, and nothing is known.
            raise ProtocolError(f"the ledger doesn't know task {task}; was it restored from an older copy?")
        tool, arguments = await recall(self.stores.transcripts, self.registry, order.head, order.slot, order.tool)
        if not isinstance(tool, WriteTool):
            raise InvalidCall(f"{order.tool} is no write on this worker")
        try:
            same, shown = fingerprint(arguments) == order.intent.fingerprint, arguments.model_dump_json().encode()
        # A type that the registry let through, but that has no JSON form after all.
        except Exception as error:
            raise InvalidCall(f"the arguments of {order.tool} can't be stored: {error}") from error
        if not same:
            raise InvalidCall(f"{order.tool} reads its arguments in another way than when the call was admitted")
        subject = subject_of(order.intent, order.tool, record, await self.stores.artifacts.put(shown, JSON), shown)
        return Prepared(
            order=order,
            task=task,
            tool=tool,
            arguments=arguments,
            person=Person(tenant=record.tenant, principal=record.principal),
            claim=protocol.Claim(
                subject=subject,
                generation=order.intent.generation,
                permit=order.permit,
                seconds=order.seconds,
                task=task,
            ),
        )

    async def _store_outcome(self, prepared: Prepared, ended: Ended) -> Operation | None:
        """Store first, return second. None if the store can't be reached for long.

        It goes on trying when the activity's own time is over: what came out of an attempt is a fact, however late.
        """
        try:
            return (await patiently(lambda: self._record(prepared, ended), STORE_RETRY_SECONDS)).operation
        except Exception as error:
            activity.logger.error("the outcome of %s is not stored: %r", prepared.order.intent.key[:12], error)
            return None

    async def _record(self, prepared: Prepared, ended: Ended) -> Amended:
        body: dict[str, Any] = {}
        if ended.answer is not None:
            body["result"] = await self.stores.artifacts.put(
                json.dumps(ended.answer, ensure_ascii=False, sort_keys=True), JSON
            )
        if ended.failure is not None:
            body["failure"] = vars(ended.failure)
        report = protocol.Report(
            event=ended.event,
            generation=prepared.claim.generation,
            permit=prepared.claim.permit,
            task=prepared.task,
            body=body,
        )

        def decide(operation: Operation | None, now: float) -> Entry | None:
            assert operation is not None, "the claim's own row is in the journal"
            return protocol.report(operation, report, now)

        return await self.stores.ledger.amend(prepared.order.intent.key, decide)

    async def _busy(self, order: Order, task: str, blocker: str) -> Outcome:
        """Another operation holds a resource: wait until it is settled, then come back with the same permit."""
        ledger = self.stores.ledger
        await ledger.join(blocker, task, WaitsFor.RESOURCE)
        # Even while its attempt is out: whoever sent it may be dead, and then nobody else looks at it.
        await start_settlement(activity.client(), blocker, activity.info().task_queue)
        return Outcome(
            standing=Standing.SEND,
            permit=order.permit,
            after=BUSY_RECHECK_SECONDS,
            blocked_by=blocker,
            ledger=await ledger.view(task),
        )

    async def _refuse(self, order: Order, task: str, refused: str) -> Outcome:
        """This worker can't send. The permit is void, so that no frozen dispatch makes a lie of the answer."""
        operation = await withdraw(self.stores, activity.client(), order.intent, order.tool, task)
        return await self._stand(order, task, operation, refused=refused)

    async def _stand(
        self, order: Order, task: str, operation: Operation | None, *, refused: str = "", repeated: bool = False
    ) -> Outcome:
        """How the operation stands, for the workflow: the result, the next permit, or a wait that somebody ends."""
        repeated = repeated or (operation is not None and operation.claimed_by not in ("", task))
        stands = stand(operation, order, refused=refused, repeated=repeated)
        settled = stands.standing is Standing.SETTLED
        # Another request, or a newer intent, under the same key is none of this task's business.
        same = operation is not None and operation.subject.fingerprint == order.intent.fingerprint
        if operation is not None and same and operation.generation <= order.intent.generation:
            await self._note(operation, task, WaitsFor.NOTHING if settled or refused else WaitsFor.RESULT)
        return Outcome(
            standing=stands.standing,
            permit=stands.permit,
            after=stands.after,
            result=await settled_or_open(self.stores, order, stands, operation) if settled else None,
            ledger=await self.stores.ledger.view(task),
        )

    async def _note(self, operation: Operation, task: str, waits_for: WaitsFor) -> None:
        """Note what the task waits for, and see to it that whoever else waits is told, or a settlement is at work."""
        client, ledger = activity.client(), self.stores.ledger
        if operation.state.settled:
            # Before this task's own wait is taken back: after a reset, it is its other run that waits.
            await wake_waiters(client, ledger, operation)
        await ledger.join(operation.key, task, waits_for)
        if not operation.state.settled:
            await start_settlement(client, operation.key, activity.info().task_queue)


def _task_of_this_activity() -> str:
    """The task that this activity runs for: its workflow's id.

    Raises:
        ApplicationError: somebody runs a write beside our workflow.
    """
    info = activity.info()
    if info.workflow_type != AGENT_TASK or info.workflow_id is None:
        raise ApplicationError(
            f"{info.activity_type} runs only for an {AGENT_TASK} workflow", type="NotOurWorkflow", non_retryable=True
        )
    return info.workflow_id
