"""`request_model`: one model request, and the judgement of its response. It writes no operation.

The response is stored as received under (run id, activity id) before anything is made of it: a retry after a lost
completion judges the same response again, instead of buying a second, different one.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from temporalio import activity

from settled.activities import stop_table
from settled.activities.artifacts import clean
from settled.activities.calls import is_server_call
from settled.activities.compacting import TRIES, Compaction, Prepared, exhausted, is_full
from settled.activities.composing import answer_calls, unknown_to
from settled.activities.database import patiently
from settled.activities.heartbeats import heartbeats
from settled.activities.lost import no_record
from settled.activities.model_errors import MOST_REQUEST_ID, Remedy, RequestFailed, Trouble, classify
from settled.activities.model_provider import MOST_TOKENS, Provider, Received
from settled.activities.no_response import OVERLOADS, OVERLOADS_BEFORE_FALLBACK, overloads, without_response
from settled.activities.prices import Prices
from settled.activities.progress import ModelProgress
from settled.activities.proposing import proposals_of
from settled.activities.publishing import publishing
from settled.activities.registry import Registry
from settled.activities.requests import changes_of, digest_of_request
from settled.activities.rerooting import taken_over
from settled.activities.responses import Purpose, Responses, Stored
from settled.activities.roots import Root
from settled.activities.stores import Stores, TaskRecord
from settled.activities.transcript import Role, make_node
from settled.activities.view import view
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.names import REQUEST_MODEL
from settled.workflows.contract.turn import Again, Ask, Compact, End, Next, Resend, RunBatches, Turn, Usage
from settled.workflows.errors import TranscriptError

MOST_PREVIEW = 200
FIRST_RESPONSE = 2
"""How deep in its conversation the first response stands."""
MOST_DETAIL = 1_000
STORE_RETRY_SECONDS = 240.0
"""How long the store may be away before an attempt of the request fails."""
EMPTY_RESPONSE = "From the executor: your last response was empty. Go on with the task, or say what it has come to."
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A model request that is about to be made."""

    asked: str
    """The node that it ends with."""
    root: Root
    """What its conversation shares."""
    parameters: dict[str, Any]
    """As it is sent."""
    purpose: Purpose = Purpose.TURN
    """What it is made for."""
    stream: bool = False
    """Whether its response is published while it arrives."""
    allowed: int | None = None
    """Tokens that its response may have, where the model has refused more."""

    def means(self, ask: Ask) -> stop_table.Means:
        """What is left to go on with, whatever it comes to."""
        max_tokens = int(self.parameters["max_tokens"])
        most = self.root.max_tokens_most or max_tokens
        return stop_table.Means(
            repeats=ask.repeats,
            max_tokens=max_tokens,
            max_tokens_most=min(most, self.allowed or most),
            fallback=bool(self.root.fallback),
            kept=ask.max_tokens,
        )


