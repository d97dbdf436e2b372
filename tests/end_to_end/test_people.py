"""People: an operation that only a person can settle, and their word on it, by both command lines."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowUpdateFailedError

from settled.activities.agents import ProfileLimits
from settled.activities.journal import Row
from settled.activities.registry import Registry
from settled.activities.toolkit import Answer, Arguments, Call, Found, LookupAnswer, Scope, Several, write
from settled.activities.waking import start_settlement
from settled.local.messages_script import tool_use
from settled.worker.asking import NotTaken, give_word
from settled.worker.settings import Settings
from settled.workflows.contract.ending import Status
from settled.workflows.contract.names import RESOLVE, SETTLEMENT_RESOLVE, settlement_id
from settled.workflows.contract.operation import Evidence, OperationState, OperationView, Resolution, Resolved
from settled.workflows.contract.result import TaskResult
from settled.workflows.loop import recheck_after
from settled.workflows.states import Event
from tests.crash.operator import address_of, run_temporal, scheduled
from tests.desk import CLERK, Desk, hurried, open_desk, reserve, status_of, until
from tests.end_to_end.test_writes import shown, waits
from tests.worker.command import SETTLED, Said, settled, settled_process

RECHECK_SECONDS = 600.0
"""Who goes on before that was told, and did not just ask again."""
SETTLING = (Resolved.COMPLETED, Resolved.NOT_EXECUTED)
WORD = {"outcome": "completed", "because": "the parcel is at the door", "who": "ada"}


class Ship(Arguments):
    order: str


def shipping(*, lookup: Any = None, handler: Any = None) -> Registry:
    """A registry with one write, `ship`, whose reply is lost."""

    async def ship(asked: Ship, call: Call) -> Answer:
        """Ship an order."""
        raise ConnectionResetError

    made = write(key=("order",), scope=Scope.TASK, lookup=lookup, dedupes=None, lands_within=None)
    return hurried(Registry({"ship": made(handler or ship)}), seconds=1.0)


@asynccontextmanager
async def shipping_desk(
    client: Client, folder: Path, registry: Registry | None = None, **settings: Any
) -> AsyncIterator[Desk]:
    """A desk where orders are shipped, and a task that waits has to be told."""
    profiles = {"shipper": CLERK.model_copy(update={"tools": ("ship",), "limits": ProfileLimits(wall_seconds=10**7)})}
    known = {"recheck_seconds": RECHECK_SECONDS, "patience_seconds": 0.2} | settings
    async with open_desk(client, folder, registry=registry or shipping(), profiles=profiles, **known) as desk:
        yield desk


@pytest.fixture
async def shipper(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk where orders are shipped by a service that can't be asked afterwards."""
    async with shipping_desk(temporal, tmp_path) as desk:
        yield desk


async def until_a_person_is_asked(desk: Desk, *last: Any) -> tuple[WorkflowHandle[Any, Any], OperationView]:
    """Start a task that ships an order, and wait until it waits for a person."""
    desk.will_say(tool_use("ship", {"order": "1"}), *last)
    handle = await desk.start("ship order 1")
    await until(lambda: waits(handle, "a person has to find out"))
    return handle, (await status_of(handle)).ledger.unsettled[0]


async def command(desk: Desk, *words: str) -> Said:
    """Run `settled` at the desk, in the test's own process."""
    known = desk.parts.settings
    places = {"TEMPORAL_ADDRESS": address_of(desk), "SETTLED_TASK_QUEUE": known.task_queue}
    return await settled(known.database_url, *words, **places)


async def by_temporal(desk: Desk, operation: OperationView, word: Any) -> tuple[int, str]:
    """Say a word by the plain Temporal command line, as the README does."""
    which = ("--workflow-id", settlement_id(operation.key), "--name", SETTLEMENT_RESOLVE)
    return await run_temporal(desk, "workflow", "update", "execute", *which, "--input", json.dumps(word))


async def rows_of(desk: Desk, operation: OperationView) -> list[Row]:
    """The operation's journal."""
    return await desk.parts.stores.ledger.journal(operation.key)


