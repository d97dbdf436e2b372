"""Budgets: what ends a task, what it waits for instead, and what is shown of tokens and money."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from settled.activities.agents import ProfileLimits
from settled.activities.registry import Registry
from settled.activities.stores import Stores
from settled.activities.toolkit import Answer, Arguments, Call, RateLimited, ReadTool, read
from settled.local.messages_script import HttpError, Reply, tool_use
from settled.worker.asking import give_word
from settled.worker.wiring import make_worker
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.names import EXTEND_BUDGET, INVALID_TASK, OPEN_TASK, REQUEST_MODEL
from settled.workflows.contract.operation import Resolution, Resolved
from settled.workflows.contract.result import TaskResult
from settled.workflows.contract.task import Limits, OnExhausted, OnNeedsHuman
from settled.workflows.contract.turn import Turn, Usage
from settled.workflows.converter import data_converter
from settled.workflows.errors import ConfigurationError
from tests.crash.interceptors import Loses
from tests.crash.operator import current, reset, run_temporal
from tests.desk import CLERK, Desk, look_up, open_desk, reserve, status_of, until
from tests.end_to_end.test_runs import later_run_of, runs_of
from tests.end_to_end.test_streams import replays
from tests.end_to_end.test_writes import waits
from tests.worker.command import settled_process

Handle = WorkflowHandle[Any, TaskResult]

PRICES = """
[models.claude-scripted]
input = 3
output = 15
cache_read = 0.30
cache_write = 3.75
"""
USED = {"input_tokens": 1_000, "cache_read_input_tokens": 2_000, "cache_creation_input_tokens": 400}
"""With 100 tokens written it costs 3000 + 600 + 1500 + 1500 millionths of a dollar."""
COST = Decimal("0.0066")


def a_turn() -> Reply:
    """A response with one call, and this usage."""
    return Reply.of(look_up(), usage=USED | {"output_tokens": 100})


@asynccontextmanager
async def priced_desk(client: Client, folder: Path, **changes: Any) -> AsyncIterator[Desk]:
    """A desk whose model has a price; what isn't a setting of the worker's is a field of the agent profile."""
    (folder / "prices.toml").write_text(PRICES)
    profile = CLERK.model_copy(update={name: changes.pop(name) for name in list(changes) if hasattr(CLERK, name)})
    settings = {"prices": folder / "prices.toml", **changes}
    async with open_desk(client, folder, profiles={"stock-clerk": profile}, **settings) as desk:
        yield desk


@pytest.fixture
async def priced(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose model has a price."""
    async with priced_desk(temporal, tmp_path) as desk:
        yield desk