@dataclass(frozen=True)
class ModelActivities:
    """The activity, and what it works with."""

    stores: Stores
    registry: Registry
    provider: Provider
    prices: Prices

    @activity.defn(name=REQUEST_MODEL)
    async def request_model(self, ask: Ask) -> Turn:
        """Ask the model once, and say what the loop is to do.

        Raises:
            ApplicationError: the request failed; retryable where that may pass.
        """
        info = activity.info()
        record = await _patiently(lambda: self.stores.tasks.get(str(info.workflow_id)))
        if record is None:
            raise no_record()
        try:
            if ask.compact:
                return await self._compact(ask, record)
            request = await _patiently(lambda: self._compose(ask, record))
        except TranscriptError as error:
            broken = End(reason=EndReason.INVALID_RESPONSE, detail=str(error)[:MOST_DETAIL])
            ledger = await _patiently(lambda: self.stores.ledger.view(record.task))
            return Turn(head=ask.head, next=broken, attempts=info.attempt, ledger=ledger)
        try:
            stored = await self._stored_or_asked(request)
        except RequestFailed as failed:
            trouble = failed.trouble
            return await _patiently(lambda: self._go_on_without(trouble, request, ask, record))
        return await _patiently(lambda: self._judge(ask, request, stored, record))

    async def _compact(self, ask: Ask, record: TaskRecord) -> Turn:
        """Have the conversation summed up, and begin the one that goes on from it."""
        model = Root.of((await _patiently(lambda: self.stores.transcripts.chain(ask.head)))[0]).model
        compaction = Compaction(stores=self.stores, record=record, limits=await self.provider.limits(model))
        turn, tries = Turn(head=ask.head, next=Compact()), 0
        while isinstance(turn.next, Compact) and tries < TRIES:
            prepared = await _patiently(functools.partial(compaction.prepare, ask, tries))
            request = Request(
                asked=prepared.asked,
                root=prepared.root,
                parameters=prepared.parameters,
                purpose=Purpose.SUMMARY,
                allowed=self.provider.most_tokens(model),
            )
            try:
                stored = await self._stored_or_asked(request)
            except RequestFailed as failed:
                trouble = failed.trouble
                turn = await _patiently(functools.partial(self._without_summary, trouble, request, prepared, ask))
            else:
                head, command = await _patiently(
                    functools.partial(compaction.conclude, stored, prepared, request.means(ask))
                )
                turn = Turn(head=head, next=command, usage=self._usage(stored, request), request_id=stored.request_id)
            tries += 1
        if isinstance(turn.next, Compact):  # too long itself, by the provider's count
            turn = turn.model_copy(update={"next": exhausted("the request for its summary was too long, too")})
        again = isinstance(turn.next, Resend) and turn.next.why is not Again.COMPACTED
        return turn.model_copy(
            update={
                "requests": tries,
                "attempts": activity.info().attempt,
                "model": model,
                "context_full": again,
                "ledger": await _patiently(lambda: self.stores.ledger.view(record.task)),
            }
        )

    async def _without_summary(self, trouble: Trouble, request: Request, prepared: Prepared, ask: Ask) -> Turn:
        """What to do where there is no summary; `Compact` stands for a shorter request.

        Raises:
            ApplicationError: it is to be tried again, or given up.
        """
        # How often the conversation was summed up is no matter here: it is about to be.
        means = replace(request.means(ask), repeats=ask.repeats.model_copy(update={"compacted": 0}))
        command = await self._decided(trouble, request, means)
        head = prepared.stays
        if isinstance(command, Resend) and command.why is Again.FALLBACK:
            head = await taken_over(self.stores.transcripts, prepared.head)
        elif isinstance(command, End):
            head, command = prepared.head, exhausted(command.detail)
        elif isinstance(command, Compact):
            head = prepared.head
        return Turn(head=head, next=command, request_id=trouble.request_id)

    async def _compose(self, ask: Ask, record: TaskRecord) -> Request:
        chain = await self.stores.transcripts.chain(ask.head)
        news = unknown_to(chain, await self.stores.ledger.of_task(record.task))
        asked = await answer_calls(self.stores, ask.head, ask.results, news)
        if asked != ask.head:
            chain.append(await self.stores.transcripts.node(asked))
        root = Root.of(chain[0])
        allowed = self.provider.most_tokens(root.model)
        wanted = ask.max_tokens or int(root.parameters["max_tokens"])
        limit = {"max_tokens": min(wanted, allowed or wanted)}
        parameters = {**root.parameters, **limit, "messages": view(chain)}
        return Request(asked=asked, root=root, parameters=parameters, stream=ask.stream, allowed=allowed)

    async def _stored_or_asked(self, request: Request) -> Stored:
        """The response of an earlier attempt, or a new one; once it is bought, the store is given time to take it.

        Raises:
            RequestFailed: there is none.
        """
        info, responses = activity.info(), Responses(self.stores.database)
        run, asker = str(info.workflow_run_id), info.activity_id
        stored = await _patiently(lambda: responses.get(run, asker))
        if stored is not None:
            return stored
        received = await self._send(request)
        request_id = received.request_id[:MOST_REQUEST_ID]
        bought = Stored(
            asked=request.asked,
            message=received.message,
            request_id=request_id,
            task=str(info.workflow_id),
            model=request.root.model,
            purpose=request.purpose,
            changes=changes_of(request.root, request.parameters),
            sent=digest_of_request(request.parameters),
        )
        return await _patiently(lambda: responses.put(run, asker, bought))

    async def _send(self, request: Request) -> Received:
        progress = ModelProgress(request.root.model, activity.info().attempt)
        deadline = activity.info().start_to_close_timeout
        # A total deadline of our own: pings keep a stream alive for ever, and Temporal's timeout doesn't stop the code.
        seconds = deadline.total_seconds() * 0.9 if deadline else None
        try:
            async with heartbeats(progress.details), publishing(progress, wanted=request.stream):
                async with asyncio.timeout(seconds):
                    return await self.provider.send(request.parameters, progress.watch)
        # The SDK, its HTTP library and the stream raise many kinds; one function knows them all.
        except Exception as error:
            raise RequestFailed(classify(error)) from error

    async def _go_on_without(self, trouble: Trouble, request: Request, ask: Ask, record: TaskRecord) -> Turn:
        """What to do where the request brought no response.

        Raises:
            ApplicationError: it is to be tried again, or given up.
        """
        command = await self._decided(trouble, request, request.means(ask))
        return Turn(
            head=await self._goes_on_from(command, request.asked, request.asked),
            next=command,
            attempts=activity.info().attempt,
            model=request.root.model,
            request_id=trouble.request_id,
            ledger=await self.stores.ledger.view(record.task),
        )

    async def _decided(self, trouble: Trouble, request: Request, means: stop_table.Means) -> Resend | Compact | End:
        """What the loop is to do without a response.

        Raises:
            ApplicationError: the request is to be tried again, or given up.
        """
        model, info = request.root.model, activity.info()
        if trouble.remedy is Remedy.LOWER:
            allowed = trouble.allowed or (await self.provider.limits(model)).max_tokens
            trouble = replace(trouble, allowed=allowed)
            if allowed and allowed < means.max_tokens:
                self.provider.learn(model, allowed)
        in_a_row = overloads(trouble, info.heartbeat_details)
        most = info.retry_policy.maximum_attempts if info.retry_policy else 0
        enough = in_a_row >= OVERLOADS_BEFORE_FALLBACK or info.attempt == most
        command = without_response(trouble, means, tried_enough=enough)
        if command is None:
            activity.heartbeat({OVERLOADS: in_a_row})  # the next attempt is told so
            raise trouble.failure(info.attempt)
        return command

    async def _judge(self, ask: Ask, request: Request, stored: Stored, record: TaskRecord) -> Turn:
        content = stored.message["content"]
        reason, details = stored.message.get("stop_reason"), stored.message.get("stop_details")
        decided = stop_table.judge(reason, content, request.means(ask), details)
        command: Next = await self._proposals(content, record) if decided is stop_table.Run.CALLS else decided
        mentions = [call.intent.key for call in command.calls if call.intent] if isinstance(command, RunBatches) else []
        node = make_node(await self.stores.transcripts.node(stored.asked), Role.ASSISTANT, content, mentions)
        await self.stores.transcripts.add(node)
        usage = self._usage(stored, request)
        # With the goal alone in front of it there is nothing to sum up; before its calls are to be run it is too early.
        may_be_full = isinstance(command, RunBatches) and node.depth > FIRST_RESPONSE
        return Turn(
            head=await self._goes_on_from(command, stored.asked, node.digest),
            next=command,
            usage=usage,
            request_id=stored.request_id,
            attempts=activity.info().attempt,
            model=request.root.model,
            context_full=may_be_full and is_full(usage, await self._context_tokens(request.root)),
            server_calls=sum(is_server_call(block) for block in content),
            preview="" if stop_table.is_discarded(reason) else _preview(content),
            ledger=await self.stores.ledger.view(record.task),
        )

    async def _context_tokens(self, root: Root) -> int:
        return root.context_tokens or (await self.provider.limits(root.model)).context_tokens

    async def _proposals(self, content: list[Any], record: TaskRecord) -> RunBatches:
        return await proposals_of(content, record, activity.info().namespace, self.stores, self.registry)

    def _usage(self, stored: Stored, request: Request) -> Usage:
        root = request.root
        return self.prices.priced(_usage(stored.message), stored.message.get("model"), root.model, frozen=root.prices)

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


def _usage(message: dict[str, Any]) -> Usage:
    counted = message.get("usage")

    def number(name: str) -> int:
        value: Any = counted.get(name) if isinstance(counted, dict) else None
        is_count = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
        return int(value) if is_count else 0  # anything else is nonsense, and can't be reckoned with

    return Usage(
        input_tokens=number("input_tokens"),
        output_tokens=number("output_tokens"),
        cache_read_tokens=number("cache_read_input_tokens"),
        cache_write_tokens=number("cache_creation_input_tokens"),
    )


def _preview(content: list[Any]) -> str:
    texts = (str(block.get("text") or "").strip() for block in content if block.get("type") == "text")
    return clean(" ".join(text for text in texts if text)[:MOST_PREVIEW])


async def _patiently(action: Callable[[], Awaitable[T]]) -> T:
    """Give the store time: its outage is no fault of the model's, and must not use up the model's attempts."""
    async with heartbeats():
        return await patiently(action, STORE_RETRY_SECONDS)
