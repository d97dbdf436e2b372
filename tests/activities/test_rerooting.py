"""R6, R95: another model takes over a conversation, in a chain of its own."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from settled.activities.database import Database
from settled.activities.migrating import migrate
from settled.activities.rerooting import taken_over
from settled.activities.roots import Root
from settled.activities.transcript import Node, Role, Transcripts, make_node
from settled.activities.view import view
from settled.workflows.contract.turn import Again

Json = dict[str, Any]
PARAMETERS: Json = {"model": "claude-a", "max_tokens": 100, "system": "Be brief.", "tools": [{"name": "look"}]}
CALL: Json = {"type": "tool_use", "id": "", "name": "look", "input": {}}
THOUGHTS: list[Json] = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "redacted_thinking", "data": "b"},
]


@pytest.fixture
async def transcripts(sqlite_url: str) -> AsyncIterator[Transcripts]:
    database = Database(sqlite_url)
    await migrate(database)
    yield Transcripts(database)
    await database.close()


def text(words: str) -> Json:
    return {"type": "text", "text": words}


async def conversation(transcripts: Transcripts) -> list[Node]:
    """A goal, a call after thoughts, its result, thoughts alone, and a word of the executor's."""
    root = Root(parameters=PARAMETERS, fallback=("claude-b", "claude-c"), max_tokens_most=400, context_tokens=5_000)
    said = [
        (Role.USER, [text("Look.")], ()),
        (Role.ASSISTANT, [*THOUGHTS, text("Well."), CALL], ("operation",)),
        (Role.USER, [{"type": "tool_result", "tool_use_id": "call_2_0", "content": "3"}], ()),
        (Role.ASSISTANT, THOUGHTS, ()),
        (Role.USER, [text("Go on.")], ("another",)),
    ]
    nodes = [root.node()]
    for role, content, mentions in said:
        nodes.append(make_node(nodes[-1], role, content, mentions))
    await transcripts.add(*nodes)
    return nodes


async def test_r6_the_next_model_gets_the_same_conversation_without_the_thoughts_of_the_last_one(
    transcripts: Transcripts,
) -> None:
    old = await conversation(transcripts)
    new = await transcripts.chain(await taken_over(transcripts, old[-1].digest))
    root = Root.of(new[0])
    assert root.parameters == {**PARAMETERS, "model": "claude-b"}
    assert list(root.parameters) == list(PARAMETERS), "what follows the model is sent byte for byte"
    assert (root.fallback, root.max_tokens_most, root.context_tokens) == (("claude-c",), 400, 5_000)
    assert (root.replaces, root.why) == (old[-1].digest, Again.FALLBACK)
    assert [node.role for node in new] == [node.role for node in old]
    assert new[2].content == [text("Well."), CALL]
    assert new[4].content == []
    assert [node.content for node in new[1::2]] == [node.content for node in old[1::2]]


async def test_the_view_of_it_pairs_results_with_calls_as_before(transcripts: Transcripts) -> None:
    """An id of our own has the message's depth in it, which stays the same; a message of thoughts alone is left out."""
    old = await conversation(transcripts)
    new = await transcripts.chain(await taken_over(transcripts, old[-1].digest))
    messages = view(new)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "user"]
    assert messages[1]["content"][-1]["id"] == messages[2]["content"][0]["tool_use_id"] == "call_2_0"


async def test_b13_another_model_begins_a_paused_turn_anew(transcripts: Transcripts) -> None:
    """To it, a conversation that ends with words of the model's is a prefill, which the API refuses."""
    old = await conversation(transcripts)
    paused = make_node(old[-1], Role.ASSISTANT, [text("Let me look.")])
    again = make_node(paused, Role.ASSISTANT, [text("Let me look further.")])
    await transcripts.add(paused, again)
    new = await transcripts.chain(await taken_over(transcripts, again.digest))
    assert Root.of(new[0]).replaces == again.digest
    assert [node.content for node in new[1::2]] == [node.content for node in old[1::2]]
    assert len(new) == len(old)


async def test_what_was_told_of_operations_is_not_told_again(transcripts: Transcripts) -> None:
    old = await conversation(transcripts)
    new = await transcripts.chain(await taken_over(transcripts, old[-1].digest))
    assert [node.mentions for node in new] == [node.mentions for node in old]


async def test_b05_taking_over_twice_is_the_same_conversation_and_the_next_model_has_its_own(
    transcripts: Transcripts,
) -> None:
    """A retry after a lost completion adds nothing."""
    old = await conversation(transcripts)
    once, twice = [await taken_over(transcripts, old[-1].digest) for _ in range(2)]
    assert once == twice
    third = await transcripts.chain(await taken_over(transcripts, once))
    assert (Root.of(third[0]).model, Root.of(third[0]).fallback, Root.of(third[0]).replaces) == ("claude-c", (), once)
    assert await transcripts.chain(old[-1].digest) == old, "nothing of the old one is changed"