@pytest.fixture
async def patient(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose tasks wait where their budget is spent."""
    async with priced_desk(temporal, tmp_path, on_exhausted=OnExhausted.WAIT) as desk:
        yield desk


async def usages_of(handle: Handle) -> list[Usage]:
    """The usage of each model request, as history has it."""
    scheduled, found = {}, []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            done = event.activity_task_completed_event_attributes
            if scheduled[done.scheduled_event_id] == REQUEST_MODEL:
                (turn,) = data_converter.payload_converter.from_payloads(done.result.payloads, [Turn])
                found.append(turn.usage)
    return found


async def unanswered(stores: Stores, head: str) -> list[str]:
    """The ids of the calls in a transcript that have no result, or more than one."""
    chain = await stores.transcripts.chain(head)
    blocks = [block for node in chain[1:] for block in node.content]
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert sorted(set(results)) == sorted(results), "one result each"
    return [call for call in calls if call not in results]


def total_of(usages: list[Usage]) -> Usage:
    """The sum."""
    total = Usage()
    for usage in usages:
        total = total.plus(usage)
    return total


# R48, R50, R52: each limit ends the task


@pytest.mark.parametrize(
    ("budget", "reason", "detail"),
    [
        ({"calls": 2}, EndReason.MAX_CALLS, "the limit of 2 tool calls is reached"),
        ({"input_tokens": 6_800}, EndReason.MAX_TOKENS_BUDGET, "the limit of 6,800 tokens read is reached"),
        ({"output_tokens": 200}, EndReason.MAX_TOKENS_BUDGET, "the limit of 200 tokens written is reached"),
        ({"cost": "0.0132"}, EndReason.MAX_COST, "the limit of $0.0132 is reached"),
    ],
    ids=["calls", "input_tokens", "output_tokens", "cost"],
)
async def test_r48_r52_a_limit_ends_the_task_with_all_its_records(
    priced: Desk, budget: dict[str, Any], reason: EndReason, detail: str
) -> None:
    """R13, R29, R38, R50: reached with the second response, whose call still runs; and no third request is made."""
    desk = priced
    desk.will_say(a_turn(), a_turn(), "never said")
    handle = await desk.start({"goal": "look", "budget": budget})
    result = await desk.result(handle)
    assert (result.status, result.end_reason, result.detail) == (Status.BUDGET_EXHAUSTED, reason, detail)
    assert (result.counters.turns, result.counters.requests, result.counters.calls) == (2, 2, 2)
    assert desk.model.count == 2
    assert (await desk.requests())["GET /stock/{sku}"] == 2
    assert await unanswered(desk.parts.stores, result.head) == []
    assert result.usage == total_of(await usages_of(handle))
    assert result.usage.cost == 2 * COST
    await desk.record(f"budget_of_{next(iter(budget))}", handle)


async def test_r52_the_calls_of_one_response_run_together_though_they_pass_the_limit(priced: Desk) -> None:
    """R4, R82: a response is run as a whole, or not at all."""
    priced.will_say(Reply.of(*(look_up() for _ in range(3))), "never said")
    result = await priced.run({"goal": "look", "budget": {"calls": 2}})
    assert (result.end_reason, result.counters.calls, priced.model.count) == (EndReason.MAX_CALLS, 3, 1)
    assert await unanswered(priced.parts.stores, result.head) == []


async def test_r52_the_deadline_ends_a_task_whose_write_is_being_looked_up(priced: Desk) -> None:
    """R29, R30: the call's result says that it may have happened."""
    await priced.arm("drop_reply_after_commit")
    await priced.arm("lookup_fails", times=100_000)
    priced.will_say(reserve(), "never said")
    handle = await priced.start({"goal": "reserve", "budget": {"wall_seconds": 1.5}})
    result = await priced.result(handle)
    assert (result.status, result.end_reason) == (Status.BUDGET_EXHAUSTED, EndReason.DEADLINE)
    assert [operation.state for operation in result.operations] == ["unknown"]
    assert await unanswered(priced.parts.stores, result.head) == []
    await priced.record("budget_of_wall_time", handle)


async def test_r52_the_time_of_a_task_counts_from_its_start_however_long_opening_it_takes(
    temporal: Client, tmp_path: Path
) -> None:
    """Opening is asked again after a second, as where the store is away."""
    async with priced_desk(temporal, tmp_path, interceptors=[Loses(OPEN_TASK)]) as desk:
        result = await desk.run({"goal": "look", "budget": {"wall_seconds": 0.8}})
        assert (result.end_reason, result.counters.requests) == (EndReason.DEADLINE, 0)
        assert desk.model.count == 0


OUT = HttpError(503, headers={"retry-after": "3"})
"""A provider that is away, for a while."""


async def test_r52_the_deadline_ends_the_attempts_of_a_model_request(priced: Desk) -> None:
    """R29: whatever the next attempt would have brought, it would have come too late; the model is not to blame."""
    await priced.parts.provider.warm_up()  # which takes seconds
    priced.will_say(a_turn(), *(OUT for _ in range(6)))
    priced.may_ask_again(6)
    handle = await priced.start({"goal": "look", "budget": {"wall_seconds": 2.5}})
    result = await priced.result(handle)
    assert (result.status, result.end_reason) == (Status.BUDGET_EXHAUSTED, EndReason.DEADLINE)
    assert result.detail == "the task's 2.5 s are over"
    assert (result.counters.turns, result.counters.requests) == (1, 2)
    assert await unanswered(priced.parts.stores, result.head) == []
    started, *_, ended = [event async for event in handle.fetch_history_events()]
    assert 2.5 <= (ended.event_time.ToDatetime() - started.event_time.ToDatetime()).total_seconds() < 5
    assert priced.model.count <= 3
    await priced.record("deadline_of_model_request", handle)


async def test_r52_a_response_that_comes_after_the_deadline_is_not_waited_for(priced: Desk) -> None:
    priced.will_say(Reply.of(reserve(), delay=15))
    result = await priced.run({"goal": "reserve", "budget": {"wall_seconds": 1.5}})
    assert (result.end_reason, result.operations) == (EndReason.DEADLINE, ())


class Nothing(Arguments):
    """What the archive is asked."""


class Archive:
    """A tool that reads, and is slow: hangs, or asks to come again later, until it is well."""

    def __init__(self) -> None:
        self.well = False
        self.asked = 0
        self.hangs = True

    @property
    def tool(self) -> ReadTool:
        """The tool."""

        @read(timeout=timedelta(seconds=3))
        async def look_into_archive(_: Nothing, call: Call) -> Answer:
            """Look into the archive."""
            self.asked += 1
            if self.well:
                return Answer(data="all there", source="archive")
            if self.hangs:
                await asyncio.sleep(1000)
            raise RateLimited("come again", after=30.0)

        return look_into_archive


async def results_of(desk: Desk, head: str) -> list[str]:
    """The results of a transcript's calls, as the model has them or would have them."""
    blocks = [block for node in (await desk.parts.stores.transcripts.chain(head))[1:] for block in node.content]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


async def test_r52_the_deadline_ends_the_attempts_of_a_read(temporal: Client, tmp_path: Path) -> None:
    """R29: nothing is said of what is read, and where the task waits for more time it is read again with that."""
    archive = Archive()
    ends = CLERK.model_copy(update={"tools": ("look_into_archive",)})
    profiles = {"ends": ends, "waits": ends.model_copy(update={"on_exhausted": OnExhausted.WAIT})}
    registry = Registry({"look_into_archive": archive.tool})
    async with open_desk(temporal, tmp_path, registry=registry, profiles=profiles, default_agent="ends") as desk:
        await desk.parts.provider.warm_up()
        look = tool_use("look_into_archive", {})
        desk.will_say(look, look, look, "All there.")
        began = time.monotonic()
        hung = await desk.run({"goal": "look", "agent": "ends", "budget": {"wall_seconds": 1}})
        assert (hung.status, hung.end_reason) == (Status.BUDGET_EXHAUSTED, EndReason.DEADLINE)
        assert 1 <= time.monotonic() - began < 8, "and not four times the time of the read"
        archive.hangs = False
        late = await desk.run({"goal": "look later", "agent": "ends", "budget": {"wall_seconds": 1.5}})
        assert late.end_reason is EndReason.DEADLINE, "also where the next attempt would come after it"
        for result in (hung, late):
            assert await unanswered(desk.parts.stores, result.head) == []
            (said,) = await results_of(desk, result.head)
            assert json.loads(said)["status"] == "not_executed", "nobody knows better"
        handle = await desk.start({"goal": "look again", "agent": "waits", "budget": {"wall_seconds": 1}})
        await until(lambda: waits(handle, "the task's 1 s are over"))
        archive.well = True
        await extend(handle, wall_seconds=60)
        result = await desk.result(handle)
        assert (result.end_reason, result.counters.turns, archive.asked) == (EndReason.COMPLETED, 1, 4)
        assert "all there" in (await results_of(desk, result.head))[0]
        assert await replays([await handle.fetch_history()])


@pytest.mark.parametrize("early", [True, False], ids=["before the deadline", "after it"])
async def test_a_model_request_that_ran_out_of_time_is_made_again_once_there_is_more(
    patient: Desk, early: bool
) -> None:
    """What is extended while it still tries counts, too."""
    await patient.parts.provider.warm_up()
    patient.will_say(OUT, "3.")
    patient.may_ask_again(1)
    handle = await patient.start({"goal": "look", "budget": {"wall_seconds": 2}})
    if early:
        await patient.model.until(lambda server: server.count == 1)
    else:
        await until(lambda: waits(handle, "the task's 2 s are over"))
    await extend(handle, wall_seconds=60)
    result = await patient.result(handle)
    assert (result.end_reason, result.counters.requests) == (EndReason.COMPLETED, 2)
    await patient.record("deadline_of_model_request_extended", handle)


async def test_a_model_that_is_done_is_done_whatever_its_last_response_cost(priced: Desk) -> None:
    """R61: acceptance judges it, and no limit does."""
    priced.will_say(a_turn(), Reply.of("3.", usage={"input_tokens": 10**9}))
    result = await priced.run({"goal": "look", "budget": {"cost": "0.01"}})
    assert (result.status, result.end_reason) == (Status.UNVERIFIED, EndReason.COMPLETED)
    assert result.usage.cost > 3000


# What is shown of tokens and money


async def test_tokens_the_cached_share_and_the_cost_are_in_status_details_and_result(priced: Desk) -> None:
    """The second request begins with the first one, which the provider then reads from its cache."""
    held = asyncio.Event()
    priced.will_say(look_up(), Reply.of("3.", hold=held))
    handle = await priced.start("how many A1 are there?")
    await priced.model.until(lambda server: server.count == 2)
    status = await until(lambda: status_after(handle, 1))
    assert status.spent.startswith("1 request · ")
    assert status.limits == ProfileLimits().resolved()
    held.set()
    result = await handle.result()
    first, second = await usages_of(handle)
    assert (first.cache_read_tokens, second.cache_read_tokens) == (0, first.read_tokens)
    assert second.cache_write_tokens == second.read_tokens - first.read_tokens > 0
    assert result.usage == total_of([first, second])
    share = 100 * second.cache_read_tokens // result.usage.read_tokens
    assert 0 < share < 50
    assert result.usage.cost == (
        Decimal("3.75") * result.usage.cache_write_tokens
        + Decimal("0.30") * result.usage.cache_read_tokens
        + 15 * result.usage.output_tokens
    ) / Decimal(1_000_000)
    line = f"2 requests · {result.usage.read_tokens:,} tokens read ({share} % cached), "
    line += f"{result.usage.output_tokens} written · ${result.usage.cost.quantize(Decimal('0.0001'))}"
    assert result.spent == line
    assert (await status_of(handle)).spent == line
    code, said = await run_temporal(priced, "workflow", "result", "--workflow-id", handle.id)
    assert (code, line in said) == (0, True), said


async def status_after(handle: Handle, requests: int) -> Any:
    """The task's status, once it knows of so many model requests."""
    report = await status_of(handle)
    return report if report.counters.requests == requests else None


async def test_r52_a_model_without_a_price_has_no_cost_and_it_is_said(desk: Desk) -> None:
    desk.will_say(look_up(), "3.")
    result = await desk.run("how many A1 are there?")
    assert (result.usage.cost, result.usage.unpriced) == (Decimal(0), 2)
    assert result.spent.endswith(" written · cost unknown for 2 requests")


async def test_a_limit_of_cost_for_a_model_without_a_price_is_refused(desk: Desk) -> None:
    """R103: one line with the mend."""
    with pytest.raises(WorkflowFailureError) as failed:
        await (await desk.start({"goal": "look", "budget": {"cost": "1.50"}})).result()
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.message) == (
        INVALID_TASK,
        "budget.cost: no price is known of 'claude-scripted'; add it to a table of your own (SETTLED_PRICES), "
        "or leave this limit out",
    )


