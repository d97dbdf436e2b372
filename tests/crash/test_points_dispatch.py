"""Every step of a dispatch, with a worker process that is killed there (SIGKILL), and one that is frozen (SIGSTOP).

The frozen one is woken when others have settled the operation. Each row of a table says what the service has seen when
it happens, and what the journal must say at last. Reservations are counted at the service, notes in their table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from settled.activities.steady import steady
from settled.workflows.contract.names import DISPATCH, RECONCILE
from settled.workflows.contract.operation import Evidence, OperationState
from tests.crash.conftest import OnStage
from tests.crash.notes import make_room_for_notes, note, noted
from tests.crash.operator import Handle, scheduled
from tests.crash.outcomes import GOAL, TASK, assert_reserved_once, disarm, until_it_is
from tests.crash.processes import SECONDS
from tests.crash.stage import Stage
from tests.crash.traps import Act, Point
from tests.desk import reserve, result_of, until

NONE, DISPATCHED, COMPLETED = OperationState.NONE, OperationState.DISPATCHED, OperationState.COMPLETED
RESENDABLE, UNDONE = OperationState.RESENDABLE, OperationState.UNDONE

SENT = ("claimed", "succeeded")
FOUND = ("claimed", "expired", "found")
MISSED = ("missed", "absent_resend")
LOST = ("claimed", "expired", "absent_resend")
DROPPED = ("claimed", "unclear", "absent_resend")
"""The first send never reached the business, so that there is a second permit."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a dispatch."""

    where: Point
    seen: int
    """How many requests to write the service has received when it happens."""
    stands: OperationState
    """What the ledger says when it happens."""
    posts: int
    """How many requests to write the service has received at last."""
    journal: tuple[str, ...]
    """What the journal says at last."""
    late: tuple[str, ...] = ()
    """What a frozen one adds to it when it is woken."""


FIRST_SEND = (
    Step(where=Point.BEFORE_DISPATCH, seen=0, stands=NONE, posts=1, journal=(*MISSED, *SENT)),
    Step(where=Point.BEFORE_CLAIM, seen=0, stands=NONE, posts=1, journal=(*MISSED, *SENT)),
    Step(where=Point.AFTER_CLAIM, seen=0, stands=DISPATCHED, posts=1, journal=(*LOST, *SENT), late=("late_no",)),
    Step(where=Point.BEFORE_SEND, seen=0, stands=DISPATCHED, posts=1, journal=(*LOST, *SENT)),
    Step(where=Point.IN_FLIGHT, seen=1, stands=DISPATCHED, posts=1, journal=FOUND),
    Step(where=Point.AFTER_ANSWER, seen=1, stands=DISPATCHED, posts=1, journal=FOUND, late=("succeeded",)),
    Step(where=Point.BEFORE_STORE, seen=1, stands=DISPATCHED, posts=1, journal=FOUND, late=("succeeded",)),
    Step(where=Point.AFTER_STORE, seen=1, stands=COMPLETED, posts=1, journal=SENT),
    Step(where=Point.BEFORE_RETURN, seen=1, stands=COMPLETED, posts=1, journal=SENT),
)

RESEND = (
    Step(where=Point.BEFORE_DISPATCH, seen=1, stands=RESENDABLE, posts=2, journal=SENT),
    Step(where=Point.BEFORE_CLAIM, seen=1, stands=RESENDABLE, posts=2, journal=SENT),
    Step(where=Point.AFTER_CLAIM, seen=1, stands=DISPATCHED, posts=2, journal=(*LOST, *SENT), late=("late_no",)),
    Step(where=Point.BEFORE_SEND, seen=1, stands=DISPATCHED, posts=2, journal=(*LOST, *SENT)),
    Step(where=Point.IN_FLIGHT, seen=2, stands=DISPATCHED, posts=2, journal=FOUND),
    Step(where=Point.AFTER_ANSWER, seen=2, stands=DISPATCHED, posts=2, journal=FOUND, late=("succeeded",)),
    Step(where=Point.BEFORE_STORE, seen=2, stands=DISPATCHED, posts=2, journal=FOUND, late=("succeeded",)),
    Step(where=Point.AFTER_STORE, seen=2, stands=COMPLETED, posts=2, journal=SENT),
    Step(where=Point.BEFORE_RETURN, seen=2, stands=COMPLETED, posts=2, journal=SENT),
)
"""Permit 2. The journals begin with `DROPPED`."""

ACTS = pytest.mark.parametrize("act", Act)


def each(steps: Sequence[Any]) -> pytest.MarkDecorator:
    """A test for each row of a table."""
    return pytest.mark.parametrize("step", steps, ids=[str(step.where) for step in steps])


async def falls(stage: Stage, step: Step, act: Act, request: Any, tool: str = "reserve_stock") -> tuple[Handle, Any]:
    """Start a task, and wait until its dispatch has come to the step; returns both."""
    victim = await stage.victim(step.where, act)
    handle = await stage.start(request)
    await stage.falls(victim, step.where, act)
    operation = await stage.one(tool)
    assert (operation.state if operation else NONE) is step.stands
    return handle, victim


