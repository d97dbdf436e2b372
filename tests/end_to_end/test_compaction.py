"""A conversation that gets too long is summed up and goes on in a new one; on the real server, with small contexts."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.activities.outputs import READ_OUTPUT, REFERENCE
from settled.activities.retelling import SYSTEM
from settled.activities.roots import Root
from settled.activities.transcript import Node
from settled.local.clerk import asks_for_summary, clerk
from settled.local.messages_script import HttpError, Reply, Step, text, tool_use
from settled.workflows.contract.ending import EndReason, Status
from settled.workflows.contract.names import EXTEND_BUDGET, REQUEST_MODEL
from settled.workflows.contract.task import OnExhausted
from settled.workflows.contract.turn import Again
from tests.crash.interceptors import Loses
from tests.desk import CLERK, Desk, look_up, open_desk, reserve, status_of, until
from tests.end_to_end.test_cancel import cancelled
from tests.end_to_end.test_loop import results_in
from tests.end_to_end.test_runs import runs_of
from tests.end_to_end.test_writes import waits
from tests.readers import READER, Reader, library

SMALL = {"max_input_tokens": 30_000}
"""Room for four pages of 20 kB."""
TOO_LONG = HttpError(400, "invalid_request_error", "prompt is too long: 31000 tokens > 30000 maximum")
OVERFLOWN = Reply(content=[text("I was about to")], stop_reason="model_context_window_exceeded")
GOAL = "read all pages, and reserve 2 of A1 for order 1001"
LIBRARIAN = READER.model_copy(update={"tools": ("page", "reserve_stock", "lookup_stock")})


def reading_desk(
    temporal: Client, folder: Path, script: Callable[[dict[str, Any]], Step] | Sequence[Step], **more: Any
) -> AbstractAsyncContextManager[Desk]:
    """A desk whose model reads pages, and has a small context."""
    given: dict[str, Any] = {
        "registry": library(),
        "profiles": {"librarian": LIBRARIAN},
        "model": {"script": script, "limits": SMALL},
    }
    return open_desk(temporal, folder, **(given | more))


async def conversations(desk: Desk, head: str) -> list[list[Node]]:
    """The conversations that led to the head, the first one first, each as it was when it was replaced."""
    found = [await desk.parts.stores.transcripts.chain(head)]
    while (replaced := Root.of(found[0][0]).replaces) is not None:
        found.insert(0, await desk.parts.stores.transcripts.chain(replaced))
    return found


def said_first(body: dict[str, Any]) -> str:
    """What a conversation begins with, besides the goal."""
    return str(body["messages"][0]["content"][1]["text"])


def steps_of(desk: Desk) -> list[dict[str, Any]]:
    """The requests that were no requests for a summary."""
    return [body for body in desk.model.requests if not asks_for_summary(body)]


@pytest.mark.long
async def test_r89_a_task_of_sixty_turns_goes_on_through_several_conversations(
    temporal: Client, tmp_path: Path
) -> None:
    """R6, R10, R86, R89: it ends normally; each conversation is frozen, only grows, and stays below the limit."""
    reader = Reader(60)
    async with reading_desk(temporal, tmp_path, reader) as desk:
        handle = await desk.start({"goal": GOAL})
        result = await desk.result(handle, seconds=120)
        assert (result.status, result.end_reason) == (Status.UNVERIFIED, EndReason.COMPLETED)
        assert (result.counters.turns, result.counters.calls) == (60, 60)
        assert reader.summaries >= 10
        assert result.counters.requests == desk.model.count == desk.model.received == 61 + reader.summaries
        assert desk.model.refusals == []
        for name in ("system", "tools", "model", "max_tokens"):
            assert len({json.dumps(body[name]) for body in steps_of(desk)}) == 1
        made = await conversations(desk, result.head)
        assert len(made) == 1 + reader.summaries
        assert [Root.of(chain[0]).why for chain in made] == [None] + [Again.COMPACTED] * reader.summaries
        results = [
            block["content"]
            for chain in made
            for node in chain[1:]
            for block in node.content
            if block["type"] == "tool_result"
        ]
        assert [re.findall(r"page (\d+) ", text) for text in results] == [[str(number)] for number in range(1, 61)]


async def test_the_conversation_that_goes_on_begins_with_what_does_not_rest_on_the_summary(
    temporal: Client, tmp_path: Path
) -> None:
    """R22, R65: the goal word for word, the ledger's operations, the last results as data, and outputs."""
    reader = Reader(6, Reply.of("Read."))

    def script(body: dict[str, Any]) -> Step:
        if reader.read == 1 and not any(block["type"] == "tool_use" for block in said(body) if block["name"] != "page"):
            return Reply.of(reserve(), tool_use("page", {"number": reader.read}))
        return reader(body)

    def said(body: dict[str, Any]) -> list[dict[str, Any]]:
        blocks = [block for message in body["messages"] for block in message["content"]]
        return [block for block in blocks if block["type"] == "tool_use"]

    async with reading_desk(temporal, tmp_path, script) as desk:
        handle = await desk.start({"goal": GOAL})
        result = await desk.result(handle, seconds=60)
        assert result.end_reason is EndReason.COMPLETED
        before, after = next(
            (one, other)
            for one, other in zip(desk.model.requests, desk.model.requests[1:], strict=False)
            if asks_for_summary(one)
        )
        assert before["system"] == SYSTEM
        assert "tools" not in before
        assert len(before["messages"]) == 1
        assert after["messages"][0]["content"][0]["text"] == GOAL
        assert len(after["messages"]) == 1
        told = said_first(after)
        (operation,) = result.operations
        arguments = '{"order":"1001","sku":"A1","quantity":2,"line":1}'
        assert f"- reserve_stock {arguments} (operation {operation.key[:12]}): completed. It was done." in told
        assert "SUMMARY 1: pages 1 to" in told
        (last,) = [json.loads(line) for line in told.split("\n") if line.startswith('{"call"')]
        assert (last["call"], last["failed"]) == ("page", False)
        assert last["result"].startswith('{"status": "completed", "source": "test", "data": "page ')
        assert f"Earlier results that {READ_OUTPUT} can show again" in told
        await desk.record("compacted", handle)


