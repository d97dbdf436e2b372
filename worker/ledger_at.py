"""The ledger that the settings name, for commands that look at it: it must be there already."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from settled.activities.database import Database
from settled.activities.ledger import Ledger
from settled.activities.ledger_lists import Wanted
from settled.worker.printing import WRONG_USE_EXIT, stop
from settled.worker.settings import load_settings
from settled.workflows.contract.names import settlement_id
from settled.workflows.errors import ConfigurationError

MOST_LISTED = 20


@asynccontextmanager
async def existing_database() -> AsyncIterator[Database]:
    """The database that the settings name.

    Raises:
        ConfigurationError: there is no such database, or it holds no ledger.
    """
    database = Database(_existing(load_settings().database_url))
    try:
        yield database
    except DBAPIError as error:
        raise ConfigurationError(
            f"SETTLED_DATABASE_URL: holds no ledger of this release: {_first_line(error.orig)}"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"SETTLED_DATABASE_URL: the database can't be opened: {_first_line(error)}") from error
    finally:
        await database.close()


def _existing(url: str) -> str:
    """The URL; SQLite would make an empty file of one that isn't there."""
    file = make_url(url).database if url.startswith("sqlite") else None
    if file is not None and not Path(file).exists():
        raise ConfigurationError(f"SETTLED_DATABASE_URL: there is no file {file}; name the ledger of a worker")
    return url


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
