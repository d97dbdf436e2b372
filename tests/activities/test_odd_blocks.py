"""R25, R27, R28: a response goes back as it was received, and with the least change where the API doesn't take that.

What the API takes is asked of the scripted Messages server: of its rules, and of its memory of what it has said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from settled.activities.admission import Grants, Refusal, admit
from settled.activities.asking import Request
from settled.activities.calls import ShownResult, awaits_server, proposed_calls, result_blocks, shown_ids
from settled.activities.keys import Realm
from settled.activities.odd_blocks import NO_TOOL, is_unfit, well_formed, without_blanks_within
from settled.activities.registry import discover
from settled.activities.rerooting import taken_over
from settled.activities.roots import Root
from settled.activities.stop_table import TABLE, Run, judge
from settled.activities.transcript import Node, Role, make_node
from settled.activities.view import last_said, view
from settled.local.messages_memory import Conversations
from settled.local.messages_rules import PREFILL, first_fault
from settled.workflows.contract.turn import Again, Ask, End, Resend

Json = dict[str, Any]
CALL: Json = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"sku": "A1"}}
SEARCH: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "A1"}}
FOUND: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
THOUGHT: Json = {"type": "thinking", "thinking": "", "signature": "sig_1"}
TEXT: Json = {"type": "text", "text": "Let me see."}
ROOT = Root(parameters={"model": "a", "max_tokens": 9, "system": "You are the clerk."}, fallback=("b", "c", "d"))
GRANTS = Grants(tools=discover().tools, principal="p", realm=Realm(namespace="n", tenant="t", root_task="r"))
HALF = "\ud83d"
NO_OBJECTS: list[Any] = ["A1", "", 0, [], False]


def without(block: Json, *names: str) -> Json:
    return {name: value for name, value in block.items() if name not in names}


def said(node: Node, words: str) -> Node:
    return make_node(node, Role.USER, [{"type": "text", "text": words}])


def answered(chain: Sequence[Node]) -> Node:
    """The user message that answers the last calls, with news where they may stand, as `answer_calls` makes it."""
    calls = proposed_calls((node := chain[-1]).content)
    results = {call.slot: ShownResult(text="", is_error=call.slot % 2 == 1) for call in calls}
    blocks = result_blocks(calls, results, shown_ids(node))
    if not awaits_server(last_said(chain)):
        blocks.append({"type": "text", "text": "For your information."})
    return make_node(node, Role.USER, blocks)


# Block by block


@pytest.mark.parametrize(
    ("received", "sent"),
    [
        (without(CALL, "name"), CALL | {"name": NO_TOOL}),
        *[(CALL | {"name": name}, CALL | {"name": NO_TOOL}) for name in (None, "", 7, "a b", "é", HALF, "x" * 129)],
        (without(CALL, "input"), CALL | {"input": {}}),
        (CALL | {"input": None}, CALL | {"input": {}}),
        *[(CALL | {"input": value}, CALL | {"input": {"input": value}}) for value in NO_OBJECTS],
        ({"type": "tool_use", "id": "toolu_1"}, {**CALL, "name": NO_TOOL, "input": {}}),
    ],
    ids=repr,
)
def test_r28_a_call_that_makes_none_goes_back_with_what_is_wrong_in_another_form(received: Json, sent: Json) -> None:
    assert well_formed(received) == sent


@pytest.mark.parametrize(
    "block", [CALL, CALL | {"name": "x" * 128, "input": {}, "caller": None}, SEARCH, FOUND, TEXT, THOUGHT], ids=repr
)
def test_r25_what_the_api_takes_stays_the_same(block: Json) -> None:
    assert well_formed(block) is block
    assert without_blanks_within(block) is block
    assert not is_unfit(block)


@pytest.mark.parametrize(
    "block",
    [
        *[{"type": "text", "text": words} for words in ("", " \n", None, 7, ["x"])],
        {"type": "text"},
        without(THOUGHT, "signature"),
        without(THOUGHT, "thinking"),
        THOUGHT | {"signature": ""},
        THOUGHT | {"thinking": HALF},
        {"type": "redacted_thinking"},
        {"type": "redacted_thinking", "data": 7},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3"},
        without(SEARCH, "id"),
        SEARCH | {"id": ["x"]},
        without(FOUND, "tool_use_id"),
    ],
    ids=repr,
)
def test_what_the_api_takes_in_no_form_is_left_out(block: Json) -> None:
    chain = [ROOT.node()]
    chain.append(said(chain[-1], "Look up A1."))
    chain.append(make_node(chain[-1], Role.ASSISTANT, [TEXT, block]))
    assert is_unfit(block)
    assert view(chain)[-1]["content"] == [TEXT]
    if HALF not in str(block.get("thinking")):  # no request can carry it, and what is signed can't be changed
        message = {"role": "assistant", "content": [TEXT, block]}
        assert first_fault({**ROOT.parameters, "messages": [*view(chain[:2]), message, *view(chain[:2])]})


def test_blank_texts_are_left_out_of_what_a_block_holds_too() -> None:
    blank, held = {"type": "text", "text": " "}, {"type": "mcp_tool_result", "tool_use_id": "m", "content": [TEXT]}
    assert without_blanks_within(held | {"content": [blank, TEXT, blank]}) == held


odd = st.sampled_from([None, "", " ", 7, True, [], ["a"], {}, {"a": HALF}, "a b", "é", HALF, "x" * 129])


def blocks_of(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Blocks of this type, each field as it should be, odd, or not there."""
    return st.fixed_dictionaries({"type": st.just(kind)}, optional={name: it | odd for name, it in fields.items()})


