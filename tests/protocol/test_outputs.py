"""Which outputs are a task's, on a real SQLite and a real PostgreSQL."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import insert

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.output_store import Outputs, TaskOutputs
from settled.activities.outputs import REFERENCE, Shown
from tests.protocol.books import Clock

LOG = "one\ntwo\nthree \U0001f600"


async def test_r88_the_whole_output_is_read_back_by_its_name_by_its_own_task_only(database: Database) -> None:
    outputs = Outputs(database)
    shown = await outputs.keep("mine", "fetch", Shown(text="cut", whole=LOG))
    assert await outputs.artifacts.get(shown) == b"cut"
    (kept,) = await outputs.of_task("mine")
    assert (kept.tool, kept.lines) == ("fetch", 3)
    for name in (kept.digest[:REFERENCE], kept.digest[:30], kept.digest):
        assert await TaskOutputs(outputs, "mine").read(name) == LOG
        with pytest.raises(LookupError, match="this task has no output"):
            await TaskOutputs(outputs, "other").read(name)


async def test_what_was_shown_whole_is_no_output_to_be_paged_through(database: Database) -> None:
    outputs = Outputs(database)
    shown = await outputs.keep("mine", "fetch", Shown(text=LOG))
    assert await outputs.of_task("mine") == []
    with pytest.raises(LookupError):
        await TaskOutputs(outputs, "mine").read(shown)


async def test_any_artifact_of_a_task_is_no_output_of_it(database: Database) -> None:
    """Arguments, say, or what a write has stored."""
    outputs = Outputs(database)
    digest = await outputs.artifacts.put("secret")
    with pytest.raises(LookupError):
        await TaskOutputs(outputs, "mine").read(digest)


async def test_the_same_again_changes_nothing_at_once_or_later(
    database: Database, second: Database, clock: Clock
) -> None:
    """A retried activity, or the old attempt of one beside its retry."""
    await asyncio.gather(*(Outputs(either).note("mine", "fetch", LOG) for either in (database, second) * 5))
    before = await Outputs(database).of_task("mine")
    clock.at += 60
    await Outputs(second).note("mine", "fetch", LOG)
    await Outputs(second).note("mine", "fetch", "newer")
    assert (await Outputs(database).of_task("mine"))[1:] == before
    assert len(before) == 1


async def test_the_newest_come_first_and_as_many_as_are_asked_for(database: Database, clock: Clock) -> None:
    outputs = Outputs(database)
    for number in range(5):
        await outputs.note("mine", f"tool_{number}", str(number))
        clock.at += 1
    assert [kept.tool for kept in await outputs.of_task("mine", limit=3)] == ["tool_4", "tool_3", "tool_2"]


async def test_a_name_that_stands_for_two_outputs_is_refused(database: Database) -> None:
    """Twelve digits will hardly ever do; a longer name tells them apart."""
    outputs, digests = Outputs(database), ["ab" * 31 + ending for ending in ("00", "11")]
    async with database.write() as connection:
        for digest in digests:
            artifact = {"digest": digest, "media_type": "text/plain", "body": digest.encode()}
            await connection.execute(insert(schema.artifacts).values(artifact))
            row = {"task": "mine", "digest": digest, "tool": "fetch", "lines": 1, "at": 0.0}
            await connection.execute(insert(schema.outputs).values(row))
    with pytest.raises(LookupError, match="several outputs begin with"):
        await TaskOutputs(outputs, "mine").read("ab" * 6)
    assert await TaskOutputs(outputs, "mine").read(digests[1]) == digests[1]


@pytest.mark.parametrize("name", ["", "ab", "g" * 12, "AB" * 6, "%" * 12, "_" * 12, "ab" * 33, "ab" * 6 + "\n"])
async def test_a_name_that_is_none_is_refused_before_anything_is_looked_for(database: Database, name: str) -> None:
    with pytest.raises(LookupError, match="an output is named by 12 digits and letters a-f"):
        await TaskOutputs(Outputs(database), "mine").read(name)
