"""The task as it is asked for, and as it was opened."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from settled.workflows.contract.values import Digest, OpenEnum, Value

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:/-]{0,127}$")]
"""A name in lists, keys and URLs: up to 128 letters, digits and . _ @ : / -"""


Count = Annotated[int, Field(gt=0, le=1_000_000)]
Tokens = Annotated[int, Field(gt=0, le=1_000_000_000_000)]
Dollars = Annotated[Decimal, Field(gt=0, le=1_000_000, decimal_places=6)]
WallSeconds = Annotated[float, Field(gt=0, le=366 * 86_400, allow_inf_nan=False)]


class Budget(Value):
    """What a task may spend. A limit that is left out is the agent profile's."""

    model_config = ConfigDict(extra="forbid")

    turns: Count | None = None
    """Turns (one model response and the running of its calls) that may be run."""
    requests: Count | None = None
    """Model requests that may be made."""
    calls: Count | None = None
    """Tool calls after which no further model request is made; the calls of one response are run together."""
    input_tokens: Tokens | None = None
    """Tokens that the model may read, the cached ones too."""
    output_tokens: Tokens | None = None
    """Tokens that the model may write."""
    cost: Dollars | None = None
    """US dollars that the model requests may cost, by the worker's price table."""
    wall_seconds: WallSeconds | None = None
    """Seconds from the task's start after which no further model request is made and no result is waited for."""


class Extension(Budget):
    """What is added to a task's budget while it runs, or waits for more."""

    because: Annotated[str, StringConstraints(strip_whitespace=True, max_length=2_000)] = ""
    """Why."""
    who: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    """Who says so."""


class Criterion(Value):
    """One thing that must be found true before the task counts as succeeded."""

    model_config = ConfigDict(extra="forbid")

    check: Name
    """The registered check that gathers the evidence, for example `operation`."""
    tool: Name | None = None
    """The tool whose operation or record is looked at, where the check needs one."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What the check is asked with: for `operation`, the tool's arguments as the model would give them."""


class TaskRequest(Value):
    """What a person writes to start a task. A bare JSON string stands for `{"goal": …}`."""

    model_config = ConfigDict(extra="forbid")

    goal: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100_000)]
    """What is to be achieved, in the words that the model reads."""
    agent: Name | None = None
    """The agent profile; left out: the worker's default one."""
    tools: tuple[Name, ...] | None = None
    """The tools that the model may use, out of the profile's; left out: all of them."""
    budget: Budget = Budget()
    """What the task may spend, never above the profile's limits."""
    acceptance: Annotated[tuple[Criterion, ...], Field(max_length=20)] | None = None
    """What must hold at the end; left out: the profile's criteria; an empty list: none, so the task ends unverified."""
    tenant: Name = "default"
    """Whose data the task works on. It is a part of every operation key."""
    principal: Name = "anonymous"
    """In whose name the task acts."""


class OnNeedsHuman(OpenEnum):
    """What a task does when one of its operations can only be settled by a person."""

    WAIT = "wait"
    END = "end"


class OnExhausted(OpenEnum):
    """What a task does when it reaches a limit of its budget."""

    END = "end"
    WAIT = "wait"
    """It waits until somebody extends the budget."""


class Limits(Value):
    """The resolved budget of one task. None: no limit."""

    turns: int
    """Turns that may be run."""
    requests: int
    """Model requests that may be made."""
    wall_seconds: float
    """Seconds from the task's start."""
    calls: int | None = None
    """Tool calls that may be run."""
    input_tokens: int | None = None
    """Tokens that the model may read, the cached ones too."""
    output_tokens: int | None = None
    """Tokens that the model may write."""
    cost: Decimal | None = None
    """US dollars that the model requests may cost."""


class Conduct(Value):
    """The worker's settings that the loop goes by, recorded so that a later deploy doesn't change a running task."""

    model_seconds: float = 600.0
    """Seconds that one attempt of a model request may take in all."""
    model_attempts: int = 6
    """Attempts of one model request before the task ends with `model_error`."""
    read_attempts: int = 4
    """Attempts of one read before the model is told that it failed."""
    recheck_seconds: float = 60.0
    """Seconds after which a waiting call asks the ledger again, in case its wake-up was lost; doubles up to an hour."""
    cut_events: int = 8_000
    """History events after which the run is continued as a new one at the next quiet point."""
    on_needs_human: OnNeedsHuman = OnNeedsHuman.WAIT
    """What to do when only a person can settle an operation."""
    on_exhausted: OnExhausted = OnExhausted.END
    """What to do when a limit of the budget is reached."""
    stream: bool = False
    """Whether the task has a stream, in which the model's text is published while it is written."""


class Opened(Value):
    """What `open_task` found: the head of the transcript, or why the task can't be run."""

    head: Digest | None = None
    """The transcript node that holds the goal; none if the request is refused."""
    limits: Limits | None = None
    """The resolved budget."""
    conduct: Conduct = Conduct()
    """The settings that this task goes by from start to end."""
    agent: str = ""
    """The agent profile in use."""
    title: str = ""
    """The beginning of the goal, for lists."""
    faults: tuple[str, ...] = ()
    """Every fault of the request, a readable line each; empty if the task may run."""
