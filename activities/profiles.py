"""Reading agent profiles at the worker's start: every fault of every file at once, with the file and the field."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from settled.activities.acceptance import faults_of_criteria
from settled.activities.agents import AgentProfile, lines_of, not_toml
from settled.activities.registry import Registry
from settled.workflows.contract.task import Criterion, Name
from settled.workflows.errors import ConfigurationError

NAMES = TypeAdapter(tuple[Name, ...])
CRITERIA = TypeAdapter(tuple[Criterion, ...])


def load_profiles(folder: Path, registry: Registry) -> dict[str, AgentProfile]:
    """The profiles of a folder's `*.toml` files, by name.

    Raises:
        ConfigurationError: no folder, no profile in it, or a profile with a fault; a line for each fault.
    """
    if not _is_folder(folder):
        raise ConfigurationError(f"SETTLED_AGENTS: {folder} is not a folder; name one that holds NAME.toml profiles")
    profiles: dict[str, AgentProfile] = {}
    faults: list[str] = []
    for path in sorted(folder.glob("*.toml")):
        profile, lines = _read(path, registry)
        faults += [f"agent {path.stem} ({path.name}): {line}" for line in lines]
        if profile is not None:
            profiles[path.stem] = profile
    if faults:
        raise ConfigurationError("\n".join(faults))
    if not profiles:
        raise ConfigurationError(f"SETTLED_AGENTS: {folder} holds no NAME.toml profile; write one")
    return profiles


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # what lies above it may not be looked into
        return False


def _read(path: Path, registry: Registry) -> tuple[AgentProfile | None, list[str]]:
    """The profile of a file, and what is wrong with it."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        # As JSON, where 1 is a number, "1" is a text, and true is neither; TOML's dates have no place in a profile.
        as_json = json.dumps(written, default=str)
    # Not only what the parser says of itself: it also raises what Python does at a number that is too long for it.
    except (ValueError, RecursionError) as error:
        return None, [not_toml(error)]
    except OSError as error:
        return None, [f"can't be read: {error.strerror}"]
    faults = [*_faults_of_name(path.stem)]
    profile = None
    try:
        profile = AgentProfile.model_validate_json(as_json, strict=True)
    except ValidationError as error:
        faults += lines_of(error, of=AgentProfile)
    return profile, [*faults, *_faults_of_tools(written, registry), *_faults_of_acceptance(written, registry)]


def _faults_of_name(name: str) -> Iterator[str]:
    try:
        NAMES.validate_python((name,))
    except ValidationError:
        yield (
            "the file's name, which is the agent's: use up to 128 letters, digits and . _ @ : - only, "
            "and begin with a letter or a digit"
        )


def _faults_of_tools(written: dict[str, Any], registry: Registry) -> Iterator[str]:
    """What is wrong with the tools, as far as they are names at all."""
    names: Sequence[str] = ()
    with suppress(ValidationError):  # that is told already
        names = NAMES.validate_python(written.get("tools", ()))
    known = ", ".join(sorted(registry.tools)) or "none"
    for name in dict.fromkeys(names):
        if name not in registry.tools:
            yield f"tools: no tool {name!r}; this worker has {known}"
        if names.count(name) > 1:
            yield f"tools: {name!r} is there {names.count(name)} times; name it once"


def _faults_of_acceptance(written: dict[str, Any], registry: Registry) -> Iterator[str]:
    """What is wrong with the criteria, as far as they are criteria at all."""
    with suppress(ValidationError):  # that is told already
        yield from faults_of_criteria(CRITERIA.validate_python(written.get("acceptance", ())), registry)
