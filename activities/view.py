"""The view: the messages that a request sends, made of the transcript by one pipeline. Pure.

    since_root ─▶ without_unfit ─▶ with_calls ─▶ with_ids ─▶ paired ─▶ without_empty ─▶ in_whole_characters

Each step takes and gives whole messages, in order, and looks back only. So the view of a longer conversation begins
with that of a shorter one, byte for byte: the provider binds each response to what came before it, and caches by it.
This is why nothing is trimmed here. A result is cut once, where it is produced (`outputs`); a conversation that gets
too long goes on in a new one (`compacting`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from settled.activities.artifacts import clean
from settled.activities.calls import ids_in, is_blank, is_call, proposed_calls, unused
from settled.activities.odd_blocks import is_unfit, well_formed, without_blanks_within
from settled.activities.transcript import Node, Role
from settled.workflows.errors import TranscriptError


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message on its way into the view."""

    digest: str
    """The node that it was made of."""
    depth: int
    role: Role
    content: list[Any]
    whole: bool = True
    """Whether it holds whole characters only, and no half of a surrogate pair."""


def view(chain: Sequence[Node]) -> list[dict[str, Any]]:
    """The messages of a request, as they are sent.

    Raises:
        TranscriptError: a call has no result in the message that follows it, or a result no call.
    """
    messages = since_root(chain)
    for step in STEPS:
        messages = step(messages)
    return [{"role": str(message.role), "content": message.content} for message in messages]


def last_said(chain: Sequence[Node], content: Sequence[Any] = ()) -> list[Any]:
    """The blocks of the model's last words, as far as they are sent: of all messages that nobody's words part.

    Args:
        chain: the conversation.
        content: a response to it.
    """
    said = [block for block in content if not is_unfit(block)]
    for node in reversed(chain):
        if node.role is Role.ASSISTANT:
            said = [*(block for block in node.content if not is_unfit(block)), *said]
        elif said:
            break
    return said


def since_root(chain: Sequence[Node]) -> list[Message]:
    """What was said since the conversation's last root: behind it lies what was summed up, or another model's turn."""
    start = max((place for place, node in enumerate(chain) if node.role is Role.ROOT), default=-1) + 1
    return [
        Message(digest=node.digest, depth=node.depth, role=node.role, content=node.content, whole=_is_utf8(node.body))
        for node in chain[start:]
    ]


def without_unfit(messages: Sequence[Message]) -> list[Message]:
    """Without what the API sends but takes back in no form: blank texts, above all. Thinking that is whole stays."""
    made = []
    for message in messages:
        left_out = is_unfit if message.role is Role.ASSISTANT else is_blank
        content = [without_blanks_within(block) for block in message.content if not left_out(block)]
        made.append(replace(message, content=content))
    return made


def with_calls(messages: Sequence[Message]) -> list[Message]:
    """Calls with a name and an input that the API takes back."""
    return [
        replace(message, content=[well_formed(block) for block in message.content])
        if message.role is Role.ASSISTANT
        else message
        for message in messages
    ]


def with_ids(messages: Sequence[Message]) -> list[Message]:
    """Calls under ids that the API takes back: one of our own where an id is unusable, or an earlier message's."""
    used: set[str] = set()
    renamed: dict[str, str] = {}
    made = []
    for message in messages:
        shown = message
        if message.role is Role.ASSISTANT:
            ids = ids_in(message.content, message.depth)
            renamed = _renamed(ids, message.depth, used)
            used.update(renamed.get(call_id, call_id) for call_id in ids.values())
            if list(ids.values()) != [block.get("id") for block in message.content if is_call(block)]:
                shown = _with_own_ids(message, ids)
        if renamed:
            shown = replace(shown, content=[_with_id(block, renamed) for block in shown.content])
        made.append(shown)
    return made


def paired(messages: Sequence[Message]) -> list[Message]:
    """The same messages, in which each call has its result in the message that follows it, and each result its call.

    Raises:
        TranscriptError: it is not so. No such request may leave.
    """
    open_ids: set[str] = set()
    for message in messages:
        if message.role is Role.USER:
            answered = {block["tool_use_id"] for block in message.content if block.get("type") == "tool_result"}
            if answered != open_ids:
                raise TranscriptError(f"node {message.digest[:12]}: calls {sorted(open_ids ^ answered)} are not paired")
            open_ids = set()
        elif open_ids:
            raise TranscriptError(f"node {message.digest[:12]}: calls {sorted(open_ids)} have no result")
        else:
            open_ids = {block["id"] for block in message.content if is_call(block)}
    if open_ids:
        raise TranscriptError(f"calls {sorted(open_ids)} have no result")
    return list(messages)


def without_empty(messages: Sequence[Message]) -> list[Message]:
    """Without messages of which nothing is left."""
    return [message for message in messages if message.content]


def in_whole_characters(messages: Sequence[Message]) -> list[Message]:
    """Without halves of surrogate pairs, which no request can carry; whatever holds none stays as it was received."""
    return [message if message.whole else replace(message, content=_mended(message.content)) for message in messages]


STEPS: tuple[Callable[[Sequence[Message]], list[Message]], ...] = (
    without_unfit,
    with_calls,
    with_ids,
    paired,
    without_empty,
    in_whole_characters,
)


def _with_own_ids(message: Message, ids: Mapping[int, str]) -> Message:
    """The response with an id of our own in place of one that is unusable."""
    content = list(message.content)
    for call in proposed_calls(content):
        content[call.block] = {**content[call.block], "id": ids[call.slot]}
    return replace(message, content=content)


def _renamed(ids: Mapping[int, str], depth: int, used: Collection[str]) -> dict[str, str]:
    """Other ids for those calls of a response whose ids an earlier message has used."""
    met = {slot: call_id for slot, call_id in ids.items() if call_id in used}
    taken = {*used, *ids.values()} if met else ()
    return {call_id: unused(f"call_{depth}_{slot}", taken) for slot, call_id in met.items()}


def _with_id(block: Any, renamed: Mapping[str, str]) -> Any:
    name = "id" if is_call(block) else "tool_use_id"
    if block.get("type") not in ("tool_use", "tool_result") or str(block.get(name)) not in renamed:
        return block
    return {**block, name: renamed[block[name]]}


def _mended(content: list[Any]) -> list[Any]:
    mended: list[Any] = json.loads(clean(json.dumps(content, ensure_ascii=False)))
    return mended


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
