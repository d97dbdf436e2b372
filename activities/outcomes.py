"""What a workflow is told of its order: how the operation stands, its result, and who will wake it."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio import activity

from settled.activities import protocol
from settled.activities.admission import may_see
from settled.activities.composing import settled_or_open
from settled.activities.journal import Operation
from settled.activities.ledger import Amended
from settled.activities.ledger_rows import WaitsFor
from settled.activities.presenting import ADVICE
from settled.activities.registry import Registry
from settled.activities.standing import stand
from settled.activities.stores import Stores
from settled.activities.waking import see_to_settlement, wake_waiters
from settled.workflows.contract.calls import CallResult, ErrorKind
from settled.workflows.contract.operation import Intent, OperationState, Order, Outcome, Standing

BUSY_RECHECK_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Makes outcomes, and sees to it that whoever waits is woken."""

    stores: Stores
    registry: Registry

    async def busy(self, order: Order, task: str, amended: Amended) -> Outcome:
        """Another operation comes first: wait until it is settled, then come back with the same permit."""
        ledger, blocker = self.stores.ledger, amended.blocked_by
        assert blocker is not None, "something is in the way"
        after = BUSY_RECHECK_SECONDS if amended.turn_after is None else amended.turn_after
        if amended.turn_after is None and (forsaken := await self._forsaken(blocker)) is not None:
            # Even while its attempt is out: whoever sent it may be dead, and then nobody else looks at it.
            await self._see_to(forsaken)
        return Outcome(
            standing=Standing.SEND,
            permit=order.permit,
            after=min(after, BUSY_RECHECK_SECONDS),
            blocked_by=blocker,
            ledger=await ledger.view(task),
        )

    async def _forsaken(self, key: str) -> Operation | None:
        """The operation, if somebody should look after it: it isn't settled, and no attempt is on its way."""
        operation = await self.stores.ledger.read(key)
        if operation is None or operation.state.settled:
            return None
        on_its_way = operation.state is OperationState.DISPATCHED
        gone = not on_its_way or await self.stores.ledger.now() > operation.attempts[-1].deadline
        return operation if gone else None

    async def _see_to(self, operation: Operation) -> None:
        tool, task_queue = operation.subject.tool, activity.info().task_queue
        await see_to_settlement(activity.client(), self.registry, operation.key, tool, task_queue)

    async def stand(
        self, order: Order, task: str, operation: Operation | None, *, refused: str = "", repeated: bool = False
    ) -> Outcome:
        """How the operation stands, for the workflow: the result, the next permit, or a wait that somebody ends."""
        repeated = repeated or (operation is not None and operation.claimed_by not in ("", task))
        seen = operation is None or await self._may_see(order, task, operation)
        stands = stand(operation, order, refused=refused, repeated=repeated, seen=seen)
        settled = stands.standing is Standing.SETTLED
        if operation is not None and not _is_meant(operation, order.intent):
            # None of this task's business. Its claim may have waited under the key, when nothing stood there yet.
            await self.stores.ledger.leave(operation.key, task)
        elif operation is not None:
            waits = not settled and not refused
            # For an earlier generation no permit is wanted: this order can't spend it.
            mine = WaitsFor.RESULT if operation.generation == order.intent.generation else WaitsFor.RESOURCE
            await self._note(operation, task, mine if waits else WaitsFor.NOTHING)
            now = await self.stores.ledger.read(operation.key)
            if waits and now is not None and now.seq != operation.seq:
                # It has changed meanwhile, and whoever changed it may not have seen this wait: nobody would tell.
                return await self.stand(order, task, now, repeated=repeated)
        return Outcome(
            standing=stands.standing,
            permit=stands.permit,
            generation=operation.generation if operation else None,
            after=stands.after,
            result=await settled_or_open(self.stores, order, task, stands, operation) if settled else None,
            ledger=await self.stores.ledger.view(task),
        )

    async def lost(self, order: Order) -> Outcome:
        """The ledger doesn't know the task: it was restored from an older copy, and nothing is known."""
        content = await self.stores.artifacts.put(ADVICE[OperationState.UNKNOWN])
        result = CallResult(slot=order.slot, error=ErrorKind.UNKNOWN_RESULT, content=content)
        return Outcome(standing=Standing.SETTLED, permit=order.permit, result=result)

    async def _may_see(self, order: Order, task: str, operation: Operation) -> bool:
        # Not by who has sent it: a second task sends it in the first one's name.
        record = await self.stores.tasks.get(task)
        return may_see(self.registry.named(order.tool), operation, record.principal if record else "")

    async def _note(self, operation: Operation, task: str, waits_for: WaitsFor) -> None:
        """Note what the task waits for, and see to it that whoever else waits is told, or a settlement is at work."""
        ledger = self.stores.ledger
        if operation.state.settled:
            # Before this task's own wait is taken back: after a reset, it is its other run that waits.
            await wake_waiters(activity.client(), ledger, operation)
        await ledger.join(operation.key, task, waits_for)
        if not operation.state.settled:
            await self._see_to(operation)


def _is_meant(operation: Operation | None, intent: Intent) -> bool:
    """Whether it is what the intent has opened or joined: the same request, and no other generation."""
    if operation is None or operation.subject.fingerprint != intent.fingerprint:
        return False
    return operation.generation <= intent.generation and not protocol.opens(operation, intent.generation)
