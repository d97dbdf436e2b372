"""What the command line prints: safe for a terminal, in columns, never cut; and the line with which it stops."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NoReturn

import typer

REFUSED_EXIT = 1
WRONG_USE_EXIT = 2


def safe(text: str) -> str:
    """The text as one line that can't steer a terminal: a model, or anybody, may have written it."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def escaped(body: bytes) -> str:
    """JSON as it stands, but for signs that could steer a terminal: they are written as JSON's own escapes."""
    text = body.decode("utf-8", "surrogatepass")
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def say(line: str = "") -> None:
    """Print a line, made safe."""
    typer.echo(safe(line))


def say_table(rows: Iterable[Sequence[str]]) -> None:
    """Print the rows in columns."""
    for line in aligned([[safe(cell) for cell in row] for row in rows]):
        typer.echo(line)


def stop(line: str, code: int = REFUSED_EXIT) -> NoReturn:
    """End the command with one line on standard error.

    Raises:
        Exit: always.
    """
    typer.echo(f"settled: {safe(line)}", err=True)
    raise typer.Exit(code)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows in columns. Nothing is cut, however narrow the terminal: a key that is cut can't be used."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def moment(seconds: float) -> str:
    """A time of the store's clock, as people here write it."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(timespec="seconds")


def stamp(seconds: float) -> str:
    """The same for programs."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
