"""The stock clerk: what it understands, what it proposes, and that it claims nothing a result doesn't say."""

import json
import subprocess
import sys
from typing import Any

import pytest
from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

from settled.activities.composing import news_text
from settled.activities.retelling import SYSTEM
from settled.activities.summary import opening
from settled.local.clerk import LOOK_UP, NEWS, RELEASE, RESERVE, SUMMED_UP, UNDERSTANDS, clerk, goals
from settled.local.messages_rules import first_fault
from settled.local.messages_server import MessagesServer
from settled.workflows.contract.operation import OperationState, OperationView

Json = dict[str, Any]
WORDS = {"sku": "A1", "quantity": "2", "order": "1001"}


def tool(name: str, **properties: Json) -> Json:
    return {"name": name, "input_schema": {"type": "object", "properties": properties}}


TOOLS = [tool(RESERVE), tool(RELEASE), tool(LOOK_UP)]


def told(goal: str, *more: Json, tools: list[Json] | None = None) -> Json:
    messages = [{"role": "user", "content": goal}, *more]
    return {"model": "m", "max_tokens": 9, "messages": messages, "tools": TOOLS if tools is None else tools}


def said(request: Json) -> str:
    """The clerk's one sentence."""
    assert first_fault(request) is None
    reply = clerk(request)
    assert reply.stop_reason == "end_turn"
    (block,) = reply.content
    return str(block["text"])


def answered(goal: str, content: Any, *, is_error: bool = False, note: str = "") -> Json:
    """The request after the clerk's proposal has this result, and a note of the executor's behind it."""
    proposal = clerk(told(goal)).blocks()
    results: list[Json] = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": content, "is_error": is_error}
        for block in proposal
    ]
    notes = [{"type": "text", "text": note}] if note else []
    return told(goal, {"role": "assistant", "content": proposal}, {"role": "user", "content": [*results, *notes]})


GOAL = "reserve 2 of A1 for order 1001"
RELEASING = "release the reservation of order 1001 of A1"


@pytest.mark.parametrize(
    ("goal", "more"),
    [
        (GOAL, {}),
        ("Please RESERVE two units of SKU A1 for the order #1001.", {"quantity": "two"}),
        ("Could you reserve 2 A1 for order number 1001?", {}),
        ("reserve 2x A1 to order 1001", {}),
        ("For order 1001, please reserve 2 pieces of A1", {}),
        ("Reserve an item A1\nfor my order SO-7, line 3.", {"quantity": "an", "order": "SO-7", "line": "3"}),
        ("Don't worry. Reserve 2 of A1 for order 1001!", {}),
        ("reserve 10 of b-2.x for order 1001", {"quantity": "10", "sku": "b-2.x"}),
    ],
)
def test_a_wish_to_reserve_is_understood_in_any_usual_wording(goal: str, more: dict[str, str]) -> None:
    assert goals(goal) == [(RESERVE, {**WORDS, **more})]


@pytest.mark.parametrize(
    ("goal", "more"),
    [
        (RELEASING, {}),
        ("Please RELEASE the reservation of A1 for order 1001.", {}),
        ("release A1 for order 1001", {}),
        ("release all the A1 reserved for order #1001", {}),
        ("release what is reserved of A1 for order number 1001", {}),
        ("undo my reservation of article A1 for the order SO-7, line 3", {"order": "SO-7", "line": "3"}),
        ("undo the stock reservation for order 1001 of b-2.x, line 3", {"sku": "b-2.x", "line": "3"}),
        ("release the reservation of order 1001, line 3, of A1", {"line": "3"}),
        ("release the reservation of order 1001 of 12-AB.", {"sku": "12-AB"}),
        ("For order 1001, please release the reservation of A1", {}),
        ("Don't worry. Release A1\nfor order 1001!", {}),
        (f"Look up A1, and then {RELEASING}", {}),
    ],
)
def test_a_wish_to_release_is_understood_in_any_usual_wording(goal: str, more: dict[str, str]) -> None:
    assert goals(goal) == [(RELEASE, {"sku": "A1", "order": "1001", **more})]