async def test_a_result_that_was_summed_up_can_be_read_again(temporal: Client, tmp_path: Path) -> None:
    """R88: by the name that the next conversation is told."""
    reader = Reader(7)

    def script(body: dict[str, Any]) -> Step:
        if reader.summaries and reader.read < 7:
            reader.read = 7
            listed = said_first(body).split("newest first:\n")[1].split("\n")
            return Reply.of(tool_use(READ_OUTPUT, {"output": listed[-1].split()[1].rstrip(":")}))
        return reader(body)

    async with reading_desk(temporal, tmp_path, script) as desk:
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.COMPLETED
        (page,) = results_in(desk.model.requests[-1])
        assert "page 1 xxx" in page["content"]
        assert len((await desk.parts.stores.outputs.of_task(await only_task(desk), limit=100))[0].digest) > REFERENCE


async def only_task(desk: Desk) -> str:
    async with desk.parts.stores.database.read() as connection:
        (row,) = (await connection.exec_driver_sql("SELECT task FROM tasks")).all()
    return str(row[0])


async def test_r66_an_operation_that_is_not_settled_is_told_anew_with_what_not_to_do_about_it(
    temporal: Client, tmp_path: Path
) -> None:
    """R65, R66: a first run has left it behind; the second one hears of it, and so does the conversation after that."""
    script = [
        Reply.of(reserve()),
        Reply.of(look_up()),
        OVERFLOWN,
        Reply.of("I looked it up."),
        Reply.of("It may be reserved."),
    ]
    async with reading_desk(temporal, tmp_path, script) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1_000)
        handle = await desk.start({"goal": GOAL}, task="again")
        await until(lambda: waits(handle, "being looked up"))
        await handle.cancel()
        await cancelled(handle)
        handle = await desk.start({"goal": GOAL}, task="again")
        await desk.model.until(lambda server: server.count == len(server.requests) == 5)
        told = said_first(desk.model.requests[4])
        (line,) = [line for line in told.split("\n") if line.startswith("- reserve_stock")]
        assert re.search(
            r"\(operation [0-9a-f]{12}\): unknown\. It may have happened\. It is being looked up\. Do not", line
        )
        assert len(desk.model.requests[4]["messages"]) == 1
        await desk.http.delete(f"{desk.stock.url}/faults")
        result = await desk.result(handle)
        assert [operation.state for operation in result.operations] == ["completed"]
        assert len(await desk.effects()) == 1


