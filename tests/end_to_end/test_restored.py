"""Rule 14: a ledger that was restored from an older copy has lost a part of its past. No row is not "no claim"."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

from settled.activities.epochs import Epochs
from settled.workflows.contract.operation import OperationState
from tests.desk import Desk, open_desk, reserve, result_of, until
from tests.end_to_end.test_writes import GOAL


async def copy(folder: Path, name: str = "settled.db", to: str = "copy.db") -> None:
    """Copy the ledger's file, which nobody has open."""
    await asyncio.to_thread(shutil.copyfile, folder / name, folder / to)


@asynccontextmanager
async def after_a_loss(temporal: Client, folder: Path, *, working: bool = True) -> AsyncIterator[Desk]:
    """A desk on the older copy of the ledger, with an epoch opened, as an operator does it."""
    await copy(folder, "copy.db", "settled.db")
    async with open_desk(temporal, folder, working=False) as idle:
        await Epochs(idle.parts.stores.database).open("anna", "the disk is gone")
    async with open_desk(temporal, folder, working=working) as desk:
        yield desk


async def prepare(temporal: Client, folder: Path) -> None:
    """A ledger with a task in it, and a copy of it."""
    async with open_desk(temporal, folder) as desk:
        desk.will_say("Nothing to do.")
        await desk.run(GOAL, "early")
    await copy(folder)


async def test_rule_14_what_was_done_in_the_lost_time_is_found_and_not_done_again(
    temporal: Client, tmp_path: Path
) -> None:
    """The first claim is looked up before anything is sent."""
    await prepare(temporal, tmp_path)
    async with open_desk(temporal, tmp_path) as desk:
        desk.will_say(reserve(), "Done.")
        await desk.run(GOAL, "lost")
    async with after_a_loss(temporal, tmp_path) as desk:
        desk.will_say(reserve(), "Done.")
        result = await desk.run(GOAL, "later")
        operation = result.operations[0]
        assert await desk.journal(operation) == ["missed", "found"]
        assert operation.state is OperationState.COMPLETED
        assert len(await desk.effects()) == 1
        assert (await desk.requests())["POST /reservations"] == 0


async def test_rule_14_what_was_not_done_is_sent_after_a_lookup_said_so(temporal: Client, tmp_path: Path) -> None:
    """R68: as between any two sends, since one may have been before."""
    await prepare(temporal, tmp_path)
    async with after_a_loss(temporal, tmp_path) as desk:
        desk.will_say(reserve(), "Done.")
        result = await desk.run(GOAL, "later")
        assert await desk.journal(result.operations[0]) == ["missed", "absent_resend", "claimed", "succeeded"]
        assert len(await desk.effects()) == 1


async def test_rule_14_once_the_past_is_trusted_again_nothing_is_looked_up_first(
    temporal: Client, tmp_path: Path
) -> None:
    """The epoch is closed by a person."""
    await prepare(temporal, tmp_path)
    async with after_a_loss(temporal, tmp_path) as desk:
        await Epochs(desk.parts.stores.database).close("anna")
        desk.will_say(reserve(), "Done.")
        result = await desk.run(GOAL, "later")
        assert await desk.journal(result.operations[0]) == ["claimed", "succeeded"]


@pytest.mark.parametrize(("fault", "effects"), [("drop_reply_after_commit", 1), ("drop_before_commit", 1)])
async def test_rule_14_a_task_that_has_seen_its_operation_does_not_take_a_missing_row_for_nothing(
    temporal: Client, tmp_path: Path, fault: str, effects: int
) -> None:
    """Without an epoch, too: the workflow's own history says that the generation was opened."""
    queue = "restored-queue"
    async with open_desk(temporal, tmp_path, working=False, task_queue=queue):
        pass
    async with open_desk(temporal, tmp_path, task_queue=queue, recheck_seconds=0.5) as desk:
        await desk.arm(fault)
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve())
        handle = await desk.start(GOAL, f"seen-{fault}")
        await until(lambda: _is_unknown(desk))
    await asyncio.to_thread(_forget_operations, tmp_path / "settled.db")
    async with open_desk(temporal, tmp_path, task_queue=queue) as desk:
        desk.will_say("Done.")
        result = await result_of(handle, 40)
        journal = await desk.journal(result.operations[0])
        assert journal[0] == "missed"
        assert result.operations[0].state is OperationState.COMPLETED
        assert len(await desk.effects()) == effects


def _forget_operations(file: Path, *more: str) -> None:
    """What a copy has that was made when the task was open, and nothing was claimed."""
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(file)) as connection, connection:
        for table in ("journal", "operations", "interests", "holds", *more):
            connection.execute(f"DELETE FROM {table}")


async def _is_unknown(desk: Desk) -> bool:
    return [one.view.state for one in await desk.parts.stores.ledger.listed()] == [OperationState.UNKNOWN]


async def test_rule_14_a_task_that_the_ledger_does_not_know_ends_and_says_what_may_have_happened(
    temporal: Client, tmp_path: Path
) -> None:
    """Its record and its conversation are lost: it can't go on, must not hang, nor say that nothing was done."""
    queue = "lost-queue"
    await prepare(temporal, tmp_path)
    async with open_desk(temporal, tmp_path, task_queue=queue) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve())
        handle = await desk.start(GOAL, "unheard")
        await until(lambda: _is_unknown(desk))
    await copy(tmp_path, "copy.db", "settled.db")
    async with open_desk(temporal, tmp_path, task_queue=queue) as desk:
        with pytest.raises(WorkflowFailureError) as failed:
            await asyncio.wait_for(handle.result(), 40)
        said = "could not be closed: the ledger has no record of this task: it was restored from an older copy"
        assert said in str(failed.value.__cause__)
        assert len(await desk.effects()) == 1


async def test_rule_14_what_a_lost_generation_has_done_is_not_done_again(temporal: Client, tmp_path: Path) -> None:
    """The lost time had closed the first generation and done the second, under a key that this ledger never gave."""
    await prepare(temporal, tmp_path)
    async with open_desk(temporal, tmp_path) as desk:
        desk.will_say(reserve(5), reserve(1), "Done.")
        await desk.run(GOAL, "lost-generation")
        assert [effect["key"][-2:] for effect in await desk.effects()] == ["-2"]
    async with after_a_loss(temporal, tmp_path) as desk:
        desk.will_say(reserve(1))
        handle = await desk.start(GOAL, "after-lost-generation")
        await until(lambda: _needs_a_person(desk))
        rows = await desk.parts.stores.ledger.journal((await desk.parts.stores.ledger.listed())[0].view.key)
        assert [str(row.event) for row in rows] == ["missed", "handed_to_person"]
        assert rows[1].body["found"]["key"].endswith("-2")
        assert len(await desk.effects()) == 1
        await handle.terminate()


async def _needs_a_person(desk: Desk) -> bool:
    return [one.view.state for one in await desk.parts.stores.ledger.listed()] == [OperationState.NEEDS_HUMAN]


async def test_rule_14_a_task_whose_conversation_is_lost_ends(temporal: Client, tmp_path: Path) -> None:
    """The copy has its record, but not its last turns: it can't go on, and must not ask for ever."""
    queue = "lost-words-queue"
    async with open_desk(temporal, tmp_path, task_queue=queue) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve())
        handle = await desk.start(GOAL, "speechless")
        await until(lambda: _is_unknown(desk))
    await asyncio.to_thread(_forget_operations, tmp_path / "settled.db", "nodes", "responses")
    async with open_desk(temporal, tmp_path, task_queue=queue) as desk:
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), 40)
        assert len(await desk.effects()) == 1
