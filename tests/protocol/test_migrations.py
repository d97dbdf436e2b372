"""The migrations make the tables that the code works with; a database that can't be had is one readable line."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Connection, DefaultClause, Integer, MetaData, Table, inspect

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.ledger import Ledger
from settled.activities.migrating import migrate
from settled.activities.stores import Stores
from settled.workflows.errors import ConfigurationError
from tests.postgres import PostgresServer
from tests.protocol.stories import KEY, order


@pytest.fixture
async def database(empty_url: str) -> AsyncIterator[Database]:
    opened = Database(empty_url)
    yield opened
    await opened.close()


def differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return list(compare_metadata(context, schema.metadata))


def keys_and_indexes(connection: Connection) -> dict[str, Any]:
    """What compare_metadata doesn't look at: the keys on which the ledger's every refusal rests."""
    found = inspect(connection)
    return {
        name: (
            found.get_pk_constraint(name)["constrained_columns"],
            sorted((key["constrained_columns"], key["referred_table"]) for key in found.get_foreign_keys(name)),
            sorted(str(index["name"]) for index in found.get_indexes(name)),
        )
        for name in schema.metadata.tables
    }


def everything_in(connection: Connection) -> dict[str, Any]:
    """All tables, with their columns, indexes and rows."""
    found = MetaData()
    found.reflect(connection)
    return {
        name: (
            [(*map(repr, (column.name, column.type, column.nullable)), default_of(column)) for column in table.columns],
            sorted(map(repr, table.indexes)),
            list(connection.execute(table.select())),
        )
        for name, table in found.tables.items()
    }


def default_of(column: Column[Any]) -> str:
    """The default as the database has it; as an object, it has no text of its own."""
    return str(column.server_default.arg) if isinstance(column.server_default, DefaultClause) else ""


async def test_the_migrated_tables_are_those_of_the_code(database: Database) -> None:
    await migrate(database)
    async with database.write() as connection:
        assert await connection.run_sync(differences) == []
        migrated = await connection.run_sync(keys_and_indexes)
        await connection.run_sync(lambda sync: [table.drop(sync) for table in reversed(schema.metadata.sorted_tables)])
        await connection.run_sync(schema.metadata.create_all)
        assert migrated == await connection.run_sync(keys_and_indexes)


async def test_a_table_that_the_migrations_forgot_would_be_seen(database: Database) -> None:
    await migrate(database)
    table = Table("forgotten", schema.metadata, Column("it", Integer))
    try:
        async with database.read() as connection:
            assert [difference[0] for difference in await connection.run_sync(differences)] == ["add_table"]
    finally:
        schema.metadata.remove(table)


def test_every_refusal_of_the_ledger_rests_on_a_primary_key() -> None:
    keys = {name: [column.name for column in table.primary_key] for name, table in schema.metadata.tables.items()}
    assert keys["journal"] == ["operation", "seq"]
    assert keys["holds"] == ["resource"]
    assert keys["operations"] == ["key"]
    assert keys["interests"] == ["operation", "task"]
    assert keys["key_declarations"] == ["tool"]
    assert all(keys.values())


async def test_migrating_again_changes_nothing(database: Database) -> None:
    await migrate(database)
    await Ledger(database).claim(KEY, order())
    async with database.read() as connection:
        before = await connection.run_sync(everything_in)
    await migrate(database)
    async with database.read() as connection:
        after = await connection.run_sync(everything_in)
        versions = (await connection.exec_driver_sql("SELECT * FROM alembic_version")).all()
    assert before == after
    assert versions == [("0006",)]
    assert len(await Ledger(database).journal(KEY)) == 1


async def test_a_worker_that_finds_the_tables_as_they_are_to_be_waits_for_nobody(database: Database) -> None:
    await migrate(database)
    other = Database(database.url)
    async with database.write() as connection:
        await connection.execute(schema.tasks.delete())  # it holds what there is to hold
        starting = asyncio.create_task(migrate(other))
        started, _ = await asyncio.wait({starting}, timeout=10)
    await starting
    await other.close()
    assert started


async def test_a_migration_that_fails_leaves_nothing_behind(database: Database) -> None:
    async with database.write() as connection:
        await connection.exec_driver_sql("CREATE TABLE artifacts (in_the_way INTEGER)")
    with pytest.raises(Exception, match=r"artifacts\"? already exists"):
        await migrate(database)
    async with database.read() as connection:
        assert await connection.run_sync(lambda sync: inspect(sync).get_table_names()) == ["artifacts"]


PROGRAM = """
import asyncio, sys
from settled.activities.database import Database
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.migrating import migrate