async def test_a_profile_may_set_a_lower_limit_than_the_provider(temporal: Client, tmp_path: Path) -> None:
    profiles = {"librarian": LIBRARIAN.model_copy(update={"context_tokens": 15_000})}
    reader = Reader(12)
    async with reading_desk(temporal, tmp_path, reader, profiles=profiles, model={"script": reader}) as desk:
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.COMPLETED
        assert reader.summaries >= 2


@pytest.mark.parametrize("full", [OVERFLOWN, TOO_LONG, HttpError(413)], ids=["stop reason", "400", "413"])
async def test_b18_a_context_that_is_exceeded_is_summed_up_once_and_the_task_goes_on(
    temporal: Client, tmp_path: Path, full: Step
) -> None:
    """B18, R8: nothing of the truncated response is run or kept in the conversation."""
    script = [Reply.of(look_up()), full, Reply.of("There were 3."), Reply.of("There are 3.")]
    async with reading_desk(temporal, tmp_path, script) as desk:
        handle = await desk.start({"goal": GOAL})
        result = await desk.result(handle)
        assert (result.status, result.end_reason) == (Status.UNVERIFIED, EndReason.COMPLETED)
        assert result.final_text == "There are 3."
        assert result.counters.requests == desk.model.count == 4
        assert "There were 3." in said_first(desk.model.requests[3])
        assert "I was about to" not in json.dumps(desk.model.requests[2:])
        assert [json.loads(line)["call"] for line in said_first(desk.model.requests[3]).split("\n") if line[:1] == "{"]
        await desk.record(f"summed_up_after_{'stop' if full is OVERFLOWN else 'refusal'}", handle)


@pytest.mark.parametrize("full", [OVERFLOWN, TOO_LONG], ids=["stop reason", "400"])
async def test_b18_a_context_that_is_exceeded_again_ends_the_task_with_that_reason(
    temporal: Client, tmp_path: Path, full: Step
) -> None:
    """R29, R61: no loop; every call has its result."""
    script = [Reply.of(look_up()), full, Reply.of("There were 3."), full]
    async with reading_desk(temporal, tmp_path, script) as desk:
        result = await desk.run({"goal": GOAL})
        assert (result.status, result.end_reason) == (Status.FAILED, EndReason.CONTEXT_EXHAUSTED)
        assert desk.model.count == 4


def says_no_limits(desk: Desk) -> None:
    """The provider doesn't say what its models can do."""
    desk.parts.provider._silent_until[CLERK.model] = math.inf


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "times", "why"),
    [
        (Reply.of("The pages", stop_reason="max_tokens"), 1, "cut off at its token limit"),
        (Reply(content=[], stop_reason="refusal"), 1, "refused"),
        (Reply.of(tool_use("page", {"number": 1})), 1, "held calls"),
        (Reply(content=[], stop_reason="tool_use"), 2, "held no call"),
        (Reply.of(" "), 3, "was empty"),
        (Reply.of("The ", stop_reason="pause_turn"), 6, "paused its turn"),
        (Reply.of("…", stop_reason="brand_new_reason"), 1, "held words"),
        (Reply.of("…", stop_reason="model_context_window_exceeded"), 1, "context"),
    ],
    ids=["cut off", "refused", "a call", "no call", "blank", "paused", "unknown", "exceeded"],
)
async def test_a_summary_that_is_none_ends_the_task_with_that_reason(
    temporal: Client, tmp_path: Path, answer: Reply, times: int, why: str
) -> None:
    """R8, R29: it is asked for again as often as any other response. Half of it would be a loss that nobody sees."""
    async with reading_desk(temporal, tmp_path, [Reply.of(look_up()), OVERFLOWN, *[answer] * times]) as desk:
        desk.may_ask_again(times)
        result = await desk.run({"goal": GOAL})
        assert (result.status, result.end_reason) == (Status.FAILED, EndReason.CONTEXT_EXHAUSTED)
        assert f"its summary stopped with {answer.stop_reason!r}" in result.detail
        assert why in result.detail
        assert desk.model.count == result.counters.requests == 2 + times
        assert desk.model.refusals == []
        chain = await desk.parts.stores.transcripts.chain(result.head)
        assert [node.content[0]["type"] for node in chain[1:]] == ["text", "tool_use", "tool_result"]


