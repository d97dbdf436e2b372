"""Which field was meant where a name is none: the nearest one of the value that it stands in. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel


def meant(model: type[BaseModel], place: Sequence[int | str]) -> str:
    """The known field that an unknown one is nearest to, as the end of a line about it; empty: it is near to none.

    Args:
        model: the value's type.
        place: where the unknown field is, from the outermost value on.
    """
    at: type[BaseModel] | None = model
    for step in place[:-1]:
        if isinstance(step, str) and at is not None:
            field = at.model_fields.get(step)
            at = _model_in(field.annotation) if field is not None else None
    if at is None:
        return ""
    nearest = get_close_matches(str(place[-1]), at.model_fields, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(at.model_fields)}"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field's type is, or is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