async def main(url):
    import settled.activities.migrations.versions
    print("ready", flush=True)
    sys.stdin.readline()
    database = Database(url)
    await migrate(database)
    await DeclaredKeys(database).note({"reserve": "order"})
    await database.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.long
async def test_workers_that_start_at_once_on_a_new_database_all_succeed(database: Database) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            database.url,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    ended = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    assert await DeclaredKeys(database).all() == {"reserve": "order"}


async def test_a_new_file_that_somebody_else_has_locked_is_waited_for(tmp_path: Path) -> None:
    """Of all SQLite does, the change to write-ahead logging alone doesn't wait for a lock by itself."""
    path = tmp_path / "settled.db"
    database = Database(f"sqlite+aiosqlite:///{path}")
    with closing(sqlite3.connect(path)) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        migrating = asyncio.create_task(migrate(database))
        done, _ = await asyncio.wait({migrating}, timeout=0.3)
        assert not done, "it waits"
        other.execute("ROLLBACK")
    await migrating
    assert await Stores.over(database).tasks.get("none") is None
    await database.close()


# --- Addresses ---


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("", "not a database URL"),
        ("settled.db", "not a database URL"),
        ("postgresql+asyncpg://host:port/settled", "not a database URL"),
        ("sqlite+aiosqlite:///settled.db?timeout=long", "not a database URL"),
        ("sqlite:///settled.db", "sqlite is not supported; use sqlite+aiosqlite or postgresql+asyncpg"),
        ("postgresql://host/settled", "postgresql is not supported"),
        ("postgresql+psycopg://host/settled", "postgresql+psycopg is not supported"),
        ("sqlite+nonsense:///settled.db", "sqlite+nonsense is not supported"),
        ("mysql+aiomysql://host/settled", "mysql+aiomysql is not supported"),
    ],
)
def test_a_wrong_address_is_one_line_that_names_the_setting_and_the_mend(url: str, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Database(url)
    text = str(caught.value)
    assert text.startswith(f"SETTLED_DATABASE_URL: {line}")
    assert "sqlite+aiosqlite" in text
    assert len(text.splitlines()) == 1


async def test_a_wrong_address_is_not_shown_with_its_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Database("mysql+aiomysql://ann:secret@host/settled")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("fault", ["no folder", "no database", "nobody listens", "not on the server", "no such user"])
async def test_a_database_that_cannot_be_opened_is_one_line(
    fault: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'settled.db'}"
    match fault:
        case "no folder":
            url = f"sqlite+aiosqlite:///{tmp_path / 'missing' / 'settled.db'}"
        case "no database":
            (tmp_path / "settled.db").write_text(json.dumps({"not": "a database"}) * 100)
        case "nobody listens":
            url = "postgresql+asyncpg://ann:secret@127.0.0.1:1/settled"
        case "not on the server":
            url = postgres.url("missing")
        case "no such user":
            url = postgres.url("postgres").replace("settled@", "ann:secret@")
    database = Database(url)
    with pytest.raises(ConfigurationError) as caught:
        await migrate(database)
    text = str(caught.value)
    assert text.startswith("SETTLED_DATABASE_URL: the database can't be opened: ")
    assert len(text.splitlines()) == 1
    assert "secret" not in text
    await database.close()
