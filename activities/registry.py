"""The tools that a worker knows: found at start, and refused at start where a declaration leaves something open.

A tool family is a module in `settled.activities.tools`, or one that another distribution names under the entry point
group `settled.tools`.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

import settled.activities.tools
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
    faults: list[str] = []
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
    if tool.arguments is None:
        return [*faults, "the first parameter must be annotated with a pydantic model, e.g. a subclass of Arguments"]
    faults += _faults_of_schema(tool.arguments)
    if isinstance(tool, WriteTool):
        faults += _faults_of_write(tool, tool.arguments)
    return faults


def _faults_of_schema(arguments: type[BaseModel]) -> Iterator[str]:
    try:
        schema = arguments.model_json_schema(mode="validation")
    except PydanticInvalidForJsonSchema as error:
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
    if not isinstance(tool.key, tuple):
        return
    if not tool.key:
        yield f"key is empty; {UNSAID_MENDS['key']}"
    for name in tool.key:
        if name not in arguments.model_fields:
            yield f"key names {name!r}, which {arguments.__name__} doesn't have"


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


def _tools_of(family: ModuleType) -> list[Tool]:
    return [value for value in vars(family).values() if isinstance(value, Tool)]


def _short(source_file: str) -> str:
    """The last three parts of the path: enough to find the file, and the same on every machine."""
    return "/".join(Path(source_file).parts[-3:])
