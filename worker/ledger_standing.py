"""How a ledger stands as a whole: its database, its counts, its alarms, and whether it has lost a part of its past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alembic.script import ScriptDirectory
from sqlalchemy import Row, func, inspect, select, text
from sqlalchemy.engine import make_url

import settled.activities.migrations
from settled.activities import schema
from settled.activities.database import Database
from settled.worker.settings import load_settings
from settled.workflows.contract.operation import OperationState


@dataclass(frozen=True, kw_only=True)
class OpenEpoch:
    """An epoch that is open, with who opened it."""

    number: int
    since: float
    """When the last row was written that the restored copy has."""
    opened_at: float
    opened_by: str
    because: str


@dataclass(frozen=True, kw_only=True)
class LedgerStanding:
    """A ledger as it stands."""

    kind: str
    """Which database it is."""
    place: str
    """Where that is, without a password."""
    revision: str
    """The form of its tables; empty if it holds no ledger."""
    newest: str
    """The form that this release gives them."""
    counts: dict[OperationState, int]
    """Operations by state, in the order of the states."""
    alarms: int
    """Operations that may have had two effects."""
    epoch: OpenEpoch | None
    """The epoch that is open."""


async def revision_of(database: Database) -> str:
    """The form of the tables; empty if there are none of ours."""
    async with database.read() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        if "alembic_version" not in names or schema.journal.name not in names:
            return ""
        return str((await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one())


def newest_revision() -> str:
    """The form that this release gives the tables."""
    (folder,) = settled.activities.migrations.__path__
    return ScriptDirectory(folder).get_current_head() or ""


async def standing_of(database: Database) -> LedgerStanding:
    """The ledger as it stands."""
    current, epochs = schema.operations.c, schema.epochs.c
    by_state = select(current.state, func.count().label("number")).group_by(current.state)
    alarmed = select(func.count()).select_from(schema.operations).where(current.alarms > 0)
    opened = select(schema.epochs).where(epochs.closed_at.is_(None)).order_by(epochs.number.desc()).limit(1)
    revision = await revision_of(database)
    async with database.read() as connection:
        counts = {row.state: int(row.number) for row in await connection.execute(by_state)}
        alarms = int((await connection.execute(alarmed)).scalar_one())
        row = (await connection.execute(opened)).first()
    return LedgerStanding(
        kind=database.engine.dialect.name,
        place=make_url(load_settings().database_url).render_as_string(hide_password=True),
        revision=revision,
        newest=newest_revision(),
        counts={state: counts[state] for state in OperationState if state in counts},
        alarms=alarms,
        epoch=None if row is None else _epoch(row),
    )


def _epoch(row: Row[Any]) -> OpenEpoch:
    return OpenEpoch(
        number=row.number, since=row.since, opened_at=row.opened_at, opened_by=row.opened_by, because=row.because
    )