@pytest.mark.parametrize(
    "goal",
    [
        *("release 2 of A1 for order 1001", "release two A1 for order 1001", "release some of A1 for order 1001"),
        *("release the reservation of order 1001 of 2 of A1", "release the reservation of order 1001 of 2x A1"),
    ],
)
def test_a_part_of_a_reservation_is_not_released(goal: str) -> None:
    """A release is of all its pieces."""
    assert said(told(goal)) == UNDERSTANDS


def test_what_is_to_be_both_reserved_and_released_is_left_alone() -> None:
    """One of the two only, or the two at once, would be something else."""
    assert said(told(f"{RELEASING}, then reserve 3 of A1 for order 1001")) == UNDERSTANDS


@pytest.mark.parametrize(
    "goal",
    [
        *(
            "how many A1 are there?",
            "How many pieces of A1 do we have in stock",
            "look up A1",
            "LOOKUP A1",
            "Look up the A1.",
        ),
        *("check the stock level of A1", "is there any A1 left?", "how much stock of A1 is there, please?"),
    ],
)
def test_a_question_for_stock_is_understood_in_any_usual_wording(goal: str) -> None:
    assert goals(goal) == [(LOOK_UP, {"sku": "A1"})]


@pytest.mark.parametrize(
    "goal",
    [
        *("Hello", "reserve 2 of A1", "reserve some of A1 for order 1001", "release 2 of A1 for order 1001"),
        *("do not reserve 2 of A1 for order 1001", "Never, please, reserve 2 of A1 for order 1001"),
        *("the reservation of 2 of A1 for order 1001", "check whether it works", "how many are there?"),
        *("release the reservation of order 1001", "release A1", "the release of A1 for order 1001"),
        *(f"do not {RELEASING}", "the release for A1 for order 1001", "is a release of A1 for order 1001 possible?"),
    ],
)
def test_the_clerk_says_who_it_is_when_it_does_not_understand(goal: str) -> None:
    assert said(told(goal)) == UNDERSTANDS
    assert "not a model" in UNDERSTANDS


def test_a_reservation_is_proposed_under_an_id_that_is_new_in_every_turn() -> None:
    request = told(GOAL)
    reply = clerk(request)
    (call,) = reply.content
    assert reply.stop_reason == "tool_use"
    assert (call["name"], call["input"]) == (RESERVE, {"sku": "A1", "quantity": 2, "order": "1001"})
    assert clerk(request) == reply, "a pure function"
    later = clerk({**request, "messages": [*request["messages"], {"role": "user", "content": GOAL}]})
    assert later.content[0]["id"] != call["id"]


def test_a_release_is_proposed() -> None:
    (call,) = clerk(told(f"{RELEASING}, line 3")).content
    word, number = {"type": "string"}, {"type": "integer", "default": 1}
    (typed,) = clerk(told(f"{RELEASING}, line 3", tools=[tool(RELEASE, order=word, sku=word, line=number)])).content
    for proposed in (call, typed):
        assert (proposed["name"], proposed["input"]) == (RELEASE, {"sku": "A1", "order": "1001", "line": 3})


def test_several_wishes_are_several_calls() -> None:
    calls = clerk(told(f"{GOAL}, and reserve 1 of B2 for order 1002")).content
    assert [(call["input"]["sku"], call["input"]["order"]) for call in calls] == [("A1", "1001"), ("B2", "1002")]
    assert len({call["id"] for call in calls}) == 2
    calls = clerk(told("release A1 for order 1001, and release B2 for order 1002")).content
    assert [(call["input"]["sku"], call["input"]["order"]) for call in calls] == [("A1", "1001"), ("B2", "1002")]


