"""Agent profiles: who the model is to be, with which tools and within which limits. A profile is a TOML file.

    model = "claude-sonnet-5-5"
    system = "You are the stock clerk …"
    tools = ["lookup_stock", "reserve_stock"]
    [limits]
    turns = 30

The file's name is the profile's. A task freezes the profile it starts with; changing the file changes later tasks only.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from settled.activities.registry import Registry
from settled.workflows.contract.task import Criterion, Limits, Name, OnNeedsHuman
from settled.workflows.contract.values import Value
from settled.workflows.errors import ConfigurationError

MOST_FAULTS = 50
MOST_NAME = 200


def _known(member: OnNeedsHuman) -> OnNeedsHuman:
    """Names of other releases are kept in histories only: in a profile they are slips of the pen."""
    if not member.known:
        raise PydanticCustomError("unknown_member", "must be {known}", {"known": " or ".join(OnNeedsHuman)})
    return member


class ProfileLimits(Value):
    """What a task of this profile may spend at the most."""

    model_config = ConfigDict(extra="forbid")

    turns: Annotated[int, Field(gt=0)] = 50
    """Turns."""
    requests: Annotated[int, Field(gt=0)] = 100
    """Model requests."""
    wall_seconds: Annotated[float, Field(gt=0, le=366 * 86_400)] = 7 * 86_400.0
    """Seconds from the start."""

    def resolved(self) -> Limits:
        """The same as a task's limits."""
        return Limits(turns=self.turns, requests=self.requests, wall_seconds=self.wall_seconds)


class AgentProfile(Value):
    """One agent profile."""

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(min_length=1)]
    """The provider's name of the model."""
    system: Annotated[str, Field(min_length=1)]
    """The system prompt."""
    tools: tuple[Name, ...] = ()
    """The tools it may use, by name."""
    max_tokens: Annotated[int, Field(gt=0, le=1_000_000)] = 8_192
    """Tokens that one response may have."""
    limits: ProfileLimits = ProfileLimits()
    """What a task may spend at the most."""
    acceptance: tuple[Criterion, ...] = ()
    """What must hold at the end, unless the task says otherwise."""
    on_needs_human: Annotated[OnNeedsHuman, AfterValidator(_known)] = OnNeedsHuman.WAIT
    """What to do when only a person can settle an operation."""


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
        try:
            profile = AgentProfile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            faults.append(f"agent {path.stem} ({path.name}): not TOML: {error}")
        except OSError as error:
            faults.append(f"agent {path.stem} ({path.name}): can't be read: {error.strerror}")
        except ValidationError as error:
            faults += [f"agent {path.stem} ({path.name}): {line}" for line in lines_of(error)]
        else:
            profiles[path.stem] = profile
            faults += [f"agent {path.stem} ({path.name}): {line}" for line in _unknown_tools(profile, registry)]
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


def _unknown_tools(profile: AgentProfile, registry: Registry) -> list[str]:
    known: Mapping[str, object] = registry.tools
    return [
        f"tools: no tool {name!r}; this worker has {', '.join(sorted(known)) or 'none'}"
        for name in profile.tools
        if name not in known
    ]


def lines_of(error: ValidationError, prefix: str = "") -> list[str]:
    """A validation error as one readable line per fault, naming the field; never the value, which may be secret."""
    lines = []
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    for fault in faults[:MOST_FAULTS]:
        # The name of an unknown field is whatever somebody wrote.
        place = prefix + " ".join(".".join(str(part) for part in fault["loc"]).split())[:MOST_NAME]
        text = "unknown field" if fault["type"] == "extra_forbidden" else fault["msg"]
        lines.append(f"{place}: {text}" if place else text)
    if len(faults) > MOST_FAULTS:
        lines.append(f"and {len(faults) - MOST_FAULTS} more")
    return lines
