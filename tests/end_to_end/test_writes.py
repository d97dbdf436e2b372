"""Writes: each is done once, known not to have been done, or openly unknown and looked up."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from settled.activities.registry import Registry, discover
from settled.activities.toolkit import Answer, Arguments, Call, Scope, write
from settled.activities.tools import stock
from settled.local.messages_script import Reply
from settled.workflows.contract.ending import EndReason, Status, Verdict
from settled.workflows.contract.operation import OperationState
from settled.workflows.contract.task import OnNeedsHuman
from tests.desk import CLERK, Desk, hurried, look_up, open_desk, reserve, status_of, until
from tests.end_to_end.test_loop import results_in

GOAL = "reserve 2 of A1 for order 1001"
RESERVED = {"check": "operation", "tool": "reserve_stock", "arguments": {"order": "1001", "sku": "A1", "quantity": 2}}


def shown(desk: Desk, request: int = -1) -> list[dict[str, Any]]:
    """What the model was shown of the calls' results in a request."""
    return [json.loads(block["content"]) for block in results_in(desk.model.requests[request])]


async def test_a_write_is_done_once_and_accepted_by_the_service_s_own_record(desk: Desk) -> None:
    """R64, R55: evidence names the version of what was looked at."""
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start({"goal": GOAL, "acceptance": [RESERVED]})
    result = await handle.result()
    assert (result.status, result.verdict) == (Status.SUCCEEDED, Verdict.ACCEPTED)
    assert result.findings[0].version.startswith("version ")
    assert await desk.journal(result.operations[0]) == ["claimed", "succeeded"]
    assert len(await desk.effects()) == 1
    assert result.tally.completed == 1
    await desk.record("write_completed", handle)


async def test_r67_a_lost_reply_is_settled_by_lookup_without_a_second_send(desk: Desk) -> None:
    """B38: a time-out or reset is an unknown result, never a failure."""
    await desk.arm("drop_reply_after_commit")
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start({"goal": GOAL, "acceptance": [RESERVED]})
    result = await handle.result()
    operation = result.operations[0]
    assert result.status is Status.SUCCEEDED
    assert await desk.journal(operation) == ["claimed", "unclear", "found"]
    assert (operation.sends, operation.evidence) == (1, "lookup")
    assert (await desk.requests())["POST /reservations"] == 1
    assert shown(desk)[0]["status"] == "completed"
    assert len(await desk.effects()) == 1
    settlement = await desk.settlement(operation)
    await settlement.result()
    await desk.record("unknown_found", handle)
    await desk.record("settlement_found", settlement)


async def test_r68_between_two_sends_there_is_a_lookup_that_said_absent(desk: Desk) -> None:
    """Unknown, absent, second send: in the journal and in the settlement's history."""
    await desk.arm("drop_before_commit")
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start({"goal": GOAL, "acceptance": [RESERVED]})
    result = await handle.result()
    operation = result.operations[0]
    assert result.status is Status.SUCCEEDED
    assert await desk.journal(operation) == ["claimed", "unclear", "absent_resend", "claimed", "succeeded"]
    assert (await desk.requests())["POST /reservations"] == 2
    assert len(await desk.effects()) == 1
    settlement = await desk.settlement(operation)
    await settlement.result()
    await desk.record("unknown_absent_resent", handle)
    await desk.record("settlement_absent", settlement)


@pytest.mark.parametrize("fault", ["bad_gateway_after_commit", "garbage_after_commit"])
async def test_an_answer_that_can_t_be_trusted_is_unknown(desk: Desk, fault: str) -> None:
    """R66, R75: a 502, or a success that can't be read, proves nothing."""
    await desk.arm(fault)
    desk.will_say(reserve(), "Reserved.")
    result = await desk.run({"goal": GOAL, "acceptance": [RESERVED]})
    assert result.status is Status.SUCCEEDED
    assert await desk.journal(result.operations[0]) == ["claimed", "unclear", "found"]
    assert len(await desk.effects()) == 1


