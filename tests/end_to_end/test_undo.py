"""Undoing: what was taken back may be done again, once each time, and undone again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.activities.registry import discover
from settled.activities.waking import start_settlement
from settled.local.messages_script import Reply, tool_use
from settled.workflows.contract.ending import Status
from settled.workflows.contract.names import settlement_id
from settled.workflows.contract.operation import OperationState
from tests.desk import CLERK, Desk, hurried, open_desk, reserve
from tests.end_to_end.test_writes import GOAL, RESERVED, shown

RELEASED = {"check": "operation", "tool": "release_stock", "arguments": {"order": "1001", "sku": "A1"}}


@pytest.fixture
async def counter(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose clerk may release what was reserved."""
    clerk = CLERK.model_copy(update={"tools": ("lookup_stock", "reserve_stock", "release_stock")})
    registry = hurried(discover(), seconds=2.0, lands_within=timedelta(seconds=1))
    async with open_desk(temporal, tmp_path, registry=registry, profiles={"stock-clerk": clerk}) as opened:
        yield opened


def release(order: str = "1001", sku: str = "A1") -> dict[str, Any]:
    """A call of `release_stock`."""
    return tool_use("release_stock", {"order": order, "sku": sku})


async def kinds(desk: Desk) -> list[str]:
    """What really happened, in order."""
    return [effect["kind"] for effect in await desk.effects()]


async def states(desk: Desk) -> dict[str, list[tuple[str, int]]]:
    """State and generation of each tool's operations."""
    found: dict[str, list[tuple[str, int]]] = {}
    for one in sorted(await desk.parts.stores.ledger.listed(), key=lambda one: one.changed_at):
        found.setdefault(one.view.tool, []).append((str(one.view.state), one.view.generation))
    return found


async def test_r75a_reserve_release_reserve_and_release_again_each_happen_once(counter: Desk) -> None:
    """R75a, B39: each is a new intent, with a remote key of its own."""
    counter.will_say(reserve(), release(), reserve(1), release(), "Done.")
    handle = await counter.start({"goal": GOAL, "acceptance": [RELEASED]})
    result = await handle.result()
    assert result.status is Status.SUCCEEDED
    assert await kinds(counter) == ["reserved", "released", "reserved", "released"]
    assert len({effect["key"] for effect in await counter.effects()}) == 4
    assert await states(counter) == {
        "reserve_stock": [("undone", 2)],
        "release_stock": [("completed", 1), ("completed", 1)],
    }
    await counter.record("undone", handle)


async def test_r75a_what_was_undone_does_not_count_as_done(counter: Desk) -> None:
    """R55: the reservation was made, and is gone: acceptance asks for one that stands."""
    counter.will_say(reserve(), release(), "Reserved.")
    result = await counter.run({"goal": GOAL, "acceptance": [RESERVED]})
    assert result.status is Status.FAILED
    assert result.findings[0].evidence == "reserve_stock: the ledger says undone, not completed"


async def test_r75a_an_undo_that_is_proposed_again_is_the_same_undo(counter: Desk) -> None:
    """R63, R73: it is told as a repeat, and releases nothing twice."""
    counter.will_say(reserve(), release(), release(), "Done.")
    await counter.run(GOAL)
    assert await kinds(counter) == ["reserved", "released"]
    assert "not executed again" in shown(counter)[0]["repeated"]


async def test_r75a_both_in_one_response_are_done_in_their_order(counter: Desk) -> None:
    """What the undo takes back is what the call before it does, not what the ledger had before the response."""
    counter.will_say(Reply.of(reserve(), release()), Reply.of(reserve(), release()), reserve(), "Done.")
    await counter.run(GOAL)
    assert await kinds(counter) == ["reserved", "released", "reserved", "released", "reserved"]
    assert (await states(counter))["reserve_stock"] == [("completed", 3)]


async def test_r75a_there_is_nothing_to_undo_where_nothing_is_done(counter: Desk) -> None:
    """Nothing is sent; and once something is done, it can be undone."""
    counter.will_say(release(), reserve(), release(), "Done.")
    await counter.run(GOAL)
    first = json.loads(counter.model.requests[1]["messages"][-1]["content"][0]["content"])
    assert (first["status"], "nothing to undo" in first["message"]) == ("not_executed", True)
    assert await kinds(counter) == ["reserved", "released"]


async def test_r75a_an_undo_waits_until_it_is_known_what_there_is_to_undo(counter: Desk) -> None:
    """R74: the reservation's reply is lost; the release of the next turn must not go before it is found."""
    await counter.arm("drop_reply_after_commit")
    await counter.arm("drop_reply_after_commit", of="releases")
    counter.will_say(Reply.of(reserve(), release()), "Done.")
    result = await counter.run({"goal": GOAL, "acceptance": [RELEASED]})
    assert result.status is Status.SUCCEEDED
    assert await kinds(counter) == ["reserved", "released"]
    assert [one.state for one in result.operations] == [OperationState.UNDONE, OperationState.COMPLETED]


