"""The stock clerk: rules that stand in for the model when there is no API key.

`clerk(body)` is a pure function of a request body. For a goal that it understands it proposes `reserve_stock` or
`lookup_stock`; then it reads the results and says what became of them. It claims nothing that a result doesn't say.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from settled.local.messages_rules import Block, Body, Message, blocks, canonical
from settled.local.messages_script import Reply, tool_use

RESERVE, LOOK_UP = "reserve_stock", "lookup_stock"
WHO = "I am the scripted stock clerk, not a model"
UNDERSTANDS = f'{WHO}; I understand "reserve 2 of A1 for order 1001" and "how many A1 are there?".'
NEWS = "For your information, from the executor:"
"""How the executor begins when it tells a repeated task what was done already."""

# --- Goals ------------------------------------------------------------------------------------------------------------

_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {"a": "1", "an": "1", **{word: str(number) for number, word in enumerate(_WORDS, 1)}}
_COUNT = rf"(?P<quantity>\d+|{'|'.join(NUMBERS)})(?:\s*x)?"
_FILLER = r"(?:(?:the|of|for|in|any|some|units?|pieces?|pcs|items?|stock|levels?|sku|article|product)\s+)*"
_SKU = r"(?P<sku>(?!(?:are|is|do|does)\b)[a-z0-9]\w*(?:[.-]\w+)*)"
_ORDER = r"(?:for|to|on)\s+(?:the\s+|my\s+)?order\s+(?:number\s+|no\.?\s*)?#?(?P<order>\w+(?:-\w+)*)"
_LINE = r"(?:,?\s+(?:on\s+)?line\s+(?P<line>\d+))?"
_WHAT = rf"\breserve\s+{_COUNT}\s+{_FILLER}{_SKU}"

GOALS: Sequence[tuple[str, re.Pattern[str]]] = (  # the first pattern that is found decides
    (RESERVE, re.compile(rf"{_WHAT}\s+{_ORDER}{_LINE}", re.IGNORECASE)),
    (RESERVE, re.compile(rf"\b{_ORDER}{_LINE},?\s+(?:please\s+)?{_WHAT}", re.IGNORECASE)),
    (LOOK_UP, re.compile(rf"\b(?:how\s+(?:many|much)|look\s*up|check|is\s+there)\s+{_FILLER}{_SKU}", re.IGNORECASE)),
)
NEGATION = re.compile(r"\b(?:not|never|don'?t|cancel)\b[^.!?;\n]*$", re.IGNORECASE)  # earlier in the same sentence


class Goal(NamedTuple):
    """What somebody wants of a tool: its name, and the arguments as words."""

    tool: str
    words: Mapping[str, str]


def goals(said: str) -> list[Goal]:
    """The goals in a text, all of one kind; none if it is not understood, or says not to."""
    for tool, pattern in GOALS:
        found = [match for match in pattern.finditer(said) if _looks_like_sku(match["sku"])]
        if any(NEGATION.search(said[: match.start()]) for match in found):
            return []
        if found:
            return [Goal(tool, {name: word for name, word in match.groupdict().items() if word}) for match in found]
    return []


def _looks_like_sku(word: str) -> bool:
    """A1 or ZZ, but not the "whether" of "check whether"."""
    return word.isupper() or any(letter.isdigit() for letter in word)


def _arguments(goal: Goal, tool: Mapping[str, Any]) -> dict[str, Any]:
    """The goal's words as the tool's schema wants them; without a schema, only counts are numbers."""
    schema = tool.get("input_schema", {}).get("properties")
    properties = schema if isinstance(schema, dict) else {}
    made: dict[str, Any] = {}
    for name, word in goal.words.items():
        written = NUMBERS.get(word.lower(), word) if name == "quantity" else word
        wanted = json.dumps(properties.get(name))
        number = '"integer"' in wanted or (name in ("quantity", "line") and '"string"' not in wanted)
        made[name] = int(written) if number and written.isdecimal() else written
    return made


# --- Results ----------------------------------------------------------------------------------------------------------

UNSETTLED = "It is not known whether {quantity} of {sku} are reserved for order {order}: {why}."
RESERVE_SENTENCES: Mapping[str, str] = {  # any status that isn't listed leaves it open
    "completed": "Reserved {quantity} of {sku} for order {order}{reservation}.",
    **dict.fromkeys(
        ("rejected", "not_executed", "not_found", "invalid_arguments", "permission_denied", "unknown_tool"),
        "Not reserved: {why}.",
    ),
}
FOUND = "There are {available} of {sku} available."
FOUND_NO_NUMBER = "The result for {sku} does not say how many are available."
NOT_FOUND = "I could not look up {sku}: {why}."
ASKED = {"quantity": "some", "sku": "it", "order": "it"}  # what the call itself may have left out
AVAILABLE = ("available", "sellable", "quantity", "count", "stock", "on_hand")
RESERVATION = ("reservation_id", "reservation", "id")
REASONS = ("message", "reason", "detail", "note", "error")


def report(call: Block, result: Block) -> str:
    """What became of a call, in one sentence that says no more than its result does."""
    said = _text(result)
    read = _json_object(said)
    if read is None or call["name"] not in (RESERVE, LOOK_UP):
        return f"{call['name']} answered: {' '.join(said.split())[:200] or 'nothing'}"
    data = read["data"] if isinstance(read.get("data"), dict) else read
    status = str(read.get("status") or ("unknown" if result.get("is_error") else "completed"))
    number = _first(data, RESERVATION)
    facts = {
        **{**ASKED, **call["input"], **{name: data[name] for name in ASKED if name in data}},
        "available": _first(data, AVAILABLE),
        "reservation": f" (reservation {number})" if number else "",
        "why": (_first(read, REASONS) or _first(data, REASONS) or f"the result is {status}").rstrip("."),
    }
    if call["name"] == RESERVE:
        return RESERVE_SENTENCES.get(status, UNSETTLED).format_map(facts)
    found = FOUND if facts["available"] else FOUND_NO_NUMBER
    return (found if status == "completed" else NOT_FOUND).format_map(facts)


def _text(result: Block) -> str:
    content = result.get("content") or ""
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


def _json_object(said: str) -> Mapping[str, Any] | None:
    """The JSON object that a text begins with; notes may follow it."""
    try:
        value, _ = json.JSONDecoder().raw_decode(said.lstrip())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _first(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of some fields that holds a text or a number."""
    values = (record[name] for name in names if name in record)
    return next((str(value) for value in values if isinstance(value, str | int | float) and value != ""), "")


