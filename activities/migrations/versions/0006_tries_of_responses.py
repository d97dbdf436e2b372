"""How many requests a response took: those for a summary may be too long at first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the column. What was asked before is taken for one request."""
    op.add_column("responses", sa.Column("tries", sa.Integer(), nullable=False, server_default="1"))
