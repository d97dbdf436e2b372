"""Bringing a database to this release's tables."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

import settled.activities.migrations
from settled.activities.database import Database


async def migrate(database: Database) -> None:
    """Make or change the tables to this release's form, in one transaction; does nothing where they have it already."""
    async with database.write() as connection:
        await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(settled.activities.migrations.__path__[0])))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
