"""Reads: `run_read` runs a tool that changes nothing. It may run again, so what may pass is retried."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from settled.activities.apart import apart
from settled.activities.attempt import Person, Terms, as_answer, call_tool
from settled.activities.database import patiently
from settled.activities.heartbeats import heartbeats
from settled.activities.lost import why_no_record
from settled.activities.output_store import TaskOutputs
from settled.activities.outputs import READ_OUTPUT
from settled.activities.presenting import answered_apart, completed, failure_text
from settled.activities.progress import tool_progress
from settled.activities.recall import recall
from settled.activities.registry import Registry
from settled.activities.steady import steady
from settled.activities.stores import Stores, TaskRecord
from settled.activities.tool_errors import Failure, read_failure_of
from settled.activities.toolkit import Answer
from settled.workflows.contract.calls import CallResult, ErrorKind
from settled.workflows.contract.names import AGENT_TASK, RUN_READ
from settled.workflows.contract.turn import Read
from settled.workflows.errors import InvalidCall

WORTH_RETRYING = frozenset({ErrorKind.UNAVAILABLE, ErrorKind.RATE_LIMITED})
MOST_RETRY_SECONDS = 60.0
STORE_RETRY_SECONDS = 15.0
"""How long the store may be away before an attempt of the read fails."""


@dataclass(frozen=True)
class ReadActivities:
    """The activity, and what it works with."""

    stores: Stores
    registry: Registry

    @activity.defn(name=RUN_READ)
    async def run_read(self, read: Read) -> CallResult:
        """Run one read; its text is stored as an artifact, and the whole of a long one as another.

        Raises:
            ApplicationError: it failed in a way that may pass, and attempts are left.
        """
        info = activity.info()
        if info.workflow_type != AGENT_TASK:
            raise ApplicationError(f"a read runs only for an {AGENT_TASK} workflow", non_retryable=True)
        async with heartbeats():
            record = await patiently(lambda: self.stores.tasks.get(str(info.workflow_id)), STORE_RETRY_SECONDS)
        try:
            async with heartbeats(tool_progress(read.tool)):
                answer = await answered_apart(await self._run(read, record))
                pages = record is not None and READ_OUTPUT in record.tools
                shown = await apart(lambda: completed(answer, pages=pages), answer)
        except asyncio.CancelledError:
            raise  # the task was cancelled, or the worker stops: a read may simply run again
        # A tool may raise anything, SystemExit included; its call still gets its one result.
        except BaseException as error:
            failure = read_failure_of(error)
            if failure.kind in WORTH_RETRYING and info.attempt < read.attempts:
                raise _retry(failure) from error
            content = await self.stores.artifacts.put(failure_text(failure, status="failed"))
            return CallResult(slot=read.slot, error=failure.kind, content=content)
        content = await self.stores.outputs.keep(str(info.workflow_id), read.tool, shown)
        return CallResult(slot=read.slot, content=content)

    async def _run(self, read: Read, record: TaskRecord | None) -> Answer:
        if record is None:
            raise InvalidCall(why_no_record())
        tool, arguments = await recall(self.stores.transcripts, self.registry, read.head, read.slot, read.tool)
        person = Person(tenant=record.tenant, principal=record.principal)
        terms = Terms(deadline=steady() + read.seconds, outputs=TaskOutputs(self.stores.outputs, record.task))
        return as_answer(await call_tool(tool.handler, arguments, person, terms), tool.name)


def _retry(failure: Failure) -> ApplicationError:
    """An attempt that may be repeated, after the wait that the service asked for."""
    wait = None if failure.after is None else timedelta(seconds=min(failure.after, MOST_RETRY_SECONDS))
    return ApplicationError(failure.text, type=str(failure.kind), next_retry_delay=wait)
