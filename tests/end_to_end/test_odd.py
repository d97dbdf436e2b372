"""Odd values, from the model, from tools and from people: each task comes to a typed end, and nothing is done twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from settled.activities.journal import Subject
from settled.activities.keys import key_forms
from settled.activities.protocol import Claim
from settled.activities.registry import Registry
from settled.activities.toolkit import FOREVER, Answer, Arguments, Call, Found, Scope, read, write
from settled.activities.tools.stock import reserve_stock
from settled.local.messages_script import Reply, text, tool_use
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.names import SETTLEMENT
from settled.workflows.contract.operation import OperationState
from tests.desk import CLERK, Desk, look_up, open_desk, reserve, status_of, until
from tests.end_to_end.test_loop import results_in
from tests.end_to_end.test_writes import GOAL, RESERVED


@pytest.mark.parametrize(
    "reply",
    [
        Reply.of("Done.", {"type": "server_tool_use", "id": ["x"], "name": "web_search", "input": {}}),
        Reply(content=[text("…")], stop_reason="x" * 1_100_000),
        pytest.param(Reply.of(*(tool_use("x" * 80, {}) for _ in range(2_300))), marks=pytest.mark.long),
        Reply(content=[text("Done.")], usage={"output_tokens": 1.5, "input_tokens": None}),
        Reply.of("half a pair: \ud83d"),
    ],
    ids=["an id that is a list", "an endless stop reason", "thousands of calls", "odd usage", "half a surrogate pair"],
)
async def test_an_odd_response_comes_to_an_end(desk: Desk, reply: Reply) -> None:
    """None of these may hang a task, or be in the way of a cancel."""
    desk.will_say(reply, "Done.")
    result = await desk.run("go")
    assert result.end_reason in (EndReason.COMPLETED, EndReason.INVALID_RESPONSE)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply([{"type": "tool_use", "id": "toolu_1"}], "tool_use"), "There is no tool 'None'."),
        (Reply([look_up() | {"name": "look up!"}], "tool_use"), "There is no tool 'look up!'."),
        (Reply([look_up() | {"name": 7, "id": ["x"]}], "tool_use"), "There is no tool '7'."),
        (Reply([look_up() | {"input": "A1"}], "tool_use"), "The input must be a JSON object, not a str."),
        (Reply([look_up() | {"input": {"sku": "\ud83d"}}], "tool_use"), "lookup_stock was not run."),
        (Reply([{"type": "thinking", "thinking": "Hm."}, look_up(), text(" ")], "tool_use"), '"available": 3'),
        (Reply([{"type": "text", "text": 7}, look_up()], "tool_use"), '"available": 3'),
        (Reply([{"type": "server_tool_use", "id": None}, look_up()], "tool_use"), '"available": 3'),
    ],
    ids=["nothing", "odd name", "a number", "text input", "half a pair", "unsigned", "no text", "no id"],
)
async def test_r28_the_conversation_goes_on_after_an_odd_response(desk: Desk, reply: Reply, error: str) -> None:
    """R27, R28: what the API doesn't take back as it is would end the task with its next request."""
    desk.will_say(reply, look_up("B2"), "Done.")
    handle = await desk.start("go")
    result = await desk.result(handle)
    assert (result.end_reason, result.final_text, desk.model.refusals) == (EndReason.COMPLETED, "Done.", [])
    (shown,) = results_in(desk.model.requests[1])
    assert error in shown["content"]
    chain = await desk.parts.stores.transcripts.chain(result.head)
    assert chain[2].content == reply.blocks(), "it is kept as it was received"


class Order(Arguments):
    number: str


@read()
async def echo(asked: Order, call: Call) -> Answer:
    """Say it again."""
    return Answer(data=asked.number, source="test")