async def test_r66_the_word_of_a_person_by_the_temporal_command_line_lets_the_task_go_on_at_once(shipper: Desk) -> None:
    """R46: the task waits and says so, the list has it; who, when and why are in the journal, and the model is told."""
    desk = shipper
    handle, operation = await until_a_person_is_asked(desk, "Shipped.")
    assert (await status_of(handle)).status is Status.WAITING
    listed = await command(desk, "operations", "--state", "needs_human", "--json")
    assert [json.loads(line)["key"] for line in listed.lines] == [operation.key]
    code, said = await by_temporal(desk, operation, WORD)
    assert code == 0, said
    result = await desk.result(handle)
    assert [(one.state, one.evidence, one.sends) for one in result.operations] == [("completed", Evidence.PERSON, 1)]
    (told,) = shown(desk)
    assert (told["status"], told["source"], told["note"]) == ("completed", "ada, a person", WORD["because"])
    rows = await rows_of(desk, operation)
    assert [str(row.event) for row in rows] == ["claimed", "unclear", "handed_to_person", "resolved_completed"]
    assert {name: rows[-1].body[name] for name in ("who", "because")} == {"who": "ada", "because": WORD["because"]}
    assert rows[-2].at < rows[-1].at
    settlement = await desk.settlement(operation)
    assert (await settlement.result()).settled
    await desk.record("resolved_by_person", handle)
    await desk.record("settlement_resolved", settlement)


async def test_r66_settled_operations_resolve_does_the_same_and_prints_the_operation(shipper: Desk) -> None:
    """The real command, in a process of its own: the model is told that it did not happen, and why."""
    desk = shipper
    handle, operation = await until_a_person_is_asked(desk, "It was not shipped.")
    known = desk.parts.settings
    places = {
        "TEMPORAL_ADDRESS": address_of(desk),
        "SETTLED_TASK_QUEUE": known.task_queue,
        "SETTLED_DATABASE_URL": known.database_url,
    }
    word = ("--not-executed", "--because", "the shelf is full", "--who", "grace")
    said = await settled_process("operations", "resolve", operation.key[:8], *word, **places)
    assert (said.code, said.err) == (0, "")
    assert "not_executed, by person; generation 1, 1 sent" in said.out
    assert said.lines[-1].endswith("grace says: the shelf is full")
    result = await desk.result(handle)
    assert [one.state for one in result.operations] == [OperationState.NOT_EXECUTED]
    (told,) = shown(desk)
    assert (told["status"], told["error"]) == ("not_executed", "not_executed")
    assert "A person has found that it did not happen: the shelf is full (grace)" in told["message"]


async def test_a_second_word_is_refused_with_who_said_the_first(shipper: Desk) -> None:
    """By both commands; the settlement that is started for it closes again."""
    desk = shipper
    handle, operation = await until_a_person_is_asked(desk, "Shipped.")
    await by_temporal(desk, operation, WORD)
    await desk.result(handle)
    line = f"operation {operation.key[:12]} is completed already, says ada"
    second = await command(desk, "operations", "resolve", operation.key, "--not-executed", "--because", "no")
    assert (second.code, second.err) == (1, f"settled: {line}\n")
    word = Resolution(outcome=Resolved.NOT_EXECUTED, because="no", who="bob")
    queue = desk.parts.settings.task_queue
    with pytest.raises(NotTaken, match=line):
        await give_word(desk.client, operation.key, word, task_queue=queue, seconds=20.0)
    assert (await (await desk.settlement(operation)).result()).settled
    assert [row.event for row in await rows_of(desk, operation)].count(Event.RESOLVED_COMPLETED) == 1


async def test_a_slip_in_a_word_is_refused_and_does_not_drop_what_was_meant(shipper: Desk) -> None:
    """A mistyped `generation` would be no guard at all. Every slip is named, and nothing stands in the journal."""
    desk = shipper
    _, operation = await until_a_person_is_asked(desk)
    before = await desk.journal(operation)
    code, said = await by_temporal(desk, operation, WORD | {"genration": 7, "because": ""})
    assert code == 1
    assert "because: say how you know; genration: unknown field; the fields are outcome, because, who, gener" in said
    assert await desk.journal(operation) == before


async def test_the_exit_code_of_a_word_does_not_depend_on_whether_the_operation_can_be_shown(shipper: Desk) -> None:
    """It is taken; nobody reads what it came to."""
    desk = shipper
    handle, operation = await until_a_person_is_asked(desk, "Shipped.")
    known = desk.parts.settings
    places = {
        "TEMPORAL_ADDRESS": address_of(desk),
        "SETTLED_TASK_QUEUE": known.task_queue,
        "SETTLED_DATABASE_URL": known.database_url,
    }
    reader, writer = os.pipe()
    os.close(reader)
    words = ("operations", "resolve", operation.key[:8], "--completed", "--because", "seen", "--who", "grace")
    process = await asyncio.create_subprocess_exec(
        *(SETTLED, *words), env=os.environ | places, stdout=writer, stderr=asyncio.subprocess.PIPE
    )
    os.close(writer)
    _, said = await process.communicate()
    assert await process.wait() == 0
    assert said.decode().startswith("settled: the word is taken; the operation can't be shown now: ")
    assert (await desk.result(handle)).operations[0].evidence is Evidence.PERSON


