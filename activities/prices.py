"""What model requests cost: a table of prices as data, in US dollars per million tokens. Money is never a float.

A model that the table doesn't have has no cost, nor has a response that doesn't say its tokens. That is said and not
guessed: `Usage.unpriced` counts such requests.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from settled.activities.agents import AgentProfile, lines_of, not_toml
from settled.workflows.contract.turn import Usage
from settled.workflows.contract.values import Value
from settled.workflows.errors import ConfigurationError

SHIPPED = Path(__file__).with_name("prices.toml")
VARIABLE = "SETTLED_PRICES"
MILLION = 1_000_000
DATED = re.compile(r"(?:[-@]\d{8}(?:-v\d+(?::\d+)?)?|-latest)?")
"""What may follow a model's name where the same model is meant: a date, say. `-5` would be another model."""

PerMillion = Annotated[Decimal, Field(ge=0, le=1_000_000)]


class Rates(Value):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid")

    input: PerMillion
    """Tokens read, without the cached ones."""
    output: PerMillion
    """Tokens written."""
    cache_read: PerMillion
    """Tokens read from the provider's prompt cache."""
    cache_write: PerMillion
    """Tokens written to it, to be kept for five minutes."""

    def cost(self, usage: Usage) -> Decimal:
        """What these tokens cost, exactly."""
        return (
            self.input * usage.input_tokens
            + self.output * usage.output_tokens
            + self.cache_read * usage.cache_read_tokens
            + self.cache_write * usage.cache_write_tokens
        ) / MILLION


class Above(Rates):
    """The rates of a long request."""

    tokens: Annotated[int, Field(gt=0)]
    """A request that reads more than this is a long one."""


class Price(Rates):
    """What one model costs."""

    above: Above | None = None
    """The rates of a long request, where they are others."""

    def cost(self, usage: Usage) -> Decimal:
        """What a request with this usage costs."""
        if self.above is not None and usage.read_tokens > self.above.tokens:
            return self.above.cost(usage)
        return super().cost(usage)


def _same(model: str, name: str) -> bool:
    """Whether the model is the one of this name, with nothing but a date behind it."""
    return model.startswith(name) and DATED.fullmatch(model[len(name) :]) is not None


class Prices(Value):
    """A table of prices."""

    model_config = ConfigDict(extra="forbid")

    models: dict[Annotated[str, Field(min_length=1)], Price]
    """The price of each model, by the beginning of its name."""

    def of(self, model: str) -> Price | None:
        """The price of a model: of the longest name that it begins with, if only a date follows."""
        names = [name for name in self.models if _same(model, name)]
        return self.models[max(names, key=len)] if names else None

    def priced(self, usage: Usage, *models: object, frozen: Mapping[str, Price] | None = None) -> Usage:
        """The usage of one request, with its cost.

        Args:
            usage: as the provider counted it.
            models: the model that answered, by the provider's name of it, then the one that was asked: the first
                one with a price counts.
            frozen: the prices that the task began with: for each model they come before this table.
        """
        if usage.unpriced:  # its tokens aren't known
            return usage
        tables = (Prices(models=dict(frozen or {})), self)
        price = next((price for model in models for table in tables if (price := table.of(str(model)))), None)
        return usage.model_copy(update={"unpriced": 1} if price is None else {"cost": price.cost(usage)})

    def for_task(self, profile: AgentProfile) -> dict[str, Price]:
        """The prices of the models that a task of this profile may ask, their dated names too, by the table's names."""
        asked = (profile.model, *profile.fallback)
        return {
            name: price
            for name, price in self.models.items()
            if any(_same(model, name) or _same(name, model) for model in asked)
        }

    def unpriced(self, profile: AgentProfile) -> list[str]:
        """The models that a task of this profile may ask, and whose price isn't known."""
        return [model for model in (profile.model, *profile.fallback) if self.of(model) is None]


def load_prices(path: Path | None = None) -> Prices:
    """A table of prices from a TOML file.

    Args:
        path: of the file; none: the table that comes with Settled.

    Raises:
        ConfigurationError: it can't be read, or has faults; a line for each.
    """
    file = path or SHIPPED
    faults: list[str] = []
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8-sig"), parse_float=Decimal)
        faults += _unquoted(written)
        prices = Prices.model_validate(written)
        if not faults:
            return prices
    except ValidationError as error:
        faults += lines_of(error)
    except (ValueError, RecursionError) as error:
        faults = [not_toml(error)]
    except OSError as error:
        faults = [f"can't be read: {error.strerror}"]
    raise ConfigurationError("\n".join(f"{VARIABLE} ({file.name}): {fault}" for fault in faults))


def _unquoted(written: dict[str, Any]) -> list[str]:
    """A line for each model whose name has a dot and no quotes: TOML takes it for tables. These are taken out."""
    models, lines = written.get("models"), list[str]()
    if not isinstance(models, dict):
        return lines
    for name, row in list(models.items()):
        names = list(_names_below(name, row))
        lines += [f'models.{name}: a name with a dot needs quotes, like [models."{whole}"]' for whole in names]
        for whole in names:
            row.pop(whole[len(name) + 1 :].split(".")[0], None)
        if names and not row:
            del models[name]
    return lines


def _names_below(name: str, row: Any) -> Iterator[str]:
    """The names of the models that stand in a model's table, as if they were a part of it."""
    for more, inner in row.items() if isinstance(row, dict) else ():
        if isinstance(inner, dict) and more not in Price.model_fields and "tokens" not in inner:
            deeper = list(_names_below(f"{name}.{more}", inner))
            yield from deeper or [f"{name}.{more}"]


def faults_of_profiles(profiles: Mapping[str, AgentProfile], prices: Prices) -> list[str]:
    """The profiles whose limit of cost can't be kept, a line each."""
    faulty = [(name, prices.unpriced(profile)) for name, profile in profiles.items() if profile.limits.cost is not None]
    return [f"agent {name}: limits.{no_price(models)}" for name, models in faulty if models]


def no_price(models: Iterable[str]) -> str:
    """Why there can be no limit of cost, and the mend."""
    named = ", ".join(map(repr, models))
    return f"cost: no price is known of {named}; add it to a table of your own ({VARIABLE}), or leave this limit out"