async def test_b38_a_service_that_commits_after_the_time_out_is_settled_with_one_effect(desk: Desk) -> None:
    """B43: the attempt's time is over, the service goes on."""
    await desk.arm("commit_after_timeout", seconds=2.5)
    desk.will_say(reserve(), "Reserved.")
    result = await desk.run({"goal": GOAL, "acceptance": [RESERVED]})
    assert result.operations[0].state is OperationState.COMPLETED
    assert result.status is Status.SUCCEEDED
    assert len(await desk.effects()) == 1


async def test_r65_after_a_decline_changed_arguments_are_a_new_generation(desk: Desk) -> None:
    """R37: the model hears the service's own reason; the second request has a key of its own."""
    desk.will_say(reserve(5), reserve(3), "Reserved 3.")
    handle = await desk.start({"goal": "reserve 5 of A1, or what there is"})
    result = await handle.result()
    first, second = shown(desk, 1)[0], shown(desk, 2)[0]
    assert (first["status"], first["error"]) == ("rejected", "rejected")
    assert "3 available" in first["message"]
    assert second["status"] == "completed"
    operation = result.operations[0]
    assert (operation.generation, operation.state) == (2, "completed")
    assert await desk.journal(operation) == ["claimed", "declined", "claimed", "succeeded"]
    assert [effect["key"][-2:] for effect in await desk.effects()] == ["-2"]
    await desk.record("declined_then_changed", handle)


async def test_r65_other_arguments_for_a_completed_action_are_a_conflict_and_nothing_is_sent(desk: Desk) -> None:
    """B53: the fingerprint stays as it was; the same request gets the stored result, another one a refusal."""
    desk.will_say(reserve(2), reserve(1), reserve(2), "Done.")
    result = await desk.run({"goal": GOAL})
    conflict, repeat = shown(desk, 2)[0], shown(desk, 3)[0]
    assert conflict["error"] == "not_executed"
    assert "other arguments" in conflict["message"]
    assert repeat["status"] == "completed"
    assert "not executed again" in repeat["repeated"]
    assert (await desk.requests())["POST /reservations"] == 1
    assert len(result.operations) == 1


async def test_r73_an_accidental_repeat_goes_once_and_a_deliberate_one_goes_by_its_own_field(desk: Desk) -> None:
    """B37, B39, R63: call ids never make an action another one."""
    desk.will_say(reserve(1), reserve(1), reserve(1, line=2), "Done.")
    result = await desk.run({"goal": "reserve 1 of A1, and one more on line 2"})
    assert len(await desk.effects()) == 2
    assert len(result.operations) == 2
    assert "repeated" in shown(desk, 2)[0]
    assert "repeated" not in shown(desk, 3)[0]


async def test_r63_the_same_key_twice_in_one_batch_goes_once(desk: Desk) -> None:
    """The key itself is a resource: the second call waits for the first, and gets its stored result."""
    desk.will_say(Reply.of(reserve(), reserve()), "Reserved.")
    handle = await desk.start({"goal": GOAL})
    result = await handle.result()
    first, second = shown(desk)
    assert first["data"] == second["data"]
    assert "repeated" not in first
    assert "not executed again" in second["repeated"]
    assert len(await desk.effects()) == 1
    assert len(result.operations) == 1
    await desk.record("same_key_twice", handle)


async def test_r63_another_task_s_equal_action_is_the_same_one_within_a_business_scope(desk: Desk) -> None:
    """Its result is shown as done before."""
    desk.will_say(reserve(), "Reserved.", reserve(), "It was reserved.")
    first = await desk.run({"goal": GOAL})
    second = await desk.run({"goal": GOAL, "acceptance": [RESERVED]})
    assert first.operations[0].key == second.operations[0].key
    assert second.status is Status.SUCCEEDED
    assert "not executed again" in shown(desk)[0]["repeated"]
    assert len(await desk.effects()) == 1