async def test_two_people_at_once_are_one_word(shipper: Desk) -> None:
    """The first one counts, and the other one is told whose it was."""
    desk = shipper
    handle, operation = await until_a_person_is_asked(desk, "Well.")
    settlement = await desk.settlement(operation)
    words = [WORD | {"who": f"person {number}", "outcome": outcome} for number, outcome in enumerate(SETTLING)] * 2
    said = await asyncio.gather(
        *(settlement.execute_update(SETTLEMENT_RESOLVE, word) for word in words), return_exceptions=True
    )
    refusals = [error.cause.message for error in said if isinstance(error, WorkflowUpdateFailedError)]  # type: ignore[attr-defined]  # an ApplicationError
    assert len(refusals) == len(words) - 1
    heard = [row for row in await rows_of(desk, operation) if "who" in row.body]
    first, *refused = heard
    assert all(f"already, says {first.body['who']}" in refusal for refusal in refusals), refusals
    assert {row.event for row in refused} == {Event.WORD_REFUSED}
    assert (await desk.result(handle)).operations[0].evidence is Evidence.PERSON


async def test_a_word_on_what_needs_none_is_refused_with_the_reason(temporal: Client, tmp_path: Path) -> None:
    """It is still being looked up; both command lines say so in one line, and nothing changes."""
    async with open_desk(temporal, tmp_path) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve(), "Reserved.")
        handle = await desk.start("reserve 2 of A1 for order 1001")
        await until(lambda: waits(handle, "being looked up"))
        operation = (await status_of(handle)).ledger.unsettled[0]
        line = "is unknown, not needs_human: it is being looked up; a person is asked once that leads nowhere"
        code, said = await by_temporal(desk, operation, WORD)
        assert (code, line in said) == (1, True), said
        refused = await command(desk, "operations", "resolve", operation.key, "--completed", "--because", "seen")
        assert (refused.code, len(refused.err.splitlines()), line in refused.err) == (1, 1, True)
        await desk.http.delete(f"{desk.stock.url}/faults")
        assert (await desk.result(handle)).operations[0].evidence is Evidence.LOOKUP
        assert "resolved_completed" not in await desk.journal(operation)


async def test_a_word_on_an_operation_that_isn_t_there_is_refused(shipper: Desk) -> None:
    """The settlement that it starts finds nothing, and closes."""
    word = Resolution.model_validate(WORD)
    queue = shipper.parts.settings.task_queue
    with pytest.raises(NotTaken, match="the ledger has no such operation"):
        await give_word(shipper.client, "0" * 64, word, task_queue=queue, seconds=20.0)
    handle = shipper.client.get_workflow_handle(settlement_id("0" * 64))
    await handle.result()


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"outcome": "done"}, "outcome: must be completed, not_executed or undone, not 'done'"),
    ({"outcome": None}, "outcome: "),
    ({"outcome": ["completed"]}, "outcome: "),
    ({"because": ""}, "because: say how you know"),
    ({"because": " \n"}, "because: say how you know"),
    ({"because": 7}, "because: must be text"),
    ({"because": "x" * 2_001}, "because: at most 2,000 characters"),
    ({"who": ""}, "who: say who you are"),
    ({"who": "x" * 201}, "who: at most 200 characters"),
    ({"who": None}, "who: say who you are"),
]


async def test_a_malformed_word_is_one_clear_line_and_changes_nothing(shipper: Desk) -> None:
    """Each field, and each way of not giving a word at all."""
    desk = shipper
    handle, operation = await until_a_person_is_asked(desk, "Shipped.")
    settlement = await desk.settlement(operation)
    odd: list[tuple[Sequence[Any], str]] = [([WORD | wrong], line) for wrong, line in MALFORMED]
    odd += [([{"outcome": "completed"}], "because: say how you know; who: say who you are")]
    odd += [(words, "input: ") for words in ([], ["completed"], [None], [WORD, WORD], [[WORD]])]
    for words, line in odd:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await settlement.execute_update(SETTLEMENT_RESOLVE, args=words)
        message = refused.value.cause.message  # type: ignore[attr-defined]  # an ApplicationError
        assert message.startswith(line), (words, message)
        assert len(message.splitlines()) == 1
    code, said = await by_temporal(desk, operation, {"outcome": "done", "because": "", "who": "ada"})
    assert code == 1
    assert len(said.strip().splitlines()) == 1
    assert "because: say how you know" in said
    assert len(await rows_of(desk, operation)) == 3
    code, said = await by_temporal(desk, operation, WORD | {"because": "x" * 2_000})
    assert code == 0, said
    await desk.result(handle)


