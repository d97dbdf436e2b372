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
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from settled.activities.registry import Registry
from settled.workflows.contract.task import (
    Count,
    Criterion,
    Dollars,
    Limits,
    Name,
    OnExhausted,
    OnNeedsHuman,
    Tokens,
    WallSeconds,
)
from settled.workflows.contract.values import OpenEnum, Value
from settled.workflows.errors import ConfigurationError

MOST_FAULTS = 50
MOST_NAME = 200
E = TypeVar("E", bound=OpenEnum)


def _known(member: E) -> E:
    """Names of other releases are kept in histories only: in a profile they are slips of the pen."""
    if not member.known:
        raise PydanticCustomError("unknown_member", "must be {known}", {"known": " or ".join(type(member))})
    return member


class Effort(StrEnum):
    """How much the model is to put into its answers."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class ThinkingKind(StrEnum):
    """When the model thinks before it answers. Which kinds there are depends on the model."""

    ADAPTIVE = "adaptive"
    BETWEEN_TOOLS = "between_tools"
    ENABLED = "enabled"
    DISABLED = "disabled"


class Thinking(Value):
    """The model's thinking, as the provider takes it."""

    model_config = ConfigDict(extra="forbid")

    type: ThinkingKind
    """When it thinks."""
    budget_tokens: Annotated[int, Field(ge=1024)] | None = None
    """For `enabled`, and only there: tokens that it may think, below `max_tokens`."""

    def parameter(self) -> dict[str, Any]:
        """As a request has it."""
        return self.model_dump(mode="json", exclude_none=True)


class ProfileLimits(Value):
    """What a task of this profile may spend at the most."""

    model_config = ConfigDict(extra="forbid")

    turns: Count = 50
    """Turns."""
    requests: Count = 100
    """Model requests."""
    calls: Count | None = None
    """Tool calls."""
    input_tokens: Tokens | None = None
    """Tokens that the model reads, the cached ones too."""
    output_tokens: Tokens | None = None
    """Tokens that the model writes."""
    cost: Dollars | None = None
    """US dollars that the model requests cost, by the worker's price table."""
    wall_seconds: WallSeconds = 7 * 86_400.0
    """Seconds from the start."""

    def resolved(self) -> Limits:
        """The same as a task's limits."""
        return Limits.model_validate(self.model_dump())


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
    max_tokens_most: Annotated[int, Field(gt=0, le=1_000_000)] | None = None
    """Tokens that it may have where one was cut off; left out: four times as many."""
    fallback: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=10)] = ()
    """The models that take over, in order, where one is overloaded or refuses."""
    effort: Effort | None = None
    """How much the model is to put into its answers; left out: the provider's default."""
    thinking: Thinking | None = None
    """Whether the model thinks before it answers; left out: the provider's default."""
    context_tokens: Annotated[int, Field(ge=1_000)] | None = None
    """Tokens that a conversation may have before it is summed up; left out: as the provider says of the model."""
    limits: ProfileLimits = ProfileLimits()
    """What a task may spend at the most."""
    acceptance: tuple[Criterion, ...] = ()
    """What must hold at the end, unless the task says otherwise."""
    on_needs_human: Annotated[OnNeedsHuman, AfterValidator(_known)] = OnNeedsHuman.WAIT
    """What to do when only a person can settle an operation."""
    on_exhausted: Annotated[OnExhausted, AfterValidator(_known)] = OnExhausted.END
    """What to do when a limit of the budget is reached."""


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
