"""The command line: `settled worker`, `settled local`, `settled operations`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from settled.worker.settings import load_settings
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import ConfigurationError

if TYPE_CHECKING:
    from settled.activities.ledger_lists import Listed

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

CONFIGURATION_EXIT = 2
HEADERS = ("changed", "operation", "tool", "state", "gen", "sends", "by", "task", "arguments")
CHATTY = ("httpx2", "alembic")
"""Libraries that tell of each request and each step; what goes wrong they still tell."""


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"settled {version('settled')}")
        raise typer.Exit


@app.callback()
def settled(
    _asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which release this is.")
    ] = False,
) -> None:
    """A durable executor for agent tasks on Temporal: every write is settled."""


@app.command()
def worker() -> None:
    """Serve tasks until SIGTERM; settings are SETTLED_… and TEMPORAL_… environment variables."""
    from settled.worker.process import run_worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    asyncio.run(run_worker(load_settings()))
    _leave(0)


@app.command()
def local(
    demo: Annotated[
        bool, typer.Option("--demo", help="Run the demo task on free ports, then stop everything.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="After the demo, leave everything running.")] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Of the Temporal server.", show_default="7233")
    ] = None,
    ui_port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help="Of Temporal's web page.", show_default="8233")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder for databases and logs, which stays.", show_default="a temporary one")
    ] = None,
) -> None:
    """Run everything on this machine: a Temporal dev server, the worker, the demo stock service, a scripted model."""
    from settled.local.main import run_local

    _leave(asyncio.run(run_local(demo=demo, keep=keep, port=port, ui_port=ui_port, data=data)))


def _leave(code: int) -> NoReturn:
    """End the process. The SDK's native threads can crash an interpreter that takes its time to exit; all is done."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@app.command()
def operations(
    state: Annotated[
        list[str] | None, typer.Option(help="Only operations in this state; may be given several times.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at the most.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the operations of the ledger (SETTLED_DATABASE_URL), the latest change first."""
    states = [_state(name) for name in state or ()]
    asyncio.run(_list_operations(_existing_ledger(), states, limit, as_json=as_json))


def _existing_ledger() -> str:
    """The ledger's URL; SQLite would make an empty file of one that isn't there."""
    from sqlalchemy.engine import make_url

    from settled.activities.database import Database

    url = load_settings().database_url
    Database(url)
    file = make_url(url).database if url.startswith("sqlite") else None
    if file is not None and not Path(file).exists():
        raise ConfigurationError(f"SETTLED_DATABASE_URL: there is no file {file}; name the ledger of a worker")
    return url


async def _list_operations(url: str, states: list[OperationState], limit: int, *, as_json: bool) -> None:
    from sqlalchemy.exc import DBAPIError

    from settled.activities.database import Database
    from settled.activities.ledger import Ledger
    from settled.activities.ledger_lists import Wanted

    database = Database(url)
    try:
        listed = await Ledger(database).listed(Wanted(states=tuple(states)), limit)
    except DBAPIError as error:
        raise ConfigurationError(f"SETTLED_DATABASE_URL: holds no ledger of ours: {error.orig}") from error
    finally:
        await database.close()
    if as_json:
        for one in listed:
            at = datetime.fromtimestamp(one.changed_at, UTC).isoformat()
            typer.echo(json.dumps(one.view.model_dump(mode="json") | {"changed_at": at, "task": one.task}))
        return
    for line in _aligned([HEADERS, *map(_cells, listed)]):
        typer.echo(line)


def _cells(one: Listed) -> Sequence[str]:
    view = one.view
    at = datetime.fromtimestamp(one.changed_at, UTC).astimezone().isoformat(timespec="seconds")
    counts = (str(view.generation), str(view.sends))
    cells = (at, view.key[:12], view.tool, view.state, *counts, view.evidence or "-", one.task, one.shown or "-")
    # A model wrote the arguments: nothing of them may steer the terminal, or break the line.
    return ["".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in cell) for cell in cells]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows in columns. Nothing is cut, however narrow the terminal: a key that is cut can't be used."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _state(name: str) -> OperationState:
    state = OperationState(name)
    if not state.known:
        known = ", ".join(OperationState)
        raise ConfigurationError(f"--state: there is no state {name!r}; the states are {known}")
    return state


def main() -> NoReturn:
    """Run the command line; wrong settings are one readable line each, and exit code 2."""
    try:
        app()
    except ConfigurationError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"settled: {line}\n")
        _leave(CONFIGURATION_EXIT)
    sys.exit(0)