async def test_r52_a_limit_of_cost_holds_over_a_deploy_whose_table_lacks_the_model(
    temporal: Client, tmp_path: Path
) -> None:
    """The prices are the task's own, from its start on: of turns and of the request for a summary."""
    other = tmp_path / "other.toml"
    other.write_text(PRICES.replace("claude-scripted", "another"))
    terms = {"task_queue": "deployed", "on_exhausted": OnExhausted.WAIT, "context_tokens": 4_000}
    async with priced_desk(temporal, tmp_path, **terms) as desk:
        desk.will_say(a_turn())
        handle = await desk.start({"goal": "look", "budget": {"turns": 1, "cost": "0.026"}})
        await until(lambda: waits(handle, "the limit of 1 turn "))
    async with priced_desk(temporal, tmp_path, **terms, prices=other, model={"strict_prefix": False}) as desk:
        summary = Reply.of("A1: 3, so far.", usage=USED | {"output_tokens": 100})
        desk.will_say(a_turn(), summary, a_turn(), "never said")
        await extend(handle, turns=5)
        await until(lambda: waits(handle, "the limit of $0.026 is reached"))
        report = await status_of(handle)
        assert (report.usage.cost, report.usage.unpriced, report.counters.requests) == (4 * COST, 0, 4)
        assert desk.model.count == 3
        await handle.terminate()


