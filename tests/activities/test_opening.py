"""A task request as people write it: what is taken, and what is refused with a line for each fault."""

import json
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from settled.activities.agents import MOST_FAULTS, AgentProfile, ProfileLimits
from settled.activities.opening import _limits, parse
from settled.activities.registry import discover, tool_schema
from settled.activities.request_faults import faults_of_agent, faults_of_budget, readable_part
from settled.activities.roots import Root, root_of
from settled.workflows.contract.task import Budget, Criterion, Limits, TaskRequest
from settled.workflows.converter import data_converter

Json = dict[str, Any]
NAN, INF = float("nan"), float("inf")
SHAPE = 'a JSON object like {"goal": "…"}, or a JSON string with the goal'


def faults(*inputs: Any) -> list[str]:
    """The lines with which the request is refused."""
    request, lines = parse(inputs)
    assert request is None
    assert lines
    assert all(line.strip() and "\n" not in line for line in lines)
    return lines


def asked(**fields: Any) -> TaskRequest:
    request, lines = parse([{"goal": "reserve", **fields}])
    assert lines == []
    assert request is not None
    return request


# What is taken


def test_r103_a_bare_string_is_a_goal() -> None:
    """R103: what a person types on the command line."""
    assert parse(["  reserve 2 of A1\n"]) == (TaskRequest(goal="reserve 2 of A1"), [])


def test_r103_an_object_with_a_goal_is_enough() -> None:
    assert asked() == TaskRequest(
        goal="reserve",
        agent=None,
        tools=None,
        budget=Budget(),
        acceptance=None,
        tenant="default",
        principal="anonymous",
    )


def test_r103_everything_may_be_said() -> None:
    request = asked(
        agent="stock-clerk",
        tools=["lookup_stock"],
        budget={"turns": 3, "requests": 4, "wall_seconds": 60},
        acceptance=[{"check": "operation", "tool": "reserve_stock", "arguments": {"order": "1001"}}],
        tenant="acme",
        principal="anna@example.com",
    )
    assert request.tools == ("lookup_stock",)
    assert request.budget == Budget(turns=3, requests=4, wall_seconds=60.0)
    assert request.acceptance == (Criterion(check="operation", tool="reserve_stock", arguments={"order": "1001"}),)
    assert (request.agent, request.tenant, request.principal) == ("stock-clerk", "acme", "anna@example.com")


def test_null_is_the_same_as_left_out_where_something_may_be_left_out() -> None:
    assert asked(agent=None, tools=None, acceptance=None, budget={"turns": None}) == asked()


def test_an_empty_list_is_not_the_same_as_left_out() -> None:
    request = asked(tools=[], acceptance=[])
    assert (request.tools, request.acceptance) == ((), ())


# What is refused, by the number and kind of inputs


@pytest.mark.parametrize(
    ("inputs", "got"), [((), "no input"), (("a", "b"), "2 inputs"), (({"goal": "x"}, {}, None), "3 inputs")], ids=str
)
def test_another_number_of_inputs_than_one_is_refused(inputs: tuple[Any, ...], got: str) -> None:
    assert faults(*inputs) == [f"input: expected one, {SHAPE}; got {got}"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (None, "null"),
        (True, "bool"),
        (5, "int"),
        (1.5, "float"),
        (["reserve"], "list"),
        ([{"goal": "reserve"}], "list"),
    ],
    ids=str,
)
def test_an_input_that_is_neither_object_nor_text_is_refused(given: Any, kind: str) -> None:
    assert faults(given) == [f"input: expected {SHAPE}; got a JSON {kind}"]


