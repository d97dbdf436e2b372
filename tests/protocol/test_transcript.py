"""The transcript and the artifacts: named by what they hold, and never changed."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import delete, func, select, text

from settled.activities import schema
from settled.activities.artifacts import JSON, Artifacts
from settled.activities.canonical import digest_of
from settled.activities.database import Database
from settled.activities.migrating import migrate
from settled.activities.transcript import Node, Role, Transcripts, make_node
from settled.workflows.errors import TranscriptError

UNCHECKED = {
    "sqlite": ("PRAGMA foreign_keys=OFF", "PRAGMA foreign_keys=ON"),
    "postgresql": ("SET session_replication_role = replica", "SET session_replication_role = origin"),
}
"""How a store is told to check no references, and to check them again."""
ROOT = make_node(None, Role.ROOT, {"model": "m", "system": "s"})


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    opened = Database(url)
    await migrate(opened)
    yield opened
    await opened.close()


@pytest.fixture
def transcripts(database: Database) -> Transcripts:
    return Transcripts(database)


def said(words: str, parent: Node = ROOT, role: Role = Role.USER, mentions: tuple[str, ...] = ()) -> Node:
    return make_node(parent, role, [{"type": "text", "text": words}], mentions)


def talk(turns: int) -> list[Node]:
    """A conversation: the root, and that many messages."""
    nodes = [ROOT]
    for n in range(turns):
        nodes.append(said(f"message {n}", nodes[-1], Role.ASSISTANT if n % 2 else Role.USER))
    return nodes


async def number_of_nodes(database: Database) -> int:
    async with database.read() as connection:
        return int((await connection.execute(select(func.count()).select_from(schema.nodes))).scalar_one())


# --- Digests ---


def test_a_node_is_named_by_its_parent_role_and_bytes_as_stored() -> None:
    node = said("hello")
    assert node.body == b'[{"type":"text","text":"hello"}]'
    assert node.digest == digest_of(ROOT.digest, "user", node.body)
    assert ROOT.digest == digest_of("", "root", b'{"model":"m","system":"s"}')
    # spelled out, since a release that counted otherwise would not find what an older one stored
    assert ROOT.digest == hashlib.sha256(b'0:4:root26:{"model":"m","system":"s"}').hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(said("hello!"), id="other bytes"),
        pytest.param(said("hello", role=Role.ASSISTANT), id="another role"),
        pytest.param(said("hello", said("before")), id="another parent"),
    ],
)
def test_another_parent_role_or_content_is_another_node(other: Node) -> None:
    assert other.digest != said("hello").digest


def test_no_two_lists_of_parts_look_alike() -> None:
    assert digest_of("ab", "c") != digest_of("a", "bc")
    assert digest_of("", "a") != digest_of("a", "")


def test_content_keeps_its_order_and_its_letters() -> None:
    node = make_node(ROOT, Role.USER, [{"b": "ä", "a": "😀"}])
    assert node.body.index(b'"b"') < node.body.index(b'"a"')
    assert node.content == [{"b": "ä", "a": "😀"}]


def test_b23_half_a_surrogate_pair_is_kept_as_it_came_and_does_not_spoil_a_node() -> None:
    """What is judged later must be what was received; the view leaves out what no request can carry."""
    assert said("ok \ud83d").content == [{"type": "text", "text": "ok \ud83d"}]


def test_a_nodes_depth_is_its_distance_from_the_root() -> None:
    assert [node.depth for node in talk(3)] == [0, 1, 2, 3]
    assert [node.parent for node in talk(1)] == [None, ROOT.digest]


# --- Chains ---


@pytest.mark.long
async def test_a_head_names_a_whole_conversation(transcripts: Transcripts) -> None:
    nodes = talk(500)
    await transcripts.add(*nodes)
    assert await transcripts.chain(nodes[-1].digest) == nodes
    assert await transcripts.chain(nodes[250].digest) == nodes[:251]
    assert await transcripts.root(nodes[-1].digest) == await transcripts.root(ROOT.digest) == ROOT


async def test_a_reset_goes_on_from_an_older_head(transcripts: Transcripts) -> None:
    nodes = talk(4)
    await transcripts.add(*nodes)
    branch = said("another way", nodes[2])
    await transcripts.add(branch)
    assert await transcripts.chain(branch.digest) == [*nodes[:3], branch]
    assert await transcripts.chain(nodes[-1].digest) == nodes


async def test_two_conversations_share_nothing_but_what_is_equal(transcripts: Transcripts) -> None:
    other = make_node(None, Role.ROOT, {"model": "another"})
    mine, theirs = said("hello"), said("hello", other)
    await transcripts.add(ROOT, other, mine, theirs)
    assert await transcripts.chain(theirs.digest) == [other, theirs]
    assert mine.digest != theirs.digest


async def test_a_node_comes_back_as_it_was_stored(transcripts: Transcripts) -> None:
    node = said("hello", mentions=("op-1", "op-2"))
    await transcripts.add(ROOT, node)
    assert await transcripts.node(node.digest) == node


# --- What never changes ---


async def test_b05_adding_a_node_again_changes_nothing(database: Database, transcripts: Transcripts) -> None:
    node = said("hello", mentions=("op-1",))
    await transcripts.add(ROOT, node)
    await transcripts.add(ROOT, node, node)
    await transcripts.add(said("hello", mentions=("op-2",)))
    assert await transcripts.node(node.digest) == node
    assert await number_of_nodes(database) == 2


async def test_writers_that_add_the_same_nodes_at_once_all_succeed(database: Database) -> None:
    other = Database(database.url)
    nodes = talk(5)
    writers = [Transcripts(database), Transcripts(other)]
    await asyncio.gather(*(writers[n % 2].add(*nodes) for n in range(8)))
    assert await writers[1].chain(nodes[-1].digest) == nodes
    assert await number_of_nodes(database) == len(nodes)
    await other.close()


async def test_branches_that_are_added_at_once_do_not_disturb_each_other(transcripts: Transcripts) -> None:
    await transcripts.add(ROOT)
    branches = [said(str(n)) for n in range(10)]
    await asyncio.gather(*(transcripts.add(branch) for branch in branches))
    for branch in branches:
        assert await transcripts.chain(branch.digest) == [ROOT, branch]


# --- What is missing ---


async def test_an_unknown_node_is_said_to_be_missing(transcripts: Transcripts) -> None:
    await transcripts.add(ROOT)
    with pytest.raises(TranscriptError, match=f"no transcript node {'0' * 64}"):
        await transcripts.node("0" * 64)
    with pytest.raises(TranscriptError, match="is not whole"):
        await transcripts.chain("0" * 64)
    with pytest.raises(TranscriptError, match="is not whole"):
        await transcripts.root("0" * 64)


async def test_a_node_without_its_parent_is_refused_and_not_lost_in_silence(
    database: Database, transcripts: Transcripts
) -> None:
    first, second = talk(2)[1:]
    with pytest.raises(TranscriptError, match="its parent is missing"):
        await transcripts.add(first)
    with pytest.raises(TranscriptError, match="its parent is missing"):
        await transcripts.add(ROOT, second)
    assert await number_of_nodes(database) == 1


async def test_a_chain_with_a_gap_is_not_shown_as_a_shorter_one(database: Database, transcripts: Transcripts) -> None:
    nodes = talk(4)
    await transcripts.add(*nodes)
    off, on = UNCHECKED[database.engine.dialect.name]
    async with database.read() as connection:
        await connection.execute(text(off))
        await connection.execute(delete(schema.nodes).where(schema.nodes.c.digest == nodes[2].digest))
        await connection.execute(text(on))
    with pytest.raises(TranscriptError, match="is not whole"):
        await transcripts.chain(nodes[-1].digest)
    with pytest.raises(TranscriptError, match="is not whole"):
        await transcripts.root(nodes[-1].digest)
    assert await transcripts.chain(nodes[1].digest) == nodes[:2]


# --- Artifacts ---


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("plain", b"plain"),
        ("ä😀", "ä😀".encode()),
        (b"\xff\x00\xfe", b"\xff\x00\xfe"),
        ("", b""),
        ("ok \ud83d", "ok \ufffd".encode()),
        ("\ud83d\ude00", "😀".encode()),
        ("\ufeffmark", "\ufeffmark".encode()),
    ],
)
async def test_an_artifact_is_named_by_what_is_stored(database: Database, given: Any, stored: bytes) -> None:
    artifacts = Artifacts(database)
    digest = await artifacts.put(given)
    assert digest == hashlib.sha256(stored).hexdigest()
    assert await artifacts.get(digest) == stored


async def test_writing_the_same_content_again_changes_nothing(database: Database) -> None:
    other = Database(database.url)
    stores = [Artifacts(database), Artifacts(other)]
    digests = await asyncio.gather(*(stores[n % 2].put('{"a": 1}', JSON if n else "text/plain") for n in range(8)))
    assert len(set(digests)) == 1
    async with database.read() as connection:
        assert len((await connection.execute(select(schema.artifacts.c.media_type))).all()) == 1
    await other.close()


async def test_an_artifact_that_is_not_there_is_an_error(database: Database) -> None:
    with pytest.raises(KeyError, match="no artifact"):
        await Artifacts(database).get("0" * 64)
