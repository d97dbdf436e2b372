"""The ledger that the settings name, for commands that look at it: it must be there already."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from settled.activities.database import READING, Database
from settled.activities.ledger import Ledger
from settled.activities.ledger_lists import Wanted
from settled.worker.printing import WRONG_USE_EXIT, stop
from settled.worker.settings import load_settings
from settled.workflows.contract.names import settlement_id
from settled.workflows.errors import ConfigurationError

MOST_LISTED = 20
PRIMARY = 0xFF
"""The part of an SQLite error's code that says of which kind it is."""


@asynccontextmanager
async def existing_database(*, writing: bool = False) -> AsyncIterator[Database]:
    """The database that the settings name.

    Args:
        writing: whether anything will be written; otherwise nobody needs the right to, and nothing is changed.

    Raises:
        ConfigurationError: there is no such database, it holds no ledger, or it can't be used.
    """
    url = load_settings().database_url
    file = _existing_file(url)
    if writing:
        if file is not None and not _may_be_written(file):
            raise ConfigurationError(f"SETTLED_DATABASE_URL: {file}, or the folder that it lies in, may not be written")
        await _must_hold_a_ledger()
        database = Database(url)
    else:
        database = Database(_to_read(url, file), terms=READING)
    try:
        yield database
    except DBAPIError as error:
        raise ConfigurationError(f"SETTLED_DATABASE_URL: {_why(error)}") from error
    except BrokenPipeError:
        raise  # of the output, whose reader has read enough
    except OSError as error:
        raise ConfigurationError(f"SETTLED_DATABASE_URL: the database can't be opened: {_first_line(error)}") from error
    finally:
        await database.close()


async def _must_hold_a_ledger() -> None:
    """What is to be written to is looked at first: an empty file must not be made a database."""
    from settled.worker.ledger_standing import revision_of

    async with existing_database() as database:
        if not await revision_of(database):
            raise ConfigurationError("SETTLED_DATABASE_URL: the database holds no ledger")


def _existing_file(url: str) -> Path | None:
    """The file of an SQLite database, which SQLite would make if it weren't there; None for another one."""
    name = make_url(url).database if url.startswith("sqlite") else None
    if name is None:
        return None
    file = Path(name)
    try:
        if file.is_dir():
            raise ConfigurationError(f"SETTLED_DATABASE_URL: {file} is a folder; name the file of a worker's ledger")
        if not file.exists():
            raise ConfigurationError(f"SETTLED_DATABASE_URL: there is no file {file}; name the ledger of a worker")
    except OSError as error:
        raise ConfigurationError(f"SETTLED_DATABASE_URL: {file} can't be looked at: {error.strerror}") from error
    return file


def _to_read(url: str, file: Path | None) -> str:
    """The URL to read by.

    SQLite's log lies beside the file, and is made for readers, too. Where there is none, nobody has the ledger open:
    then the file alone is all of it, and who may not write needn't make a log that would be in a worker's way.
    """
    if file is None or _may_be_written(file) or Path(f"{file}-wal").exists():
        return url
    alone = make_url(url).set(database=f"file:{quote(str(file))}", query={"immutable": "1", "uri": "true"})
    return alone.render_as_string(hide_password=False)


def _may_be_written(file: Path) -> bool:
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


def _why(error: DBAPIError) -> str:
    """The true cause of what the database refuses."""
    said, code = _first_line(error.orig), getattr(error.orig, "sqlite_errorcode", None)
    lacks_a_table = code == sqlite3.SQLITE_ERROR or getattr(error.orig, "sqlstate", None) in ("42P01", "42703")
    if lacks_a_table:
        return f"holds no ledger of this release: {said}"
    if code is not None and code & PRIMARY == sqlite3.SQLITE_READONLY:
        return f"the database may not be written: {said}"
    return f"the database can't be used: {said}"


def _first_line(error: BaseException | None) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def generation_in(named: str) -> int | None:
    """The generation that an idempotency key names at its end; None for any other name of an operation."""
    end = re.search(r"-(\d+)$", named.strip().removeprefix(settlement_id("")))
    return int(end[1]) if end else None


async def key_of(ledger: Ledger, named: str) -> str:
    """The key of the operation that is meant: by its key, a beginning of that, its settlement or its idempotency key.

    Raises:
        Exit: none is meant, or several; a line says so.
    """
    beginning = re.sub(r"-\d+$", "", named.strip().removeprefix(settlement_id(""))).lower()
    found = await ledger.listed(Wanted(key=beginning), MOST_LISTED + 1) if beginning else []
    if not found:
        stop(f"the ledger has no operation whose key begins with {named!r}; `settled operations` lists them")
    if len(found) > 1:
        shown = ", ".join(f"{one.view.key} ({one.view.tool}, {one.view.state})" for one in found[:MOST_LISTED])
        more = ", …" if len(found) > MOST_LISTED else ""
        stop(f"several keys begin with {named!r}; say more of the one you mean: {shown}{more}", WRONG_USE_EXIT)
    return found[0].view.key
