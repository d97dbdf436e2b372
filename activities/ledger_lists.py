"""The ledger's lists: the operations of a task, of all tasks, and those that somebody should look after. Reads only."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, exists, func, select

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.ledger_rows import view_of
from settled.workflows.contract.operation import LedgerView, OperationState, OperationView, Tally

UNSETTLED = [
    OperationState.DISPATCHED,
    OperationState.UNKNOWN,
    OperationState.RESENDABLE,
    OperationState.NEEDS_HUMAN,
]
MOST_UNSETTLED_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Listed:
    """An operation in a list of all of them."""

    view: OperationView
    changed_at: float
    """When its state last changed."""
    task: str
    """The task whose proposal opened its current generation."""
    shown: str
    """That proposal's arguments as JSON, cut."""
    alarms: int = 0
    """Rows of its journal that say that there may be a second effect."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which operations are listed; what is left out lists all."""

    states: tuple[OperationState, ...] = ()
    tool: str = ""
    task: str = ""
    """Of this task, as the one that opened it or one that has joined it."""
    key: str = ""
    """The beginning of the key."""
    alarms: bool = False
    """Only those with an alarm."""


class LedgerLists:
    """The lists of one ledger."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def of_task(
        self, task: str, states: Iterable[OperationState] = (), limit: int | None = 200
    ) -> list[OperationView]:
        """The task's operations, oldest first, optionally only those in these states; `None` limits nothing."""
        mine = schema.interests.c
        query = (
            select(schema.operations)
            .join(schema.interests, mine.operation == schema.operations.c.key)
            .where(mine.task == task, mine.member)
            .order_by(schema.operations.c.opened_at, schema.operations.c.key)
            .limit(limit)
        )
        if states := list(states):
            query = query.where(schema.operations.c.state.in_(states))
        async with self.database.read() as connection:
            return [view_of(row) for row in await connection.execute(query)]

    async def of_task_besides(self, task: str, known: Collection[str]) -> list[OperationView]:
        """The task's operations under other keys than these, oldest first, but for those that were not executed.

        However many there are: it is asked before each model request, and reads no more than keys where it finds none.
        """
        mine, current = schema.interests.c, schema.operations.c
        query = (
            select(current.key)
            .join(schema.interests, mine.operation == current.key)
            .where(mine.task == task, mine.member, current.state != OperationState.NOT_EXECUTED)
        )
        async with self.database.read() as connection:
            others = set((await connection.execute(query)).scalars()).difference(known)
        return [view for view in await self.of_task(task, limit=None) if view.key in others] if others else []

    async def unsettled(self, task: str) -> list[tuple[str, str]]:
        """The key and the tool of every operation of the task whose outcome isn't known."""
        mine, current = schema.interests.c, schema.operations.c
        query = (
            select(current.key, current.tool)
            .join(schema.interests, mine.operation == current.key)
            .where(mine.task == task, mine.member, current.state.in_(UNSETTLED))
            .order_by(current.opened_at, current.key)
        )
        async with self.database.read() as connection:
            return [(row.key, row.tool) for row in await connection.execute(query)]

    async def view(self, task: str) -> LedgerView:
        """The counts of the task's operations, and those that aren't settled."""
        mine, current = schema.interests.c, schema.operations.c
        query = (
            select(current.state, func.count().label("number"))
            .join(schema.interests, mine.operation == current.key)
            .where(mine.task == task, mine.member)
            .group_by(current.state)
        )
        async with self.database.read() as connection:
            counts = {row.state: row.number for row in await connection.execute(query)}
        unsettled = sum(counts.get(state, 0) for state in UNSETTLED)
        shown = tuple(await self.of_task(task, UNSETTLED, MOST_UNSETTLED_SHOWN)) if unsettled else ()
        tally = Tally(
            operations=sum(counts.values()), completed=counts.get(OperationState.COMPLETED, 0), unsettled=unsettled
        )
        return LedgerView(tally=tally, unsettled=shown)

    async def listed(self, wanted: Wanted = Wanted(), limit: int = 100) -> list[Listed]:
        """Operations, the latest change first."""
        current, rows, others = schema.operations.c, schema.journal.c, schema.journal.alias().c
        opening = (
            select(func.min(others.seq))
            .where(others.operation == current.key, others.generation == current.generation)
            .scalar_subquery()
        )
        query = (
            select(schema.operations, rows.task, rows.body)
            .select_from(schema.operations)
            .join_from(schema.operations, schema.journal, (rows.operation == current.key) & (rows.seq == opening))
            .order_by(current.changed_at.desc(), current.key)
            .limit(limit)
        )
        async with self.database.read() as connection:
            return [
                Listed(
                    view=view_of(row),
                    changed_at=row.changed_at,
                    task=row.task,
                    shown=json.loads(row.body).get("subject", {}).get("shown", ""),
                    alarms=row.alarms,
                )
                for row in await connection.execute(_narrowed(query, wanted))
            ]

    async def forsaken(self, before: float, tools: Iterable[str], after_key: str, limit: int) -> list[str]:
        """Unsettled operations of these tools that have not changed since then, by key, from the one after this key."""
        current = schema.operations.c
        query = (
            select(current.key)
            .where(current.state.in_(UNSETTLED), current.changed_at < before, current.key > after_key)
            .where(current.tool.in_(list(tools)))
            .order_by(current.key)
            .limit(limit)
        )
        async with self.database.read() as connection:
            return list((await connection.execute(query)).scalars())


def _narrowed(query: Select[Any], wanted: Wanted) -> Select[Any]:
    current, interests = schema.operations.c, schema.interests.c
    if wanted.states:
        query = query.where(current.state.in_(wanted.states))
    if wanted.tool:
        query = query.where(current.tool == wanted.tool)
    if wanted.task:
        of_task = (interests.operation == current.key) & (interests.task == wanted.task) & interests.member
        query = query.where(exists().where(of_task))
    if wanted.key:
        query = query.where(current.key.startswith(wanted.key, autoescape=True))
    if wanted.alarms:
        query = query.where(current.alarms > 0)
    return query
