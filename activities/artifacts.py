"""Artifacts: stored content, named by its digest. Writing the same content again changes nothing."""

from __future__ import annotations

import hashlib

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import schema
from settled.activities.apart import apart
from settled.activities.database import Database

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class Artifacts:
    """The artifacts in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def put(self, body: bytes | str, media_type: str = TEXT, within: AsyncConnection | None = None) -> str:
        """Store the content, in a transaction of its own or within one; returns its digest."""
        data, digest = await apart(lambda: _named(body), body)
        values = {"digest": digest, "media_type": media_type, "body": data}
        if within is not None:
            if not await _known(within, digest):
                await within.execute(insert(schema.artifacts).values(values))
            return digest
        async with self.database.read() as connection:
            if await _known(connection, digest):
                return digest
        try:
            async with self.database.write() as connection:
                await connection.execute(insert(schema.artifacts).values(values))
        except IntegrityError:
            pass  # another writer stored the same content meanwhile
        return digest

    async def get(self, digest: str) -> bytes:
        """The content.

        Raises:
            KeyError: there is none of that digest.
        """
        query = select(schema.artifacts.c.body).where(schema.artifacts.c.digest == digest)
        async with self.database.read() as connection:
            body = (await connection.execute(query)).scalar_one_or_none()
        if body is None:
            raise KeyError(f"no artifact {digest}")
        return bytes(body)


def _named(body: bytes | str) -> tuple[bytes, str]:
    """The content as it is stored, and its digest."""
    data = clean(body).encode() if isinstance(body, str) else body
    return data, hashlib.sha256(data).hexdigest()


async def _known(connection: AsyncConnection, digest: str) -> bool:
    query = select(schema.artifacts.c.digest).where(schema.artifacts.c.digest == digest)
    return (await connection.execute(query)).first() is not None


def clean(text: str) -> str:
    """The text without lone surrogates, which have no UTF-8 form and would spoil every later request."""
    if type(text) is str and text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
