"""The tables. Alembic's migrations make them; a test holds both against each other."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)

journal = Table(
    "journal",
    metadata,
    # Append-only. Inserting the next seq is the compare-and-set: of two writers, one gets a duplicate key.
    Column("operation", String(64), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("permit", Integer, nullable=False),
    Column("event", String(40), nullable=False),
    Column("state", String(20), nullable=False),
    Column("task", String(255), nullable=False),
    Column("body", Text, nullable=False),
)

operations = Table(
    "operations",
    metadata,
    # The journal's fold, written in the same transaction, for lists and look-ups.
    Column("key", String(64), primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("tool", String(128), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("principal", String(128), nullable=False),
    Column("state", String(20), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("sends", Integer, nullable=False),
    Column("evidence", String(20)),
    Column("opened_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("alarms", Integer, nullable=False, server_default="0"),
    Index(None, "state"),
)

interests = Table(
    "interests",
    metadata,
    # Which tasks an operation belongs to (member), and what they wait for now: its result, or a resource that it holds.
    Column("operation", String(64), primary_key=True),
    Column("task", String(255), primary_key=True),
    Column("member", Boolean, nullable=False),
    Column("waits_for", String(16), nullable=False),
    Column("woken_seq", Integer, nullable=False),
    Index(None, "task"),
)

holds = Table(
    "holds",
    metadata,
    # One row for each resource of an unsettled operation: a second claim on it gets a duplicate key.
    Column("resource", String(512), primary_key=True),
    Column("operation", String(64), nullable=False),
    Index(None, "operation"),
)

queue = Table(
    "queue",
    metadata,
    # Claims that found a resource held, by when they first did: who came first may go first once it is free.
    Column("resource", String(512), primary_key=True),
    Column("operation", String(64), primary_key=True),
    Column("task", String(255), nullable=False),
    Column("since", Double, nullable=False),
    Column("asked_at", Double, nullable=False),
    Column("freed_at", Double, nullable=False),
    Index(None, "operation"),
    Index(None, "task"),
)

epochs = Table(
    "epochs",
    metadata,
    # When the ledger was restored from an older copy, what it has lost since, and until when that mattered.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("since", Double, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("opened_by", String(200), nullable=False),
    Column("because", Text, nullable=False),
    Column("closed_at", Double),
    Column("closed_by", String(200)),
)

key_declarations = Table(
    "key_declarations",
    metadata,
    Column("tool", String(128), primary_key=True),
    Column("declaration", Text, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task", String(255), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("request", Text, nullable=False),
    Column("agent", String(128), nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("principal", String(128), nullable=False),
    Column("root_task", String(255), nullable=False),
    Column("tools", Text, nullable=False),
    Column("acceptance", Text, nullable=False),
    Column("opened_at", Double, nullable=False),
    # Where its transcript stood when the task was opened last, or closed last.
    Column("head", String(64)),
    # When it was closed; none: it was opened since, or a release before this column closed it.
    Column("closed_at", Double),
)

nodes = Table(
    "nodes",
    metadata,
    # The transcript: a chain of messages, each named by the digest of its parent, role and bytes.
    Column("digest", String(64), primary_key=True),
    Column("parent", String(64), ForeignKey("nodes.digest")),
    Column("depth", Integer, nullable=False),
    Column("role", String(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("mentions", Text, nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("media_type", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
)

outputs = Table(
    "outputs",
    metadata,
    # Which artifacts are whole outputs of a task's calls, where the model was shown only a part: it may read them.
    Column("task", String(255), primary_key=True),
    Column("digest", String(64), ForeignKey("artifacts.digest"), primary_key=True),
    Column("tool", String(128), nullable=False),
    Column("lines", Integer, nullable=False),
    Column("at", Double, nullable=False),
)

responses = Table(
    "responses",
    metadata,
    # What the provider answered, by the activity that asked: a retry of that activity asks nobody.
    Column("run_id", String(64), primary_key=True),
    Column("activity_id", String(64), primary_key=True),
    Column("asked", String(64), ForeignKey("nodes.digest"), nullable=False),
    Column("request_id", String(128), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("at", Double, nullable=False),
    # For reading back: who asked whom, the node of the response, and the request, as far as its nodes don't say it.
    Column("task", String(255)),
    Column("node", String(64)),
    Column("model", String(256)),
    Column("purpose", String(16), nullable=False, server_default="turn"),
    Column("changes", Text, nullable=False, server_default="{}"),
    Column("sent", String(64)),
    # The requests that it took; only one of them brought a response.
    Column("tries", Integer, nullable=False, server_default="1"),
    Index(None, "task"),
)
