"""A task's transcript for people, in lines made safe for a terminal, and for programs, whole. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from settled.activities.calls import is_call, is_server_call
from settled.activities.responses import Stored
from settled.activities.transcript import Node, Role
from settled.worker.printing import moment, safe, stamp
from settled.worker.transcript_fate import Fate
from settled.worker.transcript_story import Call, Conversation, Exchange, Story

MOST_SHOWN = 600
"""Characters of one text that people are shown."""
MOST_LINES = 12
MARGIN = 14
COUNTED = (
    ("input_tokens", "read {}"),
    ("cache_read_input_tokens", "{} from the cache"),
    ("cache_creation_input_tokens", "{} into the cache"),
    ("output_tokens", "wrote {}"),
)
"""What a response's usage counts, and how it is told."""


def lines_of(story: Story) -> list[str]:
    """The transcript for people: long texts shortened, each call with its result."""
    return list(_lines(story))


def as_json(story: Story) -> dict[str, Any]:
    """The whole transcript for programs."""
    record = story.record
    return {
        "task": record.task,
        "agent": record.agent,
        "tenant": record.tenant,
        "principal": record.principal,
        "conversations": [
            {
                "number": one.number,
                "replaces": one.replaces,
                "why": one.root.why,
                "carried": one.carried,
                "parameters": one.root.parameters,
                "fallback": one.root.fallback,
            }
            for one in story.conversations
        ],
        "requests": [_exchange_as_json(exchange) for exchange in story.exchanges],
        "after": [_message(node) for node in story.after],
    }


def about(exchange: Exchange) -> dict[str, Any]:
    """What is known of a request besides its text."""
    stored = exchange.stored
    return {
        "number": exchange.number,
        "conversation": exchange.conversation,
        "at": stamp(stored.at),
        "model": stored.model,
        "purpose": stored.purpose,
        "request_id": stored.request_id,
        "stop_reason": stored.message.get("stop_reason"),
        "usage": stored.message.get("usage"),
        "kept": exchange.fate is Fate.KEPT,
        "fate": exchange.fate,
    }


def headline(exchange: Exchange) -> str:
    """A request in one line."""
    stored = exchange.stored
    asked = f"{stored.model or 'a model'} as {stored.request_id or '(no request id)'}"
    said = f"{moment(stored.at)} {asked}: {stored.message.get('stop_reason')}; {_usage(stored)}"
    return said if exchange.fate is Fate.KEPT else f"{said}; {exchange.fate.upper()}"


def _exchange_as_json(exchange: Exchange) -> dict[str, Any]:
    return about(exchange) | {
        "changes": exchange.stored.changes,
        "sent": [_message(node) for node in exchange.sent],
        "content": exchange.stored.message["content"],
        "calls": [
            {"slot": call.slot, "id": call.id, "name": call.name, "input": call.input, "results": call.results}
            for call in exchange.calls
        ],
    }


def _message(node: Node) -> dict[str, Any]:
    return {"role": node.role, "content": node.content, "digest": node.digest}


def _lines(story: Story) -> Iterator[str]:
    record = story.record
    yield from _line("task", record.task)
    yield from _line("agent", f"{record.agent}, for {record.principal} of {record.tenant}")
    shown = 0
    for exchange in story.exchanges:
        for one in story.conversations[shown : exchange.conversation]:
            yield from _conversation(one, story)
        shown = max(shown, exchange.conversation)
        yield ""
        yield from _line(f"request {exchange.number}", headline(exchange))
        if exchange.stored.changes:
            yield from _line("with", _json(exchange.stored.changes))
        for node in exchange.sent:
            yield from _sent(node, story)
        yield from _answered(exchange)
    for one in story.conversations[shown:]:
        yield from _conversation(one, story)
    if story.after:
        yield ""
    for node in story.after:
        yield from _sent(node, story)


def _conversation(one: Conversation, story: Story) -> Iterator[str]:
    parameters = one.root.parameters
    before = story.conversations[one.replaces - 1].root.parameters if one.replaces else {}
    tools = [str(tool.get("name")) for tool in parameters.get("tools", ())]
    yield ""
    went_on = f", goes on from conversation {one.replaces} ({one.root.why})" if one.replaces else ""
    taken = f", with {one.carried} message{'s' * (one.carried > 1)} of it" if one.carried else ""
    yield from _line(f"conversation {one.number}", f"{one.root.model}{went_on}{taken}")
    if parameters.get("system") != before.get("system"):
        yield from _line("system", str(parameters.get("system", "")))
    if not before or parameters.get("tools") != before.get("tools"):
        yield from _line("tools", ", ".join(tools) or "none")


def _sent(node: Node, story: Story) -> Iterator[str]:
    """A message that was sent; the results in it are told with their calls."""
    for block in node.content:
        if node.role is Role.ASSISTANT:
            yield from _block(block)
        elif block.get("type") != "tool_result":
            said = str(block.get("text")) if block.get("type") == "text" else _json(block)
            yield from _line("goal" if said == story.record.request.get("goal") else "executor", said)


def _answered(exchange: Exchange) -> Iterator[str]:
    calls = iter(exchange.calls)
    for block in exchange.stored.message["content"]:
        if is_call(block) and (call := next(calls, None)) is not None:
            yield from _call(call, exchange.fate)
        else:
            yield from _block(block)


def _call(call: Call, fate: Fate) -> Iterator[str]:
    yield from _line("calls", f"{call.name} {_json(call.input)}  [{call.id}]")
    for result in call.results:
        yield from _line("error" if result.get("is_error") else "result", _text_of(result.get("content")))
    if not call.results:
        yield from _line("result", "none so far" if fate is Fate.KEPT else "none: it was not run")


def _block(block: Any) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind == "text":
        yield from _line("says", str(block.get("text")))
    elif kind == "thinking":
        yield from _line("thinks", str(block.get("thinking")) or "(not shown by the provider)")
    elif is_server_call(block):
        yield from _line("provider", f"runs {block.get('name')} {_json(block.get('input'))}")
    elif is_call(block):
        yield from _line("calls", f"{block.get('name')} {_json(block.get('input'))}")
    else:
        yield from _line(str(kind)[: MARGIN - 2], _json(block))


def _text_of(content: Any) -> str:
    return content if isinstance(content, str) else _json(content)


def _usage(stored: Stored) -> str:
    usage = stored.message.get("usage")
    counted = usage if isinstance(usage, Mapping) else {}
    told = [
        words.format(f"{counted[name]:,}")
        for name, words in COUNTED
        if isinstance(counted.get(name), int) and (counted[name] or not name.startswith("cache"))
    ]
    return ", ".join(told) + " tokens" if told else "no usage told"


def _line(name: str, text: str) -> Iterator[str]:
    """The text under its name, a line for each of its own, as far as people want to read on."""
    lines = _shortened(text)
    for place, line in enumerate(lines):
        yield f"{safe(name if place == 0 else ''):<{MARGIN}}  {safe(line)}".rstrip()


def _shortened(text: str) -> Sequence[str]:
    lines = text[:MOST_SHOWN].splitlines()[:MOST_LINES] or [""]
    if len("\n".join(lines)) < len(text.rstrip()):
        lines.append(f"[… {len(text):,} characters in all; --json has them]")
    return lines


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