async def test_b51_a_closed_id_with_the_same_request_repeats_no_write_and_another_request_is_refused(
    desk: Desk,
) -> None:
    """A re-run shares its keys; the fingerprint of the request tells it from another one."""
    from temporalio.client import WorkflowFailureError

    desk.will_say(reserve(), "Reserved.", reserve(), "Reserved.")
    await desk.run({"goal": GOAL}, task="order-1001")
    again = await desk.run({"goal": GOAL}, task="order-1001")
    assert again.operations[0].sends == 1
    assert len(await desk.effects()) == 1
    with pytest.raises(WorkflowFailureError) as refused:
        await desk.run({"goal": "something else"}, task="order-1001")
    assert "already used for another request" in str(refused.value.cause)


async def test_r74_a_write_waits_for_an_unsettled_one_on_its_resource_across_tasks_and_reads_go_on(
    temporal: Client, tmp_path: Path
) -> None:
    """Nothing is sent on a resource whose last write is unknown; once it is settled, the waiting write goes."""
    async with open_desk(temporal, tmp_path, lookup_most_seconds=0.2) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve(1), reserve(1, order="2002"), look_up(), "There are some.")
        first = await desk.start({"goal": "reserve 1"})
        await until(lambda: waits(first, "being looked up"))
        second = await desk.start({"goal": "reserve 1 for 2002"})
        await until(lambda: waits(second, "lets go"))
        assert (await desk.requests())["POST /reservations"] == 1
        third = await desk.run({"goal": "how many?"})
        assert third.status is Status.UNVERIFIED
        desk.will_say("Reserved.", "Reserved.")
        await desk.http.delete(f"{desk.stock.url}/faults")
        results = [await desk.result(handle) for handle in (first, second)]
        assert [result.operations[0].state for result in results] == ["completed", "completed"]
        assert len(await desk.effects()) == 2
        await desk.record("waited_for_resource", second)


async def waits(handle: Any, text: str) -> bool:
    """Whether the task says that it waits for something of that kind."""
    report = await status_of(handle)
    return report.status is Status.WAITING and any(text in line for line in report.waits_for)


class Ship(Arguments):
    order: str


@write(key=("order",), scope=Scope.TASK, lookup=None, dedupes=None, lands_within=None)
async def ship(asked: Ship, call: Call) -> Answer:
    """Ship an order, by a service that can't be asked afterwards."""
    raise TimeoutError


SHIPPING = hurried(Registry({"ship": ship}), seconds=1.0)
SHIPPER = CLERK.model_copy(update={"tools": ("ship",)})


async def test_what_only_a_person_can_settle_is_waited_for_and_said(temporal: Client, tmp_path: Path) -> None:
    """R46, R66: the task waits, its settlement stays open, and status and list say so."""
    async with open_desk(temporal, tmp_path, registry=SHIPPING, profiles={"shipper": SHIPPER}) as desk:
        from settled.local.messages_script import tool_use

        desk.will_say(tool_use("ship", {"order": "1"}))
        handle = await desk.start("ship order 1")
        await until(lambda: waits(handle, "a person has to find out"))
        report = await status_of(handle)
        assert report.ledger.unsettled[0].state is OperationState.NEEDS_HUMAN
        assert report.ledger.tally.unsettled == 1
        settlement = await desk.settlement(report.ledger.unsettled[0])
        assert (await settlement.describe()).status is WorkflowExecutionStatus.RUNNING
        memo = await (await handle.describe()).memo()
        assert memo["status"] == "waiting"
        await settlement.terminate()
        await handle.terminate()