@pytest.mark.parametrize(
    ("payload", "encoding"),
    [
        (Payload(metadata={"encoding": b"json/plain"}, data=b'{"goal": '), "json/plain"),
        (Payload(metadata={"encoding": b"json/plain"}, data=b'{"goal": "\\ud83d"}'), "json/plain"),
        (Payload(metadata={"encoding": b"binary/encrypted"}, data=b"\x00"), "binary/encrypted"),
        (Payload(metadata={"encoding": b"a\nb\xff" + b"x" * 1000}, data=b"\x00"), "a b\ufffd" + "x" * 36),
        (Payload(data=b"\x00"), "none"),
    ],
    ids=["cut", "surrogate", "encrypted", "nonsense", "nothing"],
)
def test_an_input_that_is_not_json_is_refused(payload: Payload, encoding: str) -> None:
    """As the workflow hands it over: kept raw by the forgiving converter."""
    (given,) = data_converter.payload_converter.from_payloads([payload])
    assert isinstance(given, RawValue)
    assert faults(given) == [f"input: expected {SHAPE}; got something that can't be read as JSON (encoding {encoding})"]


# What is refused, field by field


@pytest.mark.parametrize("goal", ["", " ", "\n\t"], ids=repr)
def test_a_goal_of_nothing_is_refused(goal: str) -> None:
    expected = ["goal: String should have at least 1 character"]
    assert faults(goal) == expected
    assert faults({"goal": goal}) == expected


TOO_LONG = "x" * 100_001
NAMES = ["", " ", "a b", "-a", "a\n", "a" * 129, "caf\u00e9", "../x"]
ONE_FAULT: list[tuple[Json, str]] = [
    ({}, "goal: Field required"),
    ({"goal": None}, "goal: Input should be a valid string"),
    ({"goal": 5}, "goal: Input should be a valid string"),
    ({"goal": ["x"]}, "goal: Input should be a valid string"),
    ({"goal": TOO_LONG}, "goal: String should have at most 100000 characters"),
    ({"goal": "x", "gaol": "y"}, "gaol: unknown field"),
    ({"goal": "x", "a\nb  c": "y"}, "a b c: unknown field"),
    ({"goal": "x", "y" * 5000: 1}, "y" * 200 + ": unknown field"),
    ({"goal": "x", "agent": 5}, "agent: Input should be a valid string"),
    ({"goal": "x", "tools": "lookup_stock"}, "tools: Input should be a valid "),
    ({"goal": "x", "tools": [5]}, "tools.0: Input should be a valid string"),
    ({"goal": "x", "tools": {"a": 1}}, "tools: Input should be a valid "),
    ({"goal": "x", "budget": 5}, "budget: Input should be an object"),
    ({"goal": "x", "budget": None}, "budget: Input should be an object"),
    ({"goal": "x", "budget": {"pages": 5}}, "budget.pages: unknown field"),
    ({"goal": "x", "budget": {"agent": "a"}}, "budget.agent: unknown field; agent belongs beside budget"),
    ({"goal": "x", "turns": 5}, "turns: unknown field; turns belongs in budget"),
    ({"goal": "x", "budget": {"turns": "5"}}, "budget.turns: Input should be a valid integer"),
    ({"goal": "x", "budget": {"turns": 5.0}}, "budget.turns: Input should be a valid integer"),
    ({"goal": "x", "budget": {"turns": True}}, "budget.turns: Input should be a valid integer"),
    ({"goal": "x", "budget": {"turns": 0}}, "budget.turns: Input should be greater than 0"),
    ({"goal": "x", "budget": {"turns": -1}}, "budget.turns: Input should be greater than 0"),
    ({"goal": "x", "budget": {"turns": 10**30}}, "budget.turns: Input should be less than or equal to 1000000"),
    ({"goal": "x", "budget": {"requests": 0}}, "budget.requests: Input should be greater than 0"),
    ({"goal": "x", "budget": {"wall_seconds": 0}}, "budget.wall_seconds: Input should be greater than 0"),
    ({"goal": "x", "budget": {"wall_seconds": "1h"}}, "budget.wall_seconds: Input should be a valid number"),
    ({"goal": "x", "budget": {"wall_seconds": 1e300}}, "budget.wall_seconds: Input should be less than or equal to"),
    ({"goal": "x", "budget": {"wall_seconds": NAN}}, "input: holds a number that JSON doesn't have"),
    ({"goal": "x", "budget": {"wall_seconds": INF}}, "input: holds a number that JSON doesn't have"),
    ({"goal": "x", "acceptance": {}}, "acceptance: Input should be a valid "),
    ({"goal": "x", "acceptance": ["operation"]}, "acceptance.0: Input should be an object"),
    ({"goal": "x", "acceptance": [{}]}, "acceptance.0.check: Field required"),
    ({"goal": "x", "acceptance": [{"check": "a", "when": 1}]}, "acceptance.0.when: unknown field"),
    ({"goal": "x", "acceptance": [{"check": "a", "arguments": []}]}, "acceptance.0.arguments: Input should be "),
    (
        {"goal": "x", "acceptance": [{"check": "a", "arguments": {"n": [NAN]}}]},
        "input: holds a number that JSON doesn't have",
    ),
    ({"goal": "x", "tenant": None}, "tenant: Input should be a valid string"),
    *(
        ({"goal": "x", field: name}, f"{field}: String should match pattern")
        for field in ("agent", "tenant", "principal")
        for name in NAMES
    ),
    *(({"goal": "x", "tools": ["a", name]}, "tools.1: String should match pattern") for name in NAMES),
    *(
        ({"goal": "x", "acceptance": [{"check": "a", field: name}]}, f"acceptance.0.{field}: String should match")
        for field in ("check", "tool")
        for name in NAMES
    ),
]


