"""The ledger's rows: how an operation is read from them, and what one more of them changes beside the journal."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from settled.activities import schema
from settled.activities.journal import Entry, Operation, Row
from settled.workflows.contract.operation import Evidence, OperationState, OperationView
from settled.workflows.states import Event, after


class WaitsFor(StrEnum):
    """What a task waits for at an operation."""

    NOTHING = "nothing"
    RESULT = "result"
    RESOURCE = "resource"


async def rows_of(connection: AsyncConnection, key: str) -> list[Row]:
    columns = schema.journal.c
    query = select(schema.journal).where(columns.operation == key).order_by(columns.seq)
    return [
        Row(
            seq=row.seq,
            at=row.at,
            generation=row.generation,
            permit=row.permit,
            event=Event(row.event),
            state=OperationState(row.state),
            task=row.task,
            body=json.loads(row.body),
        )
        for row in await connection.execute(query)
    ]


def next_row(before: Operation | None, entry: Entry, now: float) -> Row:
    """The next row. An entry of an older generation leaves the current one's state as it is."""
    if before is not None and entry.generation < before.generation:
        state = before.state
    else:
        fresh = before is None or entry.generation > before.generation
        state = after(OperationState.NONE if fresh else before.state, entry.event)  # type: ignore[union-attr]
    # A tool's lookup may have put anything into the body, and what is kept in mind must equal what is stored.
    body = json.loads(json.dumps(entry.body, default=str))
    return Row(**vars(entry) | {"body": body}, seq=before.seq + 1 if before else 1, at=now, state=state)


def columns_of(key: str, row: Row) -> dict[str, Any]:
    return {"operation": key, **vars(row), "body": json.dumps(row.body)}


async def write_current(connection: AsyncConnection, before: Operation | None, operation: Operation) -> None:
    view = operation.view()
    values = {
        "seq": operation.seq,
        "tool": view.tool,
        "tenant": operation.subject.tenant,
        "principal": operation.subject.principal,
        "state": view.state,
        "generation": view.generation,
        "sends": view.sends,
        "evidence": view.evidence,
        "opened_at": operation.opened_at,
        "changed_at": operation.changed_at,
        "alarms": operation.alarms,
    }
    if before is None:
        await connection.execute(insert(schema.operations).values(key=operation.key, **values))
    else:
        await connection.execute(
            update(schema.operations).where(schema.operations.c.key == operation.key).values(values)
        )


async def write_interest(
    connection: AsyncConnection,
    key: str,
    task: str,
    waits_for: WaitsFor | None = None,
    *,
    member: bool = True,
) -> None:
    """Note what the task waits for at the operation and, where it is a member, that the operation belongs to it."""
    interests = schema.interests.c
    mine = (interests.operation == key) & (interests.task == task)
    changes: dict[str, Any] = {"member": True} if member else {}
    if waits_for is not None:
        changes["waits_for"] = waits_for
    found = (await connection.execute(select(interests.task).where(mine))).first()
    if found is None:
        values = {"member": member, "waits_for": WaitsFor.NOTHING, "woken_seq": 0, **changes}
        await connection.execute(insert(schema.interests).values(operation=key, task=task, **values))
    elif changes:
        await connection.execute(update(schema.interests).where(mine).values(changes))


def view_of(row: Any) -> OperationView:
    return OperationView(
        key=row.key,
        tool=row.tool,
        state=OperationState(row.state),
        generation=row.generation,
        sends=row.sends,
        evidence=Evidence(row.evidence) if row.evidence else None,
    )
