"""What the Messages API demands of a request, as functions of its body alone.

`first_fault(body)` judges one body by itself; `messages_memory` judges it by the replies given before. A fault is one
line in the API's manner, `messages.2.content.0: …`; no fault is None. Rules run in the order of `RULES`, and each
trusts those before it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

Body = Mapping[str, Any]
Block = Mapping[str, Any]
Message = Mapping[str, Any]

PREFILL = "messages: the conversation must end with a user message; assistant prefill is not supported"
"""The last fault that is looked for: a server that knows that the last message was a pause passes over it."""
SAMPLING = ("temperature", "top_p", "top_k")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
THINKING = ("thinking", "redacted_thinking")
_MODEL_BLOCKS = frozenset({"tool_use", *SERVER_CALLS, *THINKING})
FORBIDDEN_BLOCKS: Mapping[str, frozenset[str]] = {
    "user": _MODEL_BLOCKS,
    "assistant": frozenset({"tool_result"}),
    "system": _MODEL_BLOCKS | {"tool_result"},
}
BLOCK_FIELDS: Mapping[str, Mapping[str, type]] = {  # a type that is not listed passes: the API grows new ones
    "text": {"text": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    **{kind: {"id": str} for kind in SERVER_CALLS},
}


def first_fault(body: Any, *, counting: bool = False) -> str | None:
    """The first reason to refuse `body`, or None; `counting` leaves out what `/count_tokens` does not ask for."""
    if not isinstance(body, dict):
        return "the request body must be a JSON object"
    rules = RULES if counting else (_max_tokens, *RULES)
    return next((fault for rule in rules for fault in rule(body)), None)


def blocks(message: Message) -> Sequence[Block]:
    """The content blocks of a message; a string is short for one text block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def call_ids(message: Message) -> list[str]:
    """The ids of the client tool calls in a message, in order."""
    return [block["id"] for block in blocks(message) if block["type"] == "tool_use"]


def unfinished_server_calls(content: Sequence[Block]) -> list[str]:
    """The ids of calls that the provider runs itself and whose results the content does not hold yet."""
    done = [block.get("tool_use_id") for block in content if block["type"].endswith("_tool_result")]
    return [block["id"] for block in content if block["type"] in SERVER_CALLS and block["id"] not in done]


def merged(messages: Sequence[Message]) -> list[tuple[str, int, list[Block]]]:
    """The messages as the API reads them, those of one role in a row as one: its role, its first place, its blocks."""
    turns: list[tuple[str, int, list[Block]]] = []
    for index, message in enumerate(messages):
        if not turns or turns[-1][0] != message["role"]:
            turns.append((message["role"], index, []))
        turns[-1][2].extend(blocks(message))
    return turns


def _max_tokens(body: Body) -> Iterator[str]:
    limit = body.get("max_tokens")
    if limit is None:
        yield "max_tokens: Field required"
    elif type(limit) is not int or limit < 1:
        yield "max_tokens: Input should be an integer greater than or equal to 1"
    else:
        match body.get("thinking"):
            case {"budget_tokens": int() as budget} if budget >= limit:
                yield "`max_tokens` must be greater than `thinking.budget_tokens`"


def _envelope(body: Body) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        yield "messages: at least one message is required"
    if not isinstance(body.get("stream", False), bool):
        yield "stream: Input should be a valid boolean"
    yield from (f"{name}: sampling parameters are not supported by this model" for name in SAMPLING if name in body)


def _modes(body: Body) -> Iterator[str]:
    match body.get("tool_choice"):
        case None | {"type": "auto" | "none"}:
            pass
        case _:
            yield "tool_choice: forced tool use is not supported by this model; use `auto` or `none`"
    match body.get("thinking"):
        case {"type": "disabled"}:
            yield "thinking: `disabled` is not supported by this model"
        case None | {"type": str()}:
            pass
        case _:
            yield "thinking.type: Field required"


def _tools(body: Body) -> Iterator[str]:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        yield "tools: Input should be a valid list"
    seen = set[str]()
    for index, tool in enumerate(tools):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield f"tools.{index}.name: String should match pattern '^{NAME.pattern}$'"
        elif name in seen:
            yield f"tools: Tool names must be unique; {name} is repeated"
        elif tool.get("type") in (None, "custom"):  # the provider's own tools bring no schema
            yield from _input_schema(f"tools.{index}.custom.input_schema", tool.get("input_schema"))
        seen.add(str(name))


def _input_schema(where: str, schema: Any) -> Iterator[str]:
    match schema:
        case {"oneOf": _} | {"allOf": _} | {"anyOf": _}:
            yield f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        case {"type": "object"}:
            pass
        case _:
            yield f"{where}.type: Input should be 'object'"


def _shapes(body: Body) -> Iterator[str]:
    for index, message in enumerate(body["messages"]):
        match message:
            case {"role": "user" | "assistant" | "system" as role, "content": str() | list() as content} if content:
                for position, block in enumerate(blocks(message)):
                    yield from block_faults(f"messages.{index}.content.{position}", role, block)
            case {"role": "user" | "assistant" | "system", "content": "" | []}:
                yield f"messages.{index}: all messages must have non-empty content"
            case {"role": "user" | "assistant" | "system"}:
                yield f"messages.{index}.content: Input should be a string or a list of content blocks"
            case _:
                yield f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'"