# --- The clerk --------------------------------------------------------------------------------------------------------


def clerk(body: Body) -> Reply:
    """Answer a request as the stock clerk. Call ids come from the messages, so they are new in every turn."""
    messages = body["messages"]
    last = blocks(messages[-1])
    results = {block["tool_use_id"]: block for block in last if block["type"] == "tool_result"}
    calls = [block for block in blocks(messages[-2]) if block["type"] == "tool_use"] if results else []
    reports = " ".join(report(call, results[call["id"]]) for call in calls)
    wanted = goals(_asked(messages))
    said = [reports] if reports else []
    if not wanted:
        return Reply.of(*said or [UNDERSTANDS])
    offered = {tool["name"]: tool for tool in body.get("tools", [])}
    if wanted[0].tool not in offered:
        return Reply.of(*said, f"{WHO}; for this I need the tool {wanted[0].tool}, which is not offered to me.")
    return Reply.of(*said, *_proposals(wanted, offered[wanted[0].tool], canonical(messages)))


def _asked(messages: Sequence[Message]) -> str:
    """What somebody says last. A note of the executor's asks for nothing: behind a goal, the goal still stands."""
    texts = _asking(messages[-1])
    if not texts and all(message["role"] == "user" and not _has_results(message) for message in messages):
        texts = _asking(messages[0])[:1]
    return "\n".join(texts)


def _asking(message: Message) -> list[str]:
    texts = [block["text"] for block in blocks(message) if block["type"] == "text"]
    return [text for text in texts if not text.startswith(NEWS)]


def _has_results(message: Message) -> bool:
    return any(block["type"] == "tool_result" for block in blocks(message))


def _proposals(wanted: Sequence[Goal], tool: Mapping[str, Any], seed: str) -> Iterator[Block]:
    for number, goal in enumerate(wanted):
        digest = hashlib.sha256(f"{number} {seed}".encode()).hexdigest()
        yield tool_use(goal.tool, _arguments(goal, tool), id=f"toolu_{digest[:24]}")