async def test_a_profile_with_a_limit_of_cost_and_a_model_without_a_price_refuses_the_start(
    temporal: Client, tmp_path: Path
) -> None:
    limits = ProfileLimits(cost=Decimal(1))
    with pytest.raises(ConfigurationError, match=r"^agent stock-clerk: limits.cost: no price is known of 'llama'; add"):
        async with priced_desk(temporal, tmp_path, limits=limits, fallback=("llama",)):
            pass


async def test_a_budget_above_the_profiles_is_refused_for_tokens_and_cost_too(temporal: Client, tmp_path: Path) -> None:
    limits = ProfileLimits(cost=Decimal("0.5"), input_tokens=1_000)
    async with priced_desk(temporal, tmp_path, limits=limits) as desk:
        with pytest.raises(WorkflowFailureError) as failed:
            await (await desk.start({"goal": "look", "budget": {"cost": "0.51", "input_tokens": 1_001}})).result()
    assert str(failed.value.cause).splitlines() == [
        f"{INVALID_TASK}: budget.input_tokens: 1001 is above the agent's limit of 1000",
        "budget.cost: 0.51 is above the agent's limit of 0.5",
    ]


# extend_budget


async def timers_of(handle: Handle) -> int:
    """How many timers a task has started."""
    events = [event async for event in handle.fetch_history_events()]
    return sum(event.event_type == EventType.EVENT_TYPE_TIMER_STARTED for event in events)


