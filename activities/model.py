"""`request_model`: one model request, and the judgement of its response. It writes no operation.

The response is stored as received under (run id, activity id) before anything is made of it: a retry after a lost
completion judges the same response again, instead of buying a second, different one.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from temporalio import activity

from settled.activities import admission, schema, stop_table
from settled.activities.artifacts import clean
from settled.activities.calls import proposed_calls, view
from settled.activities.composing import answer_calls, unknown_to
from settled.activities.database import Database, patiently
from settled.activities.heartbeats import heartbeats
from settled.activities.intents import Earlier, Meanings
from settled.activities.lost import no_record
from settled.activities.model_errors import classify
from settled.activities.model_provider import Provider, Received
from settled.activities.presenting import failure_text
from settled.activities.registry import Registry
from settled.activities.stores import Stores, TaskRecord
from settled.activities.tool_errors import Failure, Phase
from settled.activities.toolkit import WriteTool
from settled.activities.transcript import Role, make_node
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.names import REQUEST_MODEL
from settled.workflows.contract.operation import OperationState
from settled.workflows.contract.turn import Ask, End, Next, Proposal, RunBatches, Turn, Usage
from settled.workflows.errors import TranscriptError

MOST_PREVIEW = 200
MOST_DETAIL = 1_000
MOST_REQUEST_ID = 128
STORE_RETRY_SECONDS = 240.0
"""How long the store may be away before an attempt of the request fails."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A response, and the node that the request ended with."""

    asked: str
    message: dict[str, Any]
    request_id: str


