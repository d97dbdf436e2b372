"""Which outputs are a task's: what was cut for it stays readable for it, and for nobody else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from settled.activities import schema
from settled.activities.apart import apart
from settled.activities.artifacts import Artifacts
from settled.activities.database import Database
from settled.activities.lines import Lines
from settled.activities.outputs import REFERENCE, KeptOutput, Shown

NAME = re.compile(rf"[0-9a-f]{{{REFERENCE},64}}")


class Outputs:
    """The outputs in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.artifacts = Artifacts(database)

    async def keep(self, task: str, tool: str, shown: Shown) -> str:
        """Store what the model sees, and the whole where that is more; returns the artifact with what it sees.

        The same again changes nothing.
        """
        if shown.whole is not None:
            await self.note(task, tool, shown.whole)
        return await self.artifacts.put(shown.text)

    async def note(self, task: str, tool: str, whole: str) -> str:
        """Store an output of the task's; returns its artifact."""
        digest = await self.artifacts.put(whole)
        if await self.of_task(task, digest):
            return digest
        count = await apart(lambda: Lines.of(whole).count, whole)
        values = {"task": task, "digest": digest, "tool": tool, "lines": count}
        try:
            async with self.database.write() as connection:
                values["at"] = await self.database.now(connection)
                await connection.execute(insert(schema.outputs).values(values))
        except IntegrityError:
            pass  # another call gave the same output meanwhile
        return digest

    async def of_task(self, task: str, name: str = "", limit: int = 2) -> list[KeptOutput]:
        """The task's outputs whose digest begins so, the newest first."""
        outputs = schema.outputs.c
        query = (
            select(schema.outputs)
            .where(outputs.task == task, outputs.digest.startswith(name, autoescape=True))
            .order_by(outputs.at.desc(), outputs.digest)
            .limit(limit)
        )
        async with self.database.read() as connection:
            return [
                KeptOutput(digest=row.digest, tool=row.tool, lines=row.lines) for row in await connection.execute(query)
            ]


@dataclass(frozen=True)
class TaskOutputs:
    """The outputs of one task: what its calls of `read_output` may read."""

    outputs: Outputs
    task: str

    async def read(self, name: str) -> str:
        """The whole output.

        Args:
            name: the beginning of its artifact's digest, as the mark of a cut names it.

        Raises:
            LookupError: the task has no such output, or several; one line that says what to do.
        """
        if not NAME.fullmatch(name):
            raise LookupError(f"an output is named by {REFERENCE} digits and letters a-f, as in the mark of its cut")
        found = await self.outputs.of_task(self.task, name)
        if not found:
            raise LookupError(f"this task has no output {name}; name one from the mark of a cut")
        if len(found) > 1:
            raise LookupError(f"several outputs begin with {name}; call the tool again whose output you want")
        body = await self.outputs.artifacts.get(found[0].digest)
        return await apart(body.decode, body)
