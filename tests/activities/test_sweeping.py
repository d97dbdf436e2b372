"""The sweep: settlements that are missing are started, page by page, and nothing else happens."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from temporalio.client import Client
from temporalio.service import RPCError

from settled.activities import sweeping
from settled.activities.database import Database
from settled.activities.migrating import migrate
from settled.activities.registry import Registry
from settled.activities.stores import Stores
from settled.activities.sweeping import Sweep
from settled.activities.toolkit import Answer, Arguments, Call, Scope, WriteTool, write
from settled.workflows.contract.names import settlement_id
from settled.workflows.states import Event
from tests.protocol.books import Clock, report
from tests.protocol.stories import order, subject

E = Event
QUIET = 60.0


class Reserve(Arguments):
    sku: str


async def reserve(asked: Reserve, call: Call) -> Answer:
    """Reserve stock."""
    raise NotImplementedError


TOOL: WriteTool = write(
    key=("sku",), scope=Scope.BUSINESS, lookup=None, dedupes=None, lands_within=timedelta(seconds=1)
)(reserve)


class Told(Clock):
    """A clock that the test sets."""

    async def __call__(self, connection: AsyncConnection) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Told()


@pytest.fixture
async def stores(sqlite_url: str, clock: Clock) -> AsyncIterator[Stores]:
    database = Database(sqlite_url, clock=clock)
    await migrate(database)
    yield Stores.over(database)
    await database.close()


@pytest.fixture
def sweep(temporal: Client, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep of two at a time, on a task queue that nobody serves."""
    monkeypatch.setattr(sweeping, "MOST_AT_ONCE", 2)
    return Sweep(temporal, stores, Registry({"reserve": TOOL}), task_queue=uuid4().hex)


async def unsettled(stores: Stores, number: int, tool: str = "reserve") -> list[str]:
    """Operations whose task and dispatch were both lost; by key, as the sweep goes through them."""
    keys = sorted(uuid4().hex * 2 for _ in range(number))
    for at in keys:
        await stores.ledger.claim(at, order(about=subject(tool=tool, resources=())))
        await report(stores.ledger, E.UNCLEAR, at=at)
    return keys


async def settlements(client: Client, keys: list[str]) -> list[str]:
    """Those of these operations that have a settlement; it is ended."""

    async def has_one(key: str) -> bool:
        handle = client.get_workflow_handle(settlement_id(key))
        try:
            await handle.terminate()
        except RPCError:
            return False
        return True

    found = await asyncio.gather(*map(has_one, keys))
    return [key for key, there in zip(keys, found, strict=True) if there]


async def test_each_step_goes_on_where_the_last_one_ended_and_begins_anew_at_the_end(
    sweep: Sweep, stores: Stores, clock: Clock, temporal: Client
) -> None:
    keys = await unsettled(stores, 5)
    clock.at += 2 * QUIET
    for page in (keys[:2], keys[2:4], keys[4:], keys[:2]):
        assert await sweep.step(QUIET) == len(page)
        assert await settlements(temporal, keys) == page


async def test_a_last_page_that_is_full_is_followed_by_an_empty_one_and_then_the_first(
    sweep: Sweep, stores: Stores, clock: Clock, temporal: Client
) -> None:
    keys = await unsettled(stores, 2)
    clock.at += 2 * QUIET
    assert [await sweep.step(QUIET) for _ in range(3)] == [2, 0, 2]
    assert await settlements(temporal, keys) == keys


async def test_what_has_changed_a_moment_ago_is_left_alone(
    sweep: Sweep, stores: Stores, clock: Clock, temporal: Client
) -> None:
    early = await unsettled(stores, 1)
    clock.at += QUIET
    late = await unsettled(stores, 1)
    clock.at += 1
    assert await sweep.step(QUIET) == 1
    assert await settlements(temporal, early + late) == early


async def test_what_this_worker_has_no_tool_for_is_left_to_another_one(
    sweep: Sweep, stores: Stores, clock: Clock, temporal: Client
) -> None:
    keys = await unsettled(stores, 1, tool="pay")
    clock.at += 2 * QUIET
    assert await sweep.step(QUIET) == 0
    assert await settlements(temporal, keys) == []


async def test_a_settlement_that_runs_is_not_disturbed(
    sweep: Sweep, stores: Stores, clock: Clock, temporal: Client
) -> None:
    (key,) = await unsettled(stores, 1)
    clock.at += 2 * QUIET
    await sweep.step(QUIET)
    before = await temporal.get_workflow_handle(settlement_id(key)).describe()
    await sweep.step(QUIET)
    after = await temporal.get_workflow_handle(settlement_id(key)).describe()
    assert (after.run_id, after.history_length) == (before.run_id, before.history_length), "it isn't hurried either"
    await settlements(temporal, [key])
