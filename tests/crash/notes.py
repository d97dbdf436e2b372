"""A transactional tool: it writes its note to the ledger's own database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from settled.activities.toolkit import Answer, Arguments, Call, Scope, transaction
from settled.local.messages_script import tool_use
from tests.desk import Desk


class NoteOrder(Arguments):
    """What `note_order` is asked."""

    order: str


@transaction(key=("order",), scope=Scope.BUSINESS, resources=lambda asked: [f"note/{asked.order}"])
async def note_order(asked: NoteOrder, call: Call) -> Answer:
    """Note an order."""
    assert call.connection is not None, "it is transactional"
    await call.connection.execute(text("INSERT INTO notes VALUES (:order)"), {"order": asked.order})
    return Answer(data={"noted": asked.order}, source="the notes")


def note(order: str = "1001") -> dict[str, Any]:
    """A call of `note_order`."""
    return tool_use("note_order", {"order": order})


async def make_room_for_notes(desk: Desk) -> None:
    """Make the table."""
    async with desk.parts.stores.database.write() as connection:
        # Without a key that would refuse a second note: that is what is to be counted.
        await connection.execute(text("CREATE TABLE notes (noted TEXT)"))


async def noted(desk: Desk) -> list[str]:
    """The notes."""
    async with desk.parts.stores.database.read() as connection:
        return list((await connection.execute(text("SELECT noted FROM notes"))).scalars())
