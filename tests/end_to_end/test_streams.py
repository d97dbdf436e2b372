"""R31: the model's text, published while it is written, for tasks whose profile asks for it; nothing rests on it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
    WorkflowUpdateStage,
)
from temporalio.contrib.workflow_streams import WorkflowStreamClient
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer

from settled.local.messages_script import Reply, Stall, StreamError, text
from settled.worker.wiring import WORKFLOWS
from settled.workflows import streaming
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.names import EXTEND_BUDGET
from settled.workflows.contract.stream import TEXT_TOPIC, TextPiece
from settled.workflows.contract.task import OnExhausted
from settled.workflows.converter import data_converter
from settled.workflows.streaming import HELD, MOST_KEPT, MOST_READERS, TOO_MANY
from tests.crash.operator import current
from tests.desk import CLERK, Desk, look_up, open_desk, until
from tests.end_to_end.test_runs import later_run_of
from tests.end_to_end.test_writes import waits

TELLER = CLERK.model_copy(update={"stream": True})
PATIENT = TELLER.model_copy(update={"on_exhausted": OnExhausted.WAIT})
NEVER = {"topics": [TEXT_TOPIC], "from_offset": 10_000}
"""What a reader asks who waits for what won't come: as one who is long gone, and whose question stays."""
POLL = "__temporal_workflow_stream_poll"
PUBLISH = "__temporal_workflow_stream_publish"
UNFINISHED = "TMPRL1102"
WORDS = "There are three of them, and ten of the others."


