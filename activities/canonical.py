"""Canonical JSON and the digests made of it: the same value gives the same bytes, in every release, everywhere."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel

MOST_ZEROS = 40
"""Zeros that are written out in a decimal; a model may write 1E+999999999."""


def canonical(value: Any) -> bytes:
    """The value as JSON with sorted keys, no spaces, text in NFC, decimals and times as strings, instants in UTC.

    Raises:
        ValueError: it holds NaN, an infinity, a lone surrogate, or something that has no JSON form.
    """
    return json.dumps(
        _plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest_of(*parts: bytes | str) -> str:
    """sha256 over the parts, each preceded by its length so that no two lists of parts look alike."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(f"{len(data)}:".encode())
        state.update(data)
    return state.hexdigest()


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case Enum():
            return _plain(value.value)
        case str():
            return unicodedata.normalize("NFC", value)
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} has no JSON form")
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
        case Decimal():
            return _decimal(value)
        case datetime() if value.tzinfo is not None:
            return _instant(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return _plain(value.total_seconds())
        case UUID():
            return str(value)
        case BaseModel():
            return _plain(value.model_dump(mode="python"))
        case Mapping():
            return _object(value)
        case set() | frozenset():
            return sorted((_plain(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            raise ValueError(f"a {type(value).__name__} has no JSON form")


def _decimal(value: Decimal) -> str:
    """Equal decimals as equal text, and no others: nothing is rounded, as arithmetic in a context would do."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} has no JSON form")
    written = "".join(map(str, digits)).lstrip("0")
    kept = written.rstrip("0")
    if not kept:
        return "0"
    exponent += len(written) - len(kept)
    if abs(exponent) > MOST_ZEROS:
        return f"{'-' if sign else ''}{kept}E{exponent}"
    return format(Decimal((sign, tuple(map(int, kept)), exponent)), "f")


def _instant(value: datetime) -> str:
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        raise ValueError(f"{value} has no JSON form in UTC") from None


def _object(value: Mapping[Any, Any]) -> dict[str, Any]:
    made = {_key(key): _plain(item) for key, item in value.items()}
    if len(made) != len(value):
        raise ValueError("two keys of an object are the same in NFC")
    return made


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    if not isinstance(key, str):
        raise ValueError(f"an object's key must be text, not {type(key).__name__}")
    return unicodedata.normalize("NFC", key)