async def plays(stage: Stage, step: Step, act: Act) -> None:
    """A reservation, interrupted at the step: killed, or frozen and woken when others are done with it."""
    desk = stage.desk
    desk.will_say(reserve(), "Reserved.")
    if step.where is Point.IN_FLIGHT:
        await desk.arm("hold_reply_after_commit")
    handle, victim = await falls(stage, step, act, TASK)
    assert await stage.requests("POST /reservations") == step.seen
    async with stage.successor():
        await stage.give_up(handle)
        if stage.detour.permit == 2 and step.journal[: len(LOST)] == LOST:
            await stage.hurry(handle, 3)
        result = await result_of(handle)
        late: tuple[str, ...] = ()
        if act is Act.STOP:
            await disarm(desk)
            assert await stage.wakes(victim) == "dispatch answers settled"
            late = step.late
        journal = (*(DROPPED if stage.detour.permit == 2 else ()), *step.journal, *late)
        # What is known not to have been sent is no send.
        sends = journal.count("claimed") - journal.count("late_no")
        evidence = Evidence.LOOKUP if "found" in journal else Evidence.ANSWER
        await assert_reserved_once(desk, result, *journal, sends=sends, posts=step.posts, evidence=evidence)
        await stage.assert_nothing_is_left()


@pytest.mark.long
@ACTS
@each(FIRST_SEND)
async def test_a_dispatch_that_is_interrupted_has_one_effect(on_stage: OnStage, step: Step, act: Act) -> None:
    """Rules 3 to 8 of the protocol, for the first permit."""
    async with on_stage(DISPATCH) as stage:
        await plays(stage, step, act)


@pytest.mark.long
@ACTS
@each(RESEND)
async def test_a_second_send_that_is_interrupted_has_one_effect(on_stage: OnStage, step: Step, act: Act) -> None:
    """Rules 3 to 8 of the protocol, for a permit that a lookup has issued."""
    async with on_stage(DISPATCH, permit=2) as stage:
        await stage.desk.arm("drop_before_commit")
        await plays(stage, step, act)


async def test_a_dispatch_that_is_woken_while_the_next_permit_is_open_does_not_spend_it(
    on_stage: OnStage,
) -> None:
    """Rule 3: a permit is a number. It then serves the dispatch that the next one was issued to."""
    async with on_stage(DISPATCH) as stage:
        stage.desk.will_say(reserve(), "Reserved.")
        handle, victim = await falls(stage, FIRST_SEND[1], Act.STOP, TASK)
        await stage.give_up(handle)
        await until_it_is(stage.desk, RESENDABLE)
        assert await stage.wakes(victim) == "dispatch answers send"
        result = await result_of(handle)
        assert [line for line in victim.said().splitlines() if line.startswith("claim")] == [
            "claim of permit 1 refused",
            "claim of permit 2 granted",
        ]
        await assert_reserved_once(stage.desk, result, *MISSED, *SENT)
        await stage.assert_nothing_is_left()


async def test_before_the_third_send_a_task_waits_two_seconds(on_stage: OnStage) -> None:
    """`pause_before` says so. A permit that is spent too late is void: nobody seemed to want it."""
    async with on_stage(DISPATCH, permit=2) as stage:
        await stage.desk.arm("drop_before_commit")
        stage.desk.will_say(reserve(), "Reserved.")
        handle, _ = await falls(stage, RESEND[2], Act.KILL, TASK)
        await stage.give_up(handle)
        # After the first send, after the second, and when the third permit is there.
        await until(lambda: has_asked(handle, 3))
        assert await until(lambda: pause_of(handle)) <= 2.0


async def has_asked(handle: Handle, times: int) -> bool:
    """Whether the task has asked so often how its operation stands."""
    return len(await scheduled(handle, RECONCILE)) == times


async def pause_of(handle: Handle) -> float:
    """How long the task waits now; 0 while it does something."""
    events = [event async for event in handle.fetch_history_events()]
    for event in reversed(events):
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            return float(event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds())
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            break
    return 0.0


# --- An effect in the ledger's own database ---

AGAIN = ("missed", "nothing_out", *SENT)
"""Not executed, as is known at once; proposed again, it is the next generation."""
TRANSACTION = (
    Step(where=Point.BEFORE_DISPATCH, seen=0, stands=NONE, posts=0, journal=AGAIN),
    Step(where=Point.BEFORE_CLAIM, seen=0, stands=NONE, posts=0, journal=AGAIN),
    Step(where=Point.AFTER_STORE, seen=0, stands=COMPLETED, posts=0, journal=SENT),
    Step(where=Point.BEFORE_RETURN, seen=0, stands=COMPLETED, posts=0, journal=SENT),
)
WITHIN = Step(where=Point.AFTER_ANSWER, seen=0, stands=NONE, posts=0, journal=AGAIN)
"""The note is written, and so is the claim, and neither is committed."""