async def test_r75a_a_release_of_nothing_and_a_reservation_in_one_response_leave_no_doubt(counter: Desk) -> None:
    """The reservation was to follow the release, which had nothing to release: it isn't sent, and nothing is "lost"."""
    counter.will_say(Reply.of(release(), reserve()), reserve(), "Done.")
    result = await counter.run(GOAL)
    said = shown(counter, 1)
    assert [one["status"] for one in said] == ["not_executed", "not_executed"]
    assert "has not come about" in said[1]["message"]
    assert await kinds(counter) == ["reserved"]
    (operation,) = [one for one in result.operations if one.tool == "reserve_stock"]
    assert (operation.state, operation.generation, operation.sends) == (OperationState.COMPLETED, 1, 1)
    assert await counter.journal(operation) == ["claimed", "succeeded"]


async def test_r75a_a_release_whose_reply_is_lost_is_found_and_undoes(counter: Desk) -> None:
    """R67: the undo is settled like any write; the target's journal says by whom it was undone."""
    await counter.arm("drop_reply_after_commit", of="releases")
    counter.will_say(reserve(), release(), reserve(1), "Done.")
    result = await counter.run(GOAL)
    reserved, released = sorted(result.operations, key=lambda one: one.tool, reverse=True)
    assert await counter.journal(released) == ["claimed", "unclear", "found"]
    rows = await counter.parts.stores.ledger.journal(reserved.key)
    assert [str(row.event) for row in rows] == ["claimed", "succeeded", "undone", "claimed", "succeeded"]
    assert rows[2].body["by"] == released.key
    assert await kinds(counter) == ["reserved", "released", "reserved"]


async def take_back(desk: Desk) -> None:
    """Release the one reservation there is, past the executor."""
    (effect,) = await desk.effects()
    by_hand = {"Idempotency-Key": "by-hand"}
    url = f"{desk.stock.url}/releases"
    (await desk.http.post(url, json={"reservation": effect["key"]}, headers=by_hand)).raise_for_status()


async def test_r55_a_reservation_that_somebody_else_has_taken_back_is_no_evidence(counter: Desk) -> None:
    """The ledger says that it was done, and so it was; the service's own record says that it stands no more."""
    counter.will_say(reserve(), "Reserved.", "It is reserved.")
    await counter.run(GOAL)
    await take_back(counter)
    result = await counter.run({"goal": GOAL, "acceptance": [RESERVED]}, "another")
    assert result.status is Status.FAILED
    assert result.findings[0].evidence.endswith("stands no more")


async def test_what_somebody_else_took_back_may_be_done_again_once_a_person_says_so(counter: Desk) -> None:
    """The ledger can't know: without that word the reservation would be "done already" for ever."""
    counter.will_say(reserve(), "Reserved.", reserve(), "Reserved again.")
    key = (await counter.run(GOAL)).operations[0].key
    await take_back(counter)
    word = {"outcome": "undone", "because": "cancelled at the counter", "who": "anna"}
    await start_settlement(counter.client, key, counter.parts.settings.task_queue)
    settlement = counter.client.get_workflow_handle(settlement_id(key))
    assert (await settlement.execute_update("resolve", word))["state"] == "undone"
    result = await counter.run(GOAL, "again")
    assert await kinds(counter) == ["reserved", "released", "reserved"]
    rows = await counter.parts.stores.ledger.journal(key)
    assert [str(row.event) for row in rows] == ["claimed", "succeeded", "undone", "claimed", "succeeded"]
    assert rows[2].body["who"] == "anna"
    assert result.operations[0].generation == 2


async def test_r75a_release_and_reserve_in_one_response_leave_a_new_reservation(counter: Desk) -> None:
    """What the second call means is told by what the first one takes back."""
    counter.will_say(reserve(), Reply.of(release(), reserve(1)), "Done.")
    result = await counter.run(GOAL)
    assert await kinds(counter) == ["reserved", "released", "reserved"]
    assert (await states(counter))["reserve_stock"] == [("completed", 2)]
    assert result.tally.completed == 2


async def test_r35_another_principal_s_action_is_not_taken_back(counter: Desk) -> None:
    """Nor is what it came to shown, by way of acceptance."""
    counter.will_say(reserve(), "Done.", release(), "Done.")
    await counter.run({"goal": GOAL, "principal": "anna"})
    result = await counter.run({"goal": GOAL, "principal": "bert", "acceptance": [RESERVED]})
    assert await kinds(counter) == ["reserved"]
    assert "another principal's name" in shown(counter)[0]["message"]
    assert result.findings[0].evidence == "reserve_stock: it is an operation of another principal, and not shown"
