"""Bringing a database to this release's tables."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select

import settled.activities.migrations
from settled.activities.database import MIGRATION, Database
from settled.workflows.errors import ConfigurationError

log = logging.getLogger("settled.ledger")

LOCK = 0x5E771ED
"""Names the lock that workers take in turn, where starting a transaction doesn't already keep others out."""


async def migrate(database: Database) -> None:
    """Make or change the tables to this release's form, in one transaction; where they have it, nothing is locked.

    Raises:
        ConfigurationError: the database can't be opened.
    """
    try:
        async with database.read() as connection:
            revision = await connection.run_sync(_revision)
    # A driver may raise anything while it connects.
    except Exception as error:
        lines = str(getattr(error, "orig", error)).splitlines() or [type(error).__name__]
        raise ConfigurationError(f"SETTLED_DATABASE_URL: the database can't be opened: {lines[0]}") from error
    if revision == _head():
        return
    migrating = Database(database.url, terms=MIGRATION)
    try:
        async with migrating.write() as connection:
            made = await connection.run_sync(_upgrade)
    finally:
        await migrating.close()
    if made:
        where = database.engine.url.render_as_string(hide_password=True)
        log.warning(
            "made a new, empty ledger in %s; if there was one before, restore it and say `settled ledger restored`",
            where,
        )


def _upgrade(connection: Connection) -> bool:
    """Change the tables; returns whether there were none."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
    config = _config()
    config.attributes["connection"] = connection
    empty = _revision(connection) is None
    command.upgrade(config, "head")
    return empty


def _revision(connection: Connection) -> str | None:
    """The last migration that the database has seen."""
    return MigrationContext.configure(connection).get_current_revision()


@cache
def _head() -> str | None:
    """The last migration of this release."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(settled.activities.migrations.__path__[0])))
    return config
