"""The command line: `settled worker`, `local`, `operations`, `extend`, `transcript`, `ledger`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from settled.worker import extend_cli, ledger_cli, operations_cli, transcript_cli
from settled.worker.printing import show_all
from settled.worker.settings import load_settings
from settled.workflows.errors import ConfigurationError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(operations_cli.app, name="operations")
app.command()(extend_cli.extend)
app.command()(transcript_cli.transcript)
app.add_typer(ledger_cli.app, name="ledger")

CONFIGURATION_EXIT = 2
CLOSED_PIPE_EXIT = 141
"""As of a tool that SIGPIPE has ended: whoever read the output has enough of it."""
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
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    settings = load_settings()
    # Not before: what it imports takes seconds, and wrong settings are told at once.
    from settled.worker.process import run_worker

    asyncio.run(run_worker(settings))
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
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def main() -> NoReturn:
    """Run the command line; wrong settings are one readable line each, and exit code 2."""
    show_all()
    for word in sys.argv:
        if not word.isascii() and word != word.encode(errors="replace").decode():
            sys.stderr.write(f"settled: {word.encode(errors='replace').decode()!r} is not text in UTF-8\n")
            _leave(CONFIGURATION_EXIT)
    out = sys.stdout
    try:
        app()
    except ConfigurationError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"settled: {line}\n")
        _leave(CONFIGURATION_EXIT)
    except SystemExit as ended:
        if sys.stdout is not out:  # typer puts something that says nothing in the place of a closed pipe
            _leave(CLOSED_PIPE_EXIT)
        _leave(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    _leave(0)
