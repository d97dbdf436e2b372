"""`settled operations`: the ledger's list, one operation with its journal, and a person's word on one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from settled.worker.options import AsJson, Because, Timeout, Who, person
from settled.worker.printing import WRONG_USE_EXIT, moment, safe, say_table, stamp, stop
from settled.worker.settings import load_settings
from settled.workflows.contract.operation import OperationState, Resolution, Resolved
from settled.workflows.errors import ConfigurationError

if TYPE_CHECKING:
    from settled.activities.ledger_lists import Listed, Wanted

app = typer.Typer(invoke_without_command=True)

HEADERS = ("changed", "operation", "tool", "state", "gen", "sends", "by", "alarms", "task", "arguments")
ANSWER_SECONDS = 30.0
"""How long a worker has to take a person's word; one that has just died is noticed by Temporal after ten seconds."""

Key = Annotated[str, typer.Argument(metavar="KEY", help="An operation's key, or a beginning of it that no other has.")]


@app.callback()
def operations(
    context: typer.Context,
    state: Annotated[
        list[str] | None, typer.Option(help="Only operations in this state; may be given several times.")
    ] = None,
    tool: Annotated[str, typer.Option(help="Only operations of this tool.")] = "",
    task: Annotated[str, typer.Option(help="Only operations that this task has opened or joined.")] = "",
    key: Annotated[str, typer.Option(help="Only operations whose key begins so.")] = "",
    alarms: Annotated[bool, typer.Option("--alarms", help="Only operations that may have had two effects.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the operations of the ledger (SETTLED_DATABASE_URL), the latest change first; show one, or resolve one."""
    if context.invoked_subcommand is not None:
        if any((state, tool, task, key, alarms, as_json)):
            stop(
                f"options of the list don't go with {context.invoked_subcommand}; its own come after it", WRONG_USE_EXIT
            )
        return
    from settled.activities.ledger_lists import Wanted

    states = tuple(_state(name) for name in state or ())
    wanted = Wanted(states=states, tool=tool, task=task, key=key.lower(), alarms=alarms)
    listed = asyncio.run(_listed(wanted, limit))
    if as_json:
        for one in listed:
            more = {"changed_at": stamp(one.changed_at), "task": one.task, "alarms": one.alarms}
            typer.echo(json.dumps(one.view.model_dump(mode="json") | more))
        return
    say_table([HEADERS, *map(_cells, listed)])


@app.command()
def show(key: Key, as_json: AsJson = False) -> None:
    """Show an operation: what it waits for and holds, who has joined it, and its whole journal."""
    _show(asyncio.run(_key_of(key)), as_json=as_json)


@app.command()
def resolve(
    key: Key,
    completed: Annotated[bool, typer.Option("--completed", help="It was done.")] = False,
    not_executed: Annotated[bool, typer.Option("--not-executed", help="It was not done, and won't be.")] = False,
    undone: Annotated[
        bool, typer.Option("--undone", help="It is done by the ledger, and somebody has taken it back since.")
    ] = False,
    because: Because = "",
    who: Who = "",
    timeout: Timeout = ANSWER_SECONDS,
) -> None:
    """Say what became of an operation that needs a person. Look it up at the service first: nobody checks the word."""
    given = {Resolved.COMPLETED: completed, Resolved.NOT_EXECUTED: not_executed, Resolved.UNDONE: undone}
    said = [outcome for outcome, is_said in given.items() if is_said]
    if len(said) != 1:
        stop("say one of --completed, --not-executed and --undone", WRONG_USE_EXIT)
    (outcome,) = said
    word = _word(outcome, because, person(who))
    whole = asyncio.run(_key_of(key))
    asyncio.run(_give(whole, word, key, timeout))
    _show_what_it_came_to(whole)


def _word(outcome: Resolved, because: str, who: str) -> Resolution:
    from settled.workflows.words import faults_of

    given = {"outcome": outcome, "because": because, "who": who}
    if faults := faults_of([given]):
        # Each field but the outcome is an option of the same name.
        stop("; ".join(f"--{fault}" for fault in faults), WRONG_USE_EXIT)
    return Resolution.model_validate(given)


async def _listed(wanted: Wanted, limit: int) -> list[Listed]:
    from settled.activities.ledger import Ledger
    from settled.worker.ledger_at import existing_database

    async with existing_database() as database:
        return await Ledger(database).listed(wanted, limit)


async def _key_of(named: str) -> str:
    from settled.activities.ledger import Ledger
    from settled.worker.ledger_at import existing_database, key_of

    async with existing_database() as database:
        return await key_of(Ledger(database), named)


async def _give(key: str, word: Resolution, named: str, seconds: float) -> None:
    from settled.activities import protocol
    from settled.activities.ledger import Ledger
    from settled.activities.resolving import EVENTS, why_not
    from settled.worker.asking import NotTaken, give_word
    from settled.worker.ledger_at import existing_database, generation_in
    from settled.worker.process import connect

    async with existing_database() as database:
        operation = await Ledger(database).read(key)
    meant = generation_in(named)
    if operation is not None:
        # The word is about what was looked at, and not about what may be there by the time when it is heard.
        word = word.model_copy(update={"generation": operation.generation if meant is None else meant})
    if operation is not None and protocol.resolve(operation, EVENTS[word.outcome], {}, word.generation) is None:
        # The settlement would say the same; it need not be started for that.
        stop(why_not(operation, word))
    client = await connect()
    try:
        await give_word(client, key, word, task_queue=load_settings().task_queue, seconds=seconds)
    except NotTaken as refused:
        stop(str(refused))


def _show(key: str, *, as_json: bool) -> None:
    from settled.worker import operation_story
    from settled.worker.ledger_at import existing_database

    async def read() -> operation_story.Story:
        async with existing_database() as database:
            return await operation_story.story_of(database, key)

    story = asyncio.run(read())
    if as_json:
        typer.echo(json.dumps(operation_story.as_json(story)))
        return
    for line in operation_story.lines_of(story):
        typer.echo(line)


def _show_what_it_came_to(key: str) -> None:
    """Show the operation after the word; the word is taken, whether or not that can be done."""
    try:
        _show(key, as_json=False)
    # Whatever it is, a closed pipe included: who reads the exit code asks what became of the word.
    except Exception as error:
        why = str(error) or type(error).__name__
        typer.echo(f"settled: the word is taken; the operation can't be shown now: {safe(why)}", err=True)


def _cells(one: Listed) -> Sequence[str]:
    view = one.view
    counts = (str(view.generation), str(view.sends), view.evidence or "-", str(one.alarms or "-"))
    return (moment(one.changed_at), view.key[:12], view.tool, view.state, *counts, one.task, one.shown or "-")


def _state(name: str) -> OperationState:
    state = OperationState(name)
    if not state.known:
        known = ", ".join(OperationState)
        raise ConfigurationError(f"--state: there is no state {name!r}; the states are {known}")
    return state
