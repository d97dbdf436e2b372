"""Which artifacts are outputs that a task may read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "outputs",
        sa.Column("task", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["artifacts.digest"], name="fk_outputs_digest"),
        sa.PrimaryKeyConstraint("task", "digest", name="pk_outputs"),
    )
