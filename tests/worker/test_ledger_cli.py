"""`settled ledger`: an epoch is opened and closed by people, and the ledger says how it stands."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from settled.activities import migrations, protocol
from settled.activities.database import Database
from settled.activities.journal import Subject
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.workflows.states import Event
from tests.worker.command import settled

KEY, NEXT = "ab" * 32, "cd" * 32
BECAUSE = "the disk died; yesterday's copy"


def ask(tool: str = "ship") -> protocol.Claim:
    about = Subject(tool=tool, tenant="t", principal="p", fingerprint="f", arguments="a", resources=())
    return protocol.Claim(subject=about, generation=1, permit=1, seconds=5.0, task="task-1")


@pytest.fixture
async def url(url: str) -> str:
    """A ledger with one operation, on each of the stores."""
    database = Database(url)
    await migrate(database)
    await Ledger(database).claim(KEY, ask())
    await database.close()
    return url


async def claimed(url: str, key: str) -> Event:
    """Claim it; returns the row that was written."""
    database = Database(url)
    amended = await Ledger(database).claim(key, ask())
    await database.close()
    assert amended.entry is not None
    return amended.entry.event


async def test_rule_14_between_restored_and_trusted_a_first_claim_is_looked_up_before_anything_is_sent(
    url: str,
) -> None:
    """The texts say so, too, and that workers may run."""
    opened = await settled(url, "ledger", "restored", "--because", BECAUSE)
    assert opened.code == 0
    assert opened.out.startswith("Epoch 1 is open: the ledger's last row is of ")
    assert "looked up at its service before anything is sent" in opened.out
    assert "Workers may run" in opened.out
    assert await claimed(url, NEXT) is Event.MISSED
    closed = await settled(url, "ledger", "trusted")
    assert (closed.code, closed.lines[0][:20]) == (0, "Epoch 1 is closed: a")
    assert await claimed(url, "ef" * 32) is Event.CLAIMED


async def test_a_ledger_that_is_restored_again_is_in_a_new_epoch(url: str) -> None:
    await settled(url, "ledger", "restored", "--because", BECAUSE)
    again = await settled(url, "ledger", "restored", "--because", "again")
    assert again.out.startswith("Epoch 2 is open: ")
    assert again.lines[1].startswith("Epoch 1 was open already, since ")


async def test_an_epoch_that_is_open_says_who_opened_it_and_when(url: str) -> None:
    await settled(url, "ledger", "restored", "--because", BECAUSE, "--who", "grace")
    told = await settled(url, "ledger", "status")
    assert any(f": grace says: {BECAUSE}" in line for line in told.lines if line.startswith("epoch"))
    epoch = json.loads((await settled(url, "ledger", "status", "--json")).out)["epoch"]
    assert (epoch["number"], epoch["opened_by"], epoch["because"]) == (1, "grace", BECAUSE)
    since, opened_at = (datetime.fromisoformat(epoch[name]) for name in ("since", "opened_at"))
    assert since <= opened_at <= datetime.now(UTC) + timedelta(seconds=1)


async def test_who_gives_the_command_is_the_login_name_unless_said(url: str) -> None:
    await settled(url, "ledger", "restored", "--because", BECAUSE, LOGNAME="lin")
    assert json.loads((await settled(url, "ledger", "status", "--json")).out)["epoch"]["opened_by"] == "lin"


async def test_to_trust_a_ledger_that_is_trusted_changes_nothing(url: str) -> None:
    said = await settled(url, "ledger", "trusted")
    assert (said.code, said.out) == (0, "No epoch is open: the ledger is trusted already.\n")


@pytest.mark.parametrize("because", [(), ("--because", ""), ("--because", " ")])
async def test_a_restore_without_a_reason_is_one_line(url: str, because: tuple[str, ...]) -> None:
    said = await settled(url, "ledger", "restored", *because)
    assert (said.code, said.out, said.err) == (2, "", "settled: say with --because what has happened\n")


async def test_the_status_tells_the_database_its_revision_the_counts_and_the_alarms(url: str) -> None:
    database = Database(url)
    ledger = Ledger(database)
    report = protocol.Report(event=Event.SUCCEEDED, generation=1, permit=1, task="task-1", body={"alarm": "two\x1b[2J"})
    await ledger.claim(NEXT, ask())
    await ledger.amend(NEXT, lambda operation, now: protocol.report(operation, report, now) if operation else None)
    await database.close()
    said = await settled(url, "ledger", "status")
    told = {line[:12].strip(): line[12:] for line in said.lines}
    assert told["database"] == f"{url.partition('+')[0]}: {url}"
    assert told["revision"] == "0006 (this release's)"
    assert told["operations"] == "2: 1 dispatched, 1 completed"
    assert told["alarms"] == "1: settled operations --alarms"
    assert told["epoch"] == "none is open: the ledger has its whole past"
    as_json = json.loads((await settled(url, "ledger", "status", "--json")).out)
    assert as_json["counts"] == {"dispatched": 1, "completed": 1}
    assert (as_json["alarms"], as_json["epoch"], as_json["revision"]) == (1, None, as_json["newest"])


async def test_a_copy_of_an_earlier_release_is_brought_up_to_date_before_the_epoch_is_opened(tmp_path: Path) -> None:
    """It had no epochs."""
    url = f"sqlite+aiosqlite:///{tmp_path}/old.db"
    database = Database(url)
    async with database.write() as connection:
        await connection.run_sync(upgrade, "0001")
    await database.close()
    said = await settled(url, "ledger", "status")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "holds no ledger of this release" in said.err
    said = await settled(url, "ledger", "restored", "--because", BECAUSE)
    assert said.out.startswith("Epoch 1 is open: the ledger has no row; ")
    assert await claimed(url, KEY) is Event.MISSED


async def test_a_database_that_holds_no_ledger_is_not_made_one(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    said = await settled(f"sqlite+aiosqlite:///{tmp_path}/empty.db", "ledger", "restored", "--because", BECAUSE)
    assert (said.code, said.err) == (2, "settled: SETTLED_DATABASE_URL: the database holds no ledger\n")
    with closing(sqlite3.connect(tmp_path / "empty.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []


def upgrade(connection: Connection, revision: str) -> None:
    """Bring the tables to an earlier release's form."""
    (folder,) = migrations.__path__
    config = Config()
    config.set_main_option("script_location", folder)
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
