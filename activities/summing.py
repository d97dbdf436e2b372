"""Summing up: asking for a summary, with less each time that the request is too long, and what the loop is to do then.

What is asked, and what the summary leads to, is in `compacting`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from temporalio import activity

from settled.activities.asking import Asking, Request, given_time
from settled.activities.compacting import Compaction, Prepared, exhausted
from settled.activities.model_errors import RequestFailed, Trouble
from settled.activities.no_response import TOO_LONG, number_of
from settled.activities.rerooting import taken_over
from settled.activities.responses import Purpose
from settled.activities.roots import Root
from settled.activities.stores import Stores, TaskRecord
from settled.workflows.contract.turn import Again, Ask, Compact, End, Resend, Turn

TRIES = 3
"""Requests for one summary, each shorter than the one before, where the provider finds them too long."""


@dataclass(frozen=True, kw_only=True)
class Summing:
    """The way to a summary of one task's conversation."""

    stores: Stores
    asking: Asking
    record: TaskRecord

    async def sum_up(self, ask: Ask) -> Turn:
        """Have the conversation summed up, and begin the one that goes on from it.

        Raises:
            ApplicationError: the request failed; retryable where that may pass.
            TranscriptError: a call has no result.
        """
        model = Root.of(await given_time(lambda: self.stores.transcripts.root(ask.head))).model
        limits = await self.asking.provider.limits(model)
        compaction = Compaction(stores=self.stores, record=self.record, limits=limits)
        most = TRIES if ask.requests_left is None else min(TRIES, max(1, ask.requests_left))
        # What an attempt before has found too long isn't asked again.
        turn, tries = Turn(head=ask.head, next=Compact()), number_of(TOO_LONG, activity.info().heartbeat_details)
        while isinstance(turn.next, Compact) and tries < most:
            tries += 1
            turn = await self._once(compaction, ask, tries)
        if isinstance(turn.next, Compact) and tries == TRIES:  # too long itself, by the provider's count
            turn = turn.model_copy(update={"next": exhausted("the request for its summary was too long, too")})
        again = isinstance(turn.next, Resend) and turn.next.why is not Again.COMPACTED
        return turn.model_copy(
            update={
                "attempts": activity.info().attempt,
                "model": model,
                "context_full": again,
                "ledger": await given_time(lambda: self.stores.ledger.view(self.record.task)),
            }
        )

    async def _once(self, compaction: Compaction, ask: Ask, tries: int) -> Turn:
        """Ask for the summary, for the first time or once more; `Compact` stands for a shorter request."""
        prepared = await given_time(functools.partial(compaction.prepare, ask, tries - 1))
        request = Request(
            chain=prepared.chain,
            root=prepared.root,
            parameters=prepared.parameters,
            purpose=Purpose.SUMMARY,
            tries=tries,
            allowed=self.asking.provider.most_tokens(prepared.root.model),
        )
        try:
            stored = await self.asking.response(request)
        except RequestFailed as failed:
            return await given_time(functools.partial(self._without_summary, failed.trouble, request, prepared, ask))
        means = request.means(ask, stored.message["content"])
        head, command = await given_time(functools.partial(compaction.conclude, stored, prepared, means))
        usage = self.asking.usage(stored, request)
        # Not this attempt's tries: one before may have been lost with its completion.
        return Turn(head=head, next=command, usage=usage, request_id=stored.request_id, requests=stored.tries)

    async def _without_summary(self, trouble: Trouble, request: Request, prepared: Prepared, ask: Ask) -> Turn:
        """What to do where there is no summary; `Compact` stands for a shorter request.

        Raises:
            ApplicationError: it is to be tried again, or given up.
        """
        # How often the conversation was summed up is no matter here: it is about to be.
        means = replace(request.means(ask), repeats=ask.repeats.model_copy(update={"compacted": 0}))
        command = await self.asking.without_response(trouble, request, means)
        head = prepared.stays
        if isinstance(command, Resend) and command.why is Again.FALLBACK:
            head = await taken_over(self.stores.transcripts, prepared.head)
        elif isinstance(command, End):
            head, command = prepared.head, exhausted(command.detail)
        elif isinstance(command, Compact):
            head = prepared.head
        return Turn(head=head, next=command, request_id=trouble.request_id, requests=request.tries)
