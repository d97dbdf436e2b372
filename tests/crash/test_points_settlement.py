"""Every step of a settlement, with a worker process that is killed there (SIGKILL), and one that is frozen (SIGSTOP).

Another worker takes over, and the frozen one is woken when all is done. Each row of a table says what the service has
seen when it happens, what the ledger says then, and whether those who wait have been told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from settled.workflows.contract.ending import Status
from settled.workflows.contract.names import RESOLVE, SETTLE, SETTLEMENT_RESOLVE
from settled.workflows.contract.operation import Evidence, OperationState, OperationView
from settled.workflows.states import Event
from tests.crash.conftest import OnStage
from tests.crash.operator import Handle
from tests.crash.outcomes import GOAL, TASK, assert_reserved_once, disarm, until_it_is
from tests.crash.stage import Stage
from tests.crash.traps import Act, Point
from tests.desk import reserve, result_of, status_of, until

pytestmark = pytest.mark.long

UNKNOWN, RESENDABLE, COMPLETED = OperationState.UNKNOWN, OperationState.RESENDABLE, OperationState.COMPLETED
NOT_EXECUTED, NEEDS_HUMAN = OperationState.NOT_EXECUTED, OperationState.NEEDS_HUMAN
LOOKUP = "GET /reservations/{key}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a settlement."""

    where: Point
    lookups: int
    """How many lookups the service has received when it happens, those that were to fail left out."""
    stands: OperationState
    """What the ledger says when it happens."""
    woken: int = 0
    """How often the task that waits was told when it happens."""


ACTS = pytest.mark.parametrize("act", Act)


def each(steps: Sequence[Step]) -> pytest.MarkDecorator:
    """A test for each row of a table."""
    return pytest.mark.parametrize("step", steps, ids=[str(step.where) for step in steps])


async def assert_it_stands(stage: Stage, step: Step, operation: OperationView, waits: Handle) -> None:
    """The ledger, and whoever waits, when the worker process is dead or stopped."""
    standing = await stage.desk.parts.stores.ledger.read(operation.key)
    assert standing is not None
    assert standing.state is step.stands
    assert await stage.times_woken(waits) == step.woken


async def until_there_is(stage: Stage) -> OperationView:
    """Wait until the ledger has the operation."""
    operation = await until(stage.one)
    assert isinstance(operation, OperationView)
    return operation


FOUND = (
    Step(where=Point.BEFORE_SETTLE, lookups=0, stands=UNKNOWN),
    Step(where=Point.BEFORE_LOOKUP, lookups=0, stands=UNKNOWN),
    Step(where=Point.AFTER_LOOKUP, lookups=1, stands=UNKNOWN),
    Step(where=Point.AFTER_ROW, lookups=1, stands=COMPLETED),
    Step(where=Point.AFTER_WAKE, lookups=1, stands=COMPLETED, woken=1),
)
"""The service did it, and its answer was lost."""

ABSENT = (
    Step(where=Point.BEFORE_SETTLE, lookups=0, stands=UNKNOWN),
    Step(where=Point.BEFORE_LOOKUP, lookups=0, stands=UNKNOWN),
    Step(where=Point.AFTER_LOOKUP, lookups=1, stands=UNKNOWN),
    Step(where=Point.AFTER_ROW, lookups=1, stands=RESENDABLE),
)
"""The service didn't do it, and a task waits: the next permit is issued."""


async def settles(stage: Stage, step: Step, act: Act, row: Event, *journal: str, posts: int) -> None:
    """A settlement, interrupted at the step: killed, or frozen and woken when another worker has gone on from there."""
    desk = stage.desk
    desk.will_say(reserve(), "Reserved.")
    victim = await stage.victim(step.where, act, row)
    handle = await stage.start(TASK)
    await stage.falls(victim, step.where, act)
    operation = await until_there_is(stage)
    assert await stage.requests(LOOKUP) == step.lookups
    await assert_it_stands(stage, step, operation, handle)
    async with stage.successor():
        await stage.give_up(await desk.settlement(operation))
        result = await result_of(handle)
        if act is Act.STOP:
            await stage.wakes(victim)
        evidence = Evidence.LOOKUP if row is Event.FOUND else Evidence.ANSWER
        await assert_reserved_once(desk, result, *journal, sends=posts, posts=posts, evidence=evidence)
        assert await stage.times_woken(handle) == 1
        await stage.assert_nothing_is_left()


@ACTS
@each(FOUND)
async def test_a_settlement_that_is_interrupted_finds_what_was_done(on_stage: OnStage, step: Step, act: Act) -> None:
    """R67: however often it is looked up, it is found once, nothing is sent, and the task is told once."""
    async with on_stage(SETTLE) as stage:
        await stage.desk.arm("drop_reply_after_commit")
        await settles(stage, step, act, Event.FOUND, "claimed", "unclear", "found", posts=1)


@ACTS
@each(ABSENT)
async def test_a_settlement_that_is_interrupted_issues_one_permit(on_stage: OnStage, step: Step, act: Act) -> None:
    """R68: an old answer that it is absent issues no permit after the next send."""
    async with on_stage(SETTLE) as stage:
        await stage.desk.arm("drop_before_commit")
        journal = ("claimed", "unclear", "absent_resend", "claimed", "succeeded")
        await settles(stage, step, act, Event.ABSENT_RESEND, *journal, posts=2)