async def events_of(handle: Handle) -> int:
    """How many events the task's history has."""
    return len([event async for event in handle.fetch_history_events()])


async def extend(handle: Handle, id: str | None = None, **amounts: Any) -> Limits:
    """Add to the task's budget, by an update of this id, if it matters."""
    limits: Limits = await handle.execute_update(EXTEND_BUDGET, amounts, id=id, result_type=Limits)
    return limits


async def test_a_task_that_waits_for_its_budget_goes_on_by_the_very_line_that_it_shows(patient: Desk) -> None:
    """R46, R103: it is waiting, says for what, and what the Temporal command line prints of that can be pasted."""
    desk = patient
    desk.will_say(a_turn(), a_turn(), "3.")
    handle = await desk.start({"goal": "look", "budget": {"turns": 1, "cost": "0.005"}})
    await until(lambda: waits(handle, "a larger budget"))
    status = await status_of(handle)
    assert (status.status, desk.model.count) == (Status.WAITING, 1)
    (line,) = status.waits_for
    text, _, command = line.partition("; extend it with: ")
    assert text == "a larger budget: the limit of 1 turn is reached and the limit of $0.005 is reached"
    assert command == f"settled extend {handle.id} --turns 1 --cost 0.01"
    assert (await (await handle.describe()).memo())["status"] == "waiting"
    _, printed = await run_temporal(desk, "workflow", "query", "--workflow-id", handle.id, "--type", "status")
    assert command in printed, "as it stands, without an escape"
    address = {"TEMPORAL_ADDRESS": desk.client.service_client.config.target_host}
    (pasted,) = re.findall(r"extend it with: (.*?)\"", printed)
    done = await settled_process(*shlex.split(pasted)[1:], "--json", **address)
    assert done.code == 0, done.err
    limits = json.loads(done.out)
    assert (limits["turns"], limits["cost"]) == (2, "0.015")
    await until(lambda: waits(handle, "the limit of 2 turns is reached"))
    assert await timers_of(handle) == 2, "one for each wait: its deadline"
    more = await extend(handle, turns=5, because="nearly there", who="ada")
    assert more == Limits.model_validate(limits | {"turns": 7})
    result = await desk.result(handle)
    assert (result.status, result.end_reason, result.counters.turns) == (Status.UNVERIFIED, EndReason.COMPLETED, 2)
    assert await unanswered(desk.parts.stores, result.head) == []
    assert desk.model.refusals == []
    await desk.record("budget_extended", handle)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"turn": 1}, "turn: unknown field; the fields are turns, requests, calls, input_tokens"),
        ({"turns": 0}, "turns: Input should be greater than 0; give the amount that is added to the limit"),
        ({"because": "so"}, "input: nothing is added; give at least one of turns, requests"),
        ({"calls": 1}, "calls: the task has no such limit, so there is nothing to extend; leave it out"),
        ("turns", 'input: expected one JSON object like {"turns": 5'),
    ],
    ids=["unknown", "zero", "nothing", "no limit", "text"],
)
async def test_what_cannot_be_added_is_refused_and_leaves_no_history(patient: Desk, said: Any, line: str) -> None:
    """R103: with a readable line, by the Temporal command line."""
    desk = patient
    desk.will_say(a_turn(), "3.")
    handle = await desk.start({"goal": "look", "budget": {"turns": 1}})
    await until(lambda: waits(handle, "a larger budget"))
    before = await events_of(handle)
    which = ("--workflow-id", handle.id, "--name", EXTEND_BUDGET)
    code, output = await run_temporal(desk, "workflow", "update", "execute", *which, "--input", json.dumps(said))
    assert code != 0
    assert line in output
    with pytest.raises(WorkflowUpdateFailedError):
        await handle.execute_update(EXTEND_BUDGET, said)
    assert (await status_of(handle)).status is Status.WAITING
    assert await events_of(handle) == before
    await extend(handle, turns=1)
    assert (await desk.result(handle)).end_reason is EndReason.COMPLETED