def test_arguments_have_the_types_of_the_schema() -> None:
    number, word = {"type": "integer"}, {"type": "string"}
    maybe = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    goal = "reserve two of A1 for order 1001, line 3"
    offered = tool(RESERVE, order=number, quantity=number, sku=word, line=maybe)
    assert clerk(told(goal, tools=[offered])).content[0]["input"] == {
        "sku": "A1",
        "quantity": 2,
        "order": 1001,
        "line": 3,
    }
    offered = tool(RESERVE, order=word, quantity=word, sku=word, line=word)
    assert clerk(told(goal, tools=[offered])).content[0]["input"]["quantity"] == "2"


@pytest.mark.parametrize(("goal", "missing"), [(GOAL, RESERVE), (RELEASING, RELEASE), ("look up A1", LOOK_UP)])
def test_a_tool_that_is_not_offered_is_not_called(goal: str, missing: str) -> None:
    offered = [other for other in TOOLS if other["name"] != missing]
    assert f"I need the tool {missing}, which is not offered to me" in said(told(goal, tools=offered))


DONE = {"status": "completed", "data": {"reservation_id": "R-7", "sku": "A1", "quantity": 2}}


@pytest.mark.parametrize(
    ("content", "is_error", "sentence"),
    [
        (DONE, False, "Reserved 2 of A1 for order 1001 (reservation R-7)."),
        ({"status": "completed", "data": {}}, False, "Reserved 2 of A1 for order 1001."),
        ({"reservation_id": "R-7"}, False, "Reserved 2 of A1 for order 1001 (reservation R-7)."),
        ({"status": "completed", "data": {"quantity": 1}}, False, "Reserved 1 of A1 for order 1001."),
        ({"status": "rejected", "message": "only 1 left."}, True, "Not reserved: only 1 left."),
        ({"status": "rejected", "data": {"reason": "only 1 left"}}, True, "Not reserved: only 1 left."),
        ({"status": "not_executed"}, True, "Not reserved: the result is not_executed."),
        *(
            (content, True, "It is not known whether 2 of A1 are reserved for order 1001: ")
            for content in (
                {"status": "unknown"},
                {"status": "unavailable"},
                {"status": "of_a_later_year"},
                {"error": "?"},
            )
        ),
        ("Well, hm.", False, "reserve_stock answered: Well, hm."),
        ("", False, "reserve_stock answered: nothing"),
        ("[1]", False, "reserve_stock answered: [1]"),
    ],
)
@pytest.mark.parametrize("as_blocks", [False, True])
def test_what_became_of_a_reservation_is_told_truthfully(
    content: Any, is_error: bool, sentence: str, as_blocks: bool
) -> None:
    written = content if isinstance(content, str) else json.dumps(content) + "\n[a note of the executor]"
    shown = [{"type": "text", "text": written}] if as_blocks and written else written
    assert said(answered(GOAL, shown, is_error=is_error)).startswith(sentence)


RELEASED = {"status": "completed", "data": {"release_id": "L-7", "sku": "A1", "quantity": 2}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (RELEASED, "Released the reservation of 2 of A1 for order 1001 (release L-7)."),
        ({"status": "completed", "data": {}}, "Released the reservation of some of A1 for order 1001."),
        ({"status": "rejected", "message": "it was released before."}, "Not released: it was released before."),
        ({"status": "not_found", "message": "no reservation"}, "Not released: no reservation."),
        *(
            (
                {"status": status, "message": "no answer"},
                "It is not known whether the reservation of A1 for order 1001 is released: no answer.",
            )
            for status in ("unknown", "unavailable", "of_a_later_year")
        ),
    ],
)
def test_what_became_of_a_release_is_told_truthfully(content: Json, sentence: str) -> None:
    is_error = content["status"] != "completed"
    assert said(answered(RELEASING, json.dumps(content), is_error=is_error)) == sentence


@pytest.mark.parametrize(
    ("content", "is_error", "sentence"),
    [
        (
            {"status": "completed", "data": {"sku": "A1", "on_hand": 5, "available": 3}},
            False,
            "There are 3 of A1 available.",
        ),
        ({"sku": "A1", "available": 0}, False, "There are 0 of A1 available."),
        ({"status": "completed", "data": {}}, False, "The result for A1 does not say how many are available."),
        ({"status": "not_found", "message": "no such sku"}, True, "I could not look up A1: no such sku."),
    ],
)
def test_what_a_lookup_found_is_told_truthfully(content: Json, is_error: bool, sentence: str) -> None:
    assert said(answered("how many A1 are there?", json.dumps(content), is_error=is_error)) == sentence


