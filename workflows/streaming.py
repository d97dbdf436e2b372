"""The stream of a task whose profile asks for one: text that the model is writing, for who wants to read along.

Temporal's own (experimental) workflow streams carry it. Nothing here is a command, so that a task without a stream, and
the histories of earlier releases, know nothing of it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.contrib.workflow_streams import PollInput, PollResult, PublishInput, WorkflowStream, WorkflowStreamState
from temporalio.exceptions import ApplicationError

from settled.workflows.contract.stream import TEXT_TOPIC, TextPiece

MOST_KEPT = 64 * 1024
"""Bytes of pieces that readers may still fetch. They stand in memory, and in the input of a continued run."""
MOST_WAIT = timedelta(seconds=10)
"""How long readers are waited for, once they were told to go."""
MOST_READERS = 5
"""Readers who may wait for the next piece at the same time. Each is an update in flight, of which Temporal allows ten:
the rest is for a person's word."""
HELD = timedelta(seconds=30)
"""How long a reader who waits keeps the place, where another one wants it: it may be long gone, which nobody tells."""
PUBLISH = "__temporal_workflow_stream_publish"
POLL = "__temporal_workflow_stream_poll"
OFFSET = "__temporal_workflow_stream_offset"
COME_BACK = "StreamDraining"
"""The failure type at which a reader of the library's comes back a moment later."""
TOO_MANY = "TooManyReaders"
"""The failure type of a reader who has no place. It ends the reader: who came back at once, again and again, would take
up the room that is left for a person's word."""
STATE = TypeAdapter(WorkflowStreamState)
PUBLISHED = TypeAdapter(PublishInput)


class TaskStream:
    """The stream of one task.

    Args:
        carried: what the run before this one has kept; none in the first run.
    """

    def __init__(self, carried: dict[str, Any] | None) -> None:
        # The library looks where it is made: nowhere but in an `__init__`, to which a task can't yet say what it wants.
        self._stream = WorkflowStream(STATE.validate_python(carried) if carried else None)
        self._append: Callable[[PublishInput], None] = _library(workflow.get_signal_handler(PUBLISH))
        self._collect: Callable[[PollInput], PollResult] = _library(workflow.get_query_handler(POLL))
        self._end: Callable[[], int] = _library(workflow.get_query_handler(OFFSET))
        self._waiting: dict[int, datetime] = {}
        """Since when the readers wait who do, by their numbers, the first one first."""
        self._readers = 0
        self._closed = False
        # Its own handler fails the workflow's task, again and again, at what anybody may send.
        workflow.set_signal_handler(PUBLISH, self._publish)
        # Its own handler lets any number of readers wait, for ever.
        workflow.set_update_handler(POLL, self._poll, validator=self._must_have_a_place)

    def trim(self) -> None:
        """Forget the oldest pieces; a reader who comes later begins with what is left."""
        state = self._stream.get_state()
        size, kept = 0, 0
        for item in reversed(state.log):
            size += len(item.data)
            if size > MOST_KEPT:
                break
            kept += 1
        self._stream.truncate(state.base_offset + len(state.log) - kept)

    async def let_go(self) -> None:
        """Have the readers go: they come back to the next run, or take the rest of what is kept and end.

        A reader who waits would keep the run from being continued, and be cut off when it closes.
        """
        self._closed = True
        if not workflow.all_handlers_finished():
            with suppress(TimeoutError, asyncio.CancelledError):  # the checkpoint asks for a cancel itself
                await workflow.wait_condition(workflow.all_handlers_finished, timeout=MOST_WAIT)

    def kept(self) -> dict[str, Any]:
        """What the next run goes on with."""
        self.trim()
        carried: dict[str, Any] = STATE.dump_python(self._stream.get_state(), mode="json")
        return carried

    def _publish(self, *said: Any) -> None:
        """Take the pieces, all or none: what no reader could read is dropped."""
        try:
            pieces = _readable(*said)
        # Anybody may send anything, and there are many ways of not being readable: none may stop the task.
        except Exception as error:
            workflow.logger.warning("what was sent to the task's stream is dropped: %s", type(error).__name__)
            return
        self._append(pieces)

    async def _poll(self, asked: PollInput) -> PollResult:
        """What has come since, or what comes next; nothing, where the reader has to go before that."""
        self._readers += 1
        number = self._readers
        if len(self._waiting) >= MOST_READERS:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[number] = workflow.now()
        await workflow.wait_condition(
            lambda: asked.from_offset < self._end() or number not in self._waiting or self._closed
        )
        self._waiting.pop(number, None)
        return self._collect(asked)

    def _must_have_a_place(self, _asked: PollInput) -> None:
        if self._closed:
            raise ApplicationError("the run is over; come back in a moment", type=COME_BACK)
        full = len(self._waiting) >= MOST_READERS
        if full and workflow.now() - next(iter(self._waiting.values())) < HELD:
            text = f"{MOST_READERS} readers wait already, which is all that there may be; come back in {HELD.seconds} s"
            raise ApplicationError(text, type=TOO_MANY)


def _library(handler: Callable[..., Any] | None) -> Callable[..., Any]:
    """A handler that the library has registered."""
    assert handler is not None, "the library has registered it"
    return handler


def _readable(said: Any) -> PublishInput:
    """What was sent, if it is what the library's clients send, and its readers could read it.

    Raises:
        Exception: it isn't.
    """
    published = PUBLISHED.validate_python(said)
    for item in published.items:
        piece = Payload.FromString(base64.b64decode(item.data))
        expected: type[Any] = TextPiece if item.topic == TEXT_TOPIC else object
        workflow.payload_converter().from_payloads([piece], [expected])
    return published
