"""Calls and results within a conversation: finding the calls of a response, and pairing results with them by slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settled.activities.transcript import Node, Role
from settled.workflows.errors import TranscriptError


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

    A call whose id is missing, not text, or used twice in the response gets an id of our own: results pair by slot, so
    that no id, however broken, leads to a wrong pairing or a second run.
    """
    blocks = [(place, block) for place, block in enumerate(content) if is_call(block)]
    ids = Counter(block.get("id") for _, block in blocks if isinstance(block.get("id"), str))
    calls = []
    for slot, (place, block) in enumerate(blocks):
        received = block.get("id")
        usable = isinstance(received, str) and received != "" and ids[received] == 1
        calls.append(
            ProposedCall(
                slot=slot,
                block=place,
                call_id=received if usable else f"slot_{slot}",
                name=block.get("name"),
                input=block.get("input"),
            )
        )
    return calls


def is_call(block: Any) -> bool:
    """Whether the block is a call for us to run; server tools have another type and are the provider's."""
    return isinstance(block, Mapping) and block.get("type") == "tool_use"


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
        blocks.append(block)
    return blocks


def shown_ids(node: Node) -> dict[int, str]:
    """The id of each call of an assistant message as the conversation shows it.

    Ids of our own are made unique over the whole conversation by the message's depth.
    """
    calls = proposed_calls(node.content)
    received = [block.get("id") for block in node.content if is_call(block)]
    return {
        call.slot: call.call_id if call.call_id == received[call.slot] else f"call_{node.depth}_{call.slot}"
        for call in calls
    }


def view(chain: Sequence[Node]) -> list[dict[str, Any]]:
    """The messages of a request: what the chain holds, less what the API refuses to take back.

    Left out are text blocks that are empty or white space (never thinking blocks), and messages of which nothing is
    left. Everything else goes back as it was received.

    Raises:
        TranscriptError: a call has no result in the message that follows it.
    """
    messages = []
    open_ids: set[str] = set()
    for node in chain[1:]:
        content = [block for block in _with_shown_ids(node) if not _is_blank(block)]
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
            messages.append({"role": str(node.role), "content": content})
    if open_ids:
        raise TranscriptError(f"calls {sorted(open_ids)} have no result")
    return messages


def _with_shown_ids(node: Node) -> list[Any]:
    content = node.content
    if node.role is not Role.ASSISTANT:
        return list(content)
    ids = shown_ids(node)
    by_block = {call.block: ids[call.slot] for call in proposed_calls(content)}
    return [{**block, "id": by_block[place]} if place in by_block else block for place, block in enumerate(content)]


def _is_blank(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and not str(block.get("text", "")).strip()
