"""The stores that the activities share, all in one database, and the record of each task."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from settled.activities import schema
from settled.activities.artifacts import Artifacts
from settled.activities.database import Database
from settled.activities.keys import Realm
from settled.activities.ledger import Ledger
from settled.activities.output_store import Outputs
from settled.activities.transcript import Transcripts
from settled.workflows.contract.task import Criterion


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """A task as it was opened first; a re-run finds it again."""

    task: str
    """The workflow id."""
    request_digest: str
    """Tells the same request from another one under the same id."""
    request: dict[str, Any]
    """The request as it was validated."""
    agent: str
    tenant: str
    principal: str
    root_task: str
    """The task whose id stands for the scope `task` in operation keys."""
    tools: tuple[str, ...]
    acceptance: tuple[Criterion, ...]

    def realm(self, namespace: str) -> Realm:
        """Where the keys of this task's operations are made."""
        return Realm(namespace=namespace, tenant=self.tenant, root_task=self.root_task)


class Tasks:
    """The task records in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, task: str) -> TaskRecord | None:
        """The record of a task; None if it was never opened."""
        query = select(schema.tasks).where(schema.tasks.c.task == task)
        async with self.database.read() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        return TaskRecord(
            task=row.task,
            request_digest=row.request_digest,
            request=json.loads(row.request),
            agent=row.agent,
            tenant=row.tenant,
            principal=row.principal,
            root_task=row.root_task,
            tools=tuple(json.loads(row.tools)),
            acceptance=tuple(_criterion(item) for item in json.loads(row.acceptance)),
        )

    async def open(self, record: TaskRecord) -> TaskRecord:
        """Store the record, unless the task has one; returns the one that stands."""
        values = {
            **vars(record),
            "request": json.dumps(record.request),
            "tools": json.dumps(record.tools),
            "acceptance": json.dumps([item.model_dump(mode="json") for item in record.acceptance]),
        }
        try:
            async with self.database.write() as connection:
                values["opened_at"] = await self.database.now(connection)
                await connection.execute(insert(schema.tasks).values(values))
        except IntegrityError:
            standing = await self.get(record.task)
            assert standing is not None, "the row that was in the way"
            return standing
        return record

    async def stands_at(self, task: str, head: str, *, closed: bool = False) -> None:
        """Note where the task's transcript stands, and whether that is its end, for people who read it back."""
        async with self.database.write() as connection:
            values = {"head": head, "closed_at": await self.database.now(connection) if closed else None}
            await connection.execute(update(schema.tasks).where(schema.tasks.c.task == task).values(values))

    async def stood_at(self, task: str) -> str:
        """Where its transcript stood when the task was opened or closed last; empty if nobody has noted it."""
        query = select(schema.tasks.c.head).where(schema.tasks.c.task == task)
        async with self.database.read() as connection:
            return str((await connection.execute(query)).scalar_one_or_none() or "")

    async def closed_at(self, task: str) -> float | None:
        """When it was closed, unless it was opened since; none also where a release before this one closed it."""
        query = select(schema.tasks.c.closed_at).where(schema.tasks.c.task == task)
        async with self.database.read() as connection:
            at: float | None = (await connection.execute(query)).scalar_one_or_none()
            return at


def _criterion(stored: dict[str, Any]) -> Criterion:
    """A criterion as a release wrote it, perhaps a newer one: what this one doesn't know is ignored (a rollback)."""
    return Criterion.model_validate({name: value for name, value in stored.items() if name in Criterion.model_fields})


@dataclass(frozen=True)
class Stores:
    """Every store, over one database."""

    database: Database
    ledger: Ledger
    transcripts: Transcripts
    artifacts: Artifacts
    tasks: Tasks
    outputs: Outputs

    @classmethod
    def over(cls, database: Database) -> Stores:
        """The stores of this database."""
        return cls(
            database, Ledger(database), Transcripts(database), Artifacts(database), Tasks(database), Outputs(database)
        )