async def test_a_task_can_be_opened_to_end_where_only_a_person_could_settle(temporal: Client, tmp_path: Path) -> None:
    """R48: `unresolved_operation`, with the operation in the result."""
    ends = SHIPPER.model_copy(update={"on_needs_human": OnNeedsHuman.END})
    async with open_desk(temporal, tmp_path, registry=SHIPPING, profiles={"shipper": ends}) as desk:
        from settled.local.messages_script import tool_use

        desk.will_say(tool_use("ship", {"order": "1"}))
        handle = await desk.start("ship order 1")
        result = await desk.result(handle)
        assert (result.status, result.end_reason) == (Status.FAILED, EndReason.UNRESOLVED_OPERATION)
        assert result.operations[0].state is OperationState.NEEDS_HUMAN
        last = (await desk.parts.stores.transcripts.chain(result.head))[-1].content[0]
        assert json.loads(last["content"])["status"] == "needs_human"
        await desk.record("unresolved_operation", handle)
        await (await desk.settlement(result.operations[0])).terminate()


@write(key=("order",), scope=Scope.TASK, lookup=None, dedupes=None, lands_within=None)
async def odd(asked: Ship, call: Call) -> Any:
    """Do it, and hand back something that has no JSON form."""
    return Answer(data=object(), source="test")


async def test_b33_a_result_that_can_t_be_written_down_is_still_a_done_write(temporal: Client, tmp_path: Path) -> None:
    """The effect counts, with a note; it is never retried."""
    registry = Registry({"odd": odd})
    profiles = {"odd": CLERK.model_copy(update={"tools": ("odd",)})}
    async with open_desk(temporal, tmp_path, registry=registry, profiles=profiles) as desk:
        from settled.local.messages_script import tool_use

        desk.will_say(tool_use("odd", {"order": "1"}), "Done.")
        result = await desk.run("go")
        assert result.operations[0].state is OperationState.COMPLETED
        assert "no JSON form" in shown(desk)[0]["note"]


async def test_a_service_that_can_t_be_reached_is_not_executed_and_no_question_stays_open(desk: Desk) -> None:
    """R75: before send is believed only where it can be known: no connection, first request of the attempt."""
    stock.SETTINGS = stock.StockSettings.model_validate({"url": "http://127.0.0.1:9"})
    desk.will_say(reserve(), "It can't be reached.")
    result = await desk.run({"goal": GOAL})
    assert shown(desk)[0]["error"] == "unavailable"
    assert result.operations[0].state is OperationState.NOT_EXECUTED
    assert result.operations[0].sends == 0


async def test_a_settlement_that_was_ended_by_somebody_is_started_again(temporal: Client, tmp_path: Path) -> None:
    """Rule 10: a timer of the waiting task re-reads, so that no lost signal hangs anyone."""
    async with open_desk(temporal, tmp_path, recheck_seconds=0.5) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start({"goal": GOAL})
        await until(lambda: waits(handle, "being looked up"))
        operation = (await status_of(handle)).ledger.unsettled[0]
        await (await desk.settlement(operation)).terminate()
        await desk.http.delete(f"{desk.stock.url}/faults")
        result = await desk.result(handle)
        assert result.operations[0].state is OperationState.COMPLETED
        assert len(await desk.effects()) == 1


async def test_a_service_that_doesn_t_dedupe_is_only_sent_to_again_when_nothing_can_land(
    temporal: Client, tmp_path: Path
) -> None:
    """Rule 7: without dedupe a resend waits until every attempt is older than `lands_within`."""
    registry = hurried(discover(), seconds=0.5, dedupes=None, lands_within=timedelta(seconds=1))
    async with open_desk(temporal, tmp_path, registry=registry) as desk:
        await desk.arm("drop_before_commit")
        desk.will_say(reserve(), "Reserved.")
        result = await desk.run({"goal": GOAL})
        rows = await desk.parts.stores.ledger.journal(result.operations[0].key)
        events = [str(row.event) for row in rows]
        assert events[:2] == ["claimed", "unclear"]
        assert "absent_so_far" in events
        assert events[-3:] == ["absent_resend", "claimed", "succeeded"]
        again = rows[-3]
        assert again.at > rows[0].body["deadline"] + 1.0
        assert len(await desk.effects()) == 1
