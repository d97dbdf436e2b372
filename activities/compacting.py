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

from settled.activities import retelling, summary
from settled.activities.composing import answer_calls, news_for
from settled.activities.model_provider import DEFAULT_CONTEXT_TOKENS, ModelLimits
from settled.activities.outputs import READ_OUTPUT, KeptOutput, reference
from settled.activities.rerooting import taken_over
from settled.activities.responses import Stored
from settled.activities.roots import Root
from settled.activities.stop_table import Means, Run, judge
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
MOST_OPERATIONS = 100_000
"""Operations of one task that are looked at."""
MOST_RESULTS = 30_000
"""Characters of the last results that the next conversation begins with."""

EMPTY_SUMMARY = "From the executor: your last response was empty. Answer with the summary."


def is_full(usage: Usage, context_tokens: int) -> bool:
    """Whether the next request would come close to what the model can read: it holds all that was read and written."""
    return usage.read_tokens + usage.output_tokens >= FULL * context_tokens


def context_of(root: Root, limits: ModelLimits) -> int:
    """Tokens that a conversation may have: as its profile says, but no more than the provider is known to allow."""
    known = [tokens for tokens in (root.context_tokens, limits.context_tokens) if tokens]
    return min(known, default=DEFAULT_CONTEXT_TOKENS)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A request for a summary."""

    chain: Sequence[Node]
    """Its conversation."""
    root: Root
    """Its conversation's root."""
    head: str
    """What is summed up."""
    stays: str
    """The head from which the same request is made again."""
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
        limit = {} if ask.max_tokens is None else {"max_tokens": ask.max_tokens}
        begun = await transcripts.chain(ask.head)
        begins_with = Root.of(begun[0])
        if not begins_with.sums_up:
            news = await news_for(self.stores, self.record.task, begun)
            head = await answer_calls(self.stores, ask.head, ask.results, news)
            most = None
        elif tries:
            head, most = begins_with.own(ask.head), retelling.size_of(begun[1].content)
        else:
            return Prepared(
                chain=begun,
                root=begins_with,
                head=begins_with.own(ask.head),
                stays=ask.head,
                parameters={**begins_with.parameters, **limit, "messages": view(begun)},
            )
        chain = await transcripts.chain(head)
        messages = view(chain)
        kept = await self._keep_results(messages)
        asking = self._root(Root.of(chain[0]), head)
        first = asking.node()
        text = make_node(
            first, Role.USER, retelling.request(messages, most or self._room(asking), kept, halvings=tries)
        )
        await transcripts.add(first, text)
        parameters = {**asking.parameters, **limit, "messages": view([first, text])}
        return Prepared(chain=[first, text], root=asking, head=head, stays=head, parameters=parameters)

    def _root(self, root: Root, head: str) -> Root:
        """The root of the request for a summary.

        Args:
            root: of what is summed up.
            head: where that ends.
        """
        return Root(
            parameters={"model": root.model, "max_tokens": self._max_tokens(root), "system": retelling.SYSTEM},
            context_tokens=root.context_tokens,
            replaces=head,
            why=Again.COMPACTED,
            fallback=root.fallback,
            max_tokens_most=root.max_tokens_most,
            prices=root.prices,
            sums_up=True,
        )

    def _room(self, asking: Root) -> int:
        """Bytes that the conversation may have in the request for its summary."""
        context_tokens = context_of(asking, self.limits)
        room = max(context_tokens // 4, int(FULL * context_tokens) - int(asking.parameters["max_tokens"]))
        return room * BYTES_PER_TOKEN

    async def conclude(self, stored: Stored, prepared: Prepared, means: Means) -> tuple[str, Resend | End]:
        """Judge the response like any other; returns the head to go on from, and what to do.

        Args:
            stored: the response.
            prepared: its request.
            means: what is left to go on with.
        """
        transcripts = self.stores.transcripts
        content, stopped = stored.message["content"], stored.message.get("stop_reason")
        answer = make_node(await transcripts.node(stored.asked), Role.ASSISTANT, content)
        await transcripts.add(answer)
        match judge(stopped, content, means, stored.message.get("stop_details")):
            case End(reason=EndReason.COMPLETED):
                said = await self._said(answer)
                return await self._go_on(await transcripts.chain(prepared.head), said), Resend(why=Again.COMPACTED)
            case Resend() as again:
                return await self._asked_again(again, prepared, answer), again
            case End(detail=detail):
                return prepared.head, exhausted(f"its summary stopped with {str(stopped)[:80]!r}: {detail}")
            case other:
                held = "calls" if other is Run.CALLS else "no more than its context has room for"
                return prepared.head, exhausted(f"its summary stopped with {str(stopped)[:80]!r} and held {held}")

    async def _asked_again(self, again: Resend, prepared: Prepared, answer: Node) -> str:
        """The head from which the summary is asked for once more."""
        transcripts = self.stores.transcripts
        match again.why:
            case Again.FALLBACK:
                return await taken_over(transcripts, prepared.head)
            case Again.PAUSED:
                return answer.digest
            case Again.EMPTY:
                said = make_node(answer, Role.USER, [{"type": "text", "text": EMPTY_SUMMARY}])
                await transcripts.add(said)
                return said.digest
            case _:
                return prepared.stays

    async def _said(self, answer: Node) -> str:
        """The summary: with what was said before a pause."""
        chain = await self.stores.transcripts.chain(answer.digest)
        said = [summary.words_of(node.content).strip() for node in chain[1:] if node.role is Role.ASSISTANT]
        return "\n".join(words for words in said if words)

    def _max_tokens(self, root: Root) -> int:
        """Tokens that the summary may have: as many as the model is known to allow, else as any response."""
        usual = int(root.parameters["max_tokens"])
        if self.limits.max_tokens is None:
            return usual
        return min(max(usual, root.max_tokens_most or 0), self.limits.max_tokens)

    async def _go_on(self, chain: Sequence[Node], said: str) -> str:
        root, messages = Root.of(chain[0]), view(chain)
        most = int(FULL * context_of(root, self.limits)) * BYTES_PER_TOKEN // 2
        operations = await self.stores.ledger.of_task(self.record.task, limit=MOST_OPERATIONS)
        blocks = summary.opening(
            goal=str(self.record.request["goal"]),
            summary=said,
            acted=await self._acted(operations),
            unnamed=len(operations) - len(summary.named(operations)),
            results=summary.last_results(messages, min(MOST_RESULTS, most // 4), most // 2),
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
