"""Reading a call back from the transcript, where it stands as the model proposed it. History holds no arguments."""

from __future__ import annotations

from pydantic import BaseModel

from settled.activities.admission import validate
from settled.activities.calls import proposed_calls
from settled.activities.registry import Registry
from settled.activities.toolkit import Tool
from settled.activities.transcript import Transcripts
from settled.workflows.errors import InvalidCall


async def recall(
    transcripts: Transcripts, registry: Registry, head: str, slot: int, name: str
) -> tuple[Tool, BaseModel]:
    """The tool and the validated arguments of a call.

    Raises:
        InvalidCall: this worker doesn't have the tool, or the input doesn't fit it (a deploy may have changed it).
    """
    tool = registry.named(name)
    if tool is None:
        raise InvalidCall(f"this worker has no tool {name!r}")
    calls = proposed_calls((await transcripts.node(head)).content)
    try:
        return tool, validate(tool, calls[slot].input)
    except ValueError as error:
        raise InvalidCall(f"{name} was not run. {error}") from error