async def assert_noted_once(stage: Stage, *journal: str) -> None:
    """One note, and a ledger that knows of it."""
    assert await noted(stage.desk) == ["1001"]
    operation = await stage.one("note_order")
    assert operation is not None
    assert (operation.state, operation.sends, operation.evidence) == (COMPLETED, 1, Evidence.ANSWER)
    assert await stage.desk.journal(operation) == list(journal)
    await stage.assert_nothing_is_left()


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "act"),
    [*((step, act) for step in TRANSACTION for act in Act), (WITHIN, Act.KILL)],
    ids=lambda each: str(each.where if isinstance(each, Step) else each),
)
async def test_a_transaction_that_is_interrupted_has_its_effect_or_leaves_nothing(
    on_stage: OnStage, step: Step, act: Act
) -> None:
    """Effect and mark are committed together: what the ledger doesn't have was not done."""
    async with on_stage(DISPATCH, tool="note_order") as stage:
        await make_room_for_notes(stage.desk)
        proposals = [note()] if step.stands is COMPLETED else [note(), note()]
        stage.desk.will_say(*proposals, "Noted.")
        handle, victim = await falls(stage, step, act, "note order 1001", "note_order")
        assert await noted(stage.desk) == (["1001"] if step.stands is COMPLETED else [])
        async with stage.successor():
            await stage.give_up(handle)
            result = await result_of(handle)
            assert [operation.state for operation in result.operations] == [COMPLETED]
            if act is Act.STOP:
                assert await stage.wakes(victim) == "dispatch answers settled"
            await assert_noted_once(stage, *step.journal)


async def test_a_transaction_that_is_frozen_keeps_everybody_out_and_is_done_when_it_is_woken(on_stage: OnStage) -> None:
    """SQLite: who would void its permit waits for its lock. Nobody can have done anything else meanwhile."""
    async with on_stage(DISPATCH, tool="note_order") as stage:
        await make_room_for_notes(stage.desk)
        stage.desk.will_say(note(), "Noted.")
        begun = steady()
        handle, victim = await falls(stage, WITHIN, Act.STOP, "note order 1001", "note_order")
        await stage.give_up(handle)
        await until(lambda: waits_for_the_lock(handle))
        await until(lambda: outlived(begun + SECONDS))
        assert await noted(stage.desk) == []
        assert await stage.wakes(victim) == "dispatch answers settled"
        await result_of(handle)
        await assert_noted_once(stage, *SENT)


async def waits_for_the_lock(handle: Handle) -> bool:
    """Whether somebody is about to ask how things stand."""
    pending = (await handle.describe()).raw_description.pending_activities
    return [each.activity_type.name for each in pending if each.HasField("last_started_time")] == [RECONCILE]


async def outlived(deadline: float) -> bool:
    """Whether the time is over."""
    return steady() > deadline


# --- An undo ---

UNDO = (
    Step(where=Point.BEFORE_STORE, seen=1, stands=DISPATCHED, posts=1, journal=FOUND, late=("succeeded",)),
    Step(where=Point.AFTER_STORE, seen=1, stands=COMPLETED, posts=1, journal=SENT),
)


@pytest.mark.long
@ACTS
@each(UNDO)
async def test_an_undo_that_is_interrupted_is_settled_together_with_what_it_takes_back(
    on_stage: OnStage, step: Step, act: Act
) -> None:
    """The reservation is undone when the release is known to be done, and not before."""
    async with on_stage(DISPATCH, tool="release_stock") as stage:
        desk = stage.desk
        release = reserve() | {"name": "release_stock", "input": {"order": "1001", "sku": "A1"}}
        desk.will_say(reserve(), release, "Released.")
        handle, victim = await falls(stage, step, act, GOAL, "release_stock")
        assert await stage.requests("POST /releases") == step.seen
        reserved = await stage.one()
        assert reserved is not None
        assert reserved.state is (UNDONE if step.stands is COMPLETED else COMPLETED)
        async with stage.successor():
            await stage.give_up(handle)
            result = await result_of(handle)
            assert {each.tool: each.state for each in result.operations} == {
                "reserve_stock": UNDONE,
                "release_stock": COMPLETED,
            }
            late: tuple[str, ...] = ()
            if act is Act.STOP:
                assert await stage.wakes(victim) == "dispatch answers settled"
                late = step.late
            released = await stage.one("release_stock")
            assert released is not None
            assert await desk.journal(released) == [*step.journal, *late]
            assert await desk.journal(reserved) == [*SENT, "undone"]
            assert [effect["kind"] for effect in await desk.effects()] == ["reserved", "released"]
            assert await stage.requests("POST /releases") == step.posts
            await stage.assert_nothing_is_left()