def test_a_wish_that_comes_along_with_results_is_heard() -> None:
    reply = clerk(answered(GOAL, json.dumps(DONE), note="Now reserve 1 of B2 for order 1002."))
    assert [block["type"] for block in reply.content] == ["text", "tool_use"]
    assert reply.content[1]["input"]["sku"] == "B2"


def test_a_summary_is_given_for_what_it_is_worth() -> None:
    """It has seen nothing but results, and those are told to it anew."""
    asked = {**told("<conversation>…</conversation>", tools=[]), "system": SYSTEM}
    assert said(asked) == SUMMED_UP


def test_after_a_summary_the_goal_still_stands() -> None:
    (goal, news) = opening(
        goal="reserve 2 of A1 for order 1001", summary="…", acted=[], unnamed=0, results=[], outputs=[], most=9_000
    )
    assert news["text"].startswith(NEWS)
    request = {**told(""), "messages": [{"role": "user", "content": [goal, news]}]}
    assert [block["name"] for block in clerk(request).content] == [RESERVE]


def test_a_note_that_comes_along_with_results_is_passed_over() -> None:
    assert said(answered(GOAL, json.dumps(DONE), note="Two turns are left.")).startswith("Reserved 2")


DONE_BEFORE = news_text([OperationView(key="k" * 64, tool=RESERVE, state=OperationState.COMPLETED)])


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "text", "text": GOAL}, {"type": "text", "text": DONE_BEFORE}]}],
        [{"role": "user", "content": GOAL}, {"role": "user", "content": DONE_BEFORE}],
    ],
    ids=["one message", "two messages"],
)
def test_a_task_that_is_repeated_has_the_same_goal(messages: list[Json]) -> None:
    """The executor tells it what was done already; that is no goal, and takes none away."""
    assert DONE_BEFORE.startswith(NEWS)
    (call,) = clerk({**told(GOAL), "messages": messages}).content
    assert (call["name"], call["input"]) == (RESERVE, {"sku": "A1", "quantity": 2, "order": "1001"})


def test_what_was_done_already_does_not_start_the_goal_again_behind_results() -> None:
    assert said(answered(GOAL, json.dumps(DONE), note=DONE_BEFORE)) == (
        "Reserved 2 of A1 for order 1001 (reservation R-7)."
    )


async def test_the_clerk_serves_a_whole_task_to_a_real_client() -> None:
    stock = {"status": "completed", "data": {"reservation_id": "R-1"}}
    async with MessagesServer(clerk) as server, DefaultAsyncHttpxClient(trust_env=False) as http:
        client = AsyncAnthropic(api_key="local", base_url=server.url, max_retries=0, http_client=http)
        messages: list[Any] = [{"role": "user", "content": GOAL}]
        async with client.messages.stream(model="m", max_tokens=9, tools=TOOLS, messages=messages) as stream:  # type: ignore[arg-type]  # plain JSON
            proposed = await stream.get_final_message()
        content: Any = proposed.to_dict(mode="json")["content"]
        messages.append({"role": "assistant", "content": content})
        result = {"type": "tool_result", "tool_use_id": content[0]["id"], "content": json.dumps(stock)}
        messages.append({"role": "user", "content": [result]})
        final = await client.messages.create(model="m", max_tokens=9, tools=TOOLS, messages=messages)  # type: ignore[arg-type]  # plain JSON
    assert final.content[0].to_dict()["text"] == "Reserved 2 of A1 for order 1001 (reservation R-1)."
    assert (server.count, server.refusals) == (2, [])


def test_the_server_process_needs_no_sdk() -> None:
    """It starts with the demo, where a second more would be felt."""
    program = "import sys, settled.local.messages_server; sys.exit('anthropic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
