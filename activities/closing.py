"""`close_task` and `review`: how a task ends, by what the ledger says, never by what the loop remembers.

After a reset the loop has forgotten what was done; the ledger has not. Every call gets its result, true to the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from settled.activities.acceptance import Acceptance, faults_of_criteria, verdict_of
from settled.activities.admission import Grants, may_see
from settled.activities.artifacts import clean
from settled.activities.calls import proposed_calls
from settled.activities.composing import answer_calls, settled_or_open
from settled.activities.database import unavailable
from settled.activities.ledger_rows import WaitsFor
from settled.activities.lost import no_record
from settled.activities.presenting import LEFT, standing_text
from settled.activities.registry import Registry
from settled.activities.roots import Root
from settled.activities.standing import stand
from settled.activities.stores import Stores, TaskRecord
from settled.activities.transcript import Role
from settled.activities.waking import see_to_settlement
from settled.activities.withdrawing import withdraw
from settled.workflows.contract.calls import CallResult, ErrorKind
from settled.workflows.contract.ending import EndReason, Verdict
from settled.workflows.contract.loop import Ending
from settled.workflows.contract.names import CANNOT_CLOSE, CANNOT_JUDGE, CLOSE_TASK, REVIEW
from settled.workflows.contract.operation import LedgerView, Order
from settled.workflows.contract.result import Finding, TaskResult
from settled.workflows.contract.turn import Proposal
from settled.workflows.ending import status_of
from settled.workflows.errors import JournalConflict, TranscriptError
from settled.workflows.reporting import spent

MOST_FINAL_TEXT = 20_000
MOST_LINE = 500
MOST_JUDGES = 10
"""How often a worker is looked for that can judge: some two minutes, while a deploy goes on."""


@dataclass(frozen=True)
class ClosingActivities:
    """The activities, and what they work with."""

    stores: Stores
    registry: Registry

    @activity.defn(name=REVIEW)
    async def review(self) -> LedgerView:
        """The task's operations as they stand, with a settlement at work on each that isn't settled."""
        task, ledger = _task(), self.stores.ledger
        view = await ledger.view(task)
        for key, tool in await ledger.unsettled(task):
            # As for a resource: this run has no call that would spend a permit, so none must be issued on its account.
            await ledger.wait(key, task, WaitsFor.RESOURCE)
            await self._see_to(key, tool)
        return view

    @activity.defn(name=CLOSE_TASK)
    async def close_task(self, ending: Ending) -> TaskResult:
        """Withdraw what was not sent, answer every open call from the ledger, gather evidence, and say how it ended.

        Raises:
            ApplicationError: it can't be done, and trying again would not help.
        """
        try:
            return await self._close(ending)
        except Exception as error:
            if unavailable(error) or isinstance(error, RPCError | ApplicationError | JournalConflict | DBAPIError):
                raise
            # Anything else is the same next time: a task that says so is better than one that never ends.
            text = f"{type(error).__name__}: {error}"[:500]
            raise ApplicationError(text, type=CANNOT_CLOSE, non_retryable=True) from error

    async def _close(self, ending: Ending) -> TaskResult:
        task = _task()
        record = await self.stores.tasks.get(task)
        if record is None:
            raise no_record()
        state = ending.state
        head = await self._own(state.head)
        results = list(state.pending.results)
        waiting = state.pending.handed_over
        results += [
            await self._filler(call, head, record, handed_over=call.slot in waiting)
            for call in state.pending.open_calls()
        ]
        results += await self._never_admitted(head, {result.slot for result in results})
        answered = await answer_calls(self.stores, head, results)
        await self.stores.tasks.stands_at(task, answered, closed=True)
        await self._stop_waiting(task)
        reason, detail, verdict, findings = await self._judge(ending, record)
        view = await self.stores.ledger.view(task)
        return TaskResult(
            status=status_of(reason, verdict),
            end_reason=reason,
            detail=detail,
            verdict=verdict,
            findings=findings,
            final_text="" if reason is EndReason.REFUSED else await self._final_text(head),
            operations=tuple(await self.stores.ledger.of_task(task)),
            tally=view.tally,
            counters=state.counters,
            usage=state.usage,
            spent=spent(state.counters, state.usage),
            head=answered,
        )

    async def _own(self, head: str) -> str:
        """Where the task itself stands: it may have been in the middle of asking for a summary."""
        try:
            return Root.of(await self.stores.transcripts.root(head)).own(head)
        except TranscriptError:  # a transcript with a gap must not keep its task from ending
            return head

    async def _never_admitted(self, head: str, answered: set[int]) -> list[CallResult]:
        """The results of calls in a response that was not to be run: cut off, refused, malformed."""
        node = await self.stores.transcripts.node(head)
        calls = proposed_calls(node.content) if node.role is Role.ASSISTANT else []
        return [await self._not_run(call.slot) for call in calls if call.slot not in answered]

    async def _not_run(self, slot: int) -> CallResult:
        content = await self.stores.artifacts.put(standing_text(None)[1])
        return CallResult(slot=slot, error=ErrorKind.NOT_EXECUTED, content=content)

    async def _filler(self, call: Proposal, head: str, record: TaskRecord, *, handed_over: bool) -> CallResult:
        """The result of a call that has none: what the ledger knows of it, or that it was never run."""
        task = record.task
        if call.intent is None:
            return await self._not_run(call.slot)
        order = Order(
            head=head,
            slot=call.slot,
            tool=call.tool,
            intent=call.intent,
            permit=1,
            seconds=call.seconds,
            known=handed_over,
        )
        withdrawn = await withdraw(self.stores, self.registry, activity.client(), order, task)
        operation, refused = withdrawn.operation, LEFT if withdrawn.left else ""
        seen = operation is None or may_see(self.registry.named(call.tool), operation, record.principal)
        stands = stand(operation, order, refused=refused, seen=seen)
        return await settled_or_open(self.stores, order, task, stands, operation)

    async def _stop_waiting(self, task: str) -> None:
        """Leave what is unsettled to its settlements: they go on without this task, and send nothing for it."""
        for key, tool in await self.stores.ledger.unsettled(task):
            await self.stores.ledger.leave(key, task)
            await self._see_to(key, tool)

    async def _see_to(self, key: str, tool: str) -> None:
        await see_to_settlement(activity.client(), self.registry, key, tool, activity.info().task_queue)

    async def _judge(self, ending: Ending, record: TaskRecord) -> tuple[EndReason, str, Verdict, tuple[Finding, ...]]:
        """The end reason after acceptance: the model's own claim to be done is only where judging begins."""
        reason, detail = ending.end.reason, ending.end.detail
        if reason is not EndReason.COMPLETED:
            return reason, detail, Verdict.NOT_JUDGED, ()
        unsettled = (await self.stores.ledger.view(record.task)).tally.unsettled
        if unsettled:
            detail = f"{unsettled} operation(s) of this task are not settled"
            return EndReason.UNRESOLVED_OPERATION, detail, Verdict.NOT_JUDGED, ()
        grants = Grants(
            tools=self.registry.tools,
            principal=record.principal,
            realm=record.realm(activity.info().namespace),
        )
        self._must_know(record)
        findings = await Acceptance(self.stores, self.registry).gather(record.acceptance, grants)
        verdict = verdict_of(findings)
        if verdict is Verdict.NOT_ACCEPTED:
            failed = next(finding for finding in findings if not finding.passed)
            return EndReason.ACCEPTANCE_FAILED, failed.evidence, verdict, findings
        return reason, detail, verdict, findings

    def _must_know(self, record: TaskRecord) -> None:
        """The criteria were without a fault when the task was opened: whoever finds one is of another release.

        Raises:
            ApplicationError: another worker may do better. Not for ever: after some tries the fault is the finding.
        """
        faults = faults_of_criteria(record.acceptance, self.registry)
        if faults and activity.info().attempt < MOST_JUDGES:
            queue = activity.info().task_queue
            raise ApplicationError(
                f"this worker can't judge the task, let one that can serve {queue}: {'; '.join(faults)}"[:MOST_LINE],
                type=CANNOT_JUDGE,
            )

    async def _final_text(self, head: str) -> str:
        """The model's last words, those before a pause of the provider's among them: the turn is one."""
        node, said = await self.stores.transcripts.node(head), list[Any]()
        while node.role is Role.ASSISTANT:
            said = [*node.content, *said]
            if node.parent is None:
                break
            node = await self.stores.transcripts.node(node.parent)
        texts = [str(block.get("text", "")) for block in said if block.get("type") == "text"]
        return clean("\n".join(text for text in texts if text.strip())[:MOST_FINAL_TEXT])


def _task() -> str:
    return str(activity.info().workflow_id)