async def test_r12_a_cancel_ends_a_task_that_waits_for_its_budget(patient: Desk) -> None:
    patient.will_say(reserve(), "never said")
    handle = await patient.start({"goal": "reserve", "budget": {"turns": 1}})
    await until(lambda: waits(handle, "a larger budget"))
    await handle.cancel()
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    report = await status_of(handle)
    assert (report.status, report.end_reason) == (Status.CANCELLED, EndReason.ABORTED_MODEL)
    assert patient.model.count == 1
    await patient.record("budget_wait_cancelled", handle)


async def test_an_extension_in_the_middle_of_a_model_request_is_not_lost(priced: Desk) -> None:
    """The task doesn't wait for its budget here: it would have ended after this response."""
    desk, held = priced, asyncio.Event()
    desk.will_say(Reply.of(look_up(), hold=held), "3.")
    handle = await desk.start({"goal": "look", "budget": {"requests": 1}})
    await desk.model.until(lambda server: server.count == 1)
    assert (await extend(handle, requests=1)).requests == 2
    held.set()
    result = await desk.result(handle)
    assert (result.end_reason, result.counters.requests) == (EndReason.COMPLETED, 2)


async def test_a_task_whose_time_is_over_while_a_write_is_looked_up_waits_and_then_takes_its_result(
    patient: Desk,
) -> None:
    """R67: the open call is carried over the wait; it is asked about, and not sent again."""
    desk = patient
    await desk.arm("drop_reply_after_commit")
    await desk.arm("lookup_fails", times=100_000)
    desk.will_say(reserve(), "Reserved.")
    handle = await desk.start({"goal": "reserve", "budget": {"wall_seconds": 1.5}})
    await until(lambda: waits(handle, "1.5 s are over"))
    assert (await status_of(handle)).status is Status.WAITING
    limits = await extend(handle, wall_seconds=60)
    assert 61.5 <= limits.wall_seconds < 80, "it counts from now, where the time was over"
    await until(lambda: waits(handle, "being looked up"))
    await desk.http.delete(f"{desk.stock.url}/faults")
    result = await desk.result(handle)
    assert (result.end_reason, [each.state for each in result.operations]) == (EndReason.COMPLETED, ["completed"])
    assert len(await desk.effects()) == 1
    assert await unanswered(desk.parts.stores, result.head) == []
    await desk.record("budget_of_time_extended", handle)