ids = st.sampled_from(["a", "b", "call_2_0"])
held = st.lists(st.builds(lambda words: {"type": "text", "text": words}, st.just("Found.") | odd), max_size=2)
block = st.one_of(
    blocks_of("text", text=st.just("Well.")),
    blocks_of("thinking", thinking=st.sampled_from(["", "Hm."]), signature=st.sampled_from(["s1", "s2"])),
    blocks_of("redacted_thinking", data=st.just("opaque")),
    blocks_of("tool_use", id=ids, name=st.just("look_up"), input=st.just({"n": 1})),
    blocks_of("tool_result", tool_use_id=ids, content=st.just("3")),
    blocks_of("server_tool_use", id=st.sampled_from(["s", "t"]), name=st.just("web_search"), input=st.just({})),
    blocks_of("mcp_tool_result", tool_use_id=st.sampled_from(["s", "t"]), content=held),
    blocks_of("of_a_later_year", content=held),
)


@settings(deadline=None)
@given(block)
def test_no_call_that_is_changed_is_one_that_admission_would_run(odd_block: Json) -> None:
    """R8: what is run is what was said."""
    for call in proposed_calls([odd_block] if well_formed(odd_block) is not odd_block else []):
        assert isinstance(admit(call, GRANTS), Refusal)


def test_no_tool_is_called_like_the_call_that_has_no_name() -> None:
    assert NO_TOOL not in discover().tools
    assert not NO_TOOL[0].isalpha()


# Conversation by conversation


@dataclass
class Kept:
    """Transcripts, kept in memory."""

    nodes: dict[str, Node] = field(default_factory=dict)

    async def add(self, *nodes: Node) -> None:
        self.nodes.update({node.digest: node for node in nodes})

    async def chain(self, head: str) -> list[Node]:
        node = self.nodes[head]
        return [*(await self.chain(node.parent) if node.parent else []), node]


def after(chain: Sequence[Node], reason: str, content: Sequence[Json]) -> list[Node] | None:
    """The conversation of which the next request is made, as `request_model` goes on; None: the task ends."""
    root = Root.of(chain[0])
    means = Request(chain=chain, root=root, parameters=root.parameters).means(Ask(head=chain[-1].digest), content)
    node = make_node(chain[-1], Role.ASSISTANT, list(content))
    match judge(reason, content, means):
        case Run.CALLS:
            return [*chain, node, answered([*chain, node])]
        case Resend(why=Again.EMPTY):
            return [*chain, node, said(node, "Your last response was empty.")]
        case Resend(why=Again.PAUSED):
            return [*chain, node]
        case Resend(why=Again.FALLBACK):
            kept = Kept({one.digest: one for one in chain})

            async def other() -> list[Node]:
                return await kept.chain(await taken_over(kept, chain[-1].digest))  # type: ignore[arg-type]  # like it

            return asyncio.run(other())
        case End():
            return None
        case _:
            return list(chain)


@settings(deadline=None, max_examples=400)
@given(st.lists(st.tuples(st.sampled_from([*TABLE]), st.lists(block, max_size=4)), max_size=7))
def test_r28_no_request_is_refused_whatever_the_model_has_said_before(told: list[tuple[str, list[Json]]]) -> None:
    """R8, R25, R27, R28, R95: nor is anything changed that the API would take as it is."""
    memory, root = Conversations(), ROOT.node()
    chain: list[Node] | None = [root, said(root, "Look up A1.")]
    for reason, content in told:
        assert chain is not None
        body = {**Root.of(chain[0]).parameters, "messages": view(chain)}
        fault = first_fault(body)
        assert fault is None or (fault == PREFILL and memory.paused(body)), fault
        assert memory.admit(body) is None
        memory.answered(body, content, paused=reason in ("pause_turn", "compaction"))
        if reason == "refusal":
            memory.left(body)
        if (chain := after(chain, reason, content)) is None:
            break
