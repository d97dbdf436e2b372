"""Work on what is large is done in a thread: the event loop goes on, and with it every heartbeat of this worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

LARGE = 256 * 1024
"""Characters or bytes from which on work is done in a thread; below, that would cost more than it saves."""
ITEM = 16
"""Characters that any item of a list or an object counts as: each one costs time, however short it is."""

Made = TypeVar("Made")


async def apart(work: Callable[[], Made], given: object) -> Made:
    """Do the work here or, where what it is given is large, in a thread.

    A thread can't be stopped, and what it makes may be the outcome of a write: who is cancelled meanwhile gets the
    result all the same, and is cancelled where it awaits next.

    Args:
        work: must not touch what others change.
        given: what it works on: text, bytes, or a JSON value.
    """
    if not is_large(given):
        return work()
    working, cancelled = asyncio.ensure_future(asyncio.to_thread(work)), False
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and (task := asyncio.current_task()) is not None:
        task.cancel()
    return working.result()


def is_large(given: object) -> bool:
    """Whether a text or a JSON value is large; of a large one only as much is looked at as is needed to know that."""
    left, found = LARGE, list[Any]([given])
    while found and left > 0:
        item = found.pop()
        match item:
            case str() | bytes():
                left -= len(item)
            case dict() if len(item) * ITEM < left:
                found += item.keys()
                found += item.values()
            case list() if len(item) * ITEM < left:
                found += item
            case dict() | list():
                return True
        left -= ITEM
    return left <= 0
