"""One operation with all that is known of it: its journal, what it holds and waits for, and who has to do with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.journal import Operation, Row
from settled.activities.keys import remote_key
from settled.activities.ledger import Ledger
from settled.activities.ledger_rows import WaitsFor
from settled.worker.journal_lines import HEADERS, cells
from settled.worker.printing import aligned, moment, safe, stamp
from settled.workflows.contract.names import settlement_id
from settled.workflows.contract.operation import OperationState

WAITING_FOR = {
    WaitsFor.NOTHING: "",
    WaitsFor.RESULT: ", waits for its result",
    WaitsFor.RESOURCE: ", waits for it to let go",
}


@dataclass(frozen=True, kw_only=True)
class Interested:
    """A task that has to do with the operation."""

    task: str
    member: bool
    """Whether the operation is one of its own; otherwise it only waits for what the operation holds."""
    waits_for: WaitsFor


@dataclass(frozen=True, kw_only=True)
class InLine:
    """A resource that the operation's next claim waits for."""

    resource: str
    since: float
    task: str
    held_by: str
    """The operation that holds it; empty if it is free."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """An operation, and all that is known of it."""

    operation: Operation
    rows: tuple[Row, ...]
    interested: tuple[Interested, ...]
    holds: tuple[str, ...]
    in_line: tuple[InLine, ...]

    @property
    def opening(self) -> Row:
        """The row that opened the current generation."""
        return next(row for row in self.rows if row.generation == self.operation.generation)


async def story_of(database: Database, key: str) -> Story:
    """All that the ledger knows of an operation that it has."""
    ledger = Ledger(database)
    operation, rows = await ledger.read(key), await ledger.journal(key)
    assert operation is not None, "its key was found in the ledger"
    interests, holds, queue = schema.interests.c, schema.holds.c, schema.queue.c
    held = select(holds.resource).where(holds.operation == key).order_by(holds.resource)
    joined = select(schema.interests).where(interests.operation == key).order_by(interests.task)
    waits = (
        select(schema.queue, holds.operation.label("holder"))
        .join(schema.holds, holds.resource == queue.resource, isouter=True)
        .where(queue.operation == key)
        .order_by(queue.resource)
    )
    async with database.read() as connection:
        return Story(
            operation=operation,
            rows=tuple(rows),
            interested=tuple(
                Interested(task=row.task, member=row.member, waits_for=WaitsFor(row.waits_for))
                for row in await connection.execute(joined)
            ),
            holds=tuple((await connection.execute(held)).scalars()),
            in_line=tuple(
                InLine(resource=row.resource, since=row.since, task=row.task, held_by=row.holder or "")
                for row in await connection.execute(waits)
            ),
        )


def as_json(story: Story) -> dict[str, Any]:
    """The story for programs."""
    operation = story.operation
    return operation.view().model_dump(mode="json") | {
        "opened_at": stamp(operation.opened_at),
        "changed_at": stamp(operation.changed_at),
        "subject": asdict(operation.subject),
        "idempotency_key": remote_key(operation.key, operation.generation),
        "settlement": settlement_id(operation.key),
        "alarms": operation.alarms,
        "waits_for": waits_for(operation),
        "holds": story.holds,
        "in_line": [asdict(one) | {"since": stamp(one.since)} for one in story.in_line],
        "tasks": [asdict(one) for one in story.interested],
        "journal": [asdict(row) | {"at": stamp(row.at)} for row in story.rows],
    }


def lines_of(story: Story) -> list[str]:
    """The story for people, made safe for a terminal."""
    head = [[name, safe(text)] for name, text in _head(story)]
    journal = [HEADERS, *([safe(cell) for cell in cells(row)] for row in story.rows)]
    return [*aligned(head), "", *aligned(journal)]


def _head(story: Story) -> Iterator[tuple[str, str]]:
    operation = story.operation
    view = operation.view()
    yield "operation", operation.key
    yield "tool", view.tool
    yield "state", f"{view.state}, by {view.evidence or '-'}; generation {view.generation}, {view.sends} sent"
    yield "opened", f"{moment(operation.opened_at)}, changed {moment(operation.changed_at)}"
    yield "arguments", operation.subject.shown or "-"
    yield "idempotency key", remote_key(operation.key, operation.generation)
    yield "settlement", settlement_id(operation.key)
    if operation.alarms:
        yield "alarms", f"{operation.alarms}: there may be a second effect; see below"
    yield "waits for", waits_for(operation) or "nothing"
    for place in story.in_line:
        held = f"held by operation {place.held_by[:12]}" if place.held_by else "free, and left to who came first"
        yield "waits for", f"{place.resource}, since {moment(place.since)}, for task {place.task}; {held}"
    yield "holds", ", ".join(story.holds) or "nothing"
    for one in story.interested:
        joined = "has joined" if one.member else "has another operation"
        yield "task", f"{one.task} {joined}{WAITING_FOR[one.waits_for]}"


def waits_for(operation: Operation) -> str:
    """What has to happen before the operation is settled; empty if it is."""
    match operation.state:
        case OperationState.DISPATCHED:
            return f"the attempt that is out; it sends nothing after {moment(operation.attempts[-1].deadline)}"
        case OperationState.UNKNOWN:
            return "a lookup that settles it"
        case OperationState.RESENDABLE:
            return f"a task that spends permit {operation.permit}"
        case OperationState.NEEDS_HUMAN:
            return f"a person: settled operations resolve {operation.key[:12]} --completed|--not-executed --because …"
        case _:
            return ""
