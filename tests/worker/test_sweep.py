"""The sweep: a settlement that nobody has started is started; what has one is left alone; it outlives every outage."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RetryConfig, RPCError, RPCStatusCode

from settled.activities.database import Database
from settled.activities.journal import Subject
from settled.activities.keys import key_forms
from settled.activities.protocol import Claim
from settled.activities.registry import Registry, discover
from settled.activities.stores import Stores
from settled.activities.sweeping import Sweep
from settled.activities.tools.stock import reserve_stock
from settled.worker.process import sweeping
from settled.workflows.contract.operation import OperationState, OperationView
from settled.workflows.converter import data_converter
from tests.crash.operator import address_of
from tests.crash.outcomes import TASK, until_it_is
from tests.crash.processes import LANDS_WITHIN, SECONDS, Bench, Crew
from tests.crash.worker_process import Act, Point
from tests.desk import Desk, hurried, open_desk, reserve, until
from tests.worker.test_process import free_port


@pytest.fixture
async def empty_desk(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk without a worker."""
    registry = hurried(discover(), seconds=SECONDS, lands_within=timedelta(seconds=LANDS_WITHIN))
    async with open_desk(temporal, tmp_path, registry=registry, working=False) as opened:
        yield opened


@pytest.fixture
async def crew(empty_desk: Desk, tmp_path: Path) -> AsyncIterator[Crew]:
    """Worker processes for the empty desk; none of them outlives the test."""
    bench = Bench(tmp_path)
    hired = Crew(empty_desk, bench)
    try:
        yield hired
    finally:
        await hired.leave()
        await bench.close()


def sweep_of(desk: Desk, **changes: Any) -> Sweep:
    """The sweep of a worker of this desk."""
    known: dict[str, Any] = {
        "client": desk.client,
        "stores": desk.parts.stores,
        "registry": desk.parts.registry,
        "task_queue": desk.parts.settings.task_queue,
    }
    return Sweep(**(known | changes))


async def settlement_of(desk: Desk, operation: OperationView) -> WorkflowExecutionDescription | None:
    """The description of the operation's settlement; None if there is none."""
    try:
        return await (await desk.settlement(operation)).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


async def forsaken(desk: Desk) -> OperationView:
    """An operation that is out, as a worker leaves it that dies with its task right after the claim."""
    key = secrets.token_hex(32)
    about = Subject(tool="reserve_stock", tenant="t", principal="p", fingerprint="f", arguments="", resources=(key,))
    declaration = key_forms(reserve_stock)[0].declaration
    ask = Claim(subject=about, generation=1, permit=1, seconds=0.0, task="gone", declaration=declaration)
    amended = await desk.parts.stores.ledger.claim(key, ask)
    assert amended.operation is not None
    return amended.operation.view()


@pytest.mark.long
async def test_what_task_and_worker_left_behind_when_both_died_is_found_by_a_worker_s_sweep(
    empty_desk: Desk, crew: Crew
) -> None:
    """Rule 10, R66: the reservation was made, and nobody else ever asks; the command `settled worker` settles it."""
    desk = empty_desk
    desk.will_say(reserve(1, order=secrets.token_hex(4)))
    worker = await crew.hire(trap=Point.AFTER_ANSWER, act=Act.KILL)
    handle = await desk.start(TASK)
    await worker.ends()
    await handle.terminate()
    operation = await until_it_is(desk, OperationState.DISPATCHED)
    assert await settlement_of(desk, operation) is None
    await crew.employ(SETTLED_SWEEP_SECONDS="0.3")
    settled = await until_it_is(desk, OperationState.COMPLETED)
    assert (settled.key, settled.sends) == (operation.key, 1)
    assert await desk.journal(operation) == ["claimed", "expired", "found"]
    assert (await (await desk.settlement(operation)).result()).settled
    assert len(await desk.effects()) == 1


