"""The provider's responses as they were received, by the activity that asked.

They are stored before anything is made of them: a retry after a lost completion finds the response that was bought.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from settled.activities import schema
from settled.activities.database import Database


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A response, and the node that the request ended with."""

    asked: str
    message: dict[str, Any]
    request_id: str


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
        if row is None:
            return None
        return Stored(asked=row.asked, message=json.loads(row.body), request_id=row.request_id)

    async def put(self, run_id: str, activity_id: str, stored: Stored) -> Stored:
        """Store a response; returns the one that stands (the first one stored), as it is read back.

        What is judged is what was read back, in each attempt: storing may change what no JSON can hold.
        """
        values: dict[str, Any] = {
            "run_id": run_id,
            "activity_id": activity_id,
            "asked": stored.asked,
            "request_id": stored.request_id,
            "body": json.dumps(stored.message, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        }
        try:
            async with self.database.write() as connection:
                values["at"] = await self.database.now(connection)
                await connection.execute(insert(schema.responses).values(values))
        except IntegrityError:
            pass  # an earlier attempt was faster
        return await self.get(run_id, activity_id) or stored
