"""What is published while a model writes, for who wants to read along. A claim that may never be made, not a record."""

from __future__ import annotations

from settled.workflows.contract.values import Value

TEXT_TOPIC = "text"
"""The topic of a task's stream."""


class TextPiece(Value):
    """A piece of the text that a model is writing."""

    request: str
    """Names the model request; its attempts share it."""
    attempt: int
    """Which attempt this is. A higher one begins anew: what the ones before have said is void."""
    model: str
    """The model that writes."""
    start: int
    """Characters of the text before this piece."""
    text: str
    """The piece."""
    whole: bool = False
    """Whether the response is there, and was the last word of this request."""
    stop_reason: str | None = None
    """Why the model stopped, with the last word of a request. What was cut off or refused is discarded: the request
    that follows, under another name, says it anew."""
