"""One attempt of a write: the tool is called once, and whatever comes out of it becomes a report. Never raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities.journal import Subject
from settled.activities.output_store import TaskOutputs
from settled.activities.presenting import answered_apart
from settled.activities.steady import steady
from settled.activities.tool_errors import Failure, Phase, failure_of
from settled.activities.tool_http import tool_client
from settled.activities.toolkit import Answer, Call, WriteTool
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.errors import NotSent
from settled.workflows.states import Event

EVENT_OF_PHASE = {
    Phase.BEFORE_SEND: Event.NOT_SENT,
    Phase.REFUSED: Event.DECLINED,
    Phase.AFTER_SEND: Event.UNCLEAR,
}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the tool's call ended."""

    event: Event
    """SUCCEEDED, DECLINED, NOT_SENT or UNCLEAR."""
    answer: dict[str, Any] | None = None
    """The tool's answer in its JSON form, where it gave one."""
    failure: Failure | None = None
    """What went wrong, where it gave none."""

    def without_effect(self) -> Ended:
        """The same failure, where it is known that nothing of the attempt was kept."""
        assert self.failure is not None, "it has failed"
        text = f"nothing was kept: {self.failure.text}"
        failure = Failure(kind=ErrorKind.UNAVAILABLE, phase=Phase.BEFORE_SEND, text=text)
        return Ended(event=Event.NOT_SENT, failure=failure)


@dataclass(frozen=True, kw_only=True)
class Person:
    """In whose name, and on whose data, a tool runs."""

    tenant: str
    principal: str

    @classmethod
    def behind(cls, subject: Subject) -> Person:
        """Who opened a generation: whoever sends it or looks it up, each time does so in this one's name."""
        return cls(tenant=subject.tenant, principal=subject.principal)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a tool's function is given besides its arguments and the person."""

    key: str = ""
    """The idempotency key for the service."""
    undoes_key: str = ""
    """The idempotency key of what is taken back."""
    deadline: float
    """On the steady clock; nothing is begun after it."""
    connection: AsyncConnection | None = None
    """The ledger's transaction, for a transactional tool."""
    outputs: TaskOutputs | None = None
    """The task's outputs, for a read."""


async def send(tool: WriteTool, arguments: BaseModel, person: Person, terms: Terms) -> Ended:
    """Call the tool, if there is time left. Raises nothing.

    Args:
        tool: what to call.
        arguments: with what.
        person: in whose name.
        terms: the key and the deadline.
    """
    try:
        # The last look at the clock before the first byte: this process may have been frozen since the claim.
        if steady() >= terms.deadline:
            raise NotSent("the attempt's time was over before anything was sent")
        answer = await call_tool(tool.handler, arguments, person, terms)
        return Ended(event=Event.SUCCEEDED, answer=await answered_apart(as_answer(answer, tool.name)))
    # A tool may raise anything, SystemExit included; the attempt's outcome must reach the journal all the same.
    except BaseException as error:
        failure = failure_of(error)
        return Ended(event=EVENT_OF_PHASE[failure.phase], failure=failure)


async def call_tool(
    function: Callable[[Any, Call], Awaitable[Any]], arguments: BaseModel, person: Person, terms: Terms
) -> Any:
    """Run a tool's function (its handler or its lookup) with a client of its own, until the deadline.

    Raises:
        TimeoutError: the deadline passed.
        BaseException: whatever the function raises.
    """
    left = max(0.001, terms.deadline - steady())
    async with tool_client(left) as http, asyncio.timeout(left):
        call = Call(
            tenant=person.tenant,
            principal=person.principal,
            http=http,
            deadline=terms.deadline,
            idempotency_key=terms.key,
            undoes_key=terms.undoes_key,
            connection=terms.connection,
            outputs=terms.outputs,
        )
        return await function(arguments, call)


def as_answer(value: Any, source: str) -> Answer:
    """What a tool returned. It returned, so it has done its work, whatever it returned."""
    if not isinstance(value, Answer):
        return Answer(data=value, source=source)
    return Answer(data=value.data, source=str(value.source), version=str(value.version))
