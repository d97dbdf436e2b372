"""What people see of an activity that is under way: heartbeat details. Nothing of it enters what the model reads.

`temporal workflow describe` shows them with the pending activity, and Temporal's web page does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from settled.activities.artifacts import clean
from settled.activities.model_stream import Accumulator
from settled.activities.steady import steady

MOST_TEXT = 200
MOST_NAME = 64
NO_MESSAGE: dict[str, Any] = {}


class ModelProgress:
    """A model request, while its response streams in.

    Args:
        model: who is asked.
        attempt: which attempt this is.
    """

    def __init__(self, model: str, attempt: int) -> None:
        self.model = model
        self.attempt = attempt
        self._arriving: Accumulator | None = None

    def watch(self, arriving: Accumulator) -> None:
        """Take note of the message that arrives."""
        self._arriving = arriving

    def text(self) -> str:
        """The text that has arrived so far, each longer one beginning with the shorter one.

        A character may come in two halves, in two deltas: the first one waits for the other, until the message stops.
        """
        texts = (block.get("text") for block in self._blocks() if block.get("type") == "text")
        text = _joined("".join(text for text in texts if isinstance(text, str)))
        stopped = self._arriving is not None and self._arriving.stopped
        return text if stopped or not "\ud800" <= text[-1:] <= "\udbff" else text[:-1]

    def stop_reason(self) -> str | None:
        """Why the model stopped, once it has said so."""
        message = (self._arriving.message if self._arriving else None) or NO_MESSAGE
        reason = message.get("stop_reason")
        return clean(reason[:MOST_NAME]) if isinstance(reason, str) else None

    def details(self) -> dict[str, Any]:
        """What is known of it, for people: the end of its text, the tool whose input is written, and how much it is."""
        shown: dict[str, Any] = {"model": self.model, "attempt": self.attempt, "characters": 0}
        if self._arriving is None or self._arriving.message is None:
            return shown
        shown["characters"] = self._arriving.characters
        usage = self._arriving.message.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("output_tokens"), int):
            shown["output_tokens"] = usage["output_tokens"]
        if tool := self._arriving.tool_in_writing():
            shown["tool"] = clean(tool[:MOST_NAME])
        if text := self.text():
            shown["text"] = clean(text[-MOST_TEXT:])
        return shown

    def _blocks(self) -> list[dict[str, Any]]:
        message = (self._arriving.message if self._arriving else None) or NO_MESSAGE
        return [block for block in message.get("content", ()) if isinstance(block, dict)]


def _joined(text: str) -> str:
    """The text with the halves of a character put together; where one is missing, the other stays."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def tool_progress(tool: str) -> Callable[[], dict[str, Any]]:
    """The heartbeat details of a tool that runs from now on."""
    began = steady()
    return lambda: {"tool": clean(tool[:MOST_NAME]), "seconds": round(steady() - began, 1)}
