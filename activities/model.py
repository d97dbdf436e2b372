"""`request_model`: one model request, and the judgement of its response. It writes no operation.

How a response is got is in `asking`, how a conversation is summed up in `summing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from temporalio import activity

from settled.activities import stop_table
from settled.activities.artifacts import clean
from settled.activities.asking import Asking, Request, given_time, thinking_of
from settled.activities.calls import is_server_call
from settled.activities.compacting import context_of, is_full
from settled.activities.composing import answer_calls, news_for
from settled.activities.lost import no_record
from settled.activities.model_errors import RequestFailed, Trouble
from settled.activities.proposing import proposals_of
from settled.activities.registry import Registry
from settled.activities.rerooting import taken_over
from settled.activities.responses import Stored
from settled.activities.roots import Root
from settled.activities.stores import Stores, TaskRecord
from settled.activities.summing import Summing
from settled.activities.transcript import Role, make_node
from settled.activities.view import view
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.names import REQUEST_MODEL
from settled.workflows.contract.turn import Again, Ask, Compact, End, Next, Resend, RunBatches, Turn
from settled.workflows.errors import TranscriptError

MOST_PREVIEW = 200
FIRST_RESPONSE = 2
"""How deep in its conversation the first response stands."""
MOST_DETAIL = 1_000
EMPTY_RESPONSE = "From the executor: your last response was empty. Go on with the task, or say what it has come to."


@dataclass(frozen=True)
class ModelActivities:
    """The activity, and what it works with."""

    stores: Stores
    registry: Registry
    asking: Asking

    @activity.defn(name=REQUEST_MODEL)
    async def request_model(self, ask: Ask) -> Turn:
        """Ask the model once, and say what the loop is to do.

        Raises:
            ApplicationError: the request failed; retryable where that may pass.
        """
        info = activity.info()
        record = await given_time(lambda: self.stores.tasks.get(str(info.workflow_id)))
        if record is None:
            raise no_record()
        try:
            if ask.compact:
                summing = Summing(stores=self.stores, asking=self.asking, record=record)
                return await summing.sum_up(ask)
            request = await given_time(lambda: self._compose(ask, record))
        except TranscriptError as error:
            broken = End(reason=EndReason.INVALID_RESPONSE, detail=str(error)[:MOST_DETAIL])
            ledger = await given_time(lambda: self.stores.ledger.view(record.task))
            return Turn(head=ask.head, next=broken, attempts=info.attempt, ledger=ledger)
        try:
            stored = await self.asking.response(request)
        except RequestFailed as failed:
            trouble = failed.trouble
            return await given_time(lambda: self._go_on_without(trouble, request, ask, record))
        return await given_time(lambda: self._judge(ask, request, stored, record))

    async def _compose(self, ask: Ask, record: TaskRecord) -> Request:
        chain = await self.stores.transcripts.chain(ask.head)
        news = await news_for(self.stores, record.task, chain)
        asked = await answer_calls(self.stores, ask.head, ask.results, news)
        if asked != ask.head:
            chain.append(await self.stores.transcripts.node(asked))
        root = Root.of(chain[0])
        allowed = self.asking.provider.most_tokens(root.model)
        wanted = ask.max_tokens or int(root.parameters["max_tokens"])
        # A limit that leaves nothing besides the thinking would be refused for that; the answer to this one says why.
        limit = {"max_tokens": min(wanted, allowed) if allowed and allowed > thinking_of(root.parameters) else wanted}
        parameters = {**root.parameters, **limit, "messages": view(chain)}
        return Request(
            chain=chain,
            root=root,
            parameters=parameters,
            stream=ask.stream,
            allowed=allowed,
            cut_short=ask.cut_short,
        )

    async def _go_on_without(self, trouble: Trouble, request: Request, ask: Ask, record: TaskRecord) -> Turn:
        """What to do where the request brought no response.

        Raises:
            ApplicationError: it is to be tried again, or given up.
        """
        command = await self.asking.without_response(trouble, request, request.means(ask))
        return Turn(
            head=await self._goes_on_from(command, request.asked, request.asked),
            next=command,
            attempts=activity.info().attempt,
            model=request.root.model,
            request_id=trouble.request_id,
            ledger=await self.stores.ledger.view(record.task),
        )

    async def _judge(self, ask: Ask, request: Request, stored: Stored, record: TaskRecord) -> Turn:
        content = stored.message["content"]
        reason, details = stored.message.get("stop_reason"), stored.message.get("stop_details")
        decided = stop_table.judge(reason, content, request.means(ask, content), details)
        command: Next = await self._proposals(content, record) if decided is stop_table.Run.CALLS else decided
        mentions = [call.intent.key for call in command.calls if call.intent] if isinstance(command, RunBatches) else []
        node = make_node(await self.stores.transcripts.node(stored.asked), Role.ASSISTANT, content, mentions)
        await self.stores.transcripts.add(node)
        usage = self.asking.usage(stored, request)
        # With the goal alone in front of it there is nothing to sum up; before its calls are to be run it is too early.
        may_be_full = isinstance(command, RunBatches) and node.depth > FIRST_RESPONSE
        return Turn(
            head=await self._goes_on_from(command, stored.asked, node.digest),
            next=command,
            usage=usage,
            request_id=stored.request_id,
            attempts=activity.info().attempt,
            model=request.root.model,
            taken_over=stored.taken_over,
            context_full=may_be_full and is_full(usage, await self._context_of(request.root)),
            server_calls=sum(is_server_call(block) for block in content),
            preview="" if stop_table.is_discarded(reason) else _preview(content),
            ledger=await self.stores.ledger.view(record.task),
        )

    async def _context_of(self, root: Root) -> int:
        return context_of(root, await self.asking.provider.limits(root.model))

    async def _proposals(self, content: list[Any], record: TaskRecord) -> RunBatches:
        return await proposals_of(content, record, activity.info().namespace, self.stores, self.registry)

    async def _goes_on_from(self, command: Next, asked: str, answered: str) -> str:
        """The head of what is asked next.

        Args:
            command: what the loop is to do.
            asked: the node that the request ended with.
            answered: the node of the response; the same where there was none.
        """
        transcripts = self.stores.transcripts
        match command:
            case Resend(why=Again.TRUNCATED | Again.MALFORMED | Again.LOWERED) | Compact():
                return asked  # the response stays in the store, and is left out of the conversation
            case Resend(why=Again.FALLBACK):
                return await taken_over(transcripts, asked)
            case Resend(why=Again.EMPTY):
                said = make_node(
                    await transcripts.node(answered), Role.USER, [{"type": "text", "text": EMPTY_RESPONSE}]
                )
                await transcripts.add(said)
                return said.digest
            case _:
                return answered


def _preview(content: list[Any]) -> str:
    texts = (str(block.get("text") or "").strip() for block in content if block.get("type") == "text")
    return clean(" ".join(text for text in texts if text)[:MOST_PREVIEW])
