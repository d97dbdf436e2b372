"""From the calls of a response to proposals: what each means, or the refusal that answers it, and in which batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from settled.activities import admission
from settled.activities.artifacts import clean
from settled.activities.calls import proposed_calls
from settled.activities.intents import Earlier, Meanings
from settled.activities.presenting import failure_text
from settled.activities.registry import Registry
from settled.activities.stores import Stores, TaskRecord
from settled.activities.tool_errors import Failure, Phase
from settled.activities.toolkit import WriteTool
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.operation import OperationState
from settled.workflows.contract.turn import Proposal, RunBatches


async def proposals_of(
    content: list[Any], record: TaskRecord, namespace: str, stores: Stores, registry: Registry
) -> RunBatches:
    """The calls of a response, each with what it means or with its refusal.

    Args:
        content: the blocks of the response.
        record: the task's.
        namespace: Temporal's, a part of the keys.
        stores: where operations stand, and refusals are stored.
        registry: the worker's tools.
    """
    grants = admission.Grants(
        tools={name: registry.tools[name] for name in record.tools if name in registry.tools},
        principal=record.principal,
        realm=record.realm(namespace),
    )
    desk = _Desk(stores, registry, grants)
    proposals: list[Proposal] = []
    admitted: dict[int, admission.Admitted] = {}
    for call in proposed_calls(content):
        checked = admission.admit(call, grants)
        if isinstance(checked, admission.Admitted):
            admitted[call.slot] = checked
        proposals.append(await desk.propose(checked))
    return RunBatches(calls=tuple(proposals), batches=admission.batches(proposals, admitted))


@dataclass
class _Desk:
    """The calls of one response, one after the other."""

    stores: Stores
    registry: Registry
    grants: admission.Grants
    earlier: Earlier = field(default_factory=Earlier)
    """What the calls before mean to do."""

    async def propose(self, checked: admission.Admitted | admission.Refusal) -> Proposal:
        proposal = await self._meant(checked) if isinstance(checked, admission.Admitted) else checked
        return await self._answered(proposal) if isinstance(proposal, admission.Refusal) else proposal

    async def _meant(self, checked: admission.Admitted) -> Proposal | admission.Refusal:
        if not isinstance(checked.tool, WriteTool):
            return admission.propose(checked, self.grants, None)
        meanings = Meanings(registry=self.registry, read=self.stores.ledger.read, realm=self.grants.realm)
        meant = await meanings.of(checked.tool, checked.arguments, self.earlier)
        proposal = admission.propose(checked, self.grants, meant)
        if isinstance(proposal, Proposal) and proposal.intent is not None:
            self.earlier.add(proposal.intent)
        return proposal

    async def _answered(self, refusal: admission.Refusal) -> Proposal:
        """A proposal that already has its result: the refusal."""
        failure = Failure(kind=refusal.kind, phase=Phase.BEFORE_SEND, text=refusal.text)
        text = failure_text(failure, status=OperationState.NOT_EXECUTED)
        answer = CallResult(slot=refusal.slot, error=refusal.kind, content=await self.stores.artifacts.put(text))
        return Proposal(
            slot=refusal.slot,
            call_id=clean(refusal.call_id[: admission.MOST_ID]),
            tool=clean(refusal.tool[: admission.MOST_ID]),
            answer=answer,
        )
