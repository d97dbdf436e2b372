"""Whether the ledger's SQLite file is still the one that was opened. Another one in its place knows nothing of it.

Who has a file open goes on writing to it when it is deleted, or another one is put in its place. A claim that is
written there is gone with the process, and what it allowed to be sent would be sent again.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from settled.activities.steady import steady

log = logging.getLogger("settled.ledger")

Identity = tuple[int, int]
"""The device, and the number of the file on it."""
REMINDER_SECONDS = 60.0
"""How often it is said while it lasts."""


class FileGone(OSError):
    """The ledger's file is not the one that was opened. It counts as an outage: nothing is sent."""


class LedgerFile:
    """Remembers which file was opened, and looks whether it is still there.

    Args:
        path: the file; empty if the ledger is in none.
    """

    def __init__(self, path: str) -> None:
        # As it was meant when it was opened, wherever the process goes.
        self.path = Path(path).absolute() if path else None
        self._opened: Identity | None = None
        self._said_at: float | None = None

    @classmethod
    def of(cls, url: URL) -> LedgerFile:
        """The file that the URL names; a database in memory, or of another kind, has none."""
        name = url.database or ""
        named = url.get_backend_name() == "sqlite" and name not in ("", ":memory:") and not name.startswith("file:")
        return cls(name if named else "")

    def watch(self, engine: AsyncEngine) -> None:
        """Remember the file at the first connection, and refuse one to another file: SQLite would make an empty one."""
        if self.path:
            event.listen(engine.sync_engine, "do_connect", self._before_connect)
            event.listen(engine.sync_engine, "connect", self._connected)

    def check(self) -> None:
        """See that the file is the one that was opened.

        Raises:
            FileGone: it was deleted, or replaced.
        """
        if self._opened is None:
            return
        if self._identity() == self._opened:
            self._said_at = None
            return
        text = (
            f"the ledger's file {self.path} was deleted or replaced while it was in use: nothing is sent. Put the file "
            "back (move it, don't copy it); or end all workers, restore a copy, say `settled ledger restored`, "
            "and start them again"
        )
        if self._said_at is None or steady() - self._said_at >= REMINDER_SECONDS:
            self._said_at = steady()
            log.error(text)
        raise FileGone(text)

    def _before_connect(self, *_unused: Any) -> None:
        self.check()

    def _connected(self, _connection: Any, _record: Any) -> None:
        if self._opened is None:
            self._opened = self._identity()

    def _identity(self) -> Identity | None:
        assert self.path is not None, "only a file is watched"
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino
