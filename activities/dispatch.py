"""The write side of the operation protocol, as activities: `dispatch` sends once, `reconcile` asks how things stand.

Neither ever fails a write: `dispatch` catches everything and returns an outcome. What holds is the permit, not
Temporal's attempt count: the claim is committed before the first byte, and the ledger refuses it to all who come late.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection
from temporalio import activity
from temporalio.exceptions import ApplicationError

from settled.activities import protocol
from settled.activities.apart import apart
from settled.activities.artifacts import JSON
from settled.activities.attempt import Ended, Person, Terms, send
from settled.activities.database import patiently, unavailable
from settled.activities.journal import Operation
from settled.activities.keys import remote_key, undoes_key_of
from settled.activities.ledger import Amended
from settled.activities.outcomes import BUSY_RECHECK_SECONDS, Outcomes
from settled.activities.preparing import Prepared, prepare
from settled.activities.presenting import LEFT
from settled.activities.registry import Registry
from settled.activities.steady import steady
from settled.activities.stores import Stores
from settled.activities.waking import start_settlement
from settled.activities.withdrawing import withdraw
from settled.workflows.contract.names import AGENT_TASK, DISPATCH, RECONCILE
from settled.workflows.contract.operation import Order, Outcome, Standing
from settled.workflows.errors import InvalidCall, OutdatedWorker, TaskLost
from settled.workflows.states import Event

STORE_RETRY_SECONDS = 600.0
"""How long an outcome is tried to be stored before the dispatch ends without it; a lookup finds it then."""
RECHECK_SECONDS = 10.0


@dataclass(frozen=True)
class WriteActivities:
    """The activities, and what they work with."""

    stores: Stores
    registry: Registry

    @property
    def outcomes(self) -> Outcomes:
        """What makes their answers."""
        return Outcomes(stores=self.stores, registry=self.registry)

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
            prepared = await prepare(self.stores, self.registry, order, task)
        except InvalidCall as refused:
            return await self._refuse(order, task, str(refused))
        except TaskLost:
            return await self.outcomes.lost(order)
        amended = await self.stores.ledger.miss(order.intent.key, prepared.claim)
        return await self.outcomes.stand(order, task, amended.operation)

    async def _dispatch(self, order: Order, task: str) -> Outcome:
        begun = steady()
        try:
            prepared = await prepare(self.stores, self.registry, order, task)
            if prepared.tool.transactional:
                return await self._transact(prepared, begun)
            amended = await self.stores.ledger.claim(order.intent.key, prepared.claim)
        except InvalidCall as refused:
            return await self._refuse(order, task, str(refused))
        except Exception as error:
            if not unavailable(error) and not isinstance(error, OutdatedWorker):
                raise
            # Nothing was sent. If the claim was committed after all, asking again finds the permit spent.
            return Outcome(standing=Standing.SEND, permit=order.permit, after=BUSY_RECHECK_SECONDS)
        if (outcome := await self._not_claimed(order, task, amended)) is not None:
            return outcome
        assert amended.operation is not None, "it was claimed"
        ended = await _send(prepared, amended.operation, begun)
        _tell(prepared, ended)
        operation = await asyncio.shield(self._store_outcome(prepared, ended))
        if operation is None:
            await start_settlement(activity.client(), order.intent.key, activity.info().task_queue)
            return Outcome(standing=Standing.WAIT, permit=order.permit, after=RECHECK_SECONDS)
        return await self.outcomes.stand(order, task, operation)

    async def _not_claimed(self, order: Order, task: str, amended: Amended) -> Outcome | None:
        """The outcome of a claim that was not granted; None if it was."""
        if amended.blocked_by:
            return await self.outcomes.busy(order, task, amended)
        if amended.refused:
            return await self._refuse(order, task, amended.refused)
        if amended.entry is None or amended.entry.event is not Event.CLAIMED:
            return await self.outcomes.stand(order, task, amended.operation, repeated=True)
        return None

    async def _transact(self, prepared: Prepared, begun: float) -> Outcome:
        """Claim, effect and outcome in one transaction. A failure leaves nothing behind, and is noted after it."""
        order, ledger = prepared.order, self.stores.ledger
        failed: Ended | None = None

        async def work(connection: AsyncConnection, claimed: Operation) -> protocol.Report:
            nonlocal failed
            ended = await _send(prepared, claimed, begun, connection)
            if ended.event is not Event.SUCCEEDED:
                failed = ended
                raise RolledBack
            return await self._report(prepared, ended, connection)

        try:
            amended = await ledger.transact(order.intent.key, prepared.claim, work)
        except RolledBack:
            assert failed is not None, "that is why"
            amended = await self._note_rolled_back(prepared, failed)
        outcome = await self._not_claimed(order, prepared.task, amended)
        return outcome or await self.outcomes.stand(order, prepared.task, amended.operation)

    async def _note_rolled_back(self, prepared: Prepared, failed: Ended) -> Amended:
        """The claim, and that nothing came of it: the effect was rolled back, whatever the tool has raised."""
        _tell(prepared, failed)
        ended = failed if failed.event is Event.DECLINED else failed.without_effect()

        async def nothing(connection: AsyncConnection, _claimed: Operation) -> protocol.Report:
            return await self._report(prepared, ended, connection)

        return await self.stores.ledger.transact(prepared.order.intent.key, prepared.claim, nothing)

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
        report = await self._report(prepared, ended)
        key = prepared.order.intent.key
        return await self.stores.ledger.amend(key, lambda operation, now: protocol.report(operation, report, now))

    async def _report(
        self, prepared: Prepared, ended: Ended, connection: AsyncConnection | None = None
    ) -> protocol.Report:
        body: dict[str, Any] = {}
        if (answer := ended.answer) is not None:
            text = await apart(lambda: json.dumps(answer, ensure_ascii=False, sort_keys=True), answer)
            body["result"] = await self.stores.artifacts.put(text, JSON, connection)
        if ended.failure is not None:
            body["failure"] = vars(ended.failure)
        return protocol.Report(
            event=ended.event,
            generation=prepared.claim.generation,
            permit=prepared.claim.permit,
            task=prepared.task,
            body=body,
            dedupes=prepared.tool.dedupes is not None,
        )

    async def _refuse(self, order: Order, task: str, refused: str) -> Outcome:
        """This worker can't send. The permit is void, so that no frozen dispatch makes a lie of the answer."""
        withdrawn = await withdraw(self.stores, self.registry, activity.client(), order, task)
        text = LEFT if withdrawn.left else refused
        return await self.outcomes.stand(order, task, withdrawn.operation, refused=text)


class RolledBack(Exception):
    """A transactional tool did not succeed: nothing of the transaction is kept."""


async def _send(
    prepared: Prepared, claimed: Operation, begun: float, connection: AsyncConnection | None = None
) -> Ended:
    """Send what was claimed, in the name of who opened it: a second task's claim is a resend of the same request."""
    terms = Terms(
        key=remote_key(claimed.key, claimed.generation),
        undoes_key=undoes_key_of(claimed.subject),
        deadline=begun + prepared.order.seconds,
        connection=connection,
    )
    return await send(prepared.tool, prepared.arguments, Person.behind(claimed.subject), terms)


def _tell(prepared: Prepared, ended: Ended) -> None:
    order = prepared.order
    if ended.failure is not None:
        said = (order.tool, order.intent.key[:12], order.permit, ended.event, ended.failure.text)
        activity.logger.warning("%s, operation %s, permit %d: %s (%s)", *said)


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
