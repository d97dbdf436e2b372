"""What reading a task's transcript back needs: which task asked, whom, with what, and where the transcript ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the columns and the indexes. What was asked before stays, but is listed under no task."""
    op.add_column("responses", sa.Column("task", sa.String(255), nullable=True))
    op.add_column("responses", sa.Column("node", sa.String(64), nullable=True))
    op.add_column("responses", sa.Column("model", sa.String(256), nullable=True))
    op.add_column("responses", sa.Column("purpose", sa.String(16), nullable=False, server_default="turn"))
    op.add_column("responses", sa.Column("changes", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("responses", sa.Column("sent", sa.String(64), nullable=True))
    op.create_index("ix_responses_task", "responses", ["task"])
    op.add_column("tasks", sa.Column("head", sa.String(64), nullable=True))
