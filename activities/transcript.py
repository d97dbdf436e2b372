"""The transcript: a chain of messages. A node is named by the digest of its parent, role and bytes, and never changes.

    root ◀── user (goal) ◀── assistant ◀── user (results) ◀── assistant …

The root holds what each request of the task shares (model, system, tools, limits), so that these stay the same byte for
byte. A head names one whole conversation; a reset goes on from an older head, and a retry can overwrite nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from settled.activities import schema
from settled.activities.canonical import digest_of
from settled.activities.database import Database
from settled.workflows.errors import TranscriptError


class Role(StrEnum):
    """Whose words a node holds."""

    ROOT = "root"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, kw_only=True)
class Node:
    """One message of a transcript."""

    digest: str
    parent: str | None
    depth: int
    """Its distance from the root."""
    role: Role
    body: bytes
    """JSON: the frozen parameters of a root, the content blocks of a message."""
    mentions: tuple[str, ...] = ()
    """The operations that the message tells the model about."""

    @property
    def content(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def make_node(parent: Node | None, role: Role, content: Any, mentions: Sequence[str] = ()) -> Node:
    """The node that follows the parent."""
    body = encoded(content)
    return Node(
        digest=node_digest(parent.digest if parent else "", role, body),
        parent=parent.digest if parent else None,
        depth=parent.depth + 1 if parent else 0,
        role=role,
        body=body,
        mentions=tuple(mentions),
    )


def encoded(content: Any) -> bytes:
    """Content as it is stored: JSON in its shortest form."""
    # Whatever was received comes back as it was, half a surrogate pair too, which has no proper UTF-8 form.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def node_digest(parent: str, role: Role, body: bytes) -> str:
    """The name of the node that holds the body, and follows the parent."""
    return digest_of(parent, role, body)


class Transcripts:
    """The nodes in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def add(self, *nodes: Node) -> None:
        """Store the nodes, parents first. A node that is there already stays as it is.

        Raises:
            TranscriptError: the parent of a node is missing.
        """
        for node in nodes:
            try:
                if not await self._known(node.digest):
                    async with self.database.write() as connection:
                        await connection.execute(insert(schema.nodes).values(_columns(node)))
            except IntegrityError:
                if not await self._known(node.digest):  # else another writer stored the same node meanwhile
                    raise TranscriptError(f"node {node.digest} was not stored: its parent is missing") from None

    async def _known(self, digest: str) -> bool:
        query = select(schema.nodes.c.digest).where(schema.nodes.c.digest == digest)
        async with self.database.read() as connection:
            return (await connection.execute(query)).first() is not None

    async def node(self, digest: str) -> Node:
        """One node.

        Raises:
            TranscriptError: there is none of that digest.
        """
        async with self.database.read() as connection:
            row = (await connection.execute(select(schema.nodes).where(schema.nodes.c.digest == digest))).first()
        if row is None:
            raise TranscriptError(f"no transcript node {digest}")
        return node_of(row)

    async def root(self, head: str) -> Node:
        """The root of the conversation that the head names.

        Raises:
            TranscriptError: a node of the conversation is missing.
        """
        nodes = schema.nodes
        walk = select(nodes.c.digest, nodes.c.parent).where(nodes.c.digest == head).cte("walk", recursive=True)
        walk = walk.union_all(select(nodes.c.digest, nodes.c.parent).join(walk, nodes.c.digest == walk.c.parent))
        async with self.database.read() as connection:
            digest = await connection.scalar(select(walk.c.digest).where(walk.c.parent.is_(None)))
        if digest is None:
            raise TranscriptError(f"the transcript that ends in {head} is not whole")
        return await self.node(digest)

    async def chain(self, head: str) -> list[Node]:
        """The whole conversation that the head names, root first.

        Raises:
            TranscriptError: a node of it is missing.
        """
        nodes = schema.nodes
        walk = select(nodes).where(nodes.c.digest == head).cte("walk", recursive=True)
        walk = walk.union_all(select(nodes).join(walk, nodes.c.digest == walk.c.parent))
        async with self.database.read() as connection:
            rows = await connection.execute(select(walk).order_by(walk.c.depth))
            chain = [node_of(row) for row in rows]
        if not chain or chain[0].role is not Role.ROOT:
            raise TranscriptError(f"the transcript that ends in {head} is not whole")
        return chain


def _columns(node: Node) -> dict[str, Any]:
    return {**vars(node), "mentions": json.dumps(node.mentions)}


def node_of(row: Any) -> Node:
    """The node that a row of the table holds."""
    return Node(
        digest=row.digest,
        parent=row.parent,
        depth=row.depth,
        role=Role(row.role),
        body=bytes(row.body),
        mentions=tuple(json.loads(row.mentions)),
    )