@pytest.mark.parametrize(("given", "fault"), ONE_FAULT, ids=lambda value: str(value)[:70])
def test_r103_each_fault_is_one_line_that_names_the_field(given: Json, fault: str) -> None:
    (line,) = faults(given)
    assert line.startswith(fault)


def test_r103_all_faults_are_named_at_once() -> None:
    assert faults({"gaol": "x", "budget": {"turns": 0, "pages": 1}, "acceptance": [{}, {"check": "a"}, {}]}) == [
        "goal: Field required",
        "budget.turns: Input should be greater than 0",
        f"budget.pages: unknown field; there are {', '.join(Budget.model_fields)}",
        "acceptance.0.check: Field required",
        "acceptance.2.check: Field required",
        "gaol: unknown field; did you mean goal?",
    ]


def test_a_request_full_of_faults_is_refused_in_few_lines() -> None:
    """They become a failure in history, which is bounded: too large a one would hang the task."""
    lines = faults({"goal": "x", **{f"field_{number}": 1 for number in range(50_000)}})
    assert len(lines) == MOST_FAULTS + 1
    assert lines[-1] == f"and {50_000 - MOST_FAULTS} more"


def test_a_refusal_does_not_repeat_the_values() -> None:
    """A value may be a secret, or a novel."""
    assert "hunter2" not in json.dumps(faults({"goal": {"x": "hunter2"}, "tenant": "hunter2 !", "agent": ["hunter2"]}))


def test_more_digits_than_python_reads_are_refused_too() -> None:
    assert faults({"goal": "x", "acceptance": [{"check": "a", "arguments": {"n": 10**5000}}]})[0].startswith("input: ")


# Budgets, and what is frozen

PROFILE = AgentProfile(
    model="claude-scripted",
    system="You are the clerk.",
    tools=("lookup_stock", "reserve_stock"),
    max_tokens=1000,
    limits=ProfileLimits(turns=5, requests=10, wall_seconds=60.0),
)


def test_r52_what_a_budget_leaves_out_is_the_profiles() -> None:
    most = PROFILE.limits.resolved()
    assert _limits(Budget(), most) == Limits(turns=5, requests=10, wall_seconds=60.0)
    assert _limits(Budget(turns=1, requests=2, wall_seconds=3.5), most) == Limits(turns=1, requests=2, wall_seconds=3.5)