@ACTS
async def test_a_settlement_that_is_interrupted_when_the_task_has_its_permit_is_not_needed(
    on_stage: OnStage, act: Act
) -> None:
    """The task was told, and sends, while the settlement's step has not ended."""
    async with on_stage(SETTLE) as stage:
        desk = stage.desk
        await desk.arm("drop_before_commit")
        desk.will_say(reserve(), "Reserved.")
        victim = await stage.victim(Point.AFTER_WAKE, act, Event.ABSENT_RESEND)
        handle = await stage.start(TASK)
        await stage.falls(victim, Point.AFTER_WAKE, act)
        result = await result_of(handle)
        if act is Act.STOP:
            await stage.wakes(victim)
        async with stage.successor():
            journal = ("claimed", "unclear", "absent_resend", "claimed", "succeeded")
            await assert_reserved_once(desk, result, *journal, sends=2, posts=2)
            assert await stage.times_woken(handle) == 1
            if act is Act.KILL:
                await stage.give_up(await desk.settlement(await until_there_is(stage)))
            await stage.assert_nothing_is_left()


# --- Nobody waits for the result, but another task for the resource ---

FINAL = (
    Step(where=Point.AFTER_LOOKUP, lookups=1, stands=UNKNOWN),
    Step(where=Point.AFTER_ROW, lookups=1, stands=NOT_EXECUTED),
    Step(where=Point.AFTER_WAKE, lookups=1, stands=NOT_EXECUTED, woken=1),
)


async def waits(handle: Handle) -> bool:
    """Whether the task says that it waits."""
    return bool((await status_of(handle)).waits_for)


@ACTS
@each(FINAL)
async def test_a_settlement_that_is_interrupted_lets_go_of_what_was_not_executed(
    on_stage: OnStage, step: Step, act: Act
) -> None:
    """R69, R74: the first task was terminated; the second one, for the same article, waits for its operation."""
    async with on_stage(SETTLE) as stage:
        desk = stage.desk
        desk.will_say(reserve(), reserve(order="2002"), "Reserved.")
        await desk.arm("drop_before_commit")
        await desk.arm("lookup_fails", times=1000)
        victim = await stage.victim(step.where, act, Event.ABSENT_FINAL)
        first = await stage.start(GOAL)
        operation = await until_it_is(desk, UNKNOWN)
        await first.terminate()
        second = await stage.start("reserve 2 of A1 for order 2002")
        await until(lambda: waits(second))
        await disarm(desk)
        await stage.falls(victim, step.where, act)
        await assert_it_stands(stage, step, operation, second)
        async with stage.successor():
            await stage.give_up(await desk.settlement(operation))
            result = await result_of(second)
            if act is Act.STOP:
                await stage.wakes(victim)
            assert await stage.times_woken(second) >= 1
            assert (result.status, result.operations[0].state) == (Status.UNVERIFIED, COMPLETED)
            assert await desk.journal(result.operations[0]) == ["claimed", "succeeded"]
            rows = [event for event in await desk.journal(operation) if event not in ("lookup_failed", "absent_so_far")]
            assert rows == ["claimed", "unclear", "absent_final"]
            assert [effect["order"] for effect in await desk.effects()] == ["2002"]
            await stage.assert_nothing_is_left()


# --- A person's word ---

WORD = (
    Step(where=Point.BEFORE_RESOLVE, lookups=0, stands=NEEDS_HUMAN, woken=1),
    Step(where=Point.BEFORE_WORD, lookups=0, stands=NEEDS_HUMAN, woken=1),
    Step(where=Point.AFTER_ROW, lookups=0, stands=COMPLETED, woken=1),
    Step(where=Point.AFTER_WAKE, lookups=0, stands=COMPLETED, woken=2),
)
"""The task was told once before: that a person is needed."""
SAID = {"outcome": "completed", "because": "it is in the warehouse's book", "who": "kim"}


@ACTS
@each(WORD)
async def test_a_person_s_word_that_is_interrupted_counts_once(on_stage: OnStage, step: Step, act: Act) -> None:
    """R46: one row, with the word in it; the task goes on at once, and the person gets an answer."""
    async with on_stage(RESOLVE, changes={"lookup": None}) as stage:
        desk = stage.desk
        desk.will_say(reserve(), "Reserved.")
        await desk.arm("drop_reply_after_commit")
        victim = await stage.victim(step.where, act, Event.RESOLVED_COMPLETED)
        handle = await stage.start(GOAL)
        operation = await until_it_is(desk, NEEDS_HUMAN)
        await until(lambda: stage.times_woken(handle))
        settlement = await desk.settlement(operation)
        # A step of the settlement that is still under way would find the victim's row, and tell the task of it.
        await stage.until_quiet(handle, settlement)
        word: asyncio.Task[Any] = asyncio.create_task(settlement.execute_update(SETTLEMENT_RESOLVE, SAID, id="word-1"))
        await stage.falls(victim, step.where, act)
        assert await stage.requests(LOOKUP) == step.lookups
        await assert_it_stands(stage, step, operation, handle)
        async with stage.successor():
            await stage.give_up(settlement)
            assert (await word)["state"] == COMPLETED
            result = await result_of(handle)
            if act is Act.STOP:
                assert await stage.wakes(victim) == "resolve answers heard"
            assert await stage.times_woken(handle) == 2
            assert (result.status, result.operations[0].state) == (Status.UNVERIFIED, COMPLETED)
            assert result.operations[0].evidence is Evidence.PERSON
            assert await desk.journal(operation) == ["claimed", "unclear", "handed_to_person", "resolved_completed"]
            assert len(await desk.effects()) == 1
            assert await stage.requests("POST /reservations") == 1
            await stage.assert_nothing_is_left()