@pytest.mark.parametrize(
    ("answers", "summary"),
    [
        ([Reply.of("There w", stop_reason="max_tokens"), Reply.of("There were 3.")], "There were 3."),
        ([Reply.of("There were 3.", stop_reason="stop_sequence")], "There were 3."),
        ([Reply.of("I look.", SEARCH, stop_reason="pause_turn"), Reply.of("There were 3.")], "I look.\nThere were 3."),
        ([Reply(content=[], stop_reason="end_turn"), Reply.of("There were 3.")], "There were 3."),
        ([Reply(content=[], stop_reason="tool_use"), Reply.of("There were 3.")], "There were 3."),
        (
            [Reply.of(SEARCH, stop_reason="pause_turn"), Reply(content=[]), Reply.of("There were 3.")],
            "There were 3.",
        ),
    ],
    ids=["cut off", "stop sequence", "paused", "empty", "no call", "paused, then empty"],
)
async def test_r8_a_summary_is_judged_like_any_other_response(
    temporal: Client, tmp_path: Path, answers: list[Step], summary: str
) -> None:
    """R8, R89: and the task goes on from it."""
    script = [Reply.of(look_up()), OVERFLOWN, *answers, Reply.of("There are 3.")]
    async with reading_desk(temporal, tmp_path, script) as desk:
        says_no_limits(desk)
        desk.may_ask_again(1)
        handle = await desk.start({"goal": GOAL})
        result = await desk.result(handle)
        assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "There are 3.")
        asked = [asks_for_summary(body) for body in desk.model.requests]
        assert asked == [False] * 2 + [True] * len(answers) + [False]
        assert f"in your own words:\n{summary}\n" in said_first(desk.model.requests[-1])
        assert [Root.of(chain[0]).why for chain in await conversations(desk, result.head)] == [None, Again.COMPACTED]
        assert desk.model.refusals == []
        assert result.counters.requests == len(script)
        if len(answers) == 2:
            await desk.record(f"summary_asked_again_after_{answers[0].stop_reason}", handle)  # type: ignore[attr-defined]  # they are replies


async def test_b16_a_summary_that_was_cut_off_gets_a_higher_limit(temporal: Client, tmp_path: Path) -> None:
    script = [
        Reply.of(look_up()),
        OVERFLOWN,
        Reply.of("There w", stop_reason="max_tokens"),
        Reply.of("There were 3."),
        Reply.of("3."),
    ]
    async with reading_desk(temporal, tmp_path, script) as desk:
        says_no_limits(desk)
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.COMPLETED
        usual = LIBRARIAN.max_tokens
        assert [body["max_tokens"] for body in desk.model.requests] == [usual, usual, usual, 2 * usual, usual]


async def test_a_summary_asks_with_the_limit_that_the_model_allows(temporal: Client, tmp_path: Path) -> None:
    """Where nobody says what the model allows, the profile's limit does; where that is too high, the model's."""
    usual = LIBRARIAN.max_tokens
    words = f"max_tokens: {usual} > 100, which is the maximum allowed number of output tokens for claude-scripted"
    script = [Reply.of(look_up()), OVERFLOWN, HttpError(400, message=words), Reply.of("There were 3."), Reply.of("3.")]
    async with reading_desk(temporal, tmp_path, script, model={"script": script}) as desk:
        says_no_limits(desk)
        result = await desk.run({"goal": GOAL})
        assert (result.end_reason, result.counters.requests) == (EndReason.COMPLETED, 5)
        assert [body["max_tokens"] for body in desk.model.requests] == [usual] * 3 + [100] * 2


