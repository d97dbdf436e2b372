"""The worker's settings: environment variables, checked at start. Wrong ones are named in one line each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

from settled.activities.agents import lines_of
from settled.activities.settling import Patience
from settled.workflows.contract.task import Conduct
from settled.workflows.errors import ConfigurationError

Seconds = Annotated[float, Field(ge=0.001, le=366 * 86_400)]
"""Temporal takes a time-out of less than its clocks tell for none."""
Attempts = Annotated[int, Field(gt=0, le=1_000)]
PREFIX = "SETTLED_"
MENDS = {"model_url": "not an address of a server; write it like http://127.0.0.1:8000"}
"""What to say instead of a pattern."""


def _lasting(url: str) -> str:
    """A ledger must outlive the process. A URL that is none is refused by the database, in its own words."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return url
    place = parsed.database or ":memory:"
    if parsed.drivername.startswith("sqlite") and (":memory:" in place or parsed.query.get("mode") == "memory"):
        mend = "name a file, like sqlite+aiosqlite:///settled.db"
        raise PydanticCustomError(
            "in_memory", "a ledger in memory would be lost with the process; {mend}", {"mend": mend}
        )
    if parsed.drivername.startswith("sqlite") and place.startswith("file:"):
        raise PydanticCustomError("uri", "name the ledger's file by its path, like sqlite+aiosqlite:///settled.db")
    return url


class Settings(BaseSettings):
    """`SETTLED_…` variables. The connection to Temporal is configured by Temporal's own (`TEMPORAL_ADDRESS`, …)."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore")

    database_url: Annotated[str, AfterValidator(_lasting)] = "sqlite+aiosqlite:///settled.db"
    """Where ledger, transcripts and artifacts are: an SQLAlchemy URL of an async driver."""
    agents: Path = Path("agents")
    """The folder with the agent profiles, NAME.toml each."""
    prices: Path | None = None
    """A price table of your own (TOML); left out: the one that comes with Settled."""
    default_agent: str = ""
    """The profile of a task that names none; left out: the only one there is."""
    task_queue: Annotated[str, Field(min_length=1)] = "agents"
    """The Temporal task queue to serve."""
    model_url: Annotated[str, Field(pattern=r"^https?://[^\s/]")] | None = None
    """A server that speaks the Messages API, such as the scripted one; left out: the provider's own."""
    health_port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """The port of /healthz and /readyz; 0: none."""
    health_host: str = "0.0.0.0"  # a container's probe comes from outside of it
    """The address of the health port."""
    drain_seconds: Seconds = 60.0
    """How long running activities may go on after SIGTERM; at least as long as the longest write."""
    model_seconds: Seconds = 600.0
    """How long one attempt of a model request may take."""
    model_attempts: Attempts = 6
    """Attempts of one model request."""
    read_attempts: Attempts = 4
    """Attempts of one read."""
    recheck_seconds: Seconds = 60.0
    """How long a waiting call waits before it asks the ledger by itself."""
    cut_events: Annotated[int, Field(ge=50, le=40_000)] = 8_000
    """History events after which a task goes on in a new run."""
    lookup_first_seconds: Seconds = 1.0
    """Between the first lookup of an unknown outcome and the second; doubles with each."""
    lookup_most_seconds: Seconds = 300.0
    """Between two lookups at the most."""
    sweep_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """How often the worker starts settlements that are missing; 0: never."""
    patience_seconds: Seconds = 86_400.0
    """How long an outcome may stay unknown before a person is asked."""

    @property
    def conduct(self) -> Conduct:
        """What the loop goes by."""
        return Conduct(
            model_seconds=self.model_seconds,
            model_attempts=self.model_attempts,
            read_attempts=self.read_attempts,
            recheck_seconds=self.recheck_seconds,
            cut_events=self.cut_events,
        )

    @property
    def patience(self) -> Patience:
        """How settlements wait."""
        return Patience(first=self.lookup_first_seconds, most=self.lookup_most_seconds, total=self.patience_seconds)


def load_settings() -> Settings:
    """The settings from the environment.

    Raises:
        ConfigurationError: a variable doesn't fit; a line for each.
    """
    try:
        return Settings()
    except ValidationError as error:
        lines = [_named(line) for line in lines_of(error)]
        raise ConfigurationError("\n".join(lines)) from None


def unknown_variables() -> list[str]:
    """The variables that look like settings and are none, by name: of another release, or misspelt."""
    known = {f"{PREFIX}{name}".upper() for name in Settings.model_fields}
    return sorted(name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known)


def _named(line: str) -> str:
    """The fault, with the variable's name in front."""
    name, _, text = line.partition(": ")
    return f"{PREFIX}{name.upper()}: {MENDS.get(name, text)}"
