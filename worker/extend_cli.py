"""`settled extend TASK`: add to a task's budget, whether it runs or waits for that."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from settled.worker.options import AsJson, Timeout, person
from settled.worker.printing import WRONG_USE_EXIT, say_table, stop

if TYPE_CHECKING:
    from settled.workflows.contract.task import Limits

ANSWER_SECONDS = 30.0
"""How long a worker has to take it; one that has just died is noticed by Temporal after ten seconds."""

Task = Annotated[str, typer.Argument(metavar="TASK", help="The task's workflow id.")]
Whole = int | None


def extend(
    task: Task,
    turns: Annotated[Whole, typer.Option(help="Turns to add.")] = None,
    requests: Annotated[Whole, typer.Option(help="Model requests to add.")] = None,
    calls: Annotated[Whole, typer.Option(help="Tool calls to add.")] = None,
    input_tokens: Annotated[Whole, typer.Option(help="Tokens that are read, to add.")] = None,
    output_tokens: Annotated[Whole, typer.Option(help="Tokens that are written, to add.")] = None,
    cost: Annotated[str | None, typer.Option(metavar="DOLLARS", help="US dollars to add.")] = None,
    wall_seconds: Annotated[float | None, typer.Option(help="Seconds to add; from now, if time is over.")] = None,
    because: Annotated[str, typer.Option(help="Why; stands in the task's history.")] = "",
    who: Annotated[str, typer.Option(help="Who says so.", show_default="the login name")] = "",
    timeout: Timeout = ANSWER_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Add to a task's budget, over Temporal (TEMPORAL_ADDRESS): one amount or several, for limits that it has."""
    amounts = {
        "turns": turns,
        "requests": requests,
        "calls": calls,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cost": cost,
        "wall_seconds": wall_seconds,
    }
    said = {name: amount for name, amount in amounts.items() if amount is not None}
    words = _checked({**said, "because": because, "who": person(who)})
    limits = asyncio.run(_give(task, words, timeout))
    if as_json:
        typer.echo(json.dumps(limits.model_dump(mode="json")))
        return
    say_table([(name, _shown(limit)) for name, limit in limits.model_dump().items()])


def _shown(limit: Any) -> str:
    from settled.workflows.budgets import written

    return "no limit" if limit is None else written(limit)


def _checked(words: dict[str, Any]) -> dict[str, Any]:
    """What is said, if it is an extension at all: so that nobody has to wait for a worker to hear that it isn't."""
    from settled.workflows.extending import BadExtension, extension

    try:
        extension([words])
    except BadExtension as error:
        stop(str(error), WRONG_USE_EXIT)
    return words


async def _give(task: str, words: dict[str, Any], seconds: float) -> Limits:
    from settled.worker.asking import NotTaken, extend_budget
    from settled.worker.process import connect

    client = await connect()
    try:
        return await extend_budget(client, task, words, seconds=seconds)
    except NotTaken as refused:
        stop(str(refused))
