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
RETURNED_REASONS = frozenset({"pause_turn", "compaction"})
"""Stop reasons after which the content goes back as it came, so that it must be whole, too."""
FIXED = frozenset({"content", "id", "role", "type"})
"""What the end of a message can't change: it would change what was received block by block."""

WRITTEN = ("text", "thinking", "partial_json")
"""Where the words of a block or a delta stand."""


class StreamError(Exception):
    """The stream did not bring a whole message: the attempt failed, whatever had arrived."""


class UnknownEvent(Exception):
    """The stream holds something that this release can't keep faithfully. Retrying brings the same again."""


class Accumulator:
    """Takes the events of one stream in order."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self.stopped = False
        self._reason_given = False
        self._counted = False
        """Whether the end said how many tokens were written: what the start says of them is of the start."""
        self._open: dict[int, _Pieces] = {}
        """The blocks that have not stopped, and what has arrived of each."""
        self._broken: set[int] = set()
        self.characters = 0
        """Characters of text, thought and tool input received so far, for people who watch."""

    @property
    def message(self) -> dict[str, Any] | None:
        """The message as far as it has arrived."""
        for place, pieces in self._open.items():
            pieces.join(self._content()[place])
        return self._message

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
        message = self._message
        if message is None or not self.stopped:
            raise StreamError("the stream ended before the message did")
        if not self._reason_given:
            raise StreamError("the message has no stop reason")
        if self._open:
            raise StreamError("the stream ended within a block")
        reason = message["stop_reason"]
        if self._broken and isinstance(reason, str) and reason in RUNNING_REASONS | RETURNED_REASONS:
            raise StreamError("the stream ended within a tool's input")
        if not self._counted and isinstance(usage := message.get("usage"), dict) and "output_tokens" in usage:
            usage["output_tokens"] = None
        return message

    def tool_in_writing(self) -> str | None:
        """The name of the tool whose input arrives now; none: something else does."""
        for place in self._open:
            block = self._content()[place]
            if _has_input(block):
                return str(block.get("name"))
        return None

    def _start(self, data: dict[str, Any]) -> None:
        if self._message is not None:
            raise ValueError("a second message")
        message = data["message"]
        if not all(isinstance(block, dict) for block in message["content"]):
            raise ValueError("content that is no block")
        self._message = message
        self.characters = sum(map(_length, message["content"]))

    def _block_start(self, data: dict[str, Any]) -> None:
        content, block = self._content(), data["content_block"]
        if data["index"] != len(content):
            raise ValueError("a block out of order")
        if not isinstance(block["type"], str):
            raise ValueError("a block without a type")
        content.append(block)
        self.characters += _length(block)
        self._open[data["index"]] = _Pieces()

    def _delta(self, data: dict[str, Any]) -> None:
        pieces, delta = self._open[data["index"]], data["delta"]
        kind, block = delta["type"], self._content()[data["index"]]
        if kind not in DELTAS:
            raise UnknownEvent(f"a delta of the unknown kind {kind!r}")
        if (kind == "input_json_delta") is not _has_input(block):
            raise UnknownEvent(f"a delta of the kind {kind!r} in a block of the type {block['type'][:80]!r}")
        DELTAS[kind](pieces, block, delta)
        self.characters += _length(delta)

    def _block_stop(self, data: dict[str, Any]) -> None:
        place = data["index"]
        pieces, block = self._open.pop(place), self._content()[place]
        pieces.join(block)
        if text := "".join(pieces.json):
            try:
                block["input"] = _parsed(text)
            except (ValueError, RecursionError):
                self._broken.add(place)

    def _message_delta(self, data: dict[str, Any]) -> None:
        message, beside = self._whole(), data.keys() - {"type", "delta", "usage"}
        if changed := FIXED & (data["delta"].keys() | beside):
            raise UnknownEvent(f"the end of the message changes its {', '.join(sorted(changed))}")
        message.update(data["delta"])
        self._reason_given = self._reason_given or "stop_reason" in data["delta"]
        usage = message.setdefault("usage", {})
        said = data.get("usage") or {}
        self._counted = self._counted or said.get("output_tokens") is not None
        for name, counted in said.items():
            if counted is not None or name not in usage:  # null: what the start said still holds
                usage[name] = counted
        # What stands beside the two is the message's, too.
        message.update({name: data[name] for name in beside})

    def _stop(self, _data: dict[str, Any]) -> None:
        self._whole()
        self.stopped = True

    def _whole(self) -> dict[str, Any]:
        if self._message is None:
            raise ValueError("no message was started")
        return self._message

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
    return STRICT.decode(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no JSON number")
    return number


STRICT = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)
"""Made once: a long message comes in hundreds of thousands of events."""

HANDLERS: dict[str, Callable[[Accumulator, dict[str, Any]], None]] = {
    "message_start": Accumulator._start,
    "content_block_start": Accumulator._block_start,
    "content_block_delta": Accumulator._delta,
    "content_block_stop": Accumulator._block_stop,
    "message_delta": Accumulator._message_delta,
    "message_stop": Accumulator._stop,
}

Block = dict[str, Any]


class _Pieces:
    """What has arrived of a block, piece by piece: a text that grew with each piece would be copied with each."""

    def __init__(self) -> None:
        self.words: dict[str, list[str]] = {}
        """Its text or its thought, by the field's name."""
        self.json: list[str] = []
        """The JSON of its input, which is put together when the block stops."""

    def join(self, block: Block) -> None:
        """Put the words that have arrived since the last time into the block."""
        for name, pieces in self.words.items():
            if pieces:
                block[name] = "".join([block.get(name) or "", *pieces])
                pieces.clear()


def _has_input(block: Block) -> bool:
    """Whether the block is a call, ours or the provider's."""
    return str(block["type"]).endswith("tool_use")


def _append(name: str) -> Callable[[_Pieces, Block, Block], None]:
    def apply(pieces: _Pieces, block: Block, delta: Block) -> None:
        if not isinstance(block.get(name) or "", str):  # else it fails where they are joined, under who only watches
            raise TypeError(f"a block whose {name} is no text")
        pieces.words.setdefault(name, []).append("" + delta[name])

    return apply


def _write(pieces: _Pieces, _block: Block, delta: Block) -> None:
    pieces.json.append("" + delta["partial_json"])


def _cite(_pieces: _Pieces, block: Block, delta: Block) -> None:
    block["citations"] = [*(block.get("citations") or []), delta["citation"]]


def _sign(_pieces: _Pieces, block: Block, delta: Block) -> None:
    block["signature"] = delta["signature"]


DELTAS: dict[str, Callable[[_Pieces, Block, Block], None]] = {
    "text_delta": _append("text"),
    "thinking_delta": _append("thinking"),
    "signature_delta": _sign,
    "citations_delta": _cite,
    "input_json_delta": _write,
}
"""How a delta changes its block."""
