"""What became of a response: its stop reason says so first, then where the task went on from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from settled.activities.responses import Purpose, Stored
from settled.activities.roots import Root
from settled.activities.transcript import Node, Role, make_node
from settled.local.messages_script import Reply, text, tool_use
from settled.worker.transcript_fate import Fate, Fates
from settled.workflows.contract.names import REQUEST_MODEL
from settled.workflows.contract.turn import Again
from tests.desk import look_up, open_desk
from tests.worker.test_transcript import shown, told

CLOSED = 5.0
"""When a task was closed."""
CALL = tool_use("look", {})
ROOT = Root(parameters={"model": "m"}).node()
GOAL = make_node(ROOT, Role.USER, [text("go")])


def answer(asked: Node, *content: Any, stopped: Any = "end_turn", **more: Any) -> tuple[Stored, Node]:
    """A response, and its node."""
    node = make_node(asked, Role.ASSISTANT, list(content))
    message = {"content": list(content), "stop_reason": stopped}
    return Stored(asked=asked.digest, message=message, request_id="", node=node.digest, **more), node


def fates(answers: Sequence[Stored], *nodes: Node, head: Node, closed: bool = True) -> list[Fate]:
    """The fates of these responses of a task that stands there."""
    known = {node.digest: node for node in (ROOT, GOAL, *nodes)}
    told = Fates(answers, known, head.digest, CLOSED if closed else None)
    return [told.of(one) for one in answers]


@pytest.mark.parametrize(
    ("stopped", "content", "fate"),
    [
        ("max_tokens", [text("Hm"), CALL], Fate.CUT),
        ("refusal", [CALL], Fate.REFUSED),
        ("model_context_window_exceeded", [text("Hm")], Fate.OVERFULL),
        ("tool_use", [text("I call it.")], Fate.MALFORMED),
        ("pause_turn", [CALL], Fate.INVALID),
        ("of_a_later_year", [text("Hm")], Fate.INVALID),
        (None, [text("Hm")], Fate.INVALID),
        (["end_turn"], [text("Hm")], Fate.INVALID),
        ("end_turn", [text("Hm")], Fate.KEPT),
    ],
)
def test_what_the_stop_reason_rules_out_is_not_kept_though_the_task_ended_with_it(
    stopped: Any, content: list[Any], fate: Fate
) -> None:
    """Its calls were answered when the task was closed, or the head is the response itself."""
    stored, node = answer(GOAL, *content, stopped=stopped)
    results = make_node(node, Role.USER, [{"type": "tool_result"}])
    assert fates([stored], node, results, head=results) == [fate]
    assert fates([stored], node, head=node) == [fate]
    assert fates([stored], node, head=GOAL, closed=False) == [fate]


def test_equal_responses_have_fates_of_their_own() -> None:
    """They share a node: one was cut, one was forgotten by a reset, the last one stands."""
    cut, node = answer(GOAL, text("Hm"), stopped="max_tokens")
    forgotten, _ = answer(GOAL, text("Hm"))
    stands, _ = answer(GOAL, text("Hm"))
    assert fates([cut, forgotten, stands], node, head=node) == [Fate.CUT, Fate.LEFT_BEHIND, Fate.KEPT]


def test_what_a_reset_has_left_behind_is_not_kept_though_it_was_gone_on_from() -> None:
    before, left = answer(GOAL, CALL, stopped="tool_use")
    results = make_node(left, Role.USER, [{"type": "tool_result"}])
    further, last = answer(results, text("Done."))
    after, node = answer(GOAL, text("Done at once."))
    nodes = (left, results, last, node)
    expected = [Fate.LEFT_BEHIND, Fate.LEFT_BEHIND, Fate.KEPT]
    assert fates([before, further, after], *nodes, head=node) == expected
    assert fates([before, further, after], *nodes, head=GOAL, closed=False) == expected, "while the task runs, too"


def test_a_conversation_that_another_one_goes_on_from_is_kept() -> None:
    first, node = answer(GOAL, text("Hm"))
    root = Root(parameters={"model": "n"}, replaces=node.digest, why=Again.COMPACTED).node()
    told_on = make_node(root, Role.USER, [text("So far: Hm")])
    summary, said = answer(told_on, text("Hm"), purpose=Purpose.SUMMARY)
    second, end = answer(told_on, text("Done."))
    fate = fates([first, summary, second], node, root, told_on, said, end, head=end)
    assert fate == [Fate.KEPT, Fate.SUMMARY, Fate.KEPT]


def test_the_last_response_is_kept_while_the_task_runs_and_left_out_if_it_ended_without_it() -> None:
    stored, node = answer(GOAL, CALL, stopped="tool_use")
    assert fates([stored], node, head=GOAL, closed=False) == [Fate.KEPT]
    assert fates([stored], node, head=GOAL) == [Fate.UNTAKEN]
    results = make_node(node, Role.USER, [{"type": "tool_result"}])
    more, after = answer(results, text("Done."))
    # A release that didn't note the close: the head tells, unless it is the goal.
    assert fates([stored, more], node, results, after, head=results, closed=False) == [Fate.KEPT, Fate.UNTAKEN]


def test_a_closed_task_that_was_reset_goes_on() -> None:
    """What it asks after its close is no straggler."""
    first, end = answer(GOAL, text("Done."))
    again, node = answer(GOAL, CALL, stopped="tool_use", at=CLOSED + 1)
    assert fates([first, again], end, node, head=end) == [Fate.LEFT_BEHIND, Fate.KEPT]
    late, _ = answer(GOAL, CALL, stopped="tool_use", at=CLOSED + 1)
    assert fates([late], node, head=GOAL) == [Fate.UNTAKEN]


class _Late(Interceptor):
    """Holds a response back until it is told to let it go, whatever Temporal says meanwhile."""

    def __init__(self) -> None:
        self.there, self.go = asyncio.Event(), asyncio.Event()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        late = self

        class Holding(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:
                result = await super().execute_activity(input)
                if activity.info().activity_type == REQUEST_MODEL:
                    late.there.set()
                    with suppress(asyncio.CancelledError):
                        await late.go.wait()
                return result

        return Holding(next)


async def test_a_response_that_came_as_the_task_was_cancelled_was_not_taken(temporal: Client, tmp_path: Path) -> None:
    late = _Late()
    async with open_desk(temporal, tmp_path, interceptors=[late]) as desk:
        desk.will_say(Reply.of("Let me see.", look_up()))
        handle = await desk.start("how many?", "late")
        await late.there.wait()
        assert "result          none so far" in (await shown(desk, "late")).lines
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        late.go.set()
        assert [(one["kept"], one["fate"]) for one in (await told(desk, "late"))["requests"]] == [(False, Fate.UNTAKEN)]
        assert "result          none: it was not run" in (await shown(desk, "late")).lines
