"""Canonical JSON and the digests made of it: the same value gives the same bytes, in every release, everywhere."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from pydantic import BaseModel


def canonical(value: Any) -> bytes:
    """The value as JSON with sorted keys, no spaces, text in NFC, decimals and times as strings.

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
            if not value.is_finite():
                raise ValueError(f"{value} has no JSON form")
            return format(value.normalize(), "f") if value else "0"
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case BaseModel():
            return _plain(value.model_dump(mode="python"))
        case Mapping():
            return {_key(key): _plain(item) for key, item in value.items()}
        case set() | frozenset():
            return sorted((_plain(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            raise ValueError(f"a {type(value).__name__} has no JSON form")


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    if not isinstance(key, str):
        raise ValueError(f"an object's key must be text, not {type(key).__name__}")
    return unicodedata.normalize("NFC", key)
