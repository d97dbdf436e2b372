"""The facts that the oracle judges: the service's journal, the ledger, and the journal of an operation in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select

from settled.activities import schema
from settled.activities.database import Database
from settled.activities.keys import Realm, key_forms, operation_key
from settled.activities.ledger import Ledger
from settled.activities.ledger_lists import UNSETTLED
from settled.activities.registry import discover
from settled.activities.tools.stock import ReserveStock
from tests.chaos.model import RESERVE
from tests.chaos.oracle import Effect, Finding, Known
from tests.chaos.plan import Name

MOST_OPERATIONS = 1_000_000


class Books:
    """The ledger, read from outside."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.ledger = Ledger(self.database)

    async def counts(self) -> tuple[int, int]:
        """How many operations there are, and how many of them aren't settled."""
        current = schema.operations.c
        query = select(current.state, func.count().label("number")).group_by(current.state)
        async with self.database.read() as connection:
            by_state = {row.state: row.number for row in await connection.execute(query)}
        return sum(by_state.values()), sum(by_state.get(state, 0) for state in UNSETTLED)

    async def events(self) -> Counter[str]:
        """What stands in the journals, by kind: how far the storm has reached."""
        query = select(schema.journal.c.event, func.count().label("number")).group_by(schema.journal.c.event)
        async with self.database.read() as connection:
            return Counter({row.event: row.number for row in await connection.execute(query)})

    async def operations(self, actions: Iterable[Name]) -> list[Known]:
        """Every operation, with the action that it stands for."""
        named = {key_of(action): action for action in actions}
        listed = [each.view for each in await self.ledger.listed(limit=MOST_OPERATIONS)]
        unnamed = ("", "no action of the storm", 0)
        return [Known(key=view.key, action=named.get(view.key, unnamed), state=view.state) for view in listed]

    async def journal(self, key: str) -> Iterator[str]:
        """An operation's journal, a line for each row."""
        return (
            f"    {_time(row.at)} {row.seq:>3} g{row.generation} p{row.permit} {row.event:<26} {row.state:<13} "
            f"{row.task} {json.dumps({name: said for name, said in row.body.items() if name != 'subject'})[:300]}"
            for row in await self.ledger.journal(key)
        )

    async def late(self, key: str, effects: Iterable[dict[str, Any]], lands_within: float) -> list[str]:
        """The effects that came later than the tool promises: the storm's own fault, and not the product's."""
        deadlines = [row.body["deadline"] for row in await self.ledger.journal(key) if "deadline" in row.body]
        latest = max(deadlines, default=0.0) + lands_within
        return [
            f"    {effect['at']} landed after {_time(latest)}: the storm broke the service's promise"
            for effect in effects
            if datetime.fromisoformat(effect["at"]).timestamp() > latest
        ]

    async def close(self) -> None:
        """Let go of the database."""
        await self.database.close()


def key_of(action: Name) -> str:
    """The operation key of an action."""
    order, sku, line = action
    arguments = ReserveStock(order=order, sku=sku, line=line, quantity=1)
    form = key_forms(discover().write(RESERVE))[0]
    return operation_key(form, arguments, Realm(namespace="default", tenant="default", root_task=""))


def action_of(effect: dict[str, Any]) -> Name:
    """The action that an effect is one of."""
    return (effect["order"], effect["sku"], effect["line"])


def seen(effects: Iterable[dict[str, Any]]) -> list[Effect]:
    """The service's journal, as the oracle takes it."""
    return [Effect(action_of(effect), effect["key"]) for effect in effects]


async def told(finding: Finding, books: Books | None, effects: list[dict[str, Any]], lands_within: float) -> list[str]:
    """A finding in words, with the operation's journal and the service's records."""
    lines = [f"{finding.fault}: {finding.what} {finding.action or ''} {finding.operation or ''}".rstrip()]
    mine = [effect for effect in effects if action_of(effect) == finding.action]
    if books is not None and finding.operation:
        lines += await books.journal(finding.operation)
        lines += await books.late(finding.operation, mine, lands_within)
    return lines + [f"    at the service: {json.dumps(effect)}" for effect in mine]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