async def states_of(handle: Handle) -> list[str]:
    """The states of a task's unsettled operations, as its status has them."""
    return [operation.state for operation in (await status_of(handle)).ledger.unsettled]


async def test_a_task_that_waits_for_its_budget_hears_what_becomes_of_its_operations(
    temporal: Client, tmp_path: Path
) -> None:
    """R46: its status says what the ledger says; and it ends where only a person can help, if it is to."""
    waits_on = CLERK.model_copy(update={"on_exhausted": OnExhausted.WAIT})
    profiles = {"waits": waits_on, "ends": waits_on.model_copy(update={"on_needs_human": OnNeedsHuman.END})}
    terms: dict[str, Any] = {"default_agent": "waits", "patience_seconds": 3}
    async with open_desk(temporal, tmp_path, profiles=profiles, **terms) as desk:
        await desk.parts.provider.warm_up()
        for _ in range(2):
            await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=100_000)
        desk.will_say(reserve())
        handle = await desk.start({"goal": "reserve", "budget": {"wall_seconds": 1.5}})
        await until(lambda: waits(handle, "1.5 s are over"))
        desk.will_say(reserve(1, sku="B2"))
        ends = await desk.run({"goal": "reserve B2", "agent": "ends", "budget": {"wall_seconds": 1.5}})
        assert (ends.end_reason, ends.counters.requests) == (EndReason.UNRESOLVED_OPERATION, 1)

        async def stands_at(*states: str) -> bool:
            return await states_of(handle) == list(states)

        await until(lambda: stands_at("needs_human"))
        assert await waits(handle, "1.5 s are over")
        (view,) = (await status_of(handle)).ledger.unsettled
        word = Resolution(outcome=Resolved.COMPLETED, because="it is there", who="ada")
        await give_word(temporal, view.key, word, task_queue=desk.parts.settings.task_queue, seconds=20)
        await until(stands_at)
        assert await waits(handle, "1.5 s are over")
        assert desk.model.count == 2
        desk.will_say("Reserved.")
        await extend(handle, wall_seconds=60)
        result = await desk.result(handle)
        assert (result.end_reason, [each.state for each in result.operations]) == (EndReason.COMPLETED, ["completed"])
        assert await replays([await handle.fetch_history()])


