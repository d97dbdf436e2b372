"""Calls and results within a conversation: finding the calls of a response, and pairing results with them by slot."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settled.activities.transcript import Node
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
                call_id=received if usable else unused(f"slot_{slot}", ids),
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
    if not isinstance(block, Mapping) or block.get("type") != "text":
        return False
    words = block.get("text")
    return not isinstance(words, str) or not words.strip()


def awaits_server(content: Sequence[Any]) -> bool:
    """Whether a call that the provider runs itself has no result yet: then only results of calls may follow."""
    done = [block.get("tool_use_id") for block in content if str(block.get("type")).endswith("_tool_result")]
    asked = [block.get("id") for block in content if is_server_call(block)]
    return any(isinstance(call_id, str) and call_id not in done for call_id in asked)  # without an id it is left out


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
    """The id of each call of an assistant message as the conversation shows it, by slot."""
    return ids_in(node.content, node.depth)


def ids_in(content: Sequence[Any], depth: int) -> dict[int, str]:
    """The id of each call in a response as the conversation shows it, by slot.

    Ids of our own have the message's depth in them, so that those of two messages differ.
    """
    calls = proposed_calls(content)
    received = [block.get("id") for block in content if is_call(block)]
    return {
        call.slot: call.call_id
        if call.call_id == received[call.slot]
        else unused(f"call_{depth}_{call.slot}", received)
        for call in calls
    }


def unused(wanted: str, taken: Collection[Any]) -> str:
    """The id, or a longer one if it is taken."""
    while wanted in taken:
        wanted += "_"
    return wanted
