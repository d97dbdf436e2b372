"""Who waits for a resource since when, the epochs of a restored ledger, and a count of each operation's alarms."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables and the column."""
    op.add_column("operations", sa.Column("alarms", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "queue",
        sa.Column("resource", sa.String(512), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("task", sa.String(255), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("freed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("resource", "operation", name="pk_queue"),
    )
    op.create_index("ix_queue_operation", "queue", ["operation"])
    op.create_index("ix_queue_task", "queue", ["task"])
    op.create_table(
        "epochs",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("opened_by", sa.String(200), nullable=False),
        sa.Column("because", sa.Text(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.Column("closed_by", sa.String(200), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_epochs"),
    )
