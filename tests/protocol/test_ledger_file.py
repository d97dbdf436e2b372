"""A ledger's file that is deleted, or replaced, under those who have it open: they notice, and write nothing."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import ledger_file
from settled.activities.database import Database, store_clock, unavailable
from settled.activities.ledger import Ledger
from settled.activities.ledger_file import FileGone
from settled.activities.migrating import migrate
from tests.protocol.books import OTHER
from tests.protocol.stories import KEY, order

MEND = "Put the file back (move it, don't copy it)"
NEW = "made a new, empty ledger"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The ledger's file, in a folder of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "settled.db"


@pytest.fixture
async def database(file: Path) -> AsyncIterator[Database]:
    opened = Database(f"sqlite+aiosqlite:///{file}")
    await migrate(opened)
    yield opened
    await opened.close()


def deleted(file: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)


def moved(file: Path) -> None:
    file.rename(file.with_suffix(".away"))


def replaced(file: Path) -> None:
    """A copy is put in its place, as a restore does it."""
    shutil.copyfile(file, file.with_suffix(".copy"))
    file.with_suffix(".copy").rename(file)


def folder_gone(file: Path) -> None:
    file.parent.rename(file.parent.with_name("away"))


def is_there(file: Path) -> bool:
    return file.exists()


@pytest.mark.parametrize("lost", [deleted, moved, replaced, folder_gone])
async def test_a_claim_in_a_file_that_nobody_will_find_is_refused_as_in_an_outage(
    database: Database, file: Path, lost: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    books = Ledger(database)
    assert (await books.claim(KEY, order())).entry is not None
    lost(file)
    for _ in range(3):
        with pytest.raises(FileGone) as caught:
            await books.claim(OTHER, order())
        assert unavailable(caught.value)
    assert caplog.text.count(MEND) == 1, "and one line says what to do, not one a claim"
    assert "settled ledger restored" in caplog.text


async def test_the_line_is_said_again_while_it_lasts(
    database: Database, file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved(file)
    monkeypatch.setattr(ledger_file, "REMINDER_SECONDS", 0.0)
    for _ in range(2):
        with pytest.raises(FileGone):
            await Ledger(database).claim(KEY, order())
    assert caplog.text.count(MEND) == 2


async def test_a_file_that_is_lost_in_the_midst_of_a_claim_does_not_hold_it(file: Path) -> None:
    """The file is there when the transaction begins, and gone when it ends."""
    breaks = False

    async def clock(connection: AsyncConnection) -> float:
        if breaks:
            moved(file)
        return await store_clock(connection)

    database = Database(f"sqlite+aiosqlite:///{file}", clock=clock)
    try:
        await migrate(database)
        breaks = True
        with pytest.raises(FileGone):
            await Ledger(database).claim(KEY, order())
    finally:
        await database.close()


async def test_once_the_file_is_back_it_goes_on_where_it_was(database: Database, file: Path) -> None:
    books = Ledger(database)
    await books.claim(KEY, order())
    moved(file)
    with pytest.raises(FileGone):
        await books.claim(OTHER, order())
    file.with_suffix(".away").rename(file)
    assert (await books.claim(KEY, order())).entry is None, "the permit is spent"
    assert [row.seq for row in await books.journal(KEY)] == [1]


async def test_nobody_makes_an_empty_file_where_the_ledger_was(database: Database, file: Path) -> None:
    """A new connection would: SQLite makes what isn't there."""
    async with database.read():
        moved(file)
        with pytest.raises(FileGone):
            await Ledger(database).read(KEY)
    assert not is_there(file)


async def test_who_opens_the_new_file_works_with_it(database: Database, file: Path) -> None:
    """A worker that is started anew, after a restore."""
    replaced(file)
    anew = Database(database.url)
    try:
        assert (await Ledger(anew).claim(KEY, order())).entry is not None
    finally:
        await anew.close()


@pytest.mark.parametrize("name", ["", ":memory:", "file::memory:?uri=true"])
async def test_a_database_that_is_in_no_file_is_not_watched(name: str) -> None:
    opened = Database(f"sqlite+aiosqlite:///{name}")
    try:
        async with opened.write():
            pass
    finally:
        await opened.close()


async def test_a_new_ledger_is_made_with_a_warning_and_an_old_one_is_opened_without(
    empty_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On both stores: a worker that finds an empty database can't tell whether there was a ledger before."""
    caplog.set_level(logging.WARNING)
    opened = Database(empty_url)
    try:
        await migrate(opened)
        assert caplog.text.count(NEW) == 1
        assert "say `settled ledger restored`" in caplog.text
        await migrate(opened)
        assert caplog.text.count(NEW) == 1
    finally:
        await opened.close()
