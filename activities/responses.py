"""The provider's responses as they were received, by the activity that asked.

They are stored before anything is made of them: a retry after a lost completion finds the response that was bought.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.transcript import Role, encoded, node_digest
from settled.workflows.contract.values import OpenEnum

MOST_MODEL = 256


class Purpose(OpenEnum):
    """What a request is made for."""

    TURN = "turn"
    SUMMARY = "summary"
    """Its response sums the conversation up, and is no part of it."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A response, the node that its request ended with, and what else reading the request back needs."""

    asked: str
    message: dict[str, Any]
    request_id: str
    task: str = ""
    model: str = ""
    """The model that was asked."""
    purpose: Purpose = Purpose.TURN
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What the request differed in from its root's parameters."""
    sent: str = ""
    """The digest of the request's body."""
    tries: int = 1
    """Requests that it took, this one included: those before were too long."""
    node: str = ""
    """The node that holds the response, whether or not the conversation goes on from it."""
    at: float = 0.0
    """When it was stored."""
    taken_over: bool = False
    """Whether another activity had bought it, which was cut short."""


class Responses:
    """The responses in one database, by the activity that asked."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def get(self, run_id: str, activity_id: str) -> Stored | None:
        """What this activity received in an earlier attempt."""
        columns = schema.responses.c
        query = select(schema.responses).where(columns.run_id == run_id, columns.activity_id == activity_id)
        async with self.database.read() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else _stored(row)

    async def put(self, run_id: str, activity_id: str, stored: Stored) -> Stored:
        """Store a response; returns the one that stands (the first one stored), as it is read back.

        What is judged is what was read back, in each attempt: storing may change what no JSON can hold.
        """
        values: dict[str, Any] = {
            "run_id": run_id,
            "activity_id": activity_id,
            "asked": stored.asked,
            "request_id": stored.request_id,
            "body": encoded(stored.message),
            "task": stored.task,
            "node": node_digest(stored.asked, Role.ASSISTANT, encoded(stored.message["content"])),
            "model": stored.model[:MOST_MODEL],
            "purpose": str(stored.purpose),
            "changes": json.dumps(stored.changes),
            "sent": stored.sent,
            "tries": stored.tries,
        }
        try:
            async with self.database.write() as connection:
                values["at"] = await self.database.now(connection)
                await connection.execute(insert(schema.responses).values(values))
        except IntegrityError:
            pass  # an earlier attempt was faster
        return await self.get(run_id, activity_id) or stored

    async def of_task(self, task: str) -> list[Stored]:
        """Every response that the task has bought, in the order in which they came, whatever became of them."""
        columns = schema.responses.c
        query = select(schema.responses).where(columns.task == task).order_by(columns.at, columns.activity_id)
        async with self.database.read() as connection:
            return [_stored(row) for row in await connection.execute(query)]


def _stored(row: Any) -> Stored:
    return Stored(
        asked=row.asked,
        message=json.loads(row.body),
        request_id=row.request_id,
        task=row.task or "",
        model=row.model or "",
        purpose=Purpose(row.purpose),
        changes=json.loads(row.changes),
        sent=row.sent or "",
        tries=row.tries,
        node=row.node or "",
        at=row.at,
    )
