"""R105: the recorded histories of each release replay; a workflow that was changed on purpose doesn't."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from settled.worker.wiring import WORKFLOWS
from settled.workflows import asks
from settled.workflows.contract.task import Conduct
from settled.workflows.contract.turn import Ask, Turn
from settled.workflows.converter import data_converter

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))

NEEDED = {
    "asked_again_with_a_higher_limit",
    "budget_extended",
    "budget_of_calls",
    "budget_of_cost",
    "budget_of_input_tokens",
    "budget_of_output_tokens",
    "budget_of_requests",
    "budget_of_time_extended",
    "budget_of_turns",
    "budget_of_wall_time",
    "budget_reset",
    "budget_wait_cancelled",
    "budget_wait_carried",
    "cancel_during_model_request",
    "cancel_during_write",
    "cancel_while_summed_up",
    "cancel_while_unknown",
    "carried_wait",
    "carried_wait_for_person",
    "compacted",
    "cut_run_1",
    "cut_run_2",
    "cut_run_3",
    "deadline_of_model_request",
    "deadline_of_model_request_extended",
    "declined_then_changed",
    "invalid_input_of_calls",
    "invalid_task",
    "lowered_by_the_model_that_took_over",
    "model_error",
    "no_tool",
    "one_read",
    "refused_and_taken_over",
    "reset_during_write",
    "resolved_by_person",
    "same_key_twice",
    "settlement_absent",
    "settlement_closes",
    "settlement_found",
    "settlement_resolved",
    "settlement_word_again",
    "streamed",
    "streamed_run_1",
    "streamed_run_2",
    "summary_asked_again_after_end_turn",
    "summary_asked_again_after_max_tokens",
    "summary_asked_again_after_pause_turn",
    "summary_asked_again_after_tool_use",
    "summary_refused_and_taken_over",
    "summed_up_after_refusal",
    "summed_up_after_stop",
    "three_parallel_reads",
    "two_reads",
    "undone",
    "unknown_absent_resent",
    "unknown_found",
    "unresolved_operation",
    "waited_for_resource",
    "write_completed",
}


def recorded(name: str) -> str:
    """A recorded history, as JSON text."""
    return (Path(__file__).parent / "histories" / f"{name}.json").read_text()


async def replay(text: str) -> Exception | None:
    """Replay a history; returns what went wrong."""
    history = WorkflowHistory.from_json("replayed", text)
    replayer = Replayer(workflows=WORKFLOWS, data_converter=data_converter)
    return (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure


def test_every_kind_of_history_is_recorded() -> None:
    """A way through the workflows that isn't recorded could be changed unseen."""
    assert {path.stem for path in HISTORIES} == NEEDED


@pytest.mark.parametrize("name", [path.stem for path in HISTORIES])
async def test_a_recorded_history_replays(name: str) -> None:
    assert await replay(recorded(name)) is None


async def test_a_workflow_that_was_changed_on_purpose_fails_to_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: one more command before each model request, and the history doesn't fit any more."""
    request_model = asks.request_model

    async def hesitate(ask: Ask, conduct: Conduct, left: float) -> Turn:
        await workflow.sleep(1)
        return await request_model(ask, conduct, left)

    monkeypatch.setattr(asks, "request_model", hesitate)
    for name in ("no_tool", "write_completed", "cut_run_2"):
        failure = await replay(recorded(name))
        assert isinstance(failure, workflow.NondeterminismError)


def rewritten(text: str, old: str, new: str) -> str:
    """The history with a text replaced in its payloads."""

    def visit(value: Any) -> Any:
        if isinstance(value, list):
            return [visit(item) for item in value]
        if not isinstance(value, dict):
            return value
        changed = {name: visit(item) for name, item in value.items()}
        if isinstance(changed.get("data"), str) and "metadata" in changed:
            data = base64.b64decode(changed["data"]).decode().replace(old, new)
            changed["data"] = base64.b64encode(data.encode()).decode()
        return changed

    return json.dumps(visit(json.loads(text)))


async def test_r106_a_command_from_a_newer_release_stops_the_task_and_doesn_t_fail_it() -> None:
    """It fails the workflow task, which a worker that knows the command takes up again; nothing is guessed."""
    text = recorded("no_tool")
    failure = await replay(rewritten(text, '"do":"end"', '"do":"sing"'))
    assert isinstance(failure, RuntimeError)
    assert "decod" in str(failure).lower()


async def test_r106_values_with_new_fields_and_members_from_a_newer_release_still_replay() -> None:
    """A rollback: what the newer release has added is ignored."""
    text = recorded("write_completed")
    newer = rewritten(text, '"head":', '"mood":"good","head":')
    newer = rewritten(newer, '"evidence":"answer"', '"evidence":"oracle"')
    assert newer != json.dumps(json.loads(text))
    assert await replay(newer) is None


def activities_in(name: str) -> list[dict[str, Any]]:
    """What a recorded history says of each activity that was scheduled."""
    events = json.loads(recorded(name))["events"]
    attributes = "activityTaskScheduledEventAttributes"
    return [event[attributes] for event in events if attributes in event]


@pytest.mark.parametrize("name", [path.stem for path in HISTORIES])
def test_r96_every_activity_has_explicit_time_outs_and_a_write_is_attempted_once(name: str) -> None:
    """By what stands in history, not by what the code seems to say."""
    for scheduled in activities_in(name):
        kind = scheduled["activityType"]["name"]
        assert float(scheduled["startToCloseTimeout"].rstrip("s")) > 0, kind
        if kind == "dispatch":
            assert scheduled["retryPolicy"]["maximumAttempts"] == 1
        if kind in ("request_model", "run_read"):
            assert float(scheduled["heartbeatTimeout"].rstrip("s")) > 0, kind
            assert scheduled["retryPolicy"]["maximumAttempts"] > 1
