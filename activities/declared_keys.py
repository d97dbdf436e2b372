"""How each tool makes its keys, as the ledger has noted it: two ways of making them would do one action twice."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import schema
from settled.activities.database import Database
from settled.workflows.errors import OutdatedWorker


class DeclaredKeys:
    """The declarations in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def all(self) -> dict[str, str]:
        """Each tool's declaration, as the newest release that served this ledger has made it."""
        async with self.database.read() as connection:
            rows = await connection.execute(select(schema.key_declarations))
            return {row.tool: row.declaration for row in rows}

    async def note(self, declarations: Mapping[str, str]) -> None:
        """Note the declarations of tools that the ledger doesn't know yet."""
        known = await self.all()
        row = schema.key_declarations.c
        for tool, text in declarations.items():
            if tool in known:
                continue

            async def change(connection: AsyncConnection, tool: str = tool, text: str = text) -> None:
                # Another worker may note it at the same time; the caller compares what stands there.
                if (await connection.execute(select(row.tool).where(row.tool == tool))).first() is None:
                    await connection.execute(insert(schema.key_declarations).values(tool=tool, declaration=text))

            await self.database.transact(change)

    async def replace(self, tool: str, old: str, new: str) -> None:
        """Put a newer declaration in the place of an older one; claims by the older one are refused from now on."""
        row = schema.key_declarations.c
        change = update(schema.key_declarations).where(row.tool == tool, row.declaration == old)
        await self.database.transact(lambda connection: connection.execute(change.values(declaration=new)))

    @staticmethod
    async def check(connection: AsyncConnection, tool: str, declaration: str) -> None:
        """See, in a claim's own transaction, that the claim's key was made in the way that holds now.

        Raises:
            OutdatedWorker: a newer release has changed it.
        """
        row = schema.key_declarations.c
        standing = (await connection.execute(select(row.declaration).where(row.tool == tool))).scalar_one_or_none()
        if standing is not None and standing != declaration:
            raise OutdatedWorker(
                f"{tool}: a newer release makes its keys in another way; its workers have to send this"
            )