async def test_b14_r95_another_model_sums_up_where_the_first_one_refuses(temporal: Client, tmp_path: Path) -> None:
    """B14, R95: the wish to sum up goes over to it."""
    refused = Reply(content=[], stop_reason="refusal")
    script = [Reply.of(look_up()), OVERFLOWN, refused, Reply.of("There were 3."), Reply.of("3.")]
    profiles = {"librarian": LIBRARIAN.model_copy(update={"fallback": ("claude-other",)})}
    async with reading_desk(temporal, tmp_path, script, profiles=profiles) as desk:
        handle = await desk.start({"goal": GOAL})
        result = await desk.result(handle)
        assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "3.")
        models = [(body["model"], asks_for_summary(body)) for body in desk.model.requests]
        first, other = CLERK.model, "claude-other"
        assert models == [(first, False)] * 2 + [(first, True), (other, True), (other, False)]
        await desk.record("summary_refused_and_taken_over", handle)


async def test_r28_a_call_without_a_name_or_an_input_is_summed_up_like_any_other(
    temporal: Client, tmp_path: Path
) -> None:
    script = [
        Reply.of(look_up()),
        Reply([{"type": "tool_use", "id": "toolu_1"}], "tool_use", {"input_tokens": 29_000}),
        Reply.of("A call was none."),
        Reply.of("3."),
    ]
    async with reading_desk(temporal, tmp_path, script) as desk:
        result = await desk.run({"goal": GOAL})
        assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "3.")


async def test_a_summary_whose_request_is_too_long_itself_is_asked_for_again_with_less(
    temporal: Client, tmp_path: Path
) -> None:
    """Tokens are the provider's to count; ours is a guess."""
    script = [Reply.of(look_up()), OVERFLOWN, TOO_LONG, Reply.of("There were 3."), Reply.of("There are 3.")]
    async with reading_desk(temporal, tmp_path, script) as desk:
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.COMPLETED
    script = [Reply.of(look_up()), OVERFLOWN, TOO_LONG, TOO_LONG, TOO_LONG]
    (tmp_path / "again").mkdir()
    async with reading_desk(temporal, tmp_path / "again", script) as desk:
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.CONTEXT_EXHAUSTED
        assert "too long, too" in result.detail
        assert result.counters.requests == result.counters.attempts == desk.model.received == 5
        sizes = [len(json.dumps(body)) for body in desk.model.requests[2:]]
        assert sizes == sorted(set(sizes), reverse=True)


@pytest.mark.parametrize("left", [1, 2])
async def test_r10_a_summary_takes_no_more_requests_than_are_left_and_goes_on_where_more_are_added(
    temporal: Client, tmp_path: Path, left: int
) -> None:
    """R10: it may take three. What is left undone is no end of its own."""
    profiles = {"librarian": LIBRARIAN.model_copy(update={"on_exhausted": OnExhausted.WAIT})}
    script = [Reply.of(look_up()), OVERFLOWN, *[TOO_LONG] * left, Reply.of("There were 3."), Reply.of("There are 3.")]
    async with reading_desk(temporal, tmp_path, script, profiles=profiles) as desk:
        desk.may_ask_again(1)  # after the wait it begins with all that there is room for
        handle = await desk.start({"goal": GOAL, "budget": {"requests": 2 + left}})
        await until(lambda: waits(handle, "a larger budget"))
        assert desk.model.received == 2 + left
        assert (await status_of(handle)).counters.requests == 2 + left
        await handle.execute_update(EXTEND_BUDGET, {"requests": 2})
        result = await desk.result(handle)
        assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "There are 3.")
        assert result.counters.requests == desk.model.received == 4 + left


async def test_a_summary_that_was_paused_and_is_too_long_now_is_asked_for_anew_with_less(
    temporal: Client, tmp_path: Path
) -> None:
    paused = Reply.of("I look.", SEARCH, stop_reason="pause_turn")
    script = [Reply.of(look_up()), OVERFLOWN, paused, TOO_LONG, Reply.of("There were 3."), Reply.of("There are 3.")]
    async with reading_desk(temporal, tmp_path, script) as desk:
        says_no_limits(desk)
        result = await desk.run({"goal": GOAL})
        assert (result.end_reason, result.counters.requests) == (EndReason.COMPLETED, 6)
        first, again, anew = [body["messages"] for body in desk.model.requests[2:5]]
        assert [len(messages) for messages in (first, again, anew)] == [1, 2, 1]
        assert len(json.dumps(anew)) < len(json.dumps(first))