async def test_a_word_that_a_reset_re_applies_changes_nothing(shipper: Desk) -> None:
    """Facts 2.3, 5: by then it would be a word on another generation, which nobody has looked up."""
    desk = shipper
    again = tool_use("ship", {"order": "1"})
    handle, operation = await until_a_person_is_asked(desk, again, "Shipped.")
    first = await desk.settlement(operation)
    await by_temporal(desk, operation, WORD | {"outcome": "not_executed"})

    async def asks_again() -> bool:
        unsettled = (await status_of(handle)).ledger.unsettled
        return [one.generation for one in unsettled if one.state is OperationState.NEEDS_HUMAN] == [2]

    await until(asks_again)
    before = [str(row.event) for row in await rows_of(desk, operation)]
    for run in await runs_of(desk, operation):
        if await scheduled(run, RESOLVE):
            first = run
    await reset_to_before_the_word(desk, first)
    run = await desk.settlement(operation)
    await until(lambda: heard(run))
    await until(lambda: looks_again(desk, operation))
    assert [str(row.event) for row in await rows_of(desk, operation)] == before
    assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING
    code, said = await by_temporal(desk, operation, WORD)
    assert code == 0, said
    assert [one.generation for one in (await desk.result(handle)).operations] == [2]
    assert (await rows_of(desk, operation))[-1].generation == 2
    assert (await run.result()).settled
    await desk.record("settlement_word_again", run)


async def runs_of(desk: Desk, operation: OperationView) -> list[WorkflowHandle[Any, Any]]:
    """Every run of the operation's settlement."""
    name = settlement_id(operation.key)

    async def found() -> list[str]:
        return [one.run_id async for one in desk.client.list_workflows(f'WorkflowId="{name}"')]

    return [desk.client.get_workflow_handle(name, run_id=run) for run in await until(found)]


async def reset_to_before_the_word(desk: Desk, run: WorkflowHandle[Any, Any]) -> None:
    """Reset the settlement, by the plain command line, to before it was given its word."""
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    first = [event.event_id async for event in run.fetch_history_events() if event.event_type == completed]
    which = ("--workflow-id", run.id, "--run-id", str(run.run_id), "--event-id", str(first[0]))
    code, said = await run_temporal(desk, "workflow", "reset", *which, "--reason", "an operator tries again")
    assert code == 0, said


async def heard(run: WorkflowHandle[Any, Any]) -> bool:
    """Whether the run was given its word again, and has taken it to the ledger."""
    done = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED
    return any([event.event_type == done async for event in run.fetch_history_events()])


async def looks_again(desk: Desk, operation: OperationView) -> bool:
    """Whether the settlement's last step found the operation as it is."""
    step = await (await desk.settlement(operation)).query("status")
    return bool(step and step["view"]["state"] == OperationState.NEEDS_HUMAN)


async def several(asked: Ship, call: Call) -> LookupAnswer:
    return Several([{"parcel": 1}, {"parcel": 2}])


async def another(asked: Ship, call: Call) -> LookupAnswer:
    answer = Answer(data=1, source="test")
    return Found(key=call.idempotency_key, request={"order": "9\x1b[31m"}, answer=answer)


@pytest.mark.parametrize(
    ("lookup", "note", "found"),
    [
        (several, "the lookup found several records", '[{"parcel": 1}, {"parcel": 2}]'),
        (another, "the lookup found a record that shows another request under our key", '"order": "9'),
    ],
)
async def test_a_lookup_that_finds_what_it_can_t_decide_shows_it_to_a_person(
    temporal: Client, tmp_path: Path, lookup: Any, note: str, found: str
) -> None:
    """DESIGN, rule 10: with what was found."""
    async with shipping_desk(temporal, tmp_path, shipping(lookup=lookup), patience_seconds=60.0) as desk:
        handle, operation = await until_a_person_is_asked(desk, "Shipped.")
        told = await command(desk, "operations", "show", operation.key)
        assert f"handed_to_person needs_human - {note}; found " in " ".join(told.out.split())
        assert found in told.lines[-1]
        assert told.lines[-1].isprintable()
        said = await command(desk, "operations", "resolve", operation.key, "--completed", "--because", "parcel 2")
        assert said.code == 0, said
        assert [one.state for one in (await desk.result(handle)).operations] == [OperationState.COMPLETED]


