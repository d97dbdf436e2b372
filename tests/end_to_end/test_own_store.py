"""Transactional tools: the effect is in the ledger's own database, and is kept together with its mark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from temporalio.client import Client

from settled.activities.registry import Registry
from settled.activities.toolkit import Answer, Arguments, Call, Rejected, Scope, transaction
from settled.local.messages_script import Reply, tool_use
from settled.workflows.contract.ending import Status
from settled.workflows.contract.operation import OperationState
from tests.desk import CLERK, Desk, open_desk
from tests.end_to_end.test_writes import GOAL, shown

NOTED = {"check": "operation", "tool": "note", "arguments": {"order": "1001", "words": "call back"}}


class Note(Arguments):
    """What `note` is asked."""

    order: str
    words: str


@transaction(key=("order",), scope=Scope.BUSINESS, resources=lambda asked: [f"order/{asked.order}"])
async def note(asked: Note, call: Call) -> Answer:
    """Note something about an order. Writes a row. Takes the order's number and the words."""
    assert call.connection is not None, "a transactional tool is given the transaction"
    values = {"order": asked.order, "words": asked.words}
    await call.connection.execute(text("INSERT INTO notes VALUES (:order, :words)"), values)
    if asked.words == "decline":
        raise Rejected("no such words")
    if asked.words == "break":
        raise ConnectionResetError
    return Answer(data={"noted": asked.words}, source="notes")


@pytest.fixture
async def desk(temporal: Client, tmp_path: Path, url: str) -> AsyncIterator[Desk]:
    """A desk whose clerk notes things in the ledger's database, on each of the stores."""
    profiles = {"stock-clerk": CLERK.model_copy(update={"tools": ("note",)})}
    made = open_desk(temporal, tmp_path, registry=Registry({"note": note}), profiles=profiles, database_url=url)
    async with made as opened:
        async with opened.parts.stores.database.write() as connection:
            await connection.execute(text("CREATE TABLE notes (number TEXT, words TEXT)"))
        yield opened


async def notes(desk: Desk) -> list[str]:
    """What was noted."""
    async with desk.parts.stores.database.read() as connection:
        return list((await connection.execute(text("SELECT words FROM notes"))).scalars())


def say(words: str, order: str = "1001") -> dict[str, Any]:
    """A call of `note`."""
    return tool_use("note", {"order": order, "words": words})


async def test_effect_and_mark_are_committed_together(desk: Desk) -> None:
    """And acceptance needs no other record: there is none that could disagree."""
    desk.will_say(say("call back"), say("call back"), "Noted.")
    result = await desk.run({"goal": GOAL, "acceptance": [NOTED]})
    assert result.status is Status.SUCCEEDED
    assert await notes(desk) == ["call back"]
    assert await desk.journal(result.operations[0]) == ["claimed", "succeeded"]
    assert "repeated" in shown(desk)[0]


@pytest.mark.parametrize(
    ("words", "event", "state", "kind"),
    [
        ("decline", "declined", OperationState.REJECTED, "rejected"),
        ("break", "not_sent", OperationState.NOT_EXECUTED, "unavailable"),
    ],
)
async def test_what_fails_leaves_nothing_behind_and_is_known_not_to_have_happened(
    desk: Desk, words: str, event: str, state: OperationState, kind: str
) -> None:
    """Whatever it raises after it has written: never unknown, and the next proposal is a new intent."""
    desk.will_say(say(words), say("call back"), "Noted.")
    result = await desk.run(GOAL)
    assert await notes(desk) == ["call back"]
    operation = result.operations[0]
    assert await desk.journal(operation) == ["claimed", event, "claimed", "succeeded"]
    assert shown(desk, 1)[0]["error"] == kind
    assert (operation.state, operation.generation) == (OperationState.COMPLETED, 2)
    first = (await desk.parts.stores.ledger.journal(operation.key))[1]
    assert first.state is state


async def test_several_of_one_response_are_all_kept(desk: Desk) -> None:
    """They run at once, and wait for one another at the store."""
    desk.will_say(Reply.of(*(say("call back", order=str(number)) for number in range(5))), "Noted.")
    result = await desk.run(GOAL)
    assert await notes(desk) == ["call back"] * 5
    assert result.tally.completed == 5
