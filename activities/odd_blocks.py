"""Blocks that the API has sent, and doesn't take back as they are: the least that has to change about them. Pure.

    a call whose name no tool can have                              a name that says so
    a call whose input is no object                                 an object that holds it; an empty one for none
    a text without words; a thought that isn't whole, or signed;    left out
    a result of the model's own; a call of the provider's without
    an id, or a result of one

No call that is changed was run: admission has refused it, and its result says why. What was received stays in the
transcript.
"""

from __future__ import annotations

import re
from typing import Any

from settled.activities.calls import is_blank, is_call, is_server_call

Block = dict[str, Any]

CALL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""What the API takes back as the name of a call."""
NO_TOOL = "_no_such_tool"
"""The name of a call that has none; no tool is called so, since their names begin with a letter."""
GIVEN = "input"
"""The field in which an input that is no object goes back."""


def is_unfit(block: Block) -> bool:
    """Whether the API takes the block back in no form, from a response, so that it is left out."""
    match block.get("type"):
        case "text":
            return is_blank(block)
        case "tool_result":
            return True
        case "thinking":
            return not (_is_whole(block.get("thinking")) and _is_whole(block.get("signature")) and block["signature"])
        case "redacted_thinking":
            return not _is_whole(block.get("data"))
        case kind if str(kind).endswith("_tool_result"):
            return not isinstance(block.get("tool_use_id"), str)
        case _:
            return is_server_call(block) and not isinstance(block.get("id"), str)


def well_formed(block: Block) -> Block:
    """The block with what makes a call of it, if it is one; the same block where nothing is to be changed."""
    if not is_call(block):
        return block
    name, given, changes = block.get("name"), block.get("input"), Block()
    if not isinstance(name, str) or not CALL_NAME.fullmatch(name):
        changes["name"] = NO_TOOL
    if not isinstance(given, dict):
        changes["input"] = {} if given is None else {GIVEN: given}
    return {**block, **changes} if changes else block


def without_blanks_within(block: Block) -> Block:
    """The block without blank texts in what it holds, as a result of the provider's may; else the same block."""
    held = block.get("content")
    if not isinstance(held, list) or not any(map(is_blank, held)):
        return block
    return {**block, "content": [part for part in held if not is_blank(part)]}


def _is_whole(text: object) -> bool:
    """Whether it is a text that can be sent as it is. A thought is signed: one that was changed is refused."""
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
