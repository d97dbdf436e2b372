"""The command line: `settled worker`, `settled local`, `settled operations`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Column, Table

from settled.worker.settings import load_settings
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import ConfigurationError

app = typer.Typer(
    help="A durable executor for agent tasks on Temporal: every write is settled.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

CONFIGURATION_EXIT = 2


@app.command()
def worker() -> None:
    """Serve tasks until SIGTERM; settings are SETTLED_… and TEMPORAL_… environment variables."""
    from settled.worker.process import run_worker

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
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

    database = Database(url)
    try:
        listed = await Ledger(database).listed(states, limit)
    except DBAPIError as error:
        raise ConfigurationError(f"SETTLED_DATABASE_URL: holds no ledger of ours: {error.orig}") from error
    finally:
        await database.close()
    if as_json:
        for view, _ in listed:
            typer.echo(view.model_dump_json())
        return
    table = Table(
        *(Column(name, no_wrap=True) for name in ("changed", "operation", "tool", "state", "gen", "sends", "by"))
    )
    for view, changed in listed:
        at = datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds")
        cells = (at, view.key[:12], view.tool, view.state, str(view.generation), str(view.sends), view.evidence or "")
        table.add_row(*cells)
    # Wider than a narrow terminal, or a pipe, rather than cut: a key that is cut can't be used.
    Console(soft_wrap=True).print(table)


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
