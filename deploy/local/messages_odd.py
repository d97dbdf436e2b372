"""What a client has to change about an odd reply, so that the API takes it back. All else has to stay as it was.

What is refused in any form is left out. A call is never left out, since its result has to follow it: what makes no call
of it gives way to something that does.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from settled.local.messages_rules import CALL_ID, NAME, THINKING, Block, block_faults, is_blank

Fields = Sequence[frozenset[str]]
"""Fields of calls, call by call."""


def sent_back(content: Sequence[Block]) -> list[Block]:
    """What of a reply can stand in a request, without the halves of surrogate pairs, which none can carry."""
    kept = list[Block]()
    for block in content:
        sent = _without_blanks(_in_whole_characters(block))
        spoilt = block["type"] in THINKING and sent != block
        if block["type"] == "tool_use" or not (spoilt or is_blank(sent) or any(block_faults("", "assistant", sent))):
            kept.append(sent)
    return kept


def free_fields(content: Sequence[Block], taken: Iterable[str]) -> Fields:
    """The fields of a reply's calls that a client has to change, call by call.

    Args:
        content: the reply, as it can be sent back.
        taken: the ids of the calls before it.
    """
    used: list[Any] = list(taken)
    free = []
    for call in content:
        if call["type"] == "tool_use":
            fits = {
                "id": _matches(CALL_ID, call.get("id")) and call["id"] not in used,
                "name": _matches(NAME, call.get("name")),
                "input": isinstance(call.get("input"), dict),
            }
            free.append({field for field, fit in fits.items() if not fit})
            used.append(call.get("id"))
    ids = {"id"} if any("id" in fields for fields in free) else set[str]()  # others may be made up for all of them
    return tuple(frozenset(fields | ids) for fields in free)


def without_fields(content: Sequence[Block], free: Fields) -> list[Block]:
    """The content with nothing in these fields of its calls."""
    left = iter(free)
    return [{**block, **dict.fromkeys(next(left, ()))} if block["type"] == "tool_use" else block for block in content]


def _in_whole_characters(block: Block) -> dict[str, Any]:
    text = json.dumps(block, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    made: dict[str, Any] = json.loads(text)
    return made


def _without_blanks(block: dict[str, Any]) -> dict[str, Any]:
    held = block.get("content")
    return {**block, "content": [part for part in held if not is_blank(part)]} if isinstance(held, list) else block


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
