"""R6, R10, R13, R89: what is sent is made of the transcript by one pipeline, and grows with it without changing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settled.activities.calls import ShownResult, is_call, proposed_calls, result_blocks, shown_ids
from settled.activities.transcript import Node, Role, make_node
from settled.activities.view import STEPS, last_said, since_root, view
from settled.local.messages_rules import first_fault

Json = dict[str, Any]
ROOT = make_node(None, Role.ROOT, {"model": "m", "max_tokens": 9, "system": "You are the clerk."})
GOAL = make_node(ROOT, Role.USER, [{"type": "text", "text": "Look up A1."}])

words = st.text(st.characters(), max_size=8)  # halves of surrogate pairs, too
block = st.one_of(
    words.map(lambda said: {"type": "text", "text": said}),
    st.just({"type": "thinking", "thinking": "", "signature": "sig_1"}),
    st.sampled_from(["a", "b", "call_2_0", "", "no id!", 7, None]).map(
        lambda call_id: {"type": "tool_use", "id": call_id, "name": "look_up", "input": {"n": 1}}
    ),
)
turns = st.lists(st.lists(block, max_size=5), max_size=6)


def answered(node: Node, said: str) -> Node:
    """The user message that answers each call of a message; a word of the executor's where there are none."""
    calls = proposed_calls(node.content)
    shown = {call.slot: ShownResult(text=f"{said} {call.slot}", is_error=False) for call in calls}
    blocks = result_blocks(calls, shown, shown_ids(node)) or [{"type": "text", "text": "Go on."}]
    return make_node(node, Role.USER, blocks)


def conversations(made: Sequence[Sequence[Json]]) -> list[list[Node]]:
    """The conversation as it stood before each request, the shortest first."""
    chain = [ROOT, GOAL]
    stood = [list(chain)]
    for number, content in enumerate(made):
        chain.append(make_node(chain[-1], Role.ASSISTANT, list(content)))
        chain.append(answered(chain[-1], f"turn {number}, slot"))
        stood.append(list(chain))
    return stood


@settings(deadline=None)
@given(turns)
def test_r6_the_view_of_a_longer_conversation_begins_with_that_of_a_shorter_one(made: list[list[Json]]) -> None:
    """R6: byte for byte; the provider binds a response to it, and caches by it."""
    stood = [[json.dumps(message) for message in view(chain)] for chain in conversations(made)]
    for shorter, longer in pairwise(stood):
        assert longer[: len(shorter)] == shorter


@settings(deadline=None)
@given(turns)
def test_r89_calls_and_results_stay_together_and_in_order(made: list[list[Json]]) -> None:
    """R4, R13, R89: whatever the calls' ids are, each has its own result in the next message."""
    messages = view(conversations(made)[-1])
    asked = [[b["id"] for b in message["content"] if is_call(b)] for message in messages]
    answers = [[b for b in message["content"] if b["type"] == "tool_result"] for message in messages]
    for place, ids in enumerate(asked):
        if ids:
            assert [answer["tool_use_id"] for answer in answers[place + 1]] == ids
    flat = [call_id for ids in asked for call_id in ids]
    assert len(flat) == len(set(flat))
    numbers = [
        tuple(map(int, answer["content"].replace("turn ", "").split(", slot "))) for turn in answers for answer in turn
    ]
    assert numbers == sorted(numbers)
    assert sum(is_call(b) for content in made for b in content) == len(flat) == len(numbers)


@settings(deadline=None)
@given(turns)
def test_r89_what_comes_out_is_what_the_api_takes_whatever_the_model_has_said(made: list[list[Json]]) -> None:
    """B09, B23, R27."""
    messages = view(conversations(made)[-1])
    json.dumps(messages, ensure_ascii=False).encode()
    assert first_fault({**ROOT.content, "messages": messages}) is None


@settings(deadline=None)
@given(turns)
def test_r10_making_the_view_changes_nothing_and_comes_out_the_same_again(made: list[list[Json]]) -> None:
    """R10: the transcript is one thing, the view that is made of it another."""
    chain = conversations(made)[-1]
    before = [node.body for node in chain]
    assert json.dumps(view(chain)) == json.dumps(view(chain))
    assert [node.body for node in chain] == before


@settings(deadline=None)
@given(turns)
def test_r89_every_step_keeps_the_order_and_adds_no_message(made: list[list[Json]]) -> None:
    messages = since_root(conversations(made)[-1])
    for step in STEPS:
        after = step(messages)
        places = [message.depth for message in after]
        assert places == sorted(set(places))
        assert set(places) <= {message.depth for message in messages}
        messages = after


def test_r89_what_lies_behind_the_last_root_is_not_sent() -> None:
    """Two conversations that somebody has strung together: only the later one counts."""
    first = conversations([[{"type": "text", "text": "Hello."}]])[-1]
    assert view([*first, ROOT, GOAL]) == view([ROOT, GOAL])


def test_r40_the_models_last_words_are_all_messages_that_nobody_s_words_part() -> None:
    """What isn't sent parts nothing, and is none of them."""
    blank, one, two = ({"type": "text", "text": words} for words in (" ", "One.", "Two."))
    first = make_node(GOAL, Role.ASSISTANT, [one, blank])
    paused = make_node(first, Role.ASSISTANT, [two])
    empty = make_node(answered(paused, ""), Role.ASSISTANT, [blank])
    assert last_said([ROOT, GOAL]) == []
    assert last_said([ROOT, GOAL, first]) == [one]
    assert last_said([ROOT, GOAL, first], [two, blank]) == [one, two]
    chain = [ROOT, GOAL, first, paused, answered(paused, ""), empty]
    assert last_said(chain) == last_said(chain[:-1]) == last_said(chain, [blank]) == [one, two]
    assert last_said(chain, [two]) == [two]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_no_step_can_be_left_out(step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each does something that the API, or a request's encoding, asks for."""
    spoilt: list[list[Json]] = [
        [{"type": "text", "text": " "}],
        [{"type": "text", "text": "\ud83d"}, {"type": "tool_use", "id": "", "name": "", "input": {}}],
    ]
    chain = conversations(spoilt)[-1]
    if step.__name__ == "paired":
        chain = chain[:-1]

    def comes_out() -> str | None:
        try:
            messages = view(chain)
            json.dumps(messages, ensure_ascii=False).encode()
            return first_fault({**ROOT.content, "messages": messages})
        except Exception as error:
            return str(error)

    with_it = comes_out()
    monkeypatch.setattr("settled.activities.view.STEPS", tuple(other for other in STEPS if other is not step))
    assert comes_out() != with_it
