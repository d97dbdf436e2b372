"""Options that several commands have, and the person who gives them."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from settled.worker.printing import WRONG_USE_EXIT, stop

MOST_NAME = 200

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Because = Annotated[str, typer.Option(help="How it is known; stands in the records for good.")]
Who = Annotated[str, typer.Option(help="Who says so.", show_default="the login name")]
Timeout = Annotated[float, typer.Option(min=1, max=3600, help="Seconds that a worker has to take it.")]


def person(who: str) -> str:
    """Who gives the command: the name that was given, else the login name."""
    name = who.strip()
    if not name:
        try:
            name = getpass.getuser()
        # Neither a variable nor the system knows a name: KeyError before Python 3.13, OSError since.
        except (KeyError, OSError):
            stop("there is no login name here: say who you are with --who", WRONG_USE_EXIT)
    if len(name) > MOST_NAME:
        stop(f"--who: at most {MOST_NAME} characters", WRONG_USE_EXIT)
    return name
