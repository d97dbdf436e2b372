"""The first tables: journal, operations, who waits, transcript, artifacts, responses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    _make_ledger()
    _make_tasks()
    _make_transcript()


def _make_ledger() -> None:
    op.create_table(
        "journal",
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("permit", sa.Integer(), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("task", sa.String(255), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("operation", "seq", name="pk_journal"),
    )
    op.create_table(
        "operations",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("principal", sa.String(128), nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("sends", sa.Integer(), nullable=False),
        sa.Column("evidence", sa.String(20), nullable=True),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_operations"),
    )
    op.create_index("ix_operations_state", "operations", ["state"])
    op.create_table(
        "interests",
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("task", sa.String(255), nullable=False),
        sa.Column("member", sa.Boolean(), nullable=False),
        sa.Column("waits_for", sa.String(16), nullable=False),
        sa.Column("woken_seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("operation", "task", name="pk_interests"),
    )
    op.create_index("ix_interests_task", "interests", ["task"])
    op.create_table(
        "holds",
        sa.Column("resource", sa.String(512), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("resource", name="pk_holds"),
    )
    op.create_index("ix_holds_operation", "holds", ["operation"])
    op.create_table(
        "key_declarations",
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("declaration", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tool", name="pk_key_declarations"),
    )


def _make_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("task", sa.String(255), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("agent", sa.String(128), nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("principal", sa.String(128), nullable=False),
        sa.Column("root_task", sa.String(255), nullable=False),
        sa.Column("tools", sa.Text(), nullable=False),
        sa.Column("acceptance", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("task", name="pk_tasks"),
    )


def _make_transcript() -> None:
    op.create_table(
        "nodes",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("parent", sa.String(64), nullable=True),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("mentions", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["parent"], ["nodes.digest"], name="fk_nodes_parent"),
        sa.PrimaryKeyConstraint("digest", name="pk_nodes"),
    )
    op.create_table(
        "artifacts",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("media_type", sa.String(64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_artifacts"),
    )
    op.create_table(
        "responses",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("activity_id", sa.String(64), nullable=False),
        sa.Column("asked", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["asked"], ["nodes.digest"], name="fk_responses_asked"),
        sa.PrimaryKeyConstraint("run_id", "activity_id", name="pk_responses"),
    )
