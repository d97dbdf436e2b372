"""The budget: what is limited, what has been spent of it, and the end if it isn't enough. One table; pure.

A limit stops the next model request, never a call that the last response proposed; only the wall time ends the waiting
for a result, too. So a limit can be passed by what one response costs, and no call is left without its result.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.loop import LoopState
from settled.workflows.contract.task import Limits
from settled.workflows.contract.turn import End

Amount = int | float | Decimal
CENT = Decimal("0.01")
MILLISECOND = Decimal("0.001")


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """One thing that is limited."""

    limit: str
    """The field of `Limits`, of a task's budget, and of an extension."""
    spent: Callable[[LoopState, float], Amount]
    """How much of it a task has used, at this time."""
    reason: EndReason
    """Why the task ends where that isn't enough."""
    says: str
    """The end's line; `{limit}` stands for the limit as people write it, `{s}` for a plural's s."""


WALL_TIME = Budgeted(
    limit="wall_seconds",
    spent=lambda state, now: now - state.opened_at,
    reason=EndReason.DEADLINE,
    says="the task's {limit} s are over",
)
TABLE: tuple[Budgeted, ...] = (
    Budgeted(
        limit="turns",
        spent=lambda state, _: state.counters.turns,
        reason=EndReason.MAX_TURNS,
        says="the limit of {limit} turn{s} is reached",
    ),
    Budgeted(
        limit="requests",
        spent=lambda state, _: state.counters.requests,
        reason=EndReason.MAX_REQUESTS,
        says="the limit of {limit} model request{s} is reached",
    ),
    Budgeted(
        limit="calls",
        spent=lambda state, _: state.counters.calls,
        reason=EndReason.MAX_CALLS,
        says="the limit of {limit} tool call{s} is reached",
    ),
    Budgeted(
        limit="input_tokens",
        spent=lambda state, _: state.usage.read_tokens,
        reason=EndReason.MAX_TOKENS_BUDGET,
        says="the limit of {limit} token{s} read is reached",
    ),
    Budgeted(
        limit="output_tokens",
        spent=lambda state, _: state.usage.output_tokens,
        reason=EndReason.MAX_TOKENS_BUDGET,
        says="the limit of {limit} token{s} written is reached",
    ),
    Budgeted(
        limit="cost",
        spent=lambda state, _: state.usage.cost,
        reason=EndReason.MAX_COST,
        says="the limit of ${limit} is reached",
    ),
)
"""What stops the next model request, in the order in which it is looked at."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A limit that is reached."""

    what: Budgeted
    limit: Amount
    enough: Amount
    """An amount that would lift it, if it were added."""

    @property
    def text(self) -> str:
        """One line for people."""
        return self.what.says.format(limit=written(self.limit, ","), s="" if self.limit == 1 else "s")

    @property
    def end(self) -> End:
        """The end that it means."""
        return End(reason=self.what.reason, detail=self.text)


def reached(state: LoopState, now: float, *, asks_model: bool) -> tuple[Reached, ...]:
    """The limits that stand in the way of the task's next step, the most important one first.

    Args:
        state: of the task.
        now: in seconds since 1970.
        asks_model: whether the next step is a model request; only the wall time stops anything else.
    """
    limits = limits_of(state)
    found = []
    for what in (WALL_TIME, *(TABLE if asks_model else ())):
        limit, spent = getattr(limits, what.limit), what.spent(state, now)
        if limit is not None and spent >= limit:
            found.append(Reached(what=what, limit=limit, enough=_enough(what, limit, spent)))
    return tuple(found)


def waits_for(short: Sequence[Reached], task: str) -> str:
    """What a task waits for whose budget is spent, with the command that lets it go on.

    Args:
        short: the limits that are reached.
        task: the task's id.
    """
    # Without quotes in it: the Temporal command line prints JSON, and what is escaped there can't be pasted.
    amounts = " ".join(f"{option_of(each.what.limit)} {written(each.enough)}" for each in short)
    texts = " and ".join(each.text for each in short)
    named = shlex.quote(task)
    # What begins with a dash would be taken for an option.
    words = f"{amounts} -- {named}" if task.startswith("-") else f"{named} {amounts}"
    return f"a larger budget: {texts}; extend it with: settled extend {words}"


def written(amount: Amount, thousands: str = "") -> str:
    """An amount as people write it: never with an exponent; seconds as whole ones, or to the next millisecond.

    Args:
        amount: of anything that is limited; only seconds are floats.
        thousands: what stands between the thousands: a comma, or nothing.
    """
    if not isinstance(amount, float):
        return format(amount, f"{thousands}f" if isinstance(amount, Decimal) else f"{thousands}d")
    text = format(Decimal(repr(amount)).quantize(MILLISECOND, ROUND_UP), f"{thousands}f")
    return text.rstrip("0").removesuffix(".")


def option_of(limit: str) -> str:
    """The command line's option for a limit."""
    return f"--{limit.replace('_', '-')}"


def limits_of(state: LoopState) -> Limits:
    """The task's limits, with all that was added to them."""
    assert state.opened.limits is not None, "a task without faults has limits"
    return state.opened.limits


def _enough(what: Budgeted, limit: Amount, spent: Amount) -> Amount:
    """As much again as was spent, which is more than is missing; of the time, which counts from now, the limit."""
    if what is WALL_TIME:
        return limit
    return spent.quantize(CENT, ROUND_UP) if isinstance(spent, Decimal) else spent
