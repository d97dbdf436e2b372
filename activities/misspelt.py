"""Which field was meant where a name is none: one of another place, else the nearest one of its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel


def meant(model: type[BaseModel], place: Sequence[int | str], *, toml: bool = False) -> str:
    """The known field that an unknown one is, or is nearest to, as the end of a line about it; empty: nobody knows.

    Args:
        model: the value's type.
        place: where the unknown field is, from the outermost value on.
        toml: whether it was written as TOML, where a table goes on until the next one.
    """
    name, at = str(place[-1]), model
    around: dict[str, type[BaseModel]] = {}
    for step in place[:-1]:
        if isinstance(step, int):
            around = {f"[{within}]" if toml else within: outer for within, outer in around.items()}
            continue
        field = at.model_fields.get(step)
        inner = _model_in(field.annotation) if field is not None else None
        if inner is None:
            return ""
        around[f"[{step}]" if toml else step] = at
        at = inner
    for within, outer in around.items():
        if name in outer.model_fields:
            return f"; {name} belongs {'above' if toml else 'beside'} {within}"
    for within, field in at.model_fields.items():
        inner = None if _is_list(field.annotation) else _model_in(field.annotation)
        if inner is not None and name in inner.model_fields:
            return f"; {name} belongs {f'under [{within}]' if toml else f'in {within}'}"
    nearest = get_close_matches(name, at.model_fields, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(at.model_fields)}"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field's type is, or is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or any(map(_is_list, get_args(annotation)))
