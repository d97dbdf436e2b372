"""Calls and results within a conversation: finding the calls of a response, and pairing results with them by slot."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settled.activities.artifacts import clean
from settled.activities.transcript import Node, Role
from settled.workflows.errors import TranscriptError

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
"""What the API takes back as the id of a call."""
SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})


@dataclass(frozen=True, kw_only=True)
class ProposedCall:
    """A `tool_use` block as it was received."""

    slot: int
    """Its place among the calls of its response, from 0."""
    block: int
    """Its place among the blocks of its response, from 0."""
    call_id: str
    """The id under which its result goes back: as received, or one of our own where that can't tell calls apart."""
    name: Any
    input: Any


def proposed_calls(content: Sequence[Any]) -> list[ProposedCall]:
    """The calls of a response, in its order.

    A call whose id is missing, used twice in the response, or none that the API takes back, gets an id of our own:
    results pair by slot, so that no id, however broken, leads to a wrong pairing or a second run.
    """
    blocks = [(place, block) for place, block in enumerate(content) if is_call(block)]
    ids = Counter(block.get("id") for _, block in blocks if isinstance(block.get("id"), str))
    calls = []
    for slot, (place, block) in enumerate(blocks):
        received = block.get("id")
        usable = isinstance(received, str) and CALL_ID.fullmatch(received) is not None and ids[received] == 1
        calls.append(
            ProposedCall(
                slot=slot,
                block=place,
                call_id=received if usable else _unused(f"slot_{slot}", ids),
                name=block.get("name"),
                input=block.get("input"),
            )
        )
    return calls


def is_call(block: Any) -> bool:
    """Whether the block is a call for us to run; server tools have another type and are the provider's."""
    return isinstance(block, Mapping) and block.get("type") == "tool_use"


def is_server_call(block: Any) -> bool:
    """Whether the block is a call that the provider has run itself, or runs."""
    return isinstance(block, Mapping) and str(block.get("type")) in SERVER_CALLS


def is_blank(block: Any) -> bool:
    """Whether the block is a text without a word, which the API sends but doesn't take back."""
    return isinstance(block, Mapping) and block.get("type") == "text" and not str(block.get("text") or "").strip()


def awaits_server(content: Sequence[Any]) -> bool:
    """Whether a call that the provider runs itself has no result yet: then only results of calls may follow."""
    done = [block.get("tool_use_id") for block in content if str(block.get("type")).endswith("_tool_result")]
    return any(is_server_call(block) and block.get("id") not in done for block in content)


@dataclass(frozen=True, kw_only=True)
class ShownResult:
    """A result as the model sees it."""

    text: str
    is_error: bool


def result_blocks(
    calls: Sequence[ProposedCall], results: Mapping[int, ShownResult], ids: Mapping[int, str]
) -> list[Any]:
    """The `tool_result` blocks of one user message: one for each call, in call order.

    Args:
        calls: the calls of the response.
        results: what to show, by slot.
        ids: the id of each call as the conversation shows it, by slot.

    Raises:
        TranscriptError: a call has no result, or a result no call.
    """
    slots = {call.slot for call in calls}
    if slots != results.keys():
        raise TranscriptError(
            f"calls without a result: {sorted(slots - results.keys())}; "
            f"results without a call: {sorted(results.keys() - slots)}"
        )
    blocks = []
    for call in calls:
        shown = results[call.slot]
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids[call.slot], "content": shown.text}
        if shown.is_error:
            block["is_error"] = True
            block["content"] = shown.text if shown.text.strip() else "failed"  # the API wants to be told something
        blocks.append(block)
    return blocks


def shown_ids(node: Node) -> dict[int, str]:
    """The id of each call of an assistant message as the conversation shows it.

    Ids of our own have the message's depth in them, so that those of two messages differ.
    """
    calls = proposed_calls(node.content)
    received = [block.get("id") for block in node.content if is_call(block)]
    return {
        call.slot: call.call_id
        if call.call_id == received[call.slot]
        else _unused(f"call_{node.depth}_{call.slot}", received)
        for call in calls
    }


def _unused(wanted: str, taken: Collection[Any]) -> str:
    """The id, or a longer one if it is taken."""
    while wanted in taken:
        wanted += "_"
    return wanted


def view(chain: Sequence[Node]) -> list[dict[str, Any]]:
    """The messages of a request: what the chain holds, less what the API refuses to take back.

    Left out are text blocks that are empty or white space (never thinking blocks), and messages of which nothing is
    left. An id that an earlier message has used, which the API refuses, is another one here. Everything else goes back
    as it was received.

    Raises:
        TranscriptError: a call has no result in the message that follows it.
    """
    messages = []
    open_ids: set[str] = set()
    used: set[str] = set()
    renamed: dict[str, str] = {}
    for node in chain[1:]:
        if node.role is Role.ASSISTANT:
            renamed = _renamed(node, used)
            used |= {renamed.get(call_id, call_id) for call_id in shown_ids(node).values()}
        content = [_with_id(block, renamed) for block in _with_shown_ids(node) if not is_blank(block)]
        if node.role is Role.USER:
            answered = {block["tool_use_id"] for block in content if block.get("type") == "tool_result"}
            if answered != open_ids:
                raise TranscriptError(f"node {node.digest[:12]}: calls {sorted(open_ids ^ answered)} are not paired")
            open_ids = set()
        elif open_ids:
            raise TranscriptError(f"node {node.digest[:12]}: calls {sorted(open_ids)} have no result")
        if node.role is Role.ASSISTANT:
            open_ids = {block["id"] for block in content if is_call(block)}
        if content:
            messages.append({"role": str(node.role), "content": _sendable(content)})
    if open_ids:
        raise TranscriptError(f"calls {sorted(open_ids)} have no result")
    return messages


def _sendable(content: list[Any]) -> list[Any]:
    """The same content, unless it holds half a surrogate pair, which no request can carry."""
    text = json.dumps(content, ensure_ascii=False)
    mended: list[Any] = content if clean(text) == text else json.loads(clean(text))
    return mended


def _with_shown_ids(node: Node) -> list[Any]:
    content = node.content
    if node.role is not Role.ASSISTANT:
        return list(content)
    ids = shown_ids(node)
    by_block = {call.block: ids[call.slot] for call in proposed_calls(content)}
    return [{**block, "id": by_block[place]} if place in by_block else block for place, block in enumerate(content)]


def _renamed(node: Node, used: Collection[str]) -> dict[str, str]:
    """Other ids for those calls of an assistant message whose ids an earlier message has used."""
    ids = shown_ids(node)
    taken = {*used, *ids.values()}
    return {call_id: _unused(f"call_{node.depth}_{slot}", taken) for slot, call_id in ids.items() if call_id in used}


def _with_id(block: Any, renamed: Mapping[str, str]) -> Any:
    name = "id" if is_call(block) else "tool_use_id"
    if block.get("type") not in ("tool_use", "tool_result") or str(block.get(name)) not in renamed:
        return block
    return {**block, name: renamed[block[name]]}
