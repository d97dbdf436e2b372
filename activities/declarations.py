"""What is wrong with a tool's declaration: what it leaves open is found at worker start, not when it matters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from settled.activities.input_models import faults_of_key, faults_of_model
from settled.activities.toolkit import Scope, ShownTo, Supersedes, Tool, Unsaid, WriteTool

NAME = re.compile(r"^[a-zA-Z][a-zA-Z0-9_-]{0,63}$")
LONGEST_TIMEOUT = timedelta(days=1)
LONGEST_TRANSACTION = timedelta(seconds=4)
"""A transaction that does nothing for five seconds is ended by PostgreSQL, as that of a frozen process."""

UNSAID_MENDS = {
    "key": "name the arguments that make it the same business action, e.g. key=('order', 'sku')",
    "scope": "say where the key is unique: scope=Scope.TASK or Scope.BUSINESS",
    "lookup": "say how to find out what became of a request, or lookup=None if there is no way",
    "dedupes": "say for how long the service gives one effect per key, or dedupes=None if it doesn't",
    "lands_within": "say after which time no attempt can land any more, or lands_within=None if nobody knows",
}


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


def faults_among(tool: Tool, tools: Mapping[str, Tool]) -> list[str]:
    """What is wrong with what the tool's declaration says of other tools, a line each."""
    if not isinstance(tool, WriteTool):
        return []
    faults = [
        f"supersedes: {older.tool} is a tool of its own still, which could send nothing more; remove one of them"
        for older in _earlier(tool)
        if older.tool in tools and older.tool != tool.name
    ]
    return faults if tool.undoes is None else faults + _faults_of_undo(tool, tools)


def _faults_of_undo(tool: WriteTool, tools: Mapping[str, Tool]) -> list[str]:
    target = tools.get(str(tool.undoes))
    if not isinstance(target, WriteTool) or target is tool:
        return [f"undoes: there is no other tool {tool.undoes!r} that writes; name the one whose action is taken back"]
    if target.undoes is not None:
        return [f"undoes: {tool.undoes} takes something back itself; what it took back is simply done again"]
    if tool.scope is not target.scope:
        return [f"undoes: {tool.undoes} has another scope; give both the same"]
    if tool.arguments is None or target.arguments is None or not isinstance(target.key, tuple):
        return []  # named already
    fields, theirs = tool.arguments.model_fields, target.arguments.model_fields
    return [
        f"undoes: {name} is a key field of {tool.undoes}; it must be an argument here too, of the same type"
        for name in target.key
        if name in theirs and (name not in fields or fields[name].annotation != theirs[name].annotation)
    ]


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
    yield from faults_of_model(arguments, set())
    if not isinstance(tool.key, tuple):
        return
    if not tool.key:
        yield f"key is empty; {UNSAID_MENDS['key']}"
    yield from faults_of_key(arguments, tool.key)
    for older in _earlier(tool):
        if not older.key or set(older.key) - arguments.model_fields.keys():
            named = ", ".join(older.key) or "the fields of the key"
            yield f"supersedes: {named} must still be arguments, so that the old keys can be found"
        else:
            yield from (f"supersedes: {fault}" for fault in faults_of_key(arguments, older.key))
        for name, was in older.types.items():
            known = arguments.model_fields.get(name)
            if name not in older.key or known is None or {known.annotation, was} != {str, int}:
                yield f"supersedes: types: {name} must be a field of that key, str then and int now, or the reverse"
    if tool.transactional and tool.timeout > LONGEST_TRANSACTION:
        yield (
            f"timeout must be at most {LONGEST_TRANSACTION.total_seconds():g} seconds in a transaction: "
            "all other writers wait for it"
        )


def _earlier(tool: WriteTool) -> list[Supersedes]:
    """What the tool says of its earlier keys, as far as it says it in the right words."""
    said: object = tool.supersedes
    found = [older for older in said if isinstance(older, Supersedes)] if isinstance(said, tuple) else []
    return [older for older in found if _is_key(older.key) and _is_said(older)]


def _is_said(older: Any) -> bool:
    """Whether these are the right words, as far as an author may have used others."""
    words = isinstance(older.scope, Scope) and isinstance(older.undoes, str | Unsaid | None)
    return words and isinstance(older.types, Mapping) and all(isinstance(name, str) for name in older.types)


def _is_key(said: object) -> bool:
    """Whether these are names; text would pass as a tuple of its letters."""
    return isinstance(said, tuple) and all(isinstance(name, str) for name in said)


def _faults_of_words(tool: WriteTool) -> Iterator[str]:
    """Words of another type than theirs, which would be taken for something else, or fail when first used."""
    said: Mapping[str, object] = {name: getattr(tool, name) for name in (*UNSAID_MENDS, "undoes", "shown_to")}
    # Text would pass as a tuple of its letters.
    if not isinstance(said["key"], tuple | Unsaid):
        yield f"key must be a tuple of names, e.g. key=({said['key']!r},)"
    if not isinstance(said["scope"], Scope | Unsaid):
        yield "scope must be Scope.TASK or Scope.BUSINESS"
    if not (callable(said["lookup"]) or isinstance(said["lookup"], Unsaid | None)):
        yield "lookup must be a function, or None"
    if not isinstance(said["undoes"], str | None):
        yield "undoes must be the name of a tool"
    supersedes: object = tool.supersedes
    if not isinstance(supersedes, tuple) or len(_earlier(tool)) < len(supersedes):
        yield "supersedes must be a tuple, e.g. supersedes=(Supersedes(key=('order',), scope=Scope.BUSINESS),)"
    if not isinstance(said["shown_to"], ShownTo):
        yield "shown_to must be ShownTo.PRINCIPAL or ShownTo.TENANT"
    for name in ("dedupes", "lands_within"):
        if not isinstance(said[name], timedelta | Unsaid | None):
            yield f"{name} must be a timedelta, or None"
