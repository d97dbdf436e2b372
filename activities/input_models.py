"""Whether a write's arguments survive the way into the ledger and back: what doesn't could never be looked up."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    Json,
    JsonValue,
    NaiveDatetime,
    PlainSerializer,
    TypeAdapter,
    WrapSerializer,
)
from pydantic.fields import FieldInfo

from settled.activities.canonical import canonical

KEY_TYPES = (str, int, Decimal, date, datetime, AwareDatetime, NaiveDatetime, UUID, Enum, type(None))
"""What may name a business action; a bool is an int. A float may not: two roundings of a number are two keys."""
_KEPT_IN_KEYS = (bool, int, str, Decimal, datetime, date, UUID, object)
"""The same, each before those that it is also an instance of."""
KEPT_TYPES = (*KEY_TYPES, float, time, BaseModel)
"""What is read back from its canonical form as it was; and collections of these."""
OBJECTS = (dict, Mapping)
KEPT_COLLECTIONS = (list, tuple, set, frozenset, Sequence, *OBJECTS)


def faults_of_model(model: type[BaseModel], seen: set[object]) -> Iterator[str]:
    """What is lost on the way into the ledger and back: such an operation could never be looked up."""
    if model in seen or not model.__pydantic_complete__:
        return  # an incomplete one has no schema either
    seen.add(model)
    decorators = model.__pydantic_decorators__
    if decorators.field_serializers or decorators.model_serializers:
        yield f"{model.__name__} has a serializer, so that it is not read back as it was; convert in the tool"
    for name in model.model_computed_fields:
        yield f"{model.__name__}.{name} is computed, and can't be read back; make it a plain property"
    for name, field in model.model_fields.items():
        faults = [*_faults_of_field(field)] or [*_faults_of_default(field)]
        yield from (f"{model.__name__}.{name} {fault}" for fault in faults)
        for part in _parts(field.annotation):
            if _is_one_of(part, (BaseModel,)):
                yield from faults_of_model(part, seen)


def _faults_of_field(field: FieldInfo) -> Iterator[str]:
    if field.alias or field.validation_alias or field.serialization_alias:
        yield "has an alias, and can't be read back by its name; give it the name that the model is to use"
    if field.exclude:
        yield "is excluded, and would not be stored; include it"
    if _changed_when_stored(field.metadata):
        yield "is stored in another form than it is read; convert in the tool"
    for part in _parts(field.annotation):
        if not _is_kept(part):
            text = part.__name__ if isinstance(part, type) else " ".join(str(part).split())
            yield f"is a {text}, which can't be stored and read back; use text, a number, a date or a model"


def _faults_of_default(field: FieldInfo) -> Iterator[str]:
    if field.is_required() or field.default_factory_takes_validated_data:
        return
    try:
        text, again = (canonical(field.get_default(call_default_factory=True)) for _ in range(2))
        annotated: Any = Annotated
        TypeAdapter(annotated[field.annotation, field]).validate_json(text, strict=True)
    # A factory may raise anything, and so may a validator.
    except Exception:
        yield "has a default that can't be stored and read back; make it a plain value of the field's type"
        return
    if text != again:
        yield "has a default that is another one each time; make it required, or set it in the tool"


def _parts(annotation: Any, into: tuple[Any, ...] = KEPT_COLLECTIONS, inside: tuple[Any, ...] = ()) -> Iterator[Any]:
    """What a type is made of, down to what is no union, collection or literal; what can't be kept stays in one."""
    origin, inner = get_origin(annotation), get_args(annotation)
    named = getattr(annotation, "__supertype__", getattr(annotation, "__value__", None))  # NewType, TypeAliasType
    if named is not None and annotation is not JsonValue and not isinstance(annotation, type):
        inner = () if any(one is annotation for one in inside) else (named,)
        inside = (*inside, annotation)
    elif origin is Annotated and not _changed_when_stored(inner[1:]):
        inner = inner[:1]
    elif origin is Literal:
        inner = tuple(map(type, inner))
    elif origin not in (Union, types.UnionType, *into) or (origin in OBJECTS and not _named_by_text(inner)):
        yield annotation
        return
    for part in inner:
        if part is not Ellipsis:
            yield from _parts(part, into, inside)


def kinds_of(annotation: Any) -> str:
    """What the values of a key field are, in words: two types of the same words give the same keys."""
    return "|".join(sorted({_kind(part) for part in _parts(annotation, into=())}))


def _kind(part: Any) -> str:
    if _is_one_of(part, (Enum,)):
        return "|".join(sorted({type(member.value).__name__ for member in part}))
    if part in (AwareDatetime, NaiveDatetime):
        return "datetime with a zone" if part is AwareDatetime else "datetime without a zone"
    return "null" if part is type(None) else next(kind.__name__ for kind in _KEPT_IN_KEYS if _is_one_of(part, (kind,)))


def _named_by_text(inner: tuple[Any, ...]) -> bool:
    return all(_is_one_of(part, (str,)) for name in inner[:1] for part in _parts(name))


def _is_kept(part: Any) -> bool:
    if _is_one_of(part, (Enum,)):
        return all(isinstance(member.value, str | int) for member in part)
    return any(part is one for one in (Any, object, JsonValue, *KEPT_COLLECTIONS)) or _is_one_of(part, KEPT_TYPES)


def _is_one_of(part: Any, kinds: tuple[Any, ...]) -> bool:
    return isinstance(part, type) and issubclass(part, kinds)


def _changed_when_stored(marks: Iterable[object]) -> bool:
    return any(isinstance(mark, PlainSerializer | WrapSerializer | Json) or mark is Json for mark in marks)


def faults_of_key(model: type[BaseModel], key: tuple[str, ...]) -> Iterator[str]:
    """What can't name a business action."""
    for name in key:
        if name not in model.model_fields:
            yield f"key names {name!r}, which {model.__name__} doesn't have"
        elif not all(_is_one_of(part, KEY_TYPES) for part in _parts(model.model_fields[name].annotation, into=())):
            yield f"key names {name!r}, which must be text, a whole number, a Decimal, a date, a UUID or an Enum"
