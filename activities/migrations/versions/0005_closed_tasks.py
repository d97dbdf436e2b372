"""When a task was closed last: what its transcript's head, which is noted when it opens as well, can't tell."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the column."""
    op.add_column("tasks", sa.Column("closed_at", sa.Double(), nullable=True))
