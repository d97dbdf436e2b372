"""The worker's settings: environment variables, checked at start. Wrong ones are named in one line each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from settled.activities.agents import lines_of
from settled.activities.settling import Patience
from settled.workflows.contract.task import Conduct
from settled.workflows.errors import ConfigurationError

Seconds = Annotated[float, Field(gt=0, le=366 * 86_400)]


class Settings(BaseSettings):
    """`SETTLED_…` variables. The connection to Temporal is configured by Temporal's own (`TEMPORAL_ADDRESS`, …)."""

    model_config = SettingsConfigDict(env_prefix="SETTLED_", extra="ignore")

    database_url: str = "sqlite+aiosqlite:///settled.db"
    """Where ledger, transcripts and artifacts are: an SQLAlchemy URL of an async driver."""
    agents: Path = Path("agents")
    """The folder with the agent profiles, NAME.toml each."""
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
    model_attempts: Annotated[int, Field(gt=0)] = 6
    """Attempts of one model request."""
    read_attempts: Annotated[int, Field(gt=0)] = 4
    """Attempts of one read."""
    recheck_seconds: Seconds = 60.0
    """How long a waiting call waits before it asks the ledger by itself."""
    cut_events: Annotated[int, Field(ge=50, le=40_000)] = 8_000
    """History events after which a task goes on in a new run."""
    lookup_first_seconds: Seconds = 1.0
    """Between the first lookup of an unknown outcome and the second; doubles with each."""
    lookup_most_seconds: Seconds = 300.0
    """Between two lookups at the most."""
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


def _named(line: str) -> str:
    """The fault, with the variable's name in front."""
    name, _, text = line.partition(": ")
    return f"SETTLED_{name.upper()}: {text}"
