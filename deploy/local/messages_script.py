"""What the scripted Messages server answers: frozen values, and the scripts made of them.

A step is a `Reply` or a fault. A script is a sequence of steps, a `Script`, or a function from the request body to a
step. All durations are in seconds. In a JSON file a step is an object of one key, its kind, with the class's fields:

    [{"reply": {"stop_reason": "tool_use", "content": [{"type": "tool_use", "name": "lookup", "input": {}}]}},
     {"http_error": {"status": 529}},
     {"cut_stream": {"reply": {"content": [{"type": "text", "text": "Hello"}]}, "after_events": 3, "how": "reset"}}]

or `{"per_conversation": true, "steps": […]}`. A `tool_use` without `id`, and a `thinking` without `signature`, gets a
new one when the file is read.
"""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter, ValidationError

from settled.local.messages_rules import Block

PARTIAL = "partial_json"
ERROR_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}  # any other status is an `api_error`


def text(value: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": value}


def tool_use(
    name: str, input: Mapping[str, Any], id: str | None = None, *, partial_json: str | None = None
) -> dict[str, Any]:
    """A client tool call, under a new id unless one is given.

    Args:
        partial_json: sent by a stream instead of the JSON of `input`, for a call that was cut off; `input` is then what
            the client makes of it.
    """
    block = {"type": "tool_use", "id": new_id("toolu") if id is None else id, "name": name, "input": dict(input)}
    return block if partial_json is None else {**block, PARTIAL: partial_json}


def thinking(value: str, signature: str | None = None) -> dict[str, Any]:
    """A thinking block, under a new signature unless one is given. Real ones often have an empty text."""
    return {"type": "thinking", "thinking": value, "signature": new_id("sig") if signature is None else signature}


def new_id(prefix: str) -> str:
    """A new id in the API's manner, like `toolu_…`."""
    return f"{prefix}_{uuid.uuid4().hex[:24]}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One answer to one request to `/v1/messages`."""

    delay: float = 0.0
    """Before anything is sent."""
    hold: asyncio.Event | None = None
    """Nothing is sent before this is set, so that a test can cancel a request in flight."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid", "arbitrary_types_allowed": True}

    def completes(self) -> "Reply | None":
        """The reply that the client has in full in the end, if any."""
        return None


@dataclass(frozen=True)
class Reply(Step):
    """A message. Its blocks are sent as they are, so that malformed ones can be tried too.

    Raises:
        ValueError: a block has no `type`.
    """

    content: Sequence[Block] = ()
    stop_reason: str | None = "end_turn"
    usage: Mapping[str, Any] = field(default_factory=dict)
    """Laid over the estimate, which counts a token for four characters."""
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for index, block in enumerate(self.content):
            if not isinstance(block.get("type"), str):
                raise ValueError(f'content[{index}] has no "type"; write it like {{"type": "text", "text": "..."}}')
        object.__setattr__(self, "content", tuple(deepcopy(dict(block)) for block in self.content))

    @classmethod
    def of(cls, *content: str | Block, **rest: Any) -> Self:
        """A reply of texts and blocks. Unless `rest` says otherwise it stops with `tool_use` if it holds a call."""
        made = [text(block) if isinstance(block, str) else block for block in content]
        calls = any(block.get("type") == "tool_use" for block in made)
        return cls(made, **{"stop_reason": "tool_use" if calls else "end_turn", **rest})

    def completes(self) -> "Reply | None":
        return self

    def blocks(self) -> list[dict[str, Any]]:
        """The blocks as the client has them in the end."""
        return [{name: value for name, value in block.items() if name != PARTIAL} for block in self.content]


_FILLER = Reply.of("This is a reply of the scripted server, to which something happens.")


@dataclass(frozen=True)
class HttpError(Step):
    """An error instead of a reply. Its `type` is the usual one of the status; `details` may hold an `error_code`."""

    status: int = 500
    type: str | None = None
    message: str = "scripted error"
    headers: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StreamError(Step):
    """An SSE `error` event after status 200 and some events of `reply`; without a stream, the error's own status."""

    after_events: int = 2
    type: str = "overloaded_error"
    message: str = "Overloaded"
    reply: Reply = _FILLER


class Cut(StrEnum):
    """How a connection ends in the middle of a reply."""

    CLEAN_EOF = "clean_eof"  # the body ends as if it were whole
    FIN = "fin"  # the connection is closed, the body never ended
    RESET = "reset"  # the connection is reset


@dataclass(frozen=True)
class CutStream(Step):
    """The connection ends after `after_events` events of `reply`; with 0, FIN and RESET end it before the headers.

    Without a stream half of the body is sent, or with 0 nothing at all; CLEAN_EOF is like FIN then.
    """

    reply: Reply = _FILLER
    after_events: int = 2
    how: Cut = Cut.CLEAN_EOF


@dataclass(frozen=True)
class Stall(Step):
    """Silence for `seconds`, before the headers or after some events of `reply`, which then goes on.

    With `ping_every` the silence in a stream is full of pings, which keep a client's read timeout from firing.
    """

    seconds: float = 60.0
    after_events: int = 0
    reply: Reply = _FILLER
    ping_every: float | None = None

    def completes(self) -> Reply | None:
        return self.reply


@dataclass(frozen=True)
class NotAMessage(Step):
    """Bytes that are no message: by default a proxy's HTML, with status 200."""

    body: str | bytes = "<html><body><h1>It works!</h1></body></html>"
    content_type: str = "text/html"
    status: int = 200

    @classmethod
    def html(cls, status: int = 200) -> Self:
        """A page of HTML."""
        return cls(status=status)

    @classmethod
    def json(cls) -> Self:
        """JSON that is no message."""
        return cls(body='{"ok": true}', content_type="application/json")

    @classmethod
    def stream(cls, body: str | bytes) -> Self:
        """A whole event stream, malformed in any way."""
        return cls(body=body, content_type="text/event-stream")


@dataclass(frozen=True)
class Script:
    """Steps used up in order: by all requests together, or anew by each conversation (that is, first message)."""

    steps: Sequence[Step]
    per_conversation: bool = False


Responder = Callable[[dict[str, Any]], Step | Awaitable[Step]]

KINDS: Mapping[str, type[Step]] = {
    "reply": Reply,
    "http_error": HttpError,
    "stream_error": StreamError,
    "cut_stream": CutStream,
    "stall": Stall,
    "not_a_message": NotAMessage,
}


class ScriptError(ValueError):
    """A script file is malformed. The message is one line: the file, the entry, what is wrong and how to mend it."""


def load_script(path: Path | str) -> Script:
    """Read a script from a JSON file.

    Raises:
        ScriptError: it is not JSON, or an entry of it is not a step.
        OSError: it can't be read.
    """
    try:
        written = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ScriptError(f"{path}: not JSON: {error}") from error
    match written:
        case list() as entries:
            per_conversation = False
        case {"steps": list() as entries, **rest} if isinstance(rest.pop("per_conversation", False), bool) and not rest:
            per_conversation = written.get("per_conversation", False)
        case _:
            raise ScriptError(f'{path}: write a list of steps, or {{"per_conversation": true, "steps": [...]}}')
    steps = [_step(f"{path}: entry {number}", entry) for number, entry in enumerate(entries, 1)]
    return Script(steps, per_conversation)


def _step(where: str, entry: Any) -> Step:
    kind, written = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else ("", None)
    if kind not in KINDS:
        raise ScriptError(f"{where}: write an object with one key, which is one of {', '.join(KINDS)}")
    try:
        return TypeAdapter(KINDS[kind]).validate_python(_with_ids(written))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"])) or "value"
        known = ", ".join(item.name for item in fields(KINDS[kind]) if item.name != "hold")
        raise ScriptError(f"{where} ({kind}): {at}: {first['msg']}; the fields are {known}") from error


def _with_ids(value: Any) -> Any:
    """`value` with an id in each call, and a signature in each thought, that has none."""
    match value:
        case list():
            return [_with_ids(item) for item in value]
        case {"type": "tool_use", **rest} if "id" not in rest:
            return {**value, "id": new_id("toolu")}
        case {"type": "thinking", **rest} if "signature" not in rest:
            return {**value, "signature": new_id("sig")}
        case {"content": _} | {"reply": _}:
            return {name: _with_ids(item) if name in ("content", "reply") else item for name, item in value.items()}
    return value


# --- On the wire ------------------------------------------------------------------------------------------------------