async def test_r95_another_model_sums_up_where_the_first_one_is_overloaded(temporal: Client, tmp_path: Path) -> None:
    """R95: the wish to sum up goes over to it, with what was said so far."""
    overloaded = HttpError(529)
    script = [Reply.of(look_up()), OVERFLOWN, overloaded, overloaded, Reply.of("There were 3."), Reply.of("3.")]
    profiles = {"librarian": LIBRARIAN.model_copy(update={"fallback": ("claude-other",)})}
    async with reading_desk(temporal, tmp_path, script, profiles=profiles) as desk:
        desk.may_ask_again(1)
        result = await desk.run({"goal": GOAL})
        assert (result.end_reason, result.final_text) == (EndReason.COMPLETED, "3.")
        models = [(body["model"], asks_for_summary(body)) for body in desk.model.requests]
        first, other = CLERK.model, "claude-other"
        assert models == [(first, False)] * 2 + [(first, True)] * 2 + [(other, True), (other, False)]
        assert [Root.of(chain[0]).why for chain in await conversations(desk, result.head)] == [
            None,
            Again.FALLBACK,
            Again.COMPACTED,
        ]
        assert '"available": 3' in str(desk.model.requests[4]["messages"])


async def test_b05_a_lost_completion_leads_to_the_same_summary(temporal: Client, tmp_path: Path) -> None:
    """B05, R64: it was paid for, and is not bought again."""
    loses = Loses(REQUEST_MODEL, times=0)
    script = [Reply.of(look_up()), OVERFLOWN, Reply.of("There were 3."), Reply.of("There are 3.")]

    def answer(_: dict[str, Any]) -> Step:
        loses.times = int(len(script) == 2)  # the summary's completion is lost
        return script.pop(0)

    async with reading_desk(temporal, tmp_path, answer, interceptors=[loses]) as desk:
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.COMPLETED
        assert loses.attempts == [1, 1, 1, 2, 1]
        assert (desk.model.received, result.counters.attempts) == (4, 5)


async def test_b05_a_lost_completion_loses_no_request_that_was_too_long_before(
    temporal: Client, tmp_path: Path
) -> None:
    """The limit of requests counts all that were made for a summary, in whichever attempt."""
    loses = Loses(REQUEST_MODEL, times=0)
    script = [Reply.of(look_up()), OVERFLOWN, TOO_LONG, Reply.of("There were 3."), Reply.of("There are 3.")]

    def answer(_: dict[str, Any]) -> Step:
        loses.times = int(len(script) == 2)  # the summary's completion is lost
        return script.pop(0)

    async with reading_desk(temporal, tmp_path, answer, interceptors=[loses]) as desk:
        desk.may_ask_again(1)
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.COMPLETED
        assert loses.attempts == [1, 1, 1, 2, 1]
        assert desk.model.received == result.counters.requests == 5


async def test_what_was_found_too_long_is_not_asked_again_by_the_next_attempt(temporal: Client, tmp_path: Path) -> None:
    """R10: it would be refused again, and the task's requests would not count it."""
    passing = HttpError(500, headers={"retry-after-ms": "10"})
    script = [Reply.of(look_up()), OVERFLOWN, TOO_LONG, passing, Reply.of("There were 3."), Reply.of("There are 3.")]
    async with reading_desk(temporal, tmp_path, lambda _: script.pop(0)) as desk:
        desk.may_ask_again(1)
        result = await desk.run({"goal": GOAL})
        assert result.end_reason is EndReason.COMPLETED
        lengths = [len(json.dumps(body["messages"])) for body in desk.model.requests[2:5]]
        assert lengths[0] > lengths[1] == lengths[2]
        assert (desk.model.received, result.counters.requests, result.counters.attempts) == (6, 5, 6)


async def test_b01_a_cancel_while_the_summary_is_written_leaves_a_valid_transcript(
    temporal: Client, tmp_path: Path
) -> None:
    """B01, R29, R48: the results that were there are kept, and what was done is listed."""
    hold = asyncio.Event()
    script = [Reply.of(reserve()), OVERFLOWN, Reply.of("…", hold=hold)]
    async with reading_desk(temporal, tmp_path, script) as desk:
        handle = await desk.start({"goal": GOAL})
        await desk.model.until(lambda server: server.count == 3)
        assert (await status_of(handle)).counters.requests == 2
        await handle.cancel()
        memo = await cancelled(handle)
        hold.set()
        assert memo["end_reason"] == "aborted_model"
        assert len(await desk.effects()) == 1
        await desk.record("cancel_while_summed_up", handle)


