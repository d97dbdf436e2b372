"""JSON laid out with an item a line, as `json.dumps` does it with an indent; but fast for millions of items. Pure."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import chain
from typing import Any

LEAVES = frozenset({str, int, float, bool, type(None)})


def laid_out_json(value: Any) -> str:
    """The value as JSON text, with an item a line and one space for each level.

    Args:
        value: of lists, and of objects whose names are texts; anything else is shown as its text.
    """
    parts: list[str] = []
    _lay_out(value, 0, parts)
    return "".join(parts)


def _lay_out(value: Any, level: int, parts: list[str]) -> None:
    outside, inside, encoder = _at(level)
    if not isinstance(value, dict | list) or not value:
        parts.append(encoder.encode(value))
    elif LEAVES.issuperset(map(type, value.values() if isinstance(value, dict) else value)):
        # The library's fast encoder knows no indent, but any separator; so all these items are one call.
        text = encoder.encode(value)
        parts += (text[0], inside, text[1:-1], outside, text[-1])
    elif isinstance(value, dict):
        before = "{"
        for name, item in value.items():
            parts += (before, inside, encoder.encode(name), ": ")
            _lay_out(item, level + 1, parts)
            before = ","
        parts += (outside, "}")
    elif _are_rows(value):
        parts += ("[", inside, _rows(value, level + 1), outside, "]")
    else:
        before = "["
        for item in value:
            parts += (before, inside)
            _lay_out(item, level + 1, parts)
            before = ","
        parts += (outside, "]")


def _are_rows(value: list[Any]) -> bool:
    """Whether these are all lists, or all objects, that hold something and nothing that holds items itself."""
    if not all(value):
        return False
    match set(map(type, value)):
        case kinds if kinds == {list}:
            return LEAVES.issuperset(map(type, chain.from_iterable(value)))
        case kinds if kinds == {dict}:
            return LEAVES.issuperset(map(type, chain.from_iterable(map(dict.values, value))))
        case _:
            return False


def _rows(rows: list[Any], level: int) -> str:
    """The rows of a table, in one call. A newline stands only between items: in a text it is written as an escape."""
    outside, inside, encoder = _at(level)
    text = encoder.encode(rows)
    opening, closing = text[1], text[-2]
    between = f"{outside}{closing},{outside}{opening}{inside}"
    rows_text = text[2:-2].replace(f"{closing},{inside}{opening}", between)
    return f"{opening}{inside}{rows_text}{outside}{closing}"


@lru_cache(maxsize=100)
def _at(level: int) -> tuple[str, str, json.JSONEncoder]:
    """What begins a line of that level, and one below it; and the encoder for the items of that."""
    outside, inside = ("\n" + " " * count for count in (level, level + 1))
    encoder = json.JSONEncoder(ensure_ascii=False, default=str, separators=(f",{inside}", ": "))
    return outside, inside, encoder
