"""The ledger that the settings name: reading it needs no right to write, changes nothing, and says what is wrong."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from settled.activities.database import Database
from settled.worker.ledger_at import existing_database, generation_in
from tests.worker.command import SETTLED, Said, settled
from tests.worker.test_operations import KEY, fill

LESS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
"""What a command is run by so that the rights of files count for root, too."""
NEEDS_RIGHTS = pytest.mark.skipif(
    bool(LESS) and shutil.which("setpriv") is None, reason="root may write everywhere, and setpriv isn't there"
)
PLACE = "SETTLED_DATABASE_URL"


def url_of(file: Path) -> str:
    return f"sqlite+aiosqlite:///{quote(str(file))}"


def beside(file: Path) -> list[str]:
    """What lies in the file's folder, itself included."""
    return sorted(path.name for path in file.parent.iterdir())


async def with_rights(file: Path, *words: str) -> Said:
    """Run a command for which the rights of files count."""
    process = await asyncio.create_subprocess_exec(
        *(*LESS, SETTLED, *words),
        env=os.environ | {PLACE: url_of(file)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return Said(await process.wait(), out.decode(), err.decode())


@pytest.fixture
async def ledger(tmp_path: Path) -> Path:
    """A ledger's file with one operation, in a folder of its own."""
    folder = tmp_path / "a folder?#%20"
    folder.mkdir()
    await fill(url_of(tmp_path / "made.db"))
    return (tmp_path / "made.db").rename(folder / "settled.db")


@pytest.fixture(params=["the file", "its folder", "both"])
def kept(request: pytest.FixtureRequest, ledger: Path) -> Iterator[Path]:
    """A ledger that may not be written."""
    if request.param != "its folder":
        ledger.chmod(0o444)
    if request.param != "the file":
        ledger.parent.chmod(0o555)
    yield ledger
    ledger.parent.chmod(0o755)


@pytest.mark.long
@NEEDS_RIGHTS
async def test_a_ledger_that_may_not_be_written_can_be_read_and_is_left_as_it_is(kept: Path) -> None:
    """A copy on a read-only disk, say; a log that a reader leaves beside it would be in its worker's way."""
    for words in (("operations", "--json"), ("operations", "show", KEY, "--json"), ("ledger", "status")):
        said = await with_rights(kept, *words)
        assert (said.code, said.err) == (0, ""), words
        assert KEY in said.out or "sqlite: sqlite+aiosqlite:////" in said.out
        assert "immutable" not in said.out
    assert beside(kept) == ["settled.db"]


@pytest.mark.long
@NEEDS_RIGHTS
@pytest.mark.parametrize("words", [("restored", "--because", "a backup"), ("trusted",)])
async def test_what_is_to_be_written_names_the_right_that_is_missing(kept: Path, words: tuple[str, ...]) -> None:
    said = await with_rights(kept, "ledger", *words)
    line = f"settled: {PLACE}: {kept}, or the folder that it lies in, may not be written\n"
    assert (said.code, said.out, said.err) == (2, "", line)


@pytest.fixture
async def in_use(ledger: Path) -> AsyncIterator[Path]:
    """A ledger that a worker has open."""
    database = Database(url_of(ledger))
    async with database.read() as connection:
        await database.now(connection)
        yield ledger
    await database.close()


@NEEDS_RIGHTS
async def test_a_ledger_that_a_worker_has_open_is_read_with_what_stands_in_its_log(in_use: Path) -> None:
    """What was committed and isn't in the file yet."""
    other = "cd" * 32
    await fill(url_of(in_use), other)
    in_use.parent.chmod(0o555)
    said = await with_rights(in_use, "operations", "--key", other[:4], "--json")
    in_use.parent.chmod(0o755)
    assert (said.code, len(said.lines)) == (0, 1), said.err


@pytest.mark.parametrize("words", [("operations",), ("operations", "show", "a1"), ("ledger", "status")])
async def test_a_folder_and_another_file_are_called_what_they_are(tmp_path: Path, words: tuple[str, ...]) -> None:
    said = await settled(url_of(tmp_path), *words)
    line = f"settled: {PLACE}: {tmp_path} is a folder; name the file of a worker's ledger\n"
    assert (said.code, said.err) == (2, line)
    (tmp_path / "notes").write_text("buy milk\n" * 200)
    said = await settled(url_of(tmp_path / "notes"), *words)
    assert (said.code, said.err) == (2, f"settled: {PLACE}: the database can't be used: file is not a database\n")


@pytest.mark.parametrize(
    "words",
    [
        ("operations",),
        ("operations", "show", "a1"),
        ("operations", "resolve", "a1", "--completed", "--because", "seen"),
        ("ledger", "status"),
        ("ledger", "trusted"),
        ("ledger", "restored", "--because", "a backup"),
    ],
)
async def test_an_empty_file_stays_empty(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A look must not turn it into a database."""
    empty = tmp_path / "empty.db"
    empty.touch()
    said = await settled(url_of(empty), *words)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "holds no ledger" in said.err
    assert empty.stat().st_size == 0
    assert beside(empty) == [empty.name]


@pytest.mark.parametrize(("named", "number"), [("ab-0", 0), ("ab-2", 2), ("ab", None), (f"settlement-{KEY}", None)])
def test_the_generation_that_a_name_ends_with(named: str, number: int | None) -> None:
    assert generation_in(named) == number


async def test_generation_0_is_not_the_current_one(sqlite_url: str) -> None:
    """There is none; a word on it is about something that nobody has looked at."""
    await fill(sqlite_url)
    word = ("resolve", f"{KEY}-0", "--completed", "--because", "seen")
    said = await settled(sqlite_url, "operations", *word, TEMPORAL_ADDRESS="127.0.0.1:9")
    assert (said.code, len(said.err.splitlines())) == (1, 1)
    assert "is at generation 1, not 0" in said.err


@pytest.mark.parametrize("words", [("operations",), ("operations", "--json"), ("ledger", "status"), ("--version",)])
async def test_who_has_read_enough_ends_a_command_without_a_word(sqlite_url: str, words: tuple[str, ...]) -> None:
    """`settled operations | head -1`, by the code with which any tool ends then."""
    await fill(sqlite_url)
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        *(SETTLED, *words), env=os.environ | {PLACE: sqlite_url}, stdout=writer, stderr=asyncio.subprocess.PIPE
    )
    os.close(writer)
    _, err = await process.communicate()
    assert (await process.wait(), err) == (141, b"")


async def test_an_output_that_nobody_reads_any_more_is_no_fault_of_the_database(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`settled transcript … | head -1`: it prints while it reads."""
    await fill(sqlite_url)
    monkeypatch.setenv(PLACE, sqlite_url)
    with pytest.raises(BrokenPipeError):
        async with existing_database():
            raise BrokenPipeError
