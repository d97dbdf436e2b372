"""Agent profiles: who the model is to be, with which tools and within which limits. A profile is a TOML file.

    model = "claude-sonnet-5-5"
    system = "You are the stock clerk …"
    tools = ["lookup_stock", "reserve_stock"]
    [limits]
    turns = 30

The file's name is the profile's. A task freezes the profile it starts with; changing the file changes
later tasks only, and those that are begun anew: by a reset to the beginning, say.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from settled.activities.misspelt import meant
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

MOST_FAULTS = 50
MOST_NAME = 200
E = TypeVar("E", bound=OpenEnum)


def _known(member: E) -> E:
    """Names of other releases are kept in histories only: in a profile they are slips of the pen."""
    if not member.known:
        raise PydanticCustomError("unknown_member", "must be {known}", {"known": " or ".join(type(member))})
    return member


def _said(text: str) -> str:
    if text and not text.strip():
        raise PydanticCustomError("blank", "holds nothing but white space")
    return text


def _one_word(text: str) -> str:
    if _said(text) and text.split() != [text]:
        raise PydanticCustomError("not_a_model", "must be the provider's name of a model, without white space")
    return text


Words = Annotated[str, Field(min_length=1), AfterValidator(_said)]
Model = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_one_word)]


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
    budget_tokens: Annotated[Annotated[int, Field(ge=1024)] | None, Field(validate_default=True)] = None
    """For `enabled`, and only there: tokens that it may think, below `max_tokens`."""

    @field_validator("budget_tokens")
    @classmethod
    def _only_where_enabled(cls, tokens: int | None, info: ValidationInfo) -> int | None:
        kind = info.data.get("type")
        if kind is ThinkingKind.ENABLED and tokens is None:
            raise PydanticCustomError("missing", "needed with type enabled: tokens that it may think")
        if kind not in (None, ThinkingKind.ENABLED) and tokens is not None:
            raise PydanticCustomError("not_here", "goes with type enabled only; leave it out")
        return tokens

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

    model: Model
    """The provider's name of the model."""
    system: Words
    """The system prompt."""
    tools: tuple[Name, ...] = ()
    """The tools it may use, by name."""
    max_tokens: Annotated[int, Field(gt=0, le=1_000_000)] = 8_192
    """Tokens that one response may have."""
    max_tokens_most: Annotated[int, Field(gt=0, le=1_000_000)] | None = None
    """Tokens that it may have where one was cut off; left out: four times as many."""
    fallback: Annotated[tuple[Model, ...], Field(max_length=10)] = ()
    """The models that take over, in order, where one is overloaded or refuses."""
    effort: Effort | None = None
    """How much the model is to put into its answers; left out: the provider's default."""
    thinking: Thinking | None = None
    """Whether the model thinks before it answers; left out: the provider's default."""
    context_tokens: Annotated[int, Field(ge=1_000)] | None = None
    """Tokens that a conversation may have before it is summed up; left out, or above what the
    provider says of the model: that."""
    limits: ProfileLimits = ProfileLimits()
    """What a task may spend at the most."""
    acceptance: tuple[Criterion, ...] = ()
    """What must hold at the end, unless the task says otherwise."""
    on_needs_human: Annotated[OnNeedsHuman, AfterValidator(_known)] = OnNeedsHuman.WAIT
    """What to do when only a person can settle an operation."""
    on_exhausted: Annotated[OnExhausted, AfterValidator(_known)] = OnExhausted.END
    """What to do when a limit of the budget is reached."""
    stream: bool = False
    """Whether the model's text is published while it is written, for readers of the task's stream."""

    # Field by field, and not the profile as a whole: so these faults are told together with all others.
    @field_validator("max_tokens_most")
    @classmethod
    def _no_less_than_before(cls, most: int | None, info: ValidationInfo) -> int | None:
        usual = info.data.get("max_tokens")
        if most is not None and usual is not None and most < usual:
            raise PydanticCustomError("too_few", "must be at least max_tokens, which is {usual}", {"usual": usual})
        return most

    @field_validator("context_tokens")
    @classmethod
    def _holds_a_response(cls, context: int | None, info: ValidationInfo) -> int | None:
        for name in ("max_tokens_most", "max_tokens"):
            most = info.data.get(name)
            if context is not None and most is not None and context <= most:
                raise PydanticCustomError(
                    "no_context", "must be above {name}, which is {most}", {"name": name, "most": most}
                )
        return context

    @field_validator("fallback")
    @classmethod
    def _each_once(cls, models: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        chain = [info.data.get("model"), *models]
        for name in models:
            if chain.count(name) > 1:
                raise PydanticCustomError(
                    "repeated", "{name} comes twice in the chain of models, model included", {"name": repr(name)}
                )
        return models

    @field_validator("thinking")
    @classmethod
    def _leaves_room(cls, thinking: Thinking | None, info: ValidationInfo) -> Thinking | None:
        room = info.data.get("max_tokens")
        budget = thinking.budget_tokens if thinking else None
        if budget is not None and room is not None and budget >= room:
            raise PydanticCustomError(
                "no_room", "budget_tokens must be below max_tokens, which is {room}", {"room": room}
            )
        return thinking


def not_toml(error: ValueError | RecursionError) -> str:
    """Why a file can't be taken for TOML: by its parser, or by Python, to which a part of it is too much."""
    if isinstance(error, RecursionError):
        return "not TOML that can be read: nested too deeply"
    if isinstance(error, tomllib.TOMLDecodeError | UnicodeDecodeError):
        return f"not TOML: {error}"
    return "not TOML that can be read: it holds a number with too many digits"


def lines_of(error: ValidationError, prefix: str = "", of: type[BaseModel] | None = None) -> list[str]:
    """A validation error as one readable line per fault, naming the field; never the value, which may be secret.

    Args:
        error: what was found.
        prefix: in front of each place.
        of: the value that was read; then a misspelt field's line names the one that was meant.
    """
    lines = []
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    for fault in faults[:MOST_FAULTS]:
        # The name of an unknown field is whatever somebody wrote.
        place = prefix + " ".join(".".join(str(part) for part in fault["loc"]).split())[:MOST_NAME]
        text = fault["msg"]
        if fault["type"] == "extra_forbidden":
            text = f"unknown field{meant(of, fault['loc'], toml=of is AgentProfile) if of else ''}"
        lines.append(f"{place}: {text}" if place else text)
    if len(faults) > MOST_FAULTS:
        lines.append(f"and {len(faults) - MOST_FAULTS} more")
    return lines
