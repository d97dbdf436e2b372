"""The stock clerk: rules that stand in for the model when there is no API key.

`clerk(body)` is a pure function of a request body. For a goal that it understands it proposes `reserve_stock`,
`release_stock` or `lookup_stock`; then it reads the results and says what became of them. It claims nothing that a
result doesn't say.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from settled.activities.retelling import SYSTEM as SUMMARY
from settled.local.messages_rules import Block, Body, Message, blocks, canonical
from settled.local.messages_script import Reply, tool_use

RESERVE, RELEASE, LOOK_UP = "reserve_stock", "release_stock", "lookup_stock"
WHO = "I am the scripted stock clerk, not a model"
UNDERSTANDS = (
    f'{WHO}; I understand "reserve 2 of A1 for order 1001", "release the reservation of order 1001 of A1" and'
    ' "how many A1 are there?".'
)
SUMMED_UP = f"{WHO}, and keep no notes: what was done is listed by the executor, below."
"""What it says of a conversation that is to be summed up; it goes on from the goal and the results."""
NEWS = "For your information, from the executor:"
"""How the executor begins when it tells a repeated task what was done already."""

# --- Goals ------------------------------------------------------------------------------------------------------------

_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {"a": "1", "an": "1", **{word: str(number) for number, word in enumerate(_WORDS, 1)}}
_COUNT = rf"(?P<quantity>\d+|{'|'.join(NUMBERS)})(?:\s*x)?"
_FILLER = r"(?:(?:the|of|for|in|any|some|units?|pieces?|pcs|items?|stock|levels?|sku|article|product)\s+)*"
_SKU = r"(?P<sku>(?!(?:are|is|do|does)\b)[a-z0-9]\w*(?:[.-]\w+)*)"
_THE_ORDER = r"(?:the\s+|my\s+)?order\s+(?:number\s+|no\.?\s*)?#?(?P<order>\w+(?:-\w+)*)"
_ORDER = rf"(?:for|to|on)\s+{_THE_ORDER}"
_SOME_LINE = r",?\s+(?:on\s+|of\s+)?line\s+(?P<line>\d+)"
_LINE = rf"(?:{_SOME_LINE})?"
_WHAT = rf"\breserve\s+{_COUNT}\s+{_FILLER}{_SKU}"
_RELEASE = r"\b(?:release|undo)\s+(?!(?:of|for)\b)"  # not the noun
_ITS_ORDER = rf"(?:(?:reserved|made)\s+)?(?:for|to|on|of|from)\s+{_THE_ORDER}"
_WHOLE = r"(?:(?:all|the|my|what\s+is|reservation|reserved|of|for|stock|sku|article|product)\s+)*"  # never a part
_ALL_OF = rf"{_WHOLE}(?!\d+x?(?!\w|[.-]\w)){_SKU}"  # no count
_RESERVATION = r"(?:(?:the|my|stock)\s+)*reservation\s+"

GOALS: Sequence[tuple[str, re.Pattern[str]]] = (  # the first pattern that is found decides
    (RESERVE, re.compile(rf"{_WHAT}\s+{_ORDER}{_LINE}", re.IGNORECASE)),
    (RESERVE, re.compile(rf"\b{_ORDER}{_LINE},?\s+(?:please\s+)?{_WHAT}", re.IGNORECASE)),
    (RELEASE, re.compile(rf"{_RELEASE}{_ALL_OF}\s+{_ITS_ORDER}{_LINE}", re.IGNORECASE)),
    (RELEASE, re.compile(rf"{_RELEASE}{_RESERVATION}{_ITS_ORDER}{_SOME_LINE},?\s+{_ALL_OF}", re.IGNORECASE)),
    (RELEASE, re.compile(rf"{_RELEASE}{_RESERVATION}{_ITS_ORDER},?\s+{_ALL_OF}{_LINE}", re.IGNORECASE)),
    (RELEASE, re.compile(rf"\b{_ORDER}{_LINE},?\s+(?:please\s+)?{_RELEASE}{_ALL_OF}", re.IGNORECASE)),
    (LOOK_UP, re.compile(rf"\b(?:how\s+(?:many|much)|look\s*up|check|is\s+there)\s+{_FILLER}{_SKU}", re.IGNORECASE)),
)
NEGATION = re.compile(r"\b(?:not|never|don'?t|cancel)\b[^.!?;\n]*$", re.IGNORECASE)  # earlier in the same sentence


class Goal(NamedTuple):
    """What somebody wants of a tool: its name, and the arguments as words."""

    tool: str
    words: Mapping[str, str]


def goals(said: str) -> list[Goal]:
    """The goals in a text, all of one kind; none if it is not understood, or says not to, or both to and to undo."""
    found = [(tool, matches) for tool, pattern in GOALS if (matches := _matches(pattern, said))]
    if not found or {RESERVE, RELEASE} <= {tool for tool, _ in found}:
        return []
    tool, matches = found[0]
    if any(NEGATION.search(said[: match.start()]) for match in matches):
        return []
    return [Goal(tool, {name: word for name, word in match.groupdict().items() if word}) for match in matches]


def _matches(pattern: re.Pattern[str], said: str) -> list[re.Match[str]]:
    return [match for match in pattern.finditer(said) if _looks_like_sku(match["sku"])]


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

UNSETTLED: Mapping[str, str] = {  # what any status leaves open that isn't listed below
    RESERVE: "It is not known whether {quantity} of {sku} are reserved for order {order}: {why}.",
    RELEASE: "It is not known whether the reservation of {sku} for order {order} is released: {why}.",
}
NOT_DONE = ("rejected", "not_executed", "not_found", "invalid_arguments", "permission_denied", "unknown_tool")
SETTLED: Mapping[str, Mapping[str, str]] = {
    RESERVE: {
        "completed": "Reserved {quantity} of {sku} for order {order}{number}.",
        **dict.fromkeys(NOT_DONE, "Not reserved: {why}."),
    },
    RELEASE: {
        "completed": "Released the reservation of {quantity} of {sku} for order {order}{number}.",
        **dict.fromkeys(NOT_DONE, "Not released: {why}."),
    },
}
FOUND = "There are {available} of {sku} available."
FOUND_NO_NUMBER = "The result for {sku} does not say how many are available."
NOT_FOUND = "I could not look up {sku}: {why}."
ASKED = {"quantity": "some", "sku": "it", "order": "it"}  # what the call itself may have left out
AVAILABLE = ("available", "sellable", "quantity", "count", "stock", "on_hand")
RECORD = {RESERVE: "reservation", RELEASE: "release"}
REASONS = ("message", "reason", "detail", "note", "error")


def report(call: Block, result: Block) -> str:
    """What became of a call, in one sentence that says no more than its result does."""
    said = _text(result)
    read = _json_object(said)
    if read is None or call["name"] not in (RESERVE, RELEASE, LOOK_UP):
        return f"{call['name']} answered: {' '.join(said.split())[:200] or 'nothing'}"
    data = read["data"] if isinstance(read.get("data"), dict) else read
    status = str(read.get("status") or ("unknown" if result.get("is_error") else "completed"))
    record = RECORD.get(call["name"], "")
    number = _first(data, (f"{record}_id", record, "id"))
    facts = {
        **{**ASKED, **call["input"], **{name: data[name] for name in ASKED if name in data}},
        "available": _first(data, AVAILABLE),
        "number": f" ({record} {number})" if number else "",
        "why": (_first(read, REASONS) or _first(data, REASONS) or f"the result is {status}").rstrip("."),
    }
    if call["name"] in SETTLED:
        return SETTLED[call["name"]].get(status, UNSETTLED[call["name"]]).format_map(facts)
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
    if asks_for_summary(body):
        return Reply.of(SUMMED_UP)
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


def asks_for_summary(body: Body) -> bool:
    """Whether the executor wants a conversation summed up, and not a step of a task."""
    return body.get("system") == SUMMARY


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
