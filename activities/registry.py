"""The tools that a worker knows: found at start, and refused at start where a declaration leaves something open.

A tool family is a module in `settled.activities.tools`, or one that another distribution names under the entry point
group `settled.tools`.
"""

from __future__ import annotations

import ast
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import settled.activities.tools
from settled.activities.declarations import faults_among, faults_of
from settled.activities.toolkit import ReadTool, Tool, WriteTool
from settled.workflows.contract.turn import Effect
from settled.workflows.errors import ConfigurationError

ENTRY_POINTS = "settled.tools"


@dataclass(frozen=True)
class Registry:
    """The tools, by name."""

    tools: Mapping[str, Tool]

    @property
    def writes(self) -> list[WriteTool]:
        """Every tool that writes."""
        return [tool for tool in self.tools.values() if isinstance(tool, WriteTool)]

    @property
    def names(self) -> set[str]:
        """Every name under which a tool of this worker is, or was, known."""
        return {*self.tools, *(older.tool for tool in self.writes for older in tool.supersedes if older.tool)}

    def named(self, name: str) -> Tool | None:
        """The tool of that name, or the one that had it once; None if there is neither."""
        return self.tools.get(name) or next(
            (tool for tool in self.writes if name in {older.tool for older in tool.supersedes}), None
        )

    def write(self, name: str) -> WriteTool:
        """The write of that name, or the one that had it once.

        Raises:
            KeyError: there is none.
        """
        tool = self.named(name)
        if not isinstance(tool, WriteTool):
            raise KeyError(f"{name} is no write of this worker")
        return tool


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
    for tool in tools.values():
        faults += [f"tool {tool.name} ({_short(tool.source_file)}): {fault}" for fault in faults_among(tool, tools)]
    if faults:
        raise ConfigurationError("\n".join(faults))
    return Registry(tools)


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
