"""The stream of a task whose profile asks for one: text that the model is writing, for who wants to read along.

Temporal's own (experimental) workflow streams carry it. Nothing here is a command, so that a task without a stream, and
the histories of earlier releases, know nothing of it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter
from temporalio import workflow
from temporalio.contrib.workflow_streams import WorkflowStream, WorkflowStreamState

MOST_KEPT = 64 * 1024
"""Bytes of pieces that readers may still fetch. They stand in memory, and in the input of a continued run."""
MOST_WAIT = timedelta(seconds=10)
"""How long readers are waited for, once they were told to go."""
STATE = TypeAdapter(WorkflowStreamState)


class TaskStream:
    """The stream of one task.

    Args:
        carried: what the run before this one has kept; none in the first run.
    """

    def __init__(self, carried: dict[str, Any] | None) -> None:
        # The library looks where it is made: nowhere but in an `__init__`, to which a task can't yet say what it wants.
        self._stream = WorkflowStream(STATE.validate_python(carried) if carried else None)

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
        self._stream.detach_pollers()
        if not workflow.all_handlers_finished():
            with suppress(TimeoutError, asyncio.CancelledError):  # the checkpoint asks for a cancel itself
                await workflow.wait_condition(workflow.all_handlers_finished, timeout=MOST_WAIT)

    def kept(self) -> dict[str, Any]:
        """What the next run goes on with."""
        self.trim()
        carried: dict[str, Any] = STATE.dump_python(self._stream.get_state(), mode="json")
        return carried