@pytest.mark.parametrize(
    ("budget", "lines"),
    [
        (Budget(), []),
        (Budget(turns=5, requests=10, wall_seconds=60.0), []),
        (Budget(turns=6), ["budget.turns: 6 is above the agent's limit of 5"]),
        (
            Budget(turns=6, requests=11, wall_seconds=60.5),
            [
                "budget.turns: 6 is above the agent's limit of 5",
                "budget.requests: 11 is above the agent's limit of 10",
                "budget.wall_seconds: 60.5 is above the agent's limit of 60.0",
            ],
        ),
    ],
    ids=str,
)
def test_r52_a_budget_above_the_profiles_limits_is_refused(budget: Budget, lines: list[str]) -> None:
    assert faults_of_budget(budget, PROFILE) == lines


def judged(given: Any, agent: str | None = "stock-clerk") -> list[str]:
    """What is wrong with the readable part of a refused request, on a worker with this one agent."""
    assert parse([given])[0] is None
    part = readable_part([given])
    assert part is not None
    return faults_of_agent(part, agent, {"stock-clerk": PROFILE})


def test_r103_faults_of_other_kinds_are_found_beside_an_unknown_field() -> None:
    """A line for each fault, at once: what can be read is judged, whatever can't be."""
    assert judged({"goal": "x", "tols": [], "budget": {"turns": 6, "pages": 1}, "tools": ["rm"]}) == [
        "tools: agent 'stock-clerk' has no tool 'rm'; it has lookup_stock, reserve_stock",
        "budget.turns: 6 is above the agent's limit of 5",
    ]
    assert judged({"tols": [], "budget": {"turns": 6, "requests": "x"}}) == [
        "budget.turns: 6 is above the agent's limit of 5"
    ]
    assert judged({"goal": "x", "tols": [], "budget": {"turns": 5}}) == []


def test_r103_beside_an_agent_that_nobody_knows_what_no_agent_allows_is_named() -> None:
    given = {"goal": "x", "budget": {"turns": 6, "requests": 10}, "tools": ["rm", "lookup_stock"], "tols": []}
    allowed_by_none = [
        "tools: no agent has a tool 'rm'",
        "budget.turns: 6 is above every agent's limit; the highest is 5",
    ]
    unknown = "agent: there is no agent 'nope'; this worker has stock-clerk"
    assert judged(given, "nope") == [unknown, *allowed_by_none]
    assert judged(given, None) == allowed_by_none


@pytest.mark.parametrize(
    "inputs",
    [[], ["x", "y"], [5], [""], [None], [RawValue(Payload(data=b"x"))]],
    ids=str,
)
def test_where_there_is_no_object_nothing_of_it_is_judged(inputs: list[Any]) -> None:
    assert readable_part(inputs) is None


@pytest.mark.parametrize(
    "odd", [NAN, 10**5000, "\ud83d", [NAN], {"x": INF}], ids=["nan", "digits", "half", "list", "inf"]
)
def test_what_no_json_can_hold_is_passed_over(odd: Any) -> None:
    """It has its own line; it must not be in the way of the others."""
    part = readable_part([{"goal": odd, "tenant": odd, "acceptance": odd, "budget": {"turns": 9, "wall_seconds": odd}}])
    assert part == TaskRequest(goal="unread", budget=Budget(turns=9))


def test_r6_model_limit_system_and_tools_are_frozen_with_the_task() -> None:
    registry = discover()
    root = root_of(PROFILE, registry, ["reserve_stock"])
    assert root.parameters == {
        "model": "claude-scripted",
        "max_tokens": 1000,
        "system": "You are the clerk.",
        "cache_control": {"type": "ephemeral"},
        "tools": [tool_schema(registry.tools["reserve_stock"])],
    }
    assert root.node() == root_of(PROFILE, discover(), ["reserve_stock"]).node(), "byte for byte"
    assert Root.of(root.node()) == root
    assert "tools" not in root_of(PROFILE, registry, []).parameters


def test_b16_a_cut_response_may_have_four_times_the_limit_unless_the_profile_says_otherwise() -> None:
    assert root_of(PROFILE, discover(), []).max_tokens_most == 4000
    assert root_of(PROFILE.model_copy(update={"max_tokens_most": 1500}), discover(), []).max_tokens_most == 1500
