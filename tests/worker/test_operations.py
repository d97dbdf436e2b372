"""`settled operations`: the ledger as a list that can be read, piped and used."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime

import pytest
from typer.testing import CliRunner

from settled.activities import protocol
from settled.activities.database import Database
from settled.activities.journal import Subject
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.worker.cli import app
from settled.worker.operations_cli import HEADERS

KEY = "ab" * 32
TASK = "order-2001-with-a-name-that-is-longer-than-a-narrow-terminal-is-wide"
SHOWN = '{"note":"\u009b31m\u202e","order":"2001","sku":"B2"}'


async def fill(url: str, key: str = KEY) -> None:
    """Make a ledger with one operation."""
    database = Database(url)
    await migrate(database)
    subject = Subject(
        tool="reserve_stock", tenant="t", principal="p", fingerprint="f", arguments="a", resources=(), shown=SHOWN
    )
    await Ledger(database).claim(key, protocol.Claim(subject=subject, generation=1, permit=1, seconds=5.0, task=TASK))
    await database.close()


def operations(url: str, *words: str) -> list[str]:
    """What the command says in a terminal that is forty characters wide."""
    environment = {"SETTLED_DATABASE_URL": url, "COLUMNS": "40", "TZ": "UTC"}
    result = CliRunner().invoke(app, ["operations", *words], env=environment, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output.splitlines()


@pytest.fixture
async def url(url: str) -> str:
    """A ledger with one operation, on each of the stores."""
    await fill(url)
    return url


async def listed(url: str, *words: str) -> list[str]:
    return await asyncio.to_thread(operations, url, *words)


async def test_nothing_is_cut_however_narrow_the_terminal(url: str) -> None:
    head, line = await listed(url)
    assert tuple(head.split()) == HEADERS
    for word in (KEY[:12], "reserve_stock", "dispatched", "claim", TASK, '"order":"2001","sku":"B2"}'):
        assert line.index(word) > 0
    for word, cell in (("operation", KEY[:12]), ("task", TASK), ("arguments", '{"note"')):
        assert head.index(word) == line.index(cell)
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d  ", line)


async def test_what_a_model_wrote_does_not_steer_the_terminal(url: str) -> None:
    _, line = await listed(url)
    assert line.isprintable()


async def test_as_json_the_key_is_whole_and_the_time_and_the_task_are_told(url: str) -> None:
    (line,) = await listed(url, "--json")
    told = json.loads(line)
    assert (told["key"], told["task"], told["state"]) == (KEY, TASK, "dispatched")
    assert datetime.fromisoformat(told["changed_at"]).tzinfo is not None


async def test_a_list_of_nothing_is_its_head(url: str) -> None:
    assert len(await listed(url, "--state", "completed")) == 1
    assert await listed(url, "--state", "completed", "--json") == []


def test_the_release_is_told() -> None:
    assert re.fullmatch(r"settled \d+\.\d+\.\d+\n", CliRunner().invoke(app, ["--version"]).output)
