"""What the stock service takes from a request: its key, its body, its filters; or why it refuses them."""

import re
from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from settled.local.stock_records import Refusal, Refused, Strict

KEY = re.compile("[ -~]{1,255}")
M = TypeVar("M", bound=Strict)


def key_of(headers: Mapping[str, str]) -> str:
    """The idempotency key that a write is sent under."""
    key = headers.get("Idempotency-Key", "")
    if not key:
        raise Refused(Refusal.MISSING_KEY, "the header Idempotency-Key is required")
    if not KEY.fullmatch(key):
        raise Refused(Refusal.INVALID_REQUEST, "Idempotency-Key: up to 255 visible ASCII characters and spaces")
    return key


def parsed(model: type[M], body: bytes, refusal: Refusal) -> M:
    """A body as a model, or a refusal of one line that names each wrong field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in error.errors())
        raise Refused(refusal, "; ".join(faults)) from error


def narrowed(query: Mapping[str, str]) -> dict[str, str]:
    """The filters of a list. An unknown one is refused: ignored, it would list too much."""
    if unknown := query.keys() - {"order", "key"}:
        raise Refused(Refusal.INVALID_REQUEST, f"no filter {', '.join(sorted(unknown))}, only order, key")
    return dict(query)
