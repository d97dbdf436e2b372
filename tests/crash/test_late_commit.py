"""Writes that land late, or not at all: what a timeout leaves open is looked up before anything is sent again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from settled.workflows.contract.names import DISPATCH
from settled.workflows.contract.operation import Evidence, OperationState, SettlementStep
from settled.workflows.converter import data_converter
from tests.crash.handlers import Stubborn
from tests.crash.operator import scheduled, time_out_soon
from tests.crash.outcomes import (
    TASK,
    assert_reserved_once,
    disarm,
    until_both_succeeded,
    until_it_is,
    until_reserved,
)
from tests.desk import Desk, open_desk, reserve, result_of


async def test_b38_a_commit_after_the_callers_timeout_is_found(desk: Desk) -> None:
    """B38, R66, R67: unknown stays unknown until a lookup finds what landed after everybody had given up."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("commit_after_timeout", seconds=3.0)
    await desk.arm("lookup_fails", times=1000)
    handle = await desk.start(TASK)
    await until_it_is(desk, OperationState.UNKNOWN)
    await until_reserved(desk)
    await disarm(desk)
    result = await result_of(handle)
    await assert_reserved_once(desk, result, "claimed", "unclear", "found", evidence=Evidence.LOOKUP)
    rows = await desk.parts.stores.ledger.journal(result.operations[0].key)
    (given_up,) = [row.at for row in rows if row.event == "unclear"]
    (effect,) = await desk.effects()
    assert given_up < datetime.fromisoformat(effect["at"]).timestamp()


async def test_b43_a_commit_after_the_second_send_is_the_same_reservation(temporal: Client, tmp_path: Path) -> None:
    """B38, B43, route 7: a tool ignores its deadline and writes after another attempt has; both have one key."""
    tool = Stubborn()
    async with open_desk(temporal, tmp_path, registry=tool.registry()) as desk:
        try:
            desk.will_say(reserve(), "Reserved.")
            handle = await desk.start(TASK)
            await until_it_is(desk, OperationState.DISPATCHED)
            await time_out_soon(desk, handle, seconds=1.0)
            result = await result_of(handle)
            journal = ("claimed", "expired", "absent_resend", "claimed", "succeeded")
            await assert_reserved_once(desk, result, *journal, sends=2)
        finally:
            tool.let_go.set()
        await until_both_succeeded(desk)
        await assert_reserved_once(desk, result, *journal, "succeeded", sends=2, posts=2)


async def looked_up_absent_at(desk: Desk, key: str) -> datetime:
    """When the settlement's history has it that a lookup said absent, and that a resend is safe."""
    settlement = desk.client.get_workflow_handle(f"settlement-{key}")
    async for event in settlement.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            (payload,) = event.activity_task_completed_event_attributes.result.payloads
            step: SettlementStep = data_converter.payload_converter.from_payload(payload, SettlementStep)
            if step.view is not None and step.view.state is OperationState.RESENDABLE:
                return event.event_time.ToDatetime()
    raise AssertionError("no lookup in the settlement's history said absent")


async def test_what_was_never_committed_is_sent_again_after_a_lookup_said_absent(desk: Desk) -> None:
    """R68: the lookup stands between the two sends, in the ledger and in the history."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("drop_before_commit")
    handle = await desk.start(TASK)
    result = await result_of(handle)
    journal = ("claimed", "unclear", "absent_resend", "claimed", "succeeded")
    await assert_reserved_once(desk, result, *journal, sends=2, posts=2)
    first, second = [event.event_time.ToDatetime() for event in await scheduled(handle, DISPATCH)]
    assert first < await looked_up_absent_at(desk, result.operations[0].key) < second