async def test_a_task_that_waits_for_its_budget_says_so_when_its_time_is_over_too(patient: Desk) -> None:
    """One timer, and none after that."""
    desk = patient
    desk.will_say(a_turn(), "3.")
    handle = await desk.start({"goal": "look", "budget": {"turns": 1, "wall_seconds": 2}})
    await until(lambda: waits(handle, "the limit of 1 turn "))
    await until(lambda: waits(handle, "the task's 2 s are over and the limit of 1 turn "))
    assert await timers_of(handle) == 1
    await extend(handle, turns=1, wall_seconds=60)
    assert (await desk.result(handle)).end_reason is EndReason.COMPLETED


async def test_r9_an_extended_budget_survives_continue_as_new_also_while_it_waits(
    temporal: Client, tmp_path: Path
) -> None:
    """R86: limits and counters go over; a wait that has become long is carried over as well."""
    async with priced_desk(temporal, tmp_path, on_exhausted=OnExhausted.WAIT, cut_events=50) as desk:
        desk.will_say(*(a_turn() for _ in range(8)), "3.")
        handle = await desk.start({"goal": "look", "budget": {"turns": 1}})
        await until(lambda: waits(handle, "the limit of 1 turn "))
        assert (await extend(handle, id="once", turns=1)).turns == 2
        await until(lambda: waits(handle, "the limit of 2 turns"))
        for _ in range(40):
            await handle.signal("wake")
        second = await until(lambda: later_run_of(handle))
        assert (await extend(current(desk, handle), id="once", turns=1)).turns == 2, "it is the same word"
        await until(lambda: waits(handle, "the limit of 2 turns"))
        await extend(current(desk, handle), turns=7)
        result = await desk.result(current(desk, handle))
        assert (result.end_reason, result.counters.turns) == (EndReason.COMPLETED, 8)
        assert result.usage.cost > 8 * COST
        assert len(await runs_of(handle)) > 2, "extended limits went over once more"
        await desk.record("budget_wait_carried", desk.client.get_workflow_handle(handle.id, run_id=second))


async def test_a_reset_applies_the_extension_again(patient: Desk) -> None:
    """Temporal hands a reset run the updates of the old one; no person has to say it twice."""
    desk = patient
    desk.will_say(*(a_turn() for _ in range(4)))
    handle = await desk.start({"goal": "look", "budget": {"turns": 1}})
    await until(lambda: waits(handle, "the limit of 1 turn "))
    await extend(handle, turns=1)
    await until(lambda: waits(handle, "the limit of 2 turns"))
    desk.may_ask_again(1)
    again = await reset(desk, handle, to_before=REQUEST_MODEL, number=0)
    await until(lambda: waits(again, "the limit of 2 turns"))
    report = await status_of(again)
    assert report.limits is not None
    assert (report.limits.turns, report.counters.turns) == (2, 2)
    await again.terminate()
    await desk.record("budget_reset", again)


async def test_an_extension_before_the_task_is_open_waits_for_that(temporal: Client, tmp_path: Path) -> None:
    """What is said at once after the start is not refused for being early."""
    async with priced_desk(temporal, tmp_path, working=False) as desk:
        desk.will_say(a_turn(), "3.")
        handle = await desk.start({"goal": "look", "budget": {"turns": 1, "requests": 1}})
        early = asyncio.create_task(extend(handle, turns=1, requests=1))
        async with make_worker(temporal, desk.parts):
            limits = await early
            assert (limits.turns, limits.requests) == (2, 2)
            assert (await desk.result(handle)).end_reason is EndReason.COMPLETED


async def test_an_extension_of_a_task_that_cannot_be_opened_leaves_nothing_hanging(
    temporal: Client, tmp_path: Path
) -> None:
    async with priced_desk(temporal, tmp_path, working=False) as desk:
        handle = await desk.start({"goal": "look", "budget": {"pages": 1}})
        early = asyncio.create_task(extend(handle, turns=1))
        async with make_worker(temporal, desk.parts):
            with pytest.raises(WorkflowFailureError):
                await desk.result(handle)
            with pytest.raises(Exception, match=r"(?i)completed|not found|failed"):
                await early
