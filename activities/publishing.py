"""Publishing the text of a model request while it arrives, to the stream of its task, in pieces of a second or more.

Whoever reads along may miss it: it fails nothing, and holds up nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from temporalio import activity

from settled.activities.artifacts import clean
from settled.activities.progress import ModelProgress
from settled.workflows.contract.stream import TEXT_TOPIC, TextPiece

log = logging.getLogger(__name__)

EVERY_SECONDS = 1.0
"""Between two pieces: each costs a signal, and the workflow a task."""
MOST_PIECE = 10_000
"""Characters of one piece: the task's stream keeps the last one at least, whatever characters these are."""
LAST_SECONDS = 2.0
"""How long the last piece may take: the response is there, and waits."""


@asynccontextmanager
async def publishing(progress: ModelProgress, *, wanted: bool) -> AsyncIterator[None]:
    """Publish what arrives, until the block is left; then what is left of it.

    Args:
        progress: knows the text.
        wanted: whether the task has a stream at all.
    """
    if not wanted:
        yield
        return
    publisher = _Publisher(progress)
    publishing = asyncio.create_task(publisher.go_on())
    whole = False
    try:
        yield
        whole = True
    finally:
        publishing.cancel()
        with suppress(asyncio.CancelledError):
            await publishing
        if whole:
            await publisher.end()


class _Publisher:
    """Says what has not been said yet."""

    def __init__(self, progress: ModelProgress) -> None:
        # Only who publishes needs it, and it is experimental.
        from temporalio.contrib.workflow_streams import WorkflowStreamClient

        info = activity.info()
        self._progress = progress
        self._request = f"{info.workflow_run_id}/{info.activity_id}"
        self._client = WorkflowStreamClient.from_within_activity()
        self._topic = self._client.topic(TEXT_TOPIC, type=TextPiece)
        self._said = 0

    async def go_on(self) -> None:
        """Publish every second what has come."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if len(self._progress.text()) > self._said:
                await self._publish(whole=False)

    async def end(self) -> None:
        """Publish the rest, and that it is the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                while len(self._progress.text()) > self._said + MOST_PIECE:
                    await self._publish(whole=False)
                await self._publish(whole=True)

    async def _publish(self, *, whole: bool) -> None:
        text = self._progress.text()[self._said : self._said + MOST_PIECE]
        self._topic.publish(
            TextPiece(
                request=self._request,
                attempt=self._progress.attempt,
                model=self._progress.model,
                start=self._said,
                text=clean(text),
                whole=whole,
                stop_reason=self._progress.stop_reason() if whole else None,
            )
        )
        self._said += len(text)
        try:
            await self._client.flush()
        # Temporal is away, or the task has ended: nobody is the worse for it but who reads along.
        except Exception as error:
            log.warning("a piece of the task's stream was not published: %r", error)
