"""Compaction: a conversation that gets too long is summed up by the model, and goes on in a new one.

    root ◀── goal ◀── … ◀── results                     the conversation
    root ◀── the conversation as text ◀── summary       the request for its summary
    root ◀── goal, summary, operations, last results    the conversation that goes on

All three stand in the transcript. The first one is never changed; the roots of the others name the head that they go
on from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from settled.activities import summary
from settled.activities.composing import answer_calls, unknown_to
from settled.activities.model_provider import ModelLimits
from settled.activities.outputs import READ_OUTPUT, KeptOutput, reference
from settled.activities.responses import Stored
from settled.activities.roots import Root
from settled.activities.stores import Stores, TaskRecord
from settled.activities.transcript import Node, Role, make_node
from settled.activities.view import view
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.operation import OperationView
from settled.workflows.contract.turn import Again, Ask, End, Resend, Usage

FULL = 0.8
"""The share of what the model can read from which on a conversation is summed up."""
BYTES_PER_TOKEN = 3
"""Fewer than there are in plain English: what doesn't fit is refused, and costs another request."""
TRIES = 3
"""Requests for one summary, each shorter than the one before, where the provider finds them too long."""
MOST_OPERATIONS = 100_000
"""Operations of one task that are looked at."""
MOST_RESULTS = 30_000
"""Characters of the last results that the next conversation begins with."""


def is_full(usage: Usage, context_tokens: int) -> bool:
    """Whether the next request would come close to what the model can read: it holds all that was read and written."""
    return usage.read_tokens + usage.output_tokens >= FULL * context_tokens


def context_of(root: Root, limits: ModelLimits) -> int:
    """Tokens that a conversation may have: as its profile says, else as the provider does."""
    return root.context_tokens or limits.context_tokens


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A request for a summary."""

    asked: str
    """The node that it ends with."""
    root: Root
    """Its conversation's root."""
    head: str
    """What is summed up."""
    parameters: dict[str, Any]
    """As it is sent."""


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """The summing up of one task's conversation."""

    stores: Stores
    record: TaskRecord
    limits: ModelLimits
    """What the model can do."""

    async def prepare(self, ask: Ask, tries: int = 0) -> Prepared:
        """Answer the pending calls, and make the request for the summary.

        Args:
            ask: what the model was to be asked.
            tries: how many such requests were too long.

        Raises:
            TranscriptError: a call has no result.
        """
        transcripts = self.stores.transcripts
        news = unknown_to(await transcripts.chain(ask.head), await self.stores.ledger.of_task(self.record.task))
        head = await answer_calls(self.stores, ask.head, ask.results, news)
        chain = await transcripts.chain(head)
        root, messages = Root.of(chain[0]), view(chain)
        kept = await self._keep_results(messages)
        context_tokens = context_of(root, self.limits)
        max_tokens = max(int(root.parameters["max_tokens"]), root.max_tokens_most or 0)
        max_tokens = min(max_tokens, self.limits.max_tokens or max_tokens)
        asking = Root(
            parameters={"model": root.model, "max_tokens": max_tokens, "system": summary.SYSTEM},
            context_tokens=root.context_tokens,
            replaces=head,
            why=Again.COMPACTED,
        )
        room = max(context_tokens // 4, int(FULL * context_tokens) - max_tokens)
        first = asking.node()
        text = make_node(first, Role.USER, summary.request(messages, room * BYTES_PER_TOKEN // 2**tries, kept))
        await transcripts.add(first, text)
        parameters = {**asking.parameters, "messages": view([first, text])}
        return Prepared(asked=text.digest, root=asking, head=head, parameters=parameters)

    async def conclude(self, stored: Stored) -> tuple[str, Resend | End]:
        """Take the summary, and begin the conversation that goes on from it; returns its head, and what to do."""
        transcripts = self.stores.transcripts
        asking = await transcripts.chain(stored.asked)
        content = stored.message["content"]
        await transcripts.add(make_node(asking[-1], Role.ASSISTANT, content))
        head = Root.of(asking[0]).replaces
        assert head is not None, "the root of such a request names what is summed up"
        said, stopped = summary.words_of(content).strip(), stored.message.get("stop_reason")
        if stopped != "end_turn" or not said:
            return head, exhausted(f"its summary stopped with {str(stopped)[:80]!r} and held {len(said)} characters")
        return await self._go_on(await transcripts.chain(head), said), Resend(why=Again.COMPACTED)

    async def _go_on(self, chain: Sequence[Node], said: str) -> str:
        root, messages = Root.of(chain[0]), view(chain)
        most = int(FULL * context_of(root, self.limits)) * BYTES_PER_TOKEN // 2
        operations = await self.stores.ledger.of_task(self.record.task, limit=MOST_OPERATIONS)
        blocks = summary.opening(
            goal=str(self.record.request["goal"]),
            summary=said,
            acted=await self._acted(operations),
            unnamed=len(operations) - len(summary.named(operations)),
            results=summary.last_results(messages, min(MOST_RESULTS, most // 4)),
            outputs=await self._outputs(),
            most=most,
        )
        first = root.model_copy(update={"replaces": chain[-1].digest, "why": Again.COMPACTED}).node()
        told = make_node(first, Role.USER, blocks, [operation.key for operation in operations])
        await self.stores.transcripts.add(first, told)
        return told.digest

    async def _keep_results(self, messages: Sequence[Any]) -> set[str]:
        """Keep long results readable, where the task has the tool for that; returns their names."""
        if READ_OUTPUT not in self.record.tools:
            return set()
        results = summary.results_worth_keeping(messages)
        for tool, text in results:
            await self.stores.outputs.note(self.record.task, tool, text)
        return {reference(text) for _, text in results}

    async def _outputs(self) -> list[KeptOutput]:
        if READ_OUTPUT not in self.record.tools:
            return []
        return await self.stores.outputs.of_task(self.record.task, limit=summary.MOST_OUTPUTS)

    async def _acted(self, operations: Sequence[OperationView]) -> list[summary.Acted]:
        """The operations that are named, with what was asked of those that were done in this task's own name."""
        named = summary.named(operations)
        standing = [await self.stores.ledger.read(operation.key) for operation in named]
        return [
            summary.Acted(
                view=view,
                arguments=one.subject.shown if one and one.subject.principal == self.record.principal else "",
            )
            for view, one in zip(named, standing, strict=True)
        ]


def exhausted(why: str) -> End:
    """The end of a task whose conversation can't be summed up."""
    return End(
        reason=EndReason.CONTEXT_EXHAUSTED,
        detail=f"the conversation doesn't fit the model's context, and could not be summed up: {why}",
    )