@pytest.fixture
async def teller(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose agent publishes what it writes."""
    async with open_desk(temporal, tmp_path, profiles={"teller": TELLER}) as desk:
        yield desk


@asynccontextmanager
async def reading(desk: Desk, task: str) -> AsyncIterator[list[TextPiece]]:
    """The pieces that a reader is given, from the task's opening to its end."""
    pieces: list[TextPiece] = []

    async def read_on() -> None:
        client = WorkflowStreamClient.create(desk.client, task)
        async for item in client.subscribe([TEXT_TOPIC], result_type=TextPiece):
            pieces.append(item.data)

    reader = asyncio.create_task(read_on())
    yield pieces
    async with asyncio.timeout(20):
        await reader


def slow(words: str, *more: Any, after: int) -> Stall:
    """A reply that pauses while it is written."""
    return Stall(seconds=2.5, after_events=after, ping_every=0.2, reply=Reply.of(text(words), *more))


async def opened(desk: Desk, count: int = 1) -> None:
    """Wait until the task has made a request: before it is open, it has no stream."""
    await desk.model.until(lambda model: model.count >= count, 60)


async def runs_of(desk: Desk, handle: WorkflowHandle[Any, Any]) -> list[WorkflowHistory]:
    """The histories of all runs of the task, the first one first."""
    histories: list[WorkflowHistory] = []
    run = handle.first_execution_run_id
    while run:
        history = await desk.client.get_workflow_handle(handle.id, run_id=run).fetch_history()
        histories.append(history)
        run = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return histories


async def replays(histories: list[WorkflowHistory]) -> bool:
    """Whether they all replay."""
    replayer = Replayer(workflows=WORKFLOWS, data_converter=data_converter)
    results = [await replayer.replay_workflow(one, raise_on_replay_failure=False) for one in histories]
    return all(result.replay_failure is None for result in results)


async def test_a_reader_is_given_the_text_while_it_is_written(teller: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """In order, in pieces of a second or more; the end of the response is told; the result doesn't differ."""
    teller.will_say(slow(WORDS, after=4))
    handle = await teller.start("how many are there?", "streamed")
    await opened(teller)
    async with reading(teller, "streamed") as pieces:
        await until(lambda: _has_any(pieces))
        assert not pieces[0].whole, "it was not told yet that this was all"
        result = await handle.result()
    assert result.final_text == WORDS
    assert "".join(piece.text for piece in pieces) == WORDS
    assert [piece.start for piece in pieces] == [sum(len(one.text) for one in pieces[:n]) for n in range(len(pieces))]
    assert [piece.whole for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert {(piece.attempt, piece.model) for piece in pieces} == {(1, "claude-scripted")}
    assert 2 <= len(pieces) <= 4
    (history,) = await runs_of(teller, handle)
    assert await replays([history])
    assert UNFINISHED not in caplog.text
    await teller.record("streamed", handle)


async def _has_any(pieces: list[TextPiece]) -> bool:
    return bool(pieces)


async def test_an_attempt_that_failed_is_followed_by_one_that_begins_anew(teller: Desk) -> None:
    broken = StreamError(after_events=5, reply=Reply.of(WORDS))
    teller.will_say(broken, Stall(seconds=0.1, after_events=4, reply=Reply.of("never mind")))
    teller.may_ask_again(1)
    handle = await teller.start("go", "anew")
    await opened(teller)
    async with reading(teller, "anew") as pieces:
        await handle.result()
    last = [piece for piece in pieces if piece.attempt == 2]
    assert last[0].start == 0
    assert "".join(piece.text for piece in last) == "never mind"
    assert len({piece.request for piece in pieces}) == 1
    assert not any(piece.whole for piece in pieces if piece.attempt == 1)


async def test_a_reader_is_taken_along_into_the_next_run_and_misses_nothing(
    temporal: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R9: the runs are continued while somebody reads; no reader is cut off, and each run replays."""
    async with open_desk(temporal, tmp_path, profiles={"teller": TELLER}, cut_events=50) as desk:
        words = [f"{n}: {WORDS}" for n in range(8)]
        desk.will_say(*(Reply.of(text(said), look_up()) for said in words), "That is all.")
        handle = await desk.start("look again and again", "cut")
        await opened(desk)
        with caplog.at_level(logging.WARNING):
            async with reading(desk, "cut") as pieces:
                result = await desk.result(handle, 40)
        assert result.end_reason is EndReason.COMPLETED
        histories = await runs_of(desk, handle)
        assert len(histories) > 1
        assert [piece.text for piece in pieces if piece.text] == [*words, "That is all."]
        assert await replays(histories)
        assert UNFINISHED not in caplog.text
        assert desk.model.count == 9
        for number, history in enumerate(histories[:2], 1):
            await desk.record(f"streamed_run_{number}", temporal.get_workflow_handle("cut", run_id=history.run_id))


@pytest.mark.parametrize(("cut_events", "runs"), [(50, 3), (8_000, 1)], ids=["continued", "ended"])
async def test_a_reader_who_waits_for_what_has_not_come_is_let_go_with_the_run(
    temporal: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture, cut_events: int, runs: int
) -> None:
    """Neither does it keep the run from being continued, nor is it cut off: its question is answered with nothing."""
    async with open_desk(temporal, tmp_path, profiles={"teller": TELLER}, cut_events=cut_events) as desk:
        held = asyncio.Event()
        desk.will_say(Reply.of(look_up(), hold=held), *(look_up() for _ in range(7)), "That is all.")
        handle = await desk.start("look again and again", "patient")
        await opened(desk)
        asked = await handle.start_update(POLL, NEVER, wait_for_stage=WorkflowUpdateStage.ACCEPTED)
        held.set()
        await desk.result(handle, 40)
        async with asyncio.timeout(5):
            assert (await asked.result())["items"] == []
        assert len(await runs_of(desk, handle)) >= runs
        assert UNFINISHED not in caplog.text


async def test_what_readers_may_still_fetch_is_bounded(temporal: Client, tmp_path: Path) -> None:
    """It stands in the input of each continued run. Nothing of it stands in the input of an activity."""
    async with open_desk(temporal, tmp_path, profiles={"teller": TELLER}, cut_events=50) as desk:
        desk.will_say(*(Reply.of(text("x" * 30_000), look_up()) for _ in range(8)), "That is all.")
        handle = await desk.start("talk", "much")
        await desk.result(handle, 40)
        histories = await runs_of(desk, handle)
        assert len(histories) > 1
        started = [history.events[0].workflow_execution_started_event_attributes for history in histories]
        carried = [sum(len(one.data) for one in start.input.payloads) for start in started]
        assert 30_000 < max(carried) < MOST_KEPT + 20_000
        scheduled = [
            event.activity_task_scheduled_event_attributes.input.ByteSize()
            for history in histories
            for event in history.events
        ]
        assert max(scheduled) < 10_000


async def test_a_long_text_that_comes_at_once_is_told_to_its_end(teller: Desk) -> None:
    """The reader may have missed some of it, but learns that it is whole."""
    teller.will_say(slow("\N{OK HAND SIGN}" * 115_000, after=1))
    handle = await teller.start("tell")
    await opened(teller)
    async with reading(teller, handle.id) as pieces:
        await teller.result(handle)
    assert [piece.stop_reason for piece in pieces if piece.whole] == ["end_turn"]


async def test_who_did_not_ask_for_a_stream_has_none(desk: Desk) -> None:
    """Not one event of it stands in the task's history, and who wants to read along is told so."""
    desk.will_say(slow(WORDS, after=4))
    handle = await desk.start("how many are there?", "silent")
    await opened(desk)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        async with reading(desk, "silent"):
            pass
    assert "not found" in str(refused.value.cause)
    await handle.result()
    (history,) = await runs_of(desk, handle)
    assert PUBLISH not in history.to_json()
    assert not [event for event in history.events if event.HasField("workflow_execution_signaled_event_attributes")]


async def test_the_model_reads_nothing_of_the_stream(teller: Desk) -> None:
    teller.will_say(Reply.of(text(WORDS), look_up()), "Done.")
    await teller.run("how many are there?")
    goal, said, results = teller.model.requests[1]["messages"]
    assert (goal["content"], said["content"][0]) == ([text("how many are there?")], text(WORDS))
    assert [block["type"] for block in results["content"]] == ["tool_result"]
    assert {name for request in teller.model.requests for name in request} == {
        *("model", "max_tokens", "system", "cache_control", "tools", "messages"),
        "stream",  # the API's own: a request is always answered as events
    }


async def test_a_piece_that_nobody_takes_fails_no_request(teller: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """The task is terminated while it streams: its worker says so, and goes on."""
    teller.will_say(slow(WORDS, after=4))
    handle = await teller.start("go", "gone")
    await opened(teller)
    await handle.terminate()

    async def told() -> bool:
        return "a piece of the task's stream was not published" in caplog.text

    await until(told)
    teller.will_say("Still here.")
    assert (await teller.run("go")).final_text == "Still here."


# However many read along, a person is heard


@pytest.fixture
async def patient(temporal: Client, tmp_path: Path) -> AsyncIterator[Desk]:
    """A desk whose agent publishes what it writes, and waits where its budget is spent."""
    async with open_desk(temporal, tmp_path, profiles={"teller": PATIENT}, cut_events=50) as desk:
        yield desk


async def readers_who_are_gone(handle: WorkflowHandle[Any, Any], count: int) -> list[WorkflowUpdateHandle[Any]]:
    """Readers who wait for what won't come."""
    accepted = WorkflowUpdateStage.ACCEPTED
    return [await handle.start_update(POLL, NEVER, wait_for_stage=accepted) for _ in range(count)]


async def extend(handle: WorkflowHandle[Any, Any], turns: int) -> None:
    """Add to the budget, within a time that a person would wait."""
    async with asyncio.timeout(10):
        await handle.execute_update(EXTEND_BUDGET, {"turns": turns})


async def test_a_task_that_waits_for_its_budget_is_extended_however_many_read_along(patient: Desk) -> None:
    """Temporal takes ten updates at a time, and each reader who waits is one. Those without a place are told so."""
    patient.will_say(Reply.of(text(WORDS), look_up()), Reply.of(text("Go on."), look_up()), "That is all.")
    handle = await patient.start({"goal": "look", "budget": {"turns": 1}}, "crowded")
    await until(lambda: waits(handle, "a larger budget"))
    heard: list[list[str]] = [[] for _ in range(2 * MOST_READERS + 2)]

    async def read(words: list[str]) -> None:
        async for item in WorkflowStreamClient.create(patient.client, "crowded").subscribe(result_type=TextPiece):
            words.append(item.data.text)

    readers = [asyncio.create_task(read(words)) for words in heard]

    async def sorted_out() -> bool:
        return sum(reader.done() for reader in readers) == len(readers) - MOST_READERS

    await until(sorted_out)
    for _ in range(3):
        await extend(handle, 5)
    assert (await patient.result(handle)).end_reason is EndReason.COMPLETED
    async with asyncio.timeout(20):
        ends = await asyncio.gather(*readers, return_exceptions=True)
    kept = [words for words, end in zip(heard, ends, strict=True) if end is None]
    assert ["".join(words) for words in kept] == [WORDS + "Go on." + "That is all."] * MOST_READERS
    refused = [end for end in ends if end is not None]
    assert [getattr(getattr(end, "cause", None), "type", end) for end in refused] == [TOO_MANY] * len(refused)
    assert await replays(await runs_of(patient, handle))


async def test_readers_who_are_gone_neither_shut_others_out_nor_keep_a_wait_from_being_carried_over(
    patient: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes when all places are taken is told so; the place of who has had it for long is given away."""
    patient.will_say(Reply.of(text(WORDS), look_up()), "That is all.")
    handle = await patient.start({"goal": "look", "budget": {"turns": 1}}, "haunted")
    await until(lambda: waits(handle, "a larger budget"))
    gone = await readers_who_are_gone(handle, MOST_READERS)
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(POLL, NEVER)
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == TOO_MANY
    monkeypatch.setattr(streaming, "HELD", timedelta(0))
    await readers_who_are_gone(handle, 1)
    async with asyncio.timeout(5):
        assert (await gone[0].result())["items"] == []
    monkeypatch.setattr(streaming, "HELD", HELD)
    for _ in range(60):
        await handle.signal("wake")
    await until(lambda: later_run_of(handle))
    async with asyncio.timeout(5):
        assert [(await one.result())["items"] for one in gone] == [[]] * MOST_READERS
    await extend(current(patient, handle), 5)
    assert (await patient.result(current(patient, handle))).end_reason is EndReason.COMPLETED
    assert await replays(await runs_of(patient, handle))