async def test_a_late_success_after_a_person_s_no_is_a_fact_with_an_alarm(temporal: Client, tmp_path: Path) -> None:
    """Rule 8: outcomes are never refused; the list has those that may have had two effects."""
    let_go = asyncio.Event()

    async def ship(asked: Ship, call: Call) -> Answer:
        """Ship an order; the attempt's time is over long before it comes back."""
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return Answer(data={"shipped": asked.order}, source="test")

    async with shipping_desk(temporal, tmp_path, shipping(handler=ship)) as desk:
        desk.will_say(tool_use("ship", {"order": "1"}), "Shipped.")
        handle = await desk.start("ship order 1")
        ledger = desk.parts.stores.ledger
        (listed,) = await until(ledger.listed)
        operation = listed.view
        await start_settlement(desk.client, operation.key, desk.parts.settings.task_queue)

        async def asks_a_person() -> bool:
            return "handed_to_person" in await desk.journal(operation)

        await until(asks_a_person)
        said = await command(desk, "operations", "resolve", operation.key, "--not-executed", "--because", "no trace")
        assert said.code == 0, said
        assert (await command(desk, "operations", "--alarms")).lines[1:] == []
        let_go.set()
        result = await desk.result(handle)
        assert [one.state for one in result.operations] == [OperationState.COMPLETED]
        events = ["claimed", "expired", "handed_to_person", "resolved_not_executed", "succeeded"]
        assert await desk.journal(operation) == events
        alarmed = await command(desk, "operations", "--alarms", "--json")
        assert [(json.loads(line)["key"], json.loads(line)["alarms"]) for line in alarmed.lines] == [(operation.key, 1)]
        told = await command(desk, "operations", "show", operation.key)
        assert "ALARM: it had been settled as not done" in told.out


async def test_without_a_worker_a_word_is_one_line_that_says_so(shipper: Desk) -> None:
    """Nobody knows then whether it will be taken; the line says that, too."""
    handle, operation = await until_a_person_is_asked(shipper, "Shipped.")
    await (await shipper.settlement(operation)).terminate()
    queue = f"nobody-serves-{shipper.parts.settings.task_queue}"
    words = ("resolve", operation.key, "--completed", "--because", "seen", "--timeout", "1")
    places = {
        "TEMPORAL_ADDRESS": address_of(shipper),
        "SETTLED_TASK_QUEUE": queue,
        "SETTLED_DATABASE_URL": shipper.parts.settings.database_url,
    }
    said = await settled_process("operations", *words, **places)
    assert (said.code, said.out) == (1, "")
    assert len(said.err.splitlines()) == 1, said.err
    assert f"no worker has answered within 1 seconds; is one running that serves task queue {queue}" in said.err
    await handle.terminate()


async def test_a_task_that_waits_for_weeks_asks_seldom_and_is_carried_from_run_to_run(
    temporal: Client, tmp_path: Path
) -> None:
    """Its waits grow up to an hour, and a wait costs so few events that a run lasts for weeks; a new one goes on."""
    async with shipping_desk(temporal, tmp_path, recheck_seconds=0.02, cut_events=50) as desk:
        handle, operation = await until_a_person_is_asked(desk, "Shipped.")

        async def carried() -> bool:
            described = await handle.describe()
            return described.run_id != handle.first_execution_run_id and await waits(handle, "a person has to find out")

        await until(carried, 30.0)
        first = desk.client.get_workflow_handle(handle.id, run_id=handle.first_execution_run_id)
        waited = await waits_in(first)
        assert len(waited) > 3
        assert [seconds for _, seconds in waited] == [0.02 * 2**asked for asked in range(len(waited))]
        assert recheck_after(60.0, 20) == timedelta(hours=1)
        events = max(after - before for (before, _), (after, _) in pairwise(waited))
        assert timedelta(hours=Settings().cut_events / events) > timedelta(weeks=3)
        last = desk.client.get_workflow_handle(handle.id, result_type=TaskResult)
        code, said = await by_temporal(desk, operation, WORD)
        assert code == 0, said
        result = await desk.result(last)
        assert [(one.state, one.sends) for one in result.operations] == [(OperationState.COMPLETED, 1)]
        assert await desk.journal(operation) == ["claimed", "unclear", "handed_to_person", "resolved_completed"]
        await desk.record("carried_wait_for_person", last)


async def waits_in(run: WorkflowHandle[Any, Any]) -> list[tuple[int, float]]:
    """The run's waits: the event that begins it, and for how many seconds. That for a dispatch is none of these."""
    found = []
    async for event in run.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            timer = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
            found.append((event.event_id, timer.total_seconds()))
    return [(number, seconds) for number, seconds in found if seconds < 600]