ASKED_AGAIN = pytest.mark.parametrize(
    "answers",
    [
        [Reply.of("I look.", SEARCH, stop_reason="pause_turn")],
        [Reply.of(" ")],
        [Reply.of(" "), Reply.of("There w", stop_reason="max_tokens")],
        [Reply.of("I look.", SEARCH, stop_reason="pause_turn"), Reply(content=[], stop_reason="tool_use")],
    ],
    ids=["paused", "empty", "empty, then cut off", "paused, then no call"],
)


async def assert_stands_in_the_conversation(desk: Desk, task: str, head: str | None = None) -> None:
    """The task's own conversation, not that of the request for its summary; each call has its result."""
    stood = await desk.parts.stores.tasks.stood_at(task)
    assert head in (None, stood)
    chain = await desk.parts.stores.transcripts.chain(stood)
    assert not Root.of(chain[0]).sums_up
    assert [node.content[0]["type"] for node in chain[1:]] == ["text", "tool_use", "tool_result"]


@pytest.mark.long
@ASKED_AGAIN
async def test_r29_a_budget_that_is_spent_while_a_summary_is_asked_again_leaves_the_task_in_its_own_conversation(
    temporal: Client, tmp_path: Path, answers: list[Step]
) -> None:
    """R29, R61: what the model said of the summary is no word to the task."""
    async with reading_desk(temporal, tmp_path, [Reply.of(look_up()), OVERFLOWN, *answers]) as desk:
        says_no_limits(desk)
        handle = await desk.start({"goal": GOAL, "budget": {"requests": 2 + len(answers)}})
        result = await desk.result(handle)
        assert (result.end_reason, result.final_text) == (EndReason.MAX_REQUESTS, "")
        assert (await status_of(handle)).last_text == "I was about to"
        await assert_stands_in_the_conversation(desk, handle.id, result.head)


@pytest.mark.long
@ASKED_AGAIN
async def test_b01_a_cancel_while_a_summary_is_asked_again_leaves_the_task_in_its_own_conversation(
    temporal: Client, tmp_path: Path, answers: list[Step]
) -> None:
    script = [Reply.of(look_up()), OVERFLOWN, *answers, Reply.of("…", hold=asyncio.Event())]
    async with reading_desk(temporal, tmp_path, script) as desk:
        says_no_limits(desk)
        desk.may_ask_again(1)
        handle = await desk.start({"goal": GOAL})
        await desk.model.until(lambda server: server.count == len(script))
        await handle.cancel()
        assert (await cancelled(handle))["end_reason"] == "aborted_model"
        await assert_stands_in_the_conversation(desk, handle.id)


async def test_r9_a_cut_run_is_summed_up_like_an_uncut_one(temporal: Client, tmp_path: Path) -> None:
    """R9, R86: the wish to sum up is carried to the next run."""
    reader = Reader(12)
    async with reading_desk(temporal, tmp_path, reader, cut_events=50) as desk:
        handle = await desk.start({"goal": GOAL})
        result = await desk.result(handle, seconds=60)
        assert (result.end_reason, result.counters.turns) == (EndReason.COMPLETED, 12)
        assert len(await runs_of(handle)) > 2
        assert reader.summaries >= 2
        assert result.counters.requests == desk.model.count == 13 + reader.summaries
        assert desk.model.refusals == []


async def test_the_clerk_can_be_asked_for_a_summary(temporal: Client, tmp_path: Path) -> None:
    """The demo's model, too, comes through a small context; what it reserves twice is reserved once."""
    profiles = {"stock-clerk": CLERK}
    begun = list[Step]([Reply.of(reserve()), OVERFLOWN])

    def script(body: dict[str, Any]) -> Step:
        return begun.pop(0) if begun else clerk(body)

    async with reading_desk(temporal, tmp_path, script, profiles=profiles) as desk:
        result = await desk.run("reserve 2 of A1 for order 1001")
        assert (result.status, result.final_text[:8]) == (Status.UNVERIFIED, "Reserved")
        assert len(await desk.effects()) == 1
        assert desk.model.refusals == []
