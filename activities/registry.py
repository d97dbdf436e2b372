"""The tools that a worker knows: found at start, and refused at start where a declaration leaves something open.

A tool family is a module in `settled.activities.tools`, or one that another distribution names under the entry point
group `settled.tools`.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
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
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

import settled.activities.tools
from settled.activities.canonical import canonical
from settled.activities.keys import key_declaration
from settled.activities.toolkit import ReadTool, Scope, Tool, Unsaid, WriteTool
from settled.workflows.contract.turn import Effect
from settled.workflows.errors import ConfigurationError

NAME = re.compile(r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$")
ENTRY_POINTS = "settled.tools"
LONGEST_TIMEOUT = timedelta(days=1)

UNSAID_MENDS = {
    "key": "name the arguments that make it the same business action, e.g. key=('order', 'sku')",
    "scope": "say where the key is unique: scope=Scope.TASK or Scope.BUSINESS",
    "lookup": "say how to find out what became of a request, or lookup=None if there is no way",
    "dedupes": "say for how long the service gives one effect per key, or dedupes=None if it doesn't",
    "lands_within": "say after which time no attempt can land any more, or lands_within=None if nobody knows",
}

KEY_TYPES = (str, int, Decimal, date, datetime, AwareDatetime, NaiveDatetime, UUID, Enum, type(None))
"""What may name a business action; a bool is an int. A float may not: two roundings of a number are two keys."""
KEPT_TYPES = (*KEY_TYPES, float, time, BaseModel)
"""What is read back from its canonical form as it was; and collections of these."""
OBJECTS = (dict, Mapping)
KEPT_COLLECTIONS = (list, tuple, set, frozenset, Sequence, *OBJECTS)


@dataclass(frozen=True)
class Registry:
    """The tools, by name."""

    tools: Mapping[str, Tool]

    def write(self, name: str) -> WriteTool:
        """The write of that name.

        Raises:
            KeyError: there is none.
        """
        tool = self.tools[name]
        if not isinstance(tool, WriteTool):
            raise KeyError(f"{name} is no write")
        return tool

    def key_declarations(self) -> dict[str, str]:
        """What makes up the keys of each write."""
        return {tool.name: key_declaration(tool) for tool in self.tools.values() if isinstance(tool, WriteTool)}


def effect_of(tool: Tool) -> Effect:
    """What running the tool does."""
    return Effect.READ if isinstance(tool, ReadTool) else Effect.WRITE


def tool_schema(tool: Tool) -> dict[str, Any]:
    """The tool as the model is told of it."""
    assert tool.arguments is not None, "the registry refuses a tool without an input model"
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.arguments.model_json_schema(mode="validation"),
    }


def discover() -> Registry:
    """Every tool of our own families and of the installed ones.

    Raises:
        ConfigurationError: a tool's declaration is not complete, or two tools have one name; a line for each fault.
    """
    return register(_families())


def register(families: Iterable[ModuleType]) -> Registry:
    """The tools of these modules.

    Raises:
        ConfigurationError: as for `discover`.
    """
    tools: dict[str, Tool] = {}
    families = list(families)
    faults = [fault for family in families for fault in _defined_twice(family)]
    # By identity: a family may import another one's tool.
    for tool in {id(tool): tool for family in families for tool in _tools_of(family)}.values():
        faults += [f"tool {tool.name} ({_short(tool.source_file)}): {fault}" for fault in faults_of(tool)]
        other = tools.setdefault(tool.name, tool)
        if other is not tool:
            faults.append(
                f"tool {tool.name} ({_short(tool.source_file)}): "
                f"the name is taken by {_short(other.source_file)}; rename one of them"
            )
    if faults:
        raise ConfigurationError("\n".join(faults))
    return Registry(tools)


def faults_of(tool: Tool) -> list[str]:
    """What is wrong with a tool's declaration, a line each."""
    faults = []
    if not NAME.match(tool.name):
        faults.append("the name must be letters, digits, _ and -, at most 64, beginning with a letter")
    if not tool.description:
        faults.append("no docstring; say what it does, which identifier it takes, what time or version it speaks of")
    if not timedelta(0) < tool.timeout <= LONGEST_TIMEOUT:
        faults.append(f"timeout must be above zero, and at most {LONGEST_TIMEOUT.total_seconds():g} seconds")
    faults += _faults_of_function("the tool", tool.handler)
    resources: object = tool.resources
    if not (resources is None or callable(resources)):
        faults.append("resources must be a function of the arguments, e.g. lambda asked: [f'order/{asked.order}']")
    if tool.arguments is None:
        mend = "e.g. a subclass of Arguments, imported at run time"
        return [*faults, f"the first parameter must be annotated with a pydantic model, {mend}"]
    faults += _faults_of_schema(tool.arguments)
    if isinstance(tool, WriteTool):
        faults += _faults_of_write(tool, tool.arguments)
    return faults