class Responses:
    """The responses in one database, by the activity that asked."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, run_id: str, activity_id: str) -> Stored | None:
        """What this activity received in an earlier attempt."""
        columns = schema.responses.c
        query = select(schema.responses).where(columns.run_id == run_id, columns.activity_id == activity_id)
        async with self.database.read() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        return Stored(asked=row.asked, message=json.loads(row.body), request_id=row.request_id)

    async def put(self, run_id: str, activity_id: str, stored: Stored) -> Stored:
        """Store a response; returns the one that stands (the first one stored), as it is read back.

        What is judged is what was read back, in each attempt: storing may change what no JSON can hold.
        """
        values: dict[str, Any] = {
            "run_id": run_id,
            "activity_id": activity_id,
            "asked": stored.asked,
            "request_id": stored.request_id,
            "body": json.dumps(stored.message, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        }
        try:
            async with self.database.write() as connection:
                values["at"] = await self.database.now(connection)
                await connection.execute(insert(schema.responses).values(values))
        except IntegrityError:
            pass  # an earlier attempt was faster
        return await self.get(run_id, activity_id) or stored


@dataclass(frozen=True)
class ModelActivities:
    """The activity, and what it works with."""

    stores: Stores
    registry: Registry
    provider: Provider

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
            stored = await self._stored_or_asked(ask, record)
        except TranscriptError as error:
            return Turn(head=ask.head, next=End(reason=EndReason.INVALID_RESPONSE, detail=str(error)[:MOST_DETAIL]))
        return await _patiently(lambda: self._judge(ask, stored, record))

    async def _stored_or_asked(self, ask: Ask, record: TaskRecord) -> Stored:
        """The response of an earlier attempt, or a new one; once it is bought, the store is given time to take it."""
        info, responses = activity.info(), Responses(self.stores.database)
        stored = await _patiently(lambda: responses.get(str(info.workflow_run_id), info.activity_id))
        if stored is not None:
            return stored
        asked, parameters = await _patiently(lambda: self._compose(ask, record))
        received = await self._send(parameters)
        request_id = received.request_id[:MOST_REQUEST_ID]
        bought = Stored(asked=asked, message=received.message, request_id=request_id)
        return await _patiently(lambda: responses.put(str(info.workflow_run_id), info.activity_id, bought))

    async def _compose(self, ask: Ask, record: TaskRecord) -> tuple[str, dict[str, Any]]:
        """The node that the request ends with, and the request."""
        chain = await self.stores.transcripts.chain(ask.head)
        news = unknown_to(chain, await self.stores.ledger.of_task(record.task))
        asked = await answer_calls(self.stores, ask.head, ask.results, news)
        if asked != ask.head:
            chain.append(await self.stores.transcripts.node(asked))
        return asked, {**chain[0].content, "messages": view(chain)}

    async def _send(self, parameters: dict[str, Any]) -> Received:
        received = 0

        def progress(characters: int) -> None:
            nonlocal received
            received = characters

        deadline = activity.info().start_to_close_timeout
        # A total deadline of our own: pings keep a stream alive for ever, and Temporal's timeout doesn't stop the code.
        seconds = deadline.total_seconds() * 0.9 if deadline else None
        try:
            async with heartbeats(lambda: {"characters": received}), asyncio.timeout(seconds):
                return await self.provider.send(parameters, progress)
        # The SDK, its HTTP library and the stream raise many kinds; one function knows them all.
        except Exception as error:
            raise classify(error) from error

    async def _judge(self, ask: Ask, stored: Stored, record: TaskRecord) -> Turn:
        content = stored.message["content"]
        decided = stop_table.judge(stored.message.get("stop_reason"), content, ask.resends)
        command: Next = await self._admit(content, record) if decided is stop_table.Run.CALLS else decided
        mentions = [call.intent.key for call in command.calls if call.intent] if isinstance(command, RunBatches) else []
        node = make_node(await self.stores.transcripts.node(stored.asked), Role.ASSISTANT, content, mentions)
        await self.stores.transcripts.add(node)
        return Turn(
            head=node.digest,
            next=command,
            usage=_usage(stored.message),
            request_id=stored.request_id,
            attempts=activity.info().attempt,
            preview=_preview(content),
            ledger=await self.stores.ledger.view(record.task),
        )

    async def _admit(self, content: list[Any], record: TaskRecord) -> RunBatches:
        grants = admission.Grants(
            tools={name: self.registry.tools[name] for name in record.tools if name in self.registry.tools},
            principal=record.principal,
            realm=record.realm(activity.info().namespace),
        )
        earlier = Earlier()
        proposals: list[Proposal] = []
        admitted: dict[int, admission.Admitted] = {}
        proposal: Proposal | admission.Refusal
        for call in proposed_calls(content):
            checked = admission.admit(call, grants)
            if isinstance(checked, admission.Admitted):
                admitted[call.slot] = checked
                proposal = await self._propose(checked, grants, earlier)
            else:
                proposal = checked
            proposals.append(await self._answered(proposal) if isinstance(proposal, admission.Refusal) else proposal)
        return RunBatches(calls=tuple(proposals), batches=admission.batches(proposals, admitted))

    async def _propose(
        self, checked: admission.Admitted, grants: admission.Grants, earlier: Earlier
    ) -> Proposal | admission.Refusal:
        if not isinstance(checked.tool, WriteTool):
            return admission.propose(checked, grants, None)
        meanings = Meanings(registry=self.registry, read=self.stores.ledger.read, realm=grants.realm)
        proposal = admission.propose(checked, grants, await meanings.of(checked.tool, checked.arguments, earlier))
        if isinstance(proposal, Proposal) and proposal.intent is not None:
            earlier.add(proposal.intent)
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


def _usage(message: dict[str, Any]) -> Usage:
    counted = message.get("usage")

    def number(name: str) -> int:
        value = counted.get(name) if isinstance(counted, dict) else None
        return max(0, int(value)) if isinstance(value, int | float) and math.isfinite(value) else 0

    return Usage(
        input_tokens=number("input_tokens"),
        output_tokens=number("output_tokens"),
        cache_read_tokens=number("cache_read_input_tokens"),
        cache_write_tokens=number("cache_creation_input_tokens"),
    )


def _preview(content: list[Any]) -> str:
    texts = (str(block.get("text", "")).strip() for block in content if block.get("type") == "text")
    return clean(" ".join(text for text in texts if text)[:MOST_PREVIEW])


async def _patiently(action: Callable[[], Awaitable[T]]) -> T:
    """Give the store time: its outage is no fault of the model's, and must not use up the model's attempts."""
    async with heartbeats():
        return await patiently(action, STORE_RETRY_SECONDS)