def block_faults(where: str, role: str, block: Any) -> Iterator[str]:
    """Why the block is refused in a message of the role, looked at by itself."""
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        yield f"{where}: a content block needs a `type`"
    elif kind in FORBIDDEN_BLOCKS[role]:
        yield f"{where}: `{kind}` blocks are not permitted in a message of role `{role}`"
    else:
        of_server = {"tool_use_id": str} if kind.endswith("_tool_result") else {}
        for name, wanted in BLOCK_FIELDS.get(kind, of_server).items():
            if not isinstance(block.get(name), wanted):
                yield f"{where}.{kind}.{name}: Input should be a valid {wanted.__name__}"
        yield from _block_values(f"{where}.{kind}", block)


def _block_values(where: str, block: Block) -> Iterator[str]:
    match block:
        case {"type": "thinking", "signature": ""}:
            yield f"{where}: Invalid `signature` in `thinking` block"
        case {"type": "tool_use"} if not CALL_ID.fullmatch(block["id"]):
            yield f"{where}.id: String should match pattern '^{CALL_ID.pattern}$'"
        case {"type": "tool_use"} if not NAME.fullmatch(block["name"]):
            yield f"{where}.name: String should match pattern '^{NAME.pattern}$'"
        case {"type": "tool_result"}:
            yield from _result_values(where, block.get("content") or "", failed=block.get("is_error") is True)


def _result_values(where: str, content: Any, *, failed: bool) -> Iterator[str]:
    parts = content if isinstance(content, list) else []
    if not isinstance(content, str | list) or not all(isinstance(part, dict) for part in parts):
        yield f"{where}.content: Input should be a string or a list of content blocks"
    if failed and not str(content).strip():
        yield f"{where}: content cannot be empty if `is_error` is true"
    if failed and any(part.get("type") != "text" for part in parts):
        yield f"{where}: all content must be type `text` if `is_error` is true"


def _starts(body: Body) -> Iterator[str]:
    if body["messages"][0]["role"] != "user":
        yield "messages.0: the first message must use the `user` role"


def _prefill(body: Body) -> Iterator[str]:
    role, _, content = merged(body["messages"])[-1]
    if role == "assistant" and not (unfinished_server_calls(content) or content[-1]["type"] == "compaction"):
        yield PREFILL


def is_blank(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    words = block.get("text")
    return not isinstance(words, str) or not words.strip()


def _texts(body: Body) -> Iterator[str]:
    """No blank text block anywhere; but "" as a whole tool result is fine: a tool may have nothing to say."""
    places = [("system", body["system"])] if isinstance(body.get("system"), list) else []
    for index, message in enumerate(body["messages"]):
        places.append((f"messages.{index}", blocks(message)))
        places += [(f"messages.{index}", b["content"]) for b in blocks(message) if isinstance(b.get("content"), list)]
    for where, content in places:
        if any(is_blank(block) for block in content):
            yield f"{where}: text content blocks must be non-empty and contain non-whitespace text"


def _unique_calls(body: Body) -> Iterator[str]:
    seen = set[str]()
    for index, message in enumerate(body["messages"]):
        for call_id in call_ids(message):
            if call_id in seen:
                yield f"messages.{index}: `tool_use` ids must be unique; {call_id} is repeated"
            seen.add(call_id)


def _calls_answered(body: Body) -> Iterator[str]:
    messages = body["messages"]
    for index, (message, after) in enumerate(zip(messages, [*messages[1:], None], strict=True)):
        replies = blocks(after) if after and after["role"] == "user" else []
        answered = [block["tool_use_id"] for block in replies if block["type"] == "tool_result"]
        if missing := [call_id for call_id in call_ids(message) if call_id not in answered]:
            yield (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. The one next user message must answer every `tool_use`"
            )


def _server_calls_finish(body: Body) -> Iterator[str]:
    for (_, _, content), (role, index, replies) in pairwise(merged(body["messages"])):
        told = role == "user" and any(block["type"] != "tool_result" for block in replies)
        if told and unfinished_server_calls(content):
            yield f"messages.{index}: after an unfinished server tool call only `tool_result` blocks may follow"


def _results_fit(body: Body) -> Iterator[str]:
    asked: list[str] = []
    for index, message in enumerate(body["messages"]):
        before: list[Block] = []
        for position, block in enumerate(blocks(message)):
            where, call_id = f"messages.{index}.content.{position}", block.get("tool_use_id")
            if block["type"] != "tool_result":
                pass
            elif call_id not in asked:
                yield f"{where}: unexpected `tool_use_id` {call_id}: the previous message has no such `tool_use`"
            elif call_id in [other.get("tool_use_id") for other in before]:
                yield f"{where}: each `tool_use` must have a single result; {call_id} has several"
            elif any(other["type"] != "tool_result" for other in before):
                yield f"{where}: `tool_result` blocks must come first in the message, before any other block"
            before.append(block)
        asked = call_ids(message)


RULES: tuple[Callable[[Body], Iterator[str]], ...] = (
    _envelope,
    _modes,
    _tools,
    _shapes,
    _starts,
    _texts,
    _unique_calls,
    _calls_answered,
    _server_calls_finish,
    _results_fit,
    _prefill,
)


def canonical(value: Any) -> str:
    """JSON text that is equal for equal values: sorted keys, no spaces, ASCII (so that lone surrogates survive)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
