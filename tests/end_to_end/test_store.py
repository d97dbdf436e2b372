"""The ledger on PostgreSQL, taken away while a task is at work: nothing is sent without it, nothing sent is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from settled.workflows.contract.ending import Status
from settled.workflows.contract.names import DISPATCH
from tests.crash.outcomes import TASK, assert_reserved_once, disarm, in_ledger, until_reserved
from tests.desk import Desk, open_desk, reserve, status_of, until
from tests.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[PostgresServer]:
    """A server that may be taken away: nobody else uses it."""
    async with postgres_server() as started:
        yield started


class BeforeDispatch(Interceptor):
    """Does something before the first dispatch begins, and counts the dispatches that came to their end."""

    def __init__(self, does: Callable[[], Awaitable[object]]) -> None:
        self.does: Callable[[], Awaitable[object]] | None = does
        self.ended = 0

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Come before an activity."""
        return _Before(next, self)


class _Before(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, before: BeforeDispatch) -> None:
        super().__init__(next)
        self._before = before

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if activity.info().activity_type != DISPATCH:
            return await super().execute_activity(input)
        does, self._before.does = self._before.does, None
        if does is not None:
            await does()
        result = await super().execute_activity(input)
        self._before.ended += 1
        return result


async def reserve_requests(desk: Desk) -> int:
    """How many requests to reserve the service has received."""
    return int((await desk.requests()).get("POST /reservations", 0))


def tries_to_connect(desk: Desk) -> list[object]:
    """One entry for each time that the worker tries to connect to its store, from now on."""
    tries: list[object] = []

    def note(*given: object) -> None:
        tries.append(given)

    event.listen(desk.parts.stores.database.engine.sync_engine, "do_connect", note)
    return tries


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_without_the_ledger_nothing_is_sent_and_the_task_goes_on_when_it_is_back(
    temporal: Client, tmp_path: Path, server: PostgresServer, how: str
) -> None:
    """The task waits, and says so."""
    before = BeforeDispatch(server.stop if how == "stop" else server.kill)
    url = await server.new_database()
    async with open_desk(temporal, tmp_path, interceptors=[before], database_url=url, recheck_seconds=0.3) as desk:
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start(TASK)

        async def asked_again() -> bool:
            return before.ended >= 3

        await until(asked_again)
        assert (await status_of(handle)).status is Status.WAITING
        assert (await desk.effects(), await reserve_requests(desk)) == ([], 0)
        await server.start()
        await assert_reserved_once(desk, await desk.result(handle), "claimed", "succeeded")


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_an_effect_that_was_sent_is_settled_when_the_ledger_is_back(
    temporal: Client, tmp_path: Path, server: PostgresServer, how: str
) -> None:
    """The answer comes while there is no ledger; it is stored later, and nobody sends or looks up."""
    async with open_desk(temporal, tmp_path, database_url=await server.new_database()) as desk:
        await desk.arm("hold_reply_after_commit")
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start(TASK)
        await until_reserved(desk)
        await (server.stop() if how == "stop" else server.kill())
        tries = tries_to_connect(desk)
        await disarm(desk)

        async def tried_to_store() -> bool:
            return len(tries) >= 2

        await until(tried_to_store)
        await server.start()
        await assert_reserved_once(desk, await desk.result(handle), "claimed", "succeeded")


async def test_a_claim_whose_commit_went_unanswered_is_looked_up_and_not_taken_for_unsent(
    temporal: Client, tmp_path: Path, server: PostgresServer
) -> None:
    """The commit is on disk, and the connection ends before the answer: asking again finds the permit spent."""
    before = BeforeDispatch(server.hold_commits)
    url = await server.new_database()
    async with open_desk(temporal, tmp_path, interceptors=[before], database_url=url, recheck_seconds=0.3) as desk:
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start(TASK)

        async def claimed() -> bool:
            await server.cut_held_commits()
            return bool(await in_ledger(desk))

        await until(claimed)
        await server.answer_commits()
        result = await desk.result(handle)
        journal = ("claimed", "expired", "absent_resend", "claimed", "succeeded")
        await assert_reserved_once(desk, result, *journal, sends=2)


async def test_r93_a_ledger_s_file_that_is_moved_away_is_noticed_and_nothing_is_sent_until_it_is_back(
    temporal: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SQLite goes on writing to a file that has no name any more; a claim there would be forgotten with the process."""
    file = tmp_path / "settled.db"
    before = BeforeDispatch(lambda: asyncio.to_thread(file.rename, tmp_path / "away.db"))
    async with open_desk(temporal, tmp_path, interceptors=[before]) as desk:
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start(TASK)

        async def noticed() -> bool:
            return before.ended > 0

        await until(noticed)
        assert await reserve_requests(desk) == 0
        assert "was deleted or replaced while it was in use: nothing is sent" in caplog.text
        await asyncio.to_thread((tmp_path / "away.db").rename, file)
        await assert_reserved_once(desk, await desk.result(handle), "claimed", "succeeded")