def _faults_of_function(what: str, function: Any) -> Iterator[str]:
    """A function that would fail with its first call: of a write after its permit was spent."""
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)):
        yield f"{what} must be an async function; write async def (what wraps it, too)"
    try:
        inspect.signature(function).bind("arguments", "call")
    except (TypeError, ValueError):
        yield f"{what} must take two parameters, the arguments and the call"


def _faults_of_schema(arguments: type[BaseModel]) -> Iterator[str]:
    try:
        schema = arguments.model_json_schema(mode="validation")
    except PydanticUserError as error:
        yield f"the schema of {arguments.__name__} can't be told to the model: {' '.join(str(error).split())}"
        return
    loose = [] if arguments.model_config.get("extra") == "forbid" else [arguments.__name__]
    loose += [
        name
        for name, part in schema.get("$defs", {}).items()
        if "properties" in part and part.get("additionalProperties") is not False and name not in loose
    ]
    for name in loose:
        yield f"the schema of {name} must forbid extra fields; make it a subclass of Arguments"
    if schema.get("type") != "object":
        yield f"the schema of {arguments.__name__} must be a plain object at its top"


def _faults_of_write(tool: WriteTool, arguments: type[BaseModel]) -> Iterator[str]:
    for name, mend in UNSAID_MENDS.items():
        if isinstance(getattr(tool, name), Unsaid):
            yield f"says nothing on {name}; {mend}"
    yield from _faults_of_words(tool)
    if callable(tool.lookup):
        yield from _faults_of_function("lookup", tool.lookup)
    yield from _faults_of_model(arguments, set())
    if not isinstance(tool.key, tuple):
        return
    if not tool.key:
        yield f"key is empty; {UNSAID_MENDS['key']}"
    for name in tool.key:
        if name not in arguments.model_fields:
            yield f"key names {name!r}, which {arguments.__name__} doesn't have"
        elif not all(_is_one_of(part, KEY_TYPES) for part in _parts(arguments.model_fields[name].annotation, into=())):
            yield f"key names {name!r}, which must be text, a whole number, a Decimal, a date, a UUID or an Enum"


def _faults_of_model(model: type[BaseModel], seen: set[object]) -> Iterator[str]:
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
                yield from _faults_of_model(part, seen)


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


def _faults_of_words(tool: WriteTool) -> Iterator[str]:
    """Words of another type than theirs, which would be taken for something else, or fail when first used."""
    said: Mapping[str, object] = {name: getattr(tool, name) for name in UNSAID_MENDS}
    # Text would pass as a tuple of its letters.
    if not isinstance(said["key"], tuple | Unsaid):
        yield f"key must be a tuple of names, e.g. key=({said['key']!r},)"
    if not isinstance(said["scope"], Scope | Unsaid):
        yield "scope must be Scope.TASK or Scope.BUSINESS"
    if not (callable(said["lookup"]) or isinstance(said["lookup"], Unsaid | None)):
        yield "lookup must be a function, or None"
    for name in ("dedupes", "lands_within"):
        if not isinstance(said[name], timedelta | Unsaid | None):
            yield f"{name} must be a timedelta, or None"


def _families() -> Iterator[ModuleType]:
    package = settled.activities.tools
    modules = pkgutil.iter_modules(package.__path__)
    ours = [EntryPoint(module.name, f"{package.__name__}.{module.name}", ENTRY_POINTS) for module in modules]
    for points in (ours, entry_points(group=ENTRY_POINTS)):
        yield from (_family(point) for point in sorted(points, key=lambda point: point.name))


def _family(point: EntryPoint) -> ModuleType:
    where = f"tool family {point.name} ({point.value})"
    try:
        family = point.load()
    except ConfigurationError:
        raise  # a setting of the family's own, named by itself
    # A foreign package may raise anything while it is imported.
    except Exception as error:
        raise ConfigurationError(f"{where}: can't be imported: {' '.join(str(error).split())}") from error
    if not isinstance(family, ModuleType):
        raise ConfigurationError(f"{where}: must name a module")
    return family


def _defined_twice(family: ModuleType) -> Iterator[str]:
    """A second function of one name replaces the first in its module, without a word."""
    try:
        body = ast.parse(inspect.getsource(family)).body
    except (OSError, TypeError, SyntaxError):
        return  # no module with a source
    counts = Counter(node.name for node in body if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list)
    for tool in _tools_of(family):
        if counts[tool.name] > 1:
            yield f"tool {tool.name} ({_short(tool.source_file)}): is defined twice in its module; rename one of them"


def _tools_of(family: ModuleType) -> list[Tool]:
    return [value for value in vars(family).values() if isinstance(value, Tool)]


def _short(source_file: str) -> str:
    """The last three parts of the path: enough to find the file, and the same on every machine."""
    return "/".join(Path(source_file).parts[-3:])