async def test_an_operation_that_has_a_settlement_is_left_alone(desk: Desk) -> None:
    """Neither a second one, nor a signal that hurries it: a service that can't be asked isn't asked more often."""
    operation = await forsaken(desk)
    sweep = sweep_of(desk)
    assert await sweep.step(0) == 1
    first = await settlement_of(desk, operation)
    await until_it_is(desk, OperationState.UNKNOWN)
    for _ in range(3):
        assert await sweep.step(0) == 1
    last = await settlement_of(desk, operation)
    assert first is not None
    assert last is not None
    assert last.run_id == first.run_id
    events = [event.event_type async for event in (await desk.settlement(operation)).fetch_history_events()]
    assert EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED not in events


async def test_what_has_changed_a_moment_ago_is_left_to_those_who_are_at_work_on_it(desk: Desk) -> None:
    operation = await forsaken(desk)
    assert await sweep_of(desk).step(60.0) == 0
    assert await settlement_of(desk, operation) is None


async def test_what_is_settled_is_left_alone(desk: Desk) -> None:
    desk.will_say(reserve(1, order=secrets.token_hex(4)), "Reserved.")
    result = await desk.run("reserve 1 of A1")
    assert await sweep_of(desk).step(0) == 0
    assert await settlement_of(desk, result.operations[0]) is None


async def test_the_tools_of_other_workers_are_left_to_them(desk: Desk) -> None:
    """A settlement on this worker's queue would find nobody who knows the tool."""
    operation = await forsaken(desk)
    tools = {name: tool for name, tool in desk.parts.registry.tools.items() if name != "reserve_stock"}
    assert await sweep_of(desk, registry=Registry(tools)).step(0) == 0
    assert await settlement_of(desk, operation) is None


async def test_many_operations_are_gone_through_a_part_at_a_time_and_then_anew(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is forsaken later is found in the next round, wherever its key stands."""
    monkeypatch.setattr("settled.activities.sweeping.MOST_AT_ONCE", 2)
    operations = [await forsaken(desk) for _ in range(3)]
    sweep = sweep_of(desk)
    assert [await sweep.step(0), await sweep.step(0)] == [2, 1]
    assert all([await settlement_of(desk, operation) for operation in operations])
    late = await forsaken(desk)
    assert [await sweep.step(0), await sweep.step(0)] == [2, 2]
    assert await settlement_of(desk, late)


@asynccontextmanager
async def way_to(address: str, port: int) -> AsyncIterator[None]:
    """A way to a server through a port of this test's own, as long as the context lasts."""
    host, _, number = address.rpartition(":")

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, int(number))
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()


async def test_while_temporal_is_away_the_sweep_goes_on(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Each sweep fails with a line; the first one after that does its work."""
    operation = await forsaken(desk)
    port = free_port()
    impatient = RetryConfig(initial_interval_millis=10, max_interval_millis=10, max_retries=1)
    client = await Client.connect(f"127.0.0.1:{port}", lazy=True, data_converter=data_converter, retry_config=impatient)
    async with sweeping(sweep_of(desk, client=client), 0.1):
        await until(lambda: complains(caplog, times=2))
        assert await settlement_of(desk, operation) is None
        async with way_to(address_of(desk), port):
            await until(lambda: settlement_of(desk, operation))


async def test_while_the_store_is_away_the_sweep_goes_on(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """A file that can't be opened, and later can."""
    operation = await forsaken(desk)
    away = desk.folder / "away"
    database = Database(f"sqlite+aiosqlite:///{away / 'settled.db'}")
    async with sweeping(sweep_of(desk, stores=Stores.over(database)), 0.1):
        await until(lambda: complains(caplog, times=2))
        away.symlink_to(desk.folder)
        await until(lambda: settlement_of(desk, operation))
    await database.close()


async def complains(caplog: pytest.LogCaptureFixture, *, times: int) -> bool:
    """Whether the sweep has failed so often."""
    return caplog.text.count("the sweep failed, and goes on") >= times
