"""What the command line prints: safe for a terminal, in columns, never cut; and the line with which it stops."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NoReturn

import typer

REFUSED_EXIT = 1
WRONG_USE_EXIT = 2
BEYOND, BEFORE = "the end of time", "the beginning of time"
LAST_STAMP, FIRST_STAMP = "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00+00:00"
NOT_IN_CALENDAR = (ValueError, OverflowError, OSError)
"""What a time raises that no calendar has: a promise for ever, say."""


def safe(text: str) -> str:
    """The text as one line that can't steer a terminal: a model, or anybody, may have written it."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def escaped(body: bytes) -> str:
    """JSON as it stands, but for signs that could steer a terminal: they are written as JSON's own escapes."""
    text = body.decode("utf-8", "surrogatepass")
    return "".join(sign if sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)


def show_all() -> None:
    """Have what the encoding of the output lacks printed as JSON's escapes: so JSON stays JSON."""
    codecs.register_error("settled", _as_escapes)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="settled")


def _as_escapes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


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
    """A time of the store's clock, as people here write it; in a word where no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(timespec="seconds")
    except NOT_IN_CALENDAR:
        return BEYOND if seconds > 0 else BEFORE


def stamp(seconds: float) -> str:
    """The same for programs; where no calendar has it, the nearest time that it has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except NOT_IN_CALENDAR:
        return LAST_STAMP if seconds > 0 else FIRST_STAMP
