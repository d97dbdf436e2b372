"""Ledgers on SQLite that nobody has used. To copy one takes far less than to make its tables."""

from __future__ import annotations

import asyncio
from pathlib import Path

from settled.activities.database import Database
from settled.activities.migrating import migrate

_made: list[bytes] = []
"""The first one, as it was before anybody used it."""


async def new_ledger(file: Path) -> str:
    """Make one in that file, which isn't there yet; returns its URL."""
    url = f"sqlite+aiosqlite:///{file}"
    if _made:
        await asyncio.to_thread(file.write_bytes, _made[0])
    else:
        await make_tables(url)
        _made.append(await asyncio.to_thread(file.read_bytes))
    return url


async def make_tables(url: str) -> None:
    """Make a ledger's tables in an empty database."""
    database = Database(url)
    await migrate(database)
    await database.close()