@pytest.mark.long
async def test_hundreds_of_calls_in_one_response_run_in_batches_that_the_server_can_take(
    temporal: Client, tmp_path: Path
) -> None:
    """More than 2,000 open activities fail a workflow task for ever."""
    profiles = {"echo": CLERK.model_copy(update={"tools": ("echo",)})}
    async with open_desk(temporal, tmp_path, registry=Registry({"echo": echo}), profiles=profiles) as desk:
        desk.will_say(Reply.of(*(tool_use("echo", {"number": str(number)}) for number in range(120))), "Done.")
        result = await desk.run("go")
        assert result.status is Status.UNVERIFIED
        said = [json.loads(block["content"])["data"] for block in results_in(desk.model.requests[1])]
        assert said == [str(number) for number in range(120)]


async def test_a_call_that_no_json_can_hold_is_refused_in_every_attempt(desk: Desk) -> None:
    """R8, R34: what is judged is what was stored; nothing is mended into a call that nobody proposed."""
    desk.will_say(reserve(1, order="1001\ud83d"))
    result = await desk.run({"goal": "go", "budget": {"requests": 1}})
    chain = await desk.parts.stores.transcripts.chain(result.head)
    assert json.loads(chain[-1].content[0]["content"])["error"] == "invalid_arguments"
    assert await desk.effects() == []


async def test_the_service_s_record_is_compared_as_text_is_meant_not_as_it_is_written(desk: Desk) -> None:
    """NFC and NFD are one text: a done write must not need a person, nor fail acceptance."""
    decomposed, composed = "Cafe\u0301-1", "Caf\u00e9-1"
    await desk.arm("drop_reply_after_commit")
    criterion = {"check": "operation", "tool": "reserve_stock"}
    arguments = {"order": composed, "sku": "A1", "quantity": 2}
    desk.will_say(reserve(2, order=decomposed), "Reserved.")
    result = await desk.run({"goal": GOAL, "acceptance": [criterion | {"arguments": arguments}]})
    assert await desk.journal(result.operations[0]) == ["claimed", "unclear", "found"]
    assert result.status is Status.SUCCEEDED
    assert len(await desk.effects()) == 1


async def find_oddly(asked: Order, call: Call) -> Found:
    answer = Answer(data=1, source="test", version=7)  # type: ignore[arg-type]  # a slip that a tool's author makes
    return Found(key=call.idempotency_key, request={"number": asked.number}, answer=answer)


def writing(**changes: Any) -> Registry:
    """A registry with one write, `put`, that answers with a slip in its version."""

    async def put(asked: Order, call: Call) -> Answer:
        """Put it there."""
        if changes.get("loses"):
            raise ConnectionResetError
        return Answer(data={"put": True}, source="test", version=7)  # type: ignore[arg-type]  # as above

    lookup = changes.get("lookup", find_oddly)
    made = write(key=("number",), scope=Scope.TASK, lookup=lookup, dedupes=FOREVER, lands_within=None)(put)
    return Registry({"put": made})


@pytest.mark.parametrize("loses", [False, True])
async def test_a_version_that_is_no_text_spoils_neither_the_write_nor_its_lookup_nor_acceptance(
    temporal: Client, tmp_path: Path, loses: bool
) -> None:
    """It returned, so it has done its work."""
    profiles = {"putter": CLERK.model_copy(update={"tools": ("put",)})}
    async with open_desk(temporal, tmp_path, registry=writing(loses=loses), profiles=profiles) as desk:
        desk.will_say(tool_use("put", {"number": "1"}), "Done.")
        criterion = {"check": "operation", "tool": "put", "arguments": {"number": "1"}}
        result = await desk.run({"goal": "go", "acceptance": [criterion]})
        assert result.status is Status.SUCCEEDED
        expected = ["claimed", "unclear", "found"] if loses else ["claimed", "succeeded"]
        assert await desk.journal(result.operations[0]) == expected


async def find_a_list(asked: Order, call: Call) -> Found:
    return Found(key=call.idempotency_key, request=["odd"], answer=Answer(data=1, source="x"))  # type: ignore[arg-type]  # odd on purpose


