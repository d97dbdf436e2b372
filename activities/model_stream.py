"""From the provider's raw events to the message, as it was sent: nothing is repaired, nothing is dropped. Pure.

The SDK's own helper returns a message even where the stream ended in the middle of it, and mends cut tool JSON
silently. Here a message counts only if `message_stop` came and the provider said why it stopped; if it said "null",
that stands in the message as well, and the stop table knows what it means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

RUNNING_REASONS = frozenset({"tool_use", "end_turn", "stop_sequence"})
"""Stop reasons after which calls may be run, so that every tool input must be whole."""


WRITTEN = ("text", "thinking", "partial_json")
"""Where the words of a block or a delta stand."""


class StreamError(Exception):
    """The stream did not bring a whole message: the attempt failed, whatever had arrived."""


class UnknownEvent(Exception):
    """The stream holds something that this release can't keep faithfully. Retrying brings the same again."""


class Accumulator:
    """Takes the events of one stream in order."""

    def __init__(self) -> None:
        self.message: dict[str, Any] | None = None
        self.stopped = False
        self._reason_given = False
        self._open: dict[int, list[str]] = {}
        """The blocks that have not stopped, and the JSON of their inputs so far."""
        self._broken: set[int] = set()
        self.characters = 0
        """Characters of text, thought and tool input received so far, for people who watch."""

    def take(self, event: str, data: str) -> None:
        """Take one event.

        Raises:
            StreamError: it is out of place or not JSON.
            UnknownEvent: it changes the message in a way that this release doesn't know.
        """
        handler = HANDLERS.get(event)
        if handler is None:
            return  # the API adds kinds of events that don't belong to the message; what belongs to it is a delta
        try:
            handler(self, _parsed(data))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise StreamError(f"a malformed {event} event: {error}") from error

    def finish(self) -> dict[str, Any]:
        """The whole message.

        Raises:
            StreamError: the stream ended before it was whole.
        """
        if self.message is None or not self.stopped:
            raise StreamError("the stream ended before the message did")
        if not self._reason_given:
            raise StreamError("the message has no stop reason")
        if self._open:
            raise StreamError("the stream ended within a block")
        reason = self.message["stop_reason"]
        if self._broken and isinstance(reason, str) and reason in RUNNING_REASONS:
            raise StreamError("the stream ended within a tool's input")
        return self.message

    def tool_in_writing(self) -> str | None:
        """The name of the tool whose input arrives now; none: something else does."""
        for place in self._open:
            block = self._content()[place]
            if str(block["type"]).endswith("tool_use"):
                return str(block.get("name"))
        return None

    def _start(self, data: dict[str, Any]) -> None:
        if self.message is not None:
            raise ValueError("a second message")
        message = data["message"]
        if not all(isinstance(block, dict) for block in message["content"]):
            raise ValueError("content that is no block")
        self.message = message
        self.characters = sum(map(_length, message["content"]))

    def _block_start(self, data: dict[str, Any]) -> None:
        content, block = self._content(), data["content_block"]
        if data["index"] != len(content):
            raise ValueError("a block out of order")
        if not isinstance(block["type"], str):
            raise ValueError("a block without a type")
        content.append(block)
        self.characters += _length(block)
        self._open[data["index"]] = []

    def _delta(self, data: dict[str, Any]) -> None:
        pieces, delta = self._open[data["index"]], data["delta"]
        apply = DELTAS.get(delta["type"])
        if apply is None:
            raise UnknownEvent(f"a delta of the unknown kind {delta['type']!r}")
        if delta["type"] == "input_json_delta":
            pieces.append("" + delta["partial_json"])
        else:
            apply(self._content()[data["index"]], delta)
        self.characters += _length(delta)

    def _block_stop(self, data: dict[str, Any]) -> None:
        place = data["index"]
        text = "".join(self._open.pop(place))
        if text:
            try:
                self._content()[place]["input"] = _parsed(text)
            except (ValueError, RecursionError):
                self._broken.add(place)

    def _message_delta(self, data: dict[str, Any]) -> None:
        message = self._whole()
        message.update(data["delta"])
        self._reason_given = self._reason_given or "stop_reason" in data["delta"]
        usage = message.setdefault("usage", {})
        for name, counted in (data.get("usage") or {}).items():
            if counted is not None or name not in usage:  # null: what the start said still holds
                usage[name] = counted
        # What stands beside the two is the message's, too.
        message.update({name: data[name] for name in data.keys() - {"type", "delta", "usage"}})

    def _stop(self, _data: dict[str, Any]) -> None:
        self._whole()
        self.stopped = True

    def _whole(self) -> dict[str, Any]:
        if self.message is None:
            raise ValueError("no message was started")
        return self.message

    def _content(self) -> list[dict[str, Any]]:
        content: list[dict[str, Any]] = self._whole()["content"]
        return content


def _length(piece: dict[str, Any]) -> int:
    """How many characters a block begins with, or a delta brings."""
    return sum(len(piece[name]) for name in WRITTEN if isinstance(piece.get(name), str))


def _parsed(text: str) -> Any:
    """JSON, without the numbers that Python reads and no request can send back.

    Raises:
        ValueError: it isn't that.
    """
    return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no JSON number")
    return number


HANDLERS: dict[str, Callable[[Accumulator, dict[str, Any]], None]] = {
    "message_start": Accumulator._start,
    "content_block_start": Accumulator._block_start,
    "content_block_delta": Accumulator._delta,
    "content_block_stop": Accumulator._block_stop,
    "message_delta": Accumulator._message_delta,
    "message_stop": Accumulator._stop,
}

Block = dict[str, Any]


def _append(name: str) -> Callable[[Block, Block], None]:
    def apply(block: Block, delta: Block) -> None:
        block[name] = (block.get(name) or "") + delta[name]

    return apply


def _cite(block: Block, delta: Block) -> None:
    block["citations"] = [*(block.get("citations") or []), delta["citation"]]


def _sign(block: Block, delta: Block) -> None:
    block["signature"] = delta["signature"]


DELTAS: dict[str, Callable[[Block, Block], None]] = {
    "text_delta": _append("text"),
    "thinking_delta": _append("thinking"),
    "signature_delta": _sign,
    "citations_delta": _cite,
    "input_json_delta": lambda _block, _delta: None,
}
"""How a delta changes its block; the JSON of a tool's input is put together when the block stops."""