async def test_a_lookup_that_finds_something_unreadable_counts_as_failed_and_patience_ends(
    temporal: Client, tmp_path: Path
) -> None:
    """A person is asked in the end; a settlement that fails for ever would ask nobody."""
    profiles = {"putter": CLERK.model_copy(update={"tools": ("put",), "on_needs_human": "end"})}
    registry = writing(loses=True, lookup=find_a_list)
    async with open_desk(temporal, tmp_path, registry=registry, profiles=profiles, patience_seconds=2.0) as desk:
        desk.will_say(tool_use("put", {"number": "1"}))
        result = await desk.run("go")
        assert result.end_reason is EndReason.UNRESOLVED_OPERATION
        assert result.operations[0].state is OperationState.NEEDS_HUMAN
        assert "lookup_failed" in await desk.journal(result.operations[0])


async def test_a_request_with_thousands_of_faults_names_the_first_ones(desk: Desk) -> None:
    """All of them would not fit into a payload, and hang the task."""
    handle = await desk.start({"goal": "x", "tools": ["a"] * 20_000})
    with pytest.raises(WorkflowFailureError) as failure:
        await desk.result(handle)
    assert "and 19950 more" in str(failure.value.cause)


async def test_a_refused_task_doesn_t_say_that_it_is_running(desk: Desk) -> None:
    """R46: status by query and in the memo, from the first moment on."""
    handle = await desk.start({"goal": ""})
    with pytest.raises(WorkflowFailureError):
        await desk.result(handle)
    assert (await status_of(handle)).status is Status.FAILED
    assert (await (await handle.describe()).memo())["status"] == "failed"


@pytest.mark.parametrize("given", [[], ["x"], [{"key": "zz"}], [{"key": "0" * 64}, 1]])
async def test_a_settlement_that_somebody_starts_with_an_odd_input_fails_and_hangs_nothing(
    desk: Desk, given: list[Any]
) -> None:
    """No stuck workflow task."""
    queue = desk.parts.settings.task_queue
    handle = await desk.client.start_workflow(SETTLEMENT, args=given, id=f"odd-{desk.folder.name}", task_queue=queue)
    with pytest.raises(WorkflowFailureError) as failure:
        await handle.result()
    assert "operation key" in str(failure.value.cause)
    assert (await handle.describe()).status is WorkflowExecutionStatus.FAILED


async def test_a_service_that_can_t_be_asked_for_a_moment_doesn_t_fail_acceptance(desk: Desk) -> None:
    """The evidence is asked for again, for a while."""
    desk.will_say(reserve(), "Reserved.")
    await desk.arm("lookup_fails", times=2)
    result = await desk.run({"goal": GOAL, "acceptance": [RESERVED]})
    assert result.status is Status.SUCCEEDED


async def test_an_attempt_whose_sender_died_lets_go_of_its_resource(temporal: Client, tmp_path: Path) -> None:
    """Nobody settles it but who needs what it holds: the settlement finds the expired attempt, and looks it up."""
    async with open_desk(temporal, tmp_path) as desk:
        await desk.arm("hold_reply_after_commit", seconds=3.0)
        desk.will_say(reserve(1), reserve(1, order="2002"), "Reserved.")
        first = await desk.start(GOAL)
        await until(desk.effects)
        ledger = desk.parts.stores.ledger
        (held,) = await ledger.listed()
        await first.terminate()
        second = await desk.result(await desk.start(GOAL))
        assert [operation.state for operation in second.operations] == ["completed"]
        assert (await ledger.read(held.view.key)).state is OperationState.COMPLETED  # type: ignore[union-attr]  # it is there
        assert len(await desk.effects()) == 2


async def test_every_unsettled_operation_of_a_closed_task_is_handed_on_however_many_there_are(desk: Desk) -> None:
    """What is shown is cut; what is done is not."""
    ledger = desk.parts.stores.ledger
    desk.will_say("Done.")
    result = await desk.run({"goal": GOAL}, task="many")
    assert result.tally.unsettled == 0
    for number in range(25):
        about = Subject(tool="reserve_stock", tenant="t", principal="p", fingerprint="f", arguments="", resources=())
        declaration = key_forms(reserve_stock)[0].declaration
        ask = Claim(subject=about, generation=1, permit=1, seconds=1.0, task="many", declaration=declaration)
        await ledger.claim(f"{number:064x}", ask)
    assert len((await ledger.view("many")).unsettled) == 20
    assert len(await ledger.unsettled("many")) == 25
