"""What a task may spend, what it has spent, and what is added to it. Nothing here runs."""

import shlex
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from settled.workflows import budgets, handed_in, loop
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.ending import EndReason, Status, Verdict
from settled.workflows.contract.loop import Counters, LoopState, Pending
from settled.workflows.contract.operation import LedgerView, OperationState, OperationView, Tally
from settled.workflows.contract.task import Budget, Conduct, Extension, Limits, OnExhausted, Opened
from settled.workflows.contract.turn import End, Proposal, Resend, RunBatches, Turn, Usage
from settled.workflows.ending import status_of
from settled.workflows.extending import MOST_UPDATES, SHAPE, BadExtension, extended, extension, noted

D1, D2 = "1" * 64, "2" * 64
START = 1000.0
LIMITS = Limits(
    turns=3,
    requests=5,
    wall_seconds=100.0,
    calls=7,
    input_tokens=10_000,
    output_tokens=2_000,
    cost=Decimal("0.5"),
)
WAITS = Conduct(on_exhausted=OnExhausted.WAIT)


def state(limits: Limits = LIMITS, conduct: Conduct | None = None, **changes: Any) -> LoopState:
    opened = Opened(head=D1, limits=limits, conduct=conduct or Conduct())
    return loop.first_state(opened, START).model_copy(update=changes)


SPENT: dict[str, tuple[LoopState, EndReason, str]] = {
    "turns": (state(counters=Counters(turns=3)), EndReason.MAX_TURNS, "the limit of 3 turns is reached"),
    "requests": (
        state(counters=Counters(requests=5)),
        EndReason.MAX_REQUESTS,
        "the limit of 5 model requests is reached",
    ),
    "calls": (state(counters=Counters(calls=8)), EndReason.MAX_CALLS, "the limit of 7 tool calls is reached"),
    "input_tokens": (
        state(usage=Usage(input_tokens=1_000, cache_read_tokens=8_000, cache_write_tokens=1_000)),
        EndReason.MAX_TOKENS_BUDGET,
        "the limit of 10,000 tokens read is reached",
    ),
    "output_tokens": (
        state(usage=Usage(output_tokens=2_001)),
        EndReason.MAX_TOKENS_BUDGET,
        "the limit of 2,000 tokens written is reached",
    ),
    "cost": (state(usage=Usage(cost=Decimal("0.50000"))), EndReason.MAX_COST, "the limit of $0.5 is reached"),
}
"""A state in which just this limit is reached."""


# R48, R52: each limit by itself


def test_r52_everything_that_can_be_limited_is_in_the_table() -> None:
    names = [what.limit for what in (budgets.WALL_TIME, *budgets.TABLE)]
    assert sorted(names) == sorted(Limits.model_fields) == sorted(Budget.model_fields)
    assert SPENT.keys() | {"wall_seconds"} == set(names)


@pytest.mark.parametrize("name", SPENT)
def test_r48_r52_a_limit_that_is_reached_ends_the_task_before_the_next_request(name: str) -> None:
    spent, reason, detail = SPENT[name]
    assert loop.decided_end(spent, START) == End(reason=reason, detail=detail)
    assert status_of(reason, Verdict.NOT_JUDGED) is Status.BUDGET_EXHAUSTED


@pytest.mark.parametrize(
    "nearly",
    [
        state(counters=Counters(turns=2, requests=4, calls=6)),
        state(usage=Usage(input_tokens=999, cache_read_tokens=8_000, cache_write_tokens=1_000)),
        state(usage=Usage(output_tokens=1_999)),
        state(usage=Usage(cost=Decimal("0.499999"))),
    ],
    ids=["counted", "read", "written", "cost"],
)
def test_r52_a_task_just_below_its_limits_goes_on(nearly: LoopState) -> None:
    assert loop.decided_end(nearly, START + 99.9) is None


@pytest.mark.parametrize("name", ["calls", "input_tokens", "output_tokens", "cost"])
def test_a_limit_that_is_none_is_never_reached(name: str) -> None:
    """The others always exist (R83)."""
    spent = SPENT[name][0]
    opened = spent.opened.model_copy(update={"limits": LIMITS.model_copy(update={name: None})})
    assert loop.decided_end(spent.model_copy(update={"opened": opened}), START) is None


@pytest.mark.parametrize("name", SPENT)
def test_r50_what_the_last_response_proposed_is_run_before_a_limit_ends_the_task(name: str) -> None:
    calls = (Proposal(slot=0, call_id="a", tool="look_up"),)
    running = SPENT[name][0].model_copy(update={"pending": Pending(calls=calls, batches=((0,),))})
    assert loop.decided_end(running, START) is None
    done = loop.after_calls(running, {0: CallResult(slot=0)}, ())
    assert loop.decided_end(done, START) is not None


@pytest.mark.parametrize("name", SPENT)
def test_a_model_that_is_done_has_ended_the_task_whatever_it_cost(name: str) -> None:
    done = SPENT[name][0].model_copy(update={"ending": End()})
    assert loop.decided_end(done, START) == End()


def test_the_deadline_is_named_first_and_then_the_order_of_the_table() -> None:
    all_of_it = state(counters=Counters(turns=9, requests=9, calls=9), usage=Usage(output_tokens=9_999))
    found = [each.what.limit for each in loop.exhausted(all_of_it, START + 100.0)]
    assert found == ["wall_seconds", "turns", "requests", "calls", "output_tokens"]


# on_exhausted


@pytest.mark.parametrize("name", SPENT)
def test_a_task_that_is_to_wait_for_its_budget_does_not_end(name: str) -> None:
    spent = SPENT[name][0]
    waiting = spent.model_copy(update={"opened": spent.opened.model_copy(update={"conduct": WAITS})})
    assert loop.decided_end(waiting, START) is None
    assert [each.what.limit for each in loop.exhausted(waiting, START)] == [name]
    assert loop.decided_end(waiting, START + 100.0) is None, "nor at its deadline"


def test_r106_another_way_to_go_on_of_a_newer_release_ends_the_task() -> None:
    """R61: the safe branch."""
    newer = state(conduct=Conduct(on_exhausted=OnExhausted("borrow")), counters=Counters(turns=3))
    assert loop.decided_end(newer, START) is not None


def test_what_waits_for_a_budget_still_settles_what_the_model_left_unsettled() -> None:
    """Limits of requests don't concern a task whose model is done; its deadline does."""
    view = OperationView(key=D1, tool="reserve", state=OperationState.UNKNOWN)
    ledger = LedgerView(tally=Tally(operations=1, unsettled=1), unsettled=(view,))
    leftover = state(conduct=WAITS, counters=Counters(turns=3), ending=End(), ledger=ledger)
    assert loop.exhausted(leftover, START) == ()
    assert [each.what.limit for each in loop.exhausted(leftover, START + 100.0)] == ["wall_seconds"]


def test_a_task_that_waits_says_for_what_and_how_it_goes_on() -> None:
    spent = state(
        conduct=WAITS,
        counters=Counters(turns=3),
        usage=Usage(output_tokens=2_500, cost=Decimal("0.5312")),
    )
    line = budgets.waits_for(loop.exhausted(spent, START + 101.0), "order 1001's")
    text, _, command = line.partition("; extend it with: ")
    assert text == (
        "a larger budget: the task's 100 s are over and the limit of 3 turns is reached and "
        "the limit of 2,000 tokens written is reached and the limit of $0.5 is reached"
    )
    assert '"' not in budgets.waits_for(loop.exhausted(spent, START + 101.0), "order 1001"), "what is escaped is no use"
    assert shlex.split(command) == [
        *("settled", "extend", "order 1001's", "--wall-seconds", "100", "--turns", "3"),
        *("--output-tokens", "2500", "--cost", "0.54"),
    ]


@pytest.mark.parametrize(
    ("limit", "text", "proposed"),
    [
        (1_209_600.0, "the task's 1,209,600 s are over", "1209600"),
        (4.053844928741455, "the task's 4.054 s are over", "4.054"),
        (2.5, "the task's 2.5 s are over", "2.5"),
        (0.1 + 0.2, "the task's 0.301 s are over", "0.301"),
        (0.00001, "the task's 0.001 s are over", "0.001"),
        (31_622_400.0, "the task's 31,622,400 s are over", "31622400"),
        (1e16, "the task's 10,000,000,000,000,000 s are over", "10000000000000000"),
    ],
    ids=str,
)
def test_seconds_are_written_as_people_write_them(limit: float, text: str, proposed: str) -> None:
    """What is proposed is no less than what was given: it is rounded up."""
    (short,) = loop.exhausted(state(LIMITS.model_copy(update={"wall_seconds": limit})), START + 1e17)
    assert short.text == text
    assert budgets.waits_for([short], "order-1").endswith(f" settled extend order-1 --wall-seconds {proposed}")
    assert float(proposed) >= limit


def test_money_is_written_without_an_exponent() -> None:
    limits = LIMITS.model_copy(update={"cost": Decimal("1E+3")})
    (short,) = loop.exhausted(state(limits, usage=Usage(cost=Decimal("1.1E+3"))), START)
    assert short.text == "the limit of $1,000 is reached"
    assert budgets.waits_for([short], "order-1").endswith(" settled extend order-1 --cost 1100.00")


@pytest.mark.parametrize("task", ["-order 1", "--help", "-"])
def test_the_line_also_works_for_a_task_whose_id_begins_like_an_option(task: str) -> None:
    spent = SPENT["turns"][0]
    _, _, command = budgets.waits_for(loop.exhausted(spent, START), task).partition("; extend it with: ")
    assert shlex.split(command) == ["settled", "extend", "--turns", "3", "--", task]


@pytest.mark.parametrize("name", [*SPENT, "wall_seconds"])
def test_what_the_line_proposes_is_enough(name: str) -> None:
    spent = SPENT[name][0] if name in SPENT else state()
    now = START if name in SPENT else START + 5_000.0
    (short,) = loop.exhausted(spent, now)
    more = extended(spent, Extension.model_validate({name: short.enough}), now)
    assert loop.exhausted(more, now) == ()


# extend_budget: what may be said


@pytest.mark.parametrize(
    ("said", "amounts"),
    [
        ({"turns": 5}, {"turns": 5}),
        ({"cost": "2.50"}, {"cost": Decimal("2.50")}),
        ({"cost": 0.1}, {"cost": Decimal("0.1")}),
        ({"wall_seconds": 60}, {"wall_seconds": 60.0}),
        ({"turns": None, "requests": 1}, {"requests": 1}),
        (
            {"calls": 1, "input_tokens": 2, "output_tokens": 3, "because": " more to do ", "who": "ada"},
            {"calls": 1, "input_tokens": 2, "output_tokens": 3, "because": "more to do", "who": "ada"},
        ),
    ],
    ids=str,
)
def test_an_extension_is_an_object_of_amounts(said: dict[str, Any], amounts: dict[str, Any]) -> None:
    assert extension([said]) == Extension(**amounts)


ADDED = "give the amount that is added to the limit"
FIELDS = "turns, requests, calls, input_tokens, output_tokens, cost, wall_seconds"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], f"input: expected {SHAPE}"),
        ([5], f"input: expected {SHAPE}"),
        (["turns"], f"input: expected {SHAPE}"),
        ([{"turns": 1}, {"turns": 1}], f"input: expected {SHAPE}"),
        ([{}], f"input: nothing is added; give at least one of {FIELDS}"),
        ([{"turns": None}], f"input: nothing is added; give at least one of {FIELDS}"),
        ([{"because": "I say so"}], f"input: nothing is added; give at least one of {FIELDS}"),
        ([{"turn": 1}], f"turn: unknown field; the fields are {FIELDS}, because, who"),
        ([{"turns": 0}], f"turns: Input should be greater than 0; {ADDED}"),
        ([{"cost": "-1"}], f"cost: Input should be greater than 0; {ADDED}"),
        ([{"turns": "5"}], "turns: Input should be a valid integer"),
        ([{"turns": True}], "turns: Input should be a valid integer"),
        ([{"turns": 1.5}], "turns: Input should be a valid integer"),
        ([{"cost": "1.1234567"}], "cost: Decimal input should have no more than 6 decimal places"),
        ([{"cost": 0.1 + 0.2}], "cost: Decimal input should have no more than 6 decimal places"),
        ([{"cost": "NaN"}], "cost: Input should be a finite number"),
        ([{"wall_seconds": float("inf")}], "wall_seconds: Input should be a finite number"),
        ([{"wall_seconds": float("nan")}], "wall_seconds: Input should be a finite number"),
        ([{"wall_seconds": 1e300}], "wall_seconds: Input should be less than or equal to 31622400"),
        ([{"who": b"ada", "turns": 1}], f"input: not a JSON object; expected {SHAPE}"),
        (
            [{"turns": 0, "requests": -1}],
            f"turns: Input should be greater than 0; {ADDED}; requests: Input should be greater than 0; {ADDED}",
        ),
    ],
    ids=str,
)
def test_what_is_no_extension_is_refused_in_one_line(words: list[Any], line: str) -> None:
    with pytest.raises(BadExtension) as refused:
        extension(words)
    assert str(refused.value) == line


def test_nothing_is_added_to_a_task_that_is_ending() -> None:
    """It would be answered with limits that nobody goes by any more."""
    with pytest.raises(ApplicationError, match=r"^NotExtended: the task is ending; nothing can be added") as refused:
        handed_in.extended(state(), ({"turns": 1},), closing=True)
    assert refused.value.non_retryable


def test_the_line_does_not_grow_with_what_was_said() -> None:
    with pytest.raises(BadExtension) as refused:
        extension([{"x\n" * 10_000 + str(number): 1 for number in range(100)}])
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 3_000


# extend_budget: what it makes of the limits


def test_each_amount_is_added_to_its_limit_and_nothing_else_changes() -> None:
    said = Extension(turns=1, requests=2, calls=3, input_tokens=4, output_tokens=5, cost=Decimal("0.25"))
    after = extended(state(), said, START)
    assert budgets.limits_of(after) == Limits(
        turns=4,
        requests=7,
        wall_seconds=100.0,
        calls=10,
        input_tokens=10_004,
        output_tokens=2_005,
        cost=Decimal("0.75"),
    )
    opened = after.opened.model_copy(update={"limits": LIMITS})
    assert after.model_copy(update={"opened": opened}) == state()


@pytest.mark.parametrize(("after", "limit"), [(30.0, 110.0), (100.0, 110.0), (5_000.0, 5_010.0)])
def test_time_that_is_over_already_is_not_taken_from_what_is_added(after: float, limit: float) -> None:
    more = extended(state(), Extension(wall_seconds=10.0), START + after)
    assert budgets.limits_of(more).wall_seconds == limit
    assert loop.seconds_left(more, START + after) >= 10.0


@pytest.mark.parametrize("name", ["calls", "input_tokens", "output_tokens", "cost"])
def test_where_there_is_no_limit_there_is_nothing_to_extend(name: str) -> None:
    unlimited = state(Limits(turns=1, requests=1, wall_seconds=1.0))
    with pytest.raises(BadExtension, match=f"^{name}: the task has no such limit, so there is nothing to extend"):
        extended(unlimited, Extension.model_validate({name: 1}), START)


def test_r9_an_extended_budget_goes_over_to_the_next_run() -> None:
    """R106: in the field that an older release reads, too."""
    more = extended(state(), Extension(cost=Decimal("0.1"), turns=1), START)
    assert LoopState.model_validate_json(more.model_dump_json()) == more


def test_the_last_updates_are_known_and_not_all_there_ever_were() -> None:
    """A state of an older release knows none."""
    now = LoopState.model_validate(state().model_dump(mode="json", exclude={"extended_by"}))
    for number in range(MOST_UPDATES + 5):
        now = noted(now, str(number))
    assert now.extended_by == tuple(str(number) for number in range(5, MOST_UPDATES + 5))
    assert LoopState.model_validate_json(now.model_dump_json()) == now


# Usage: nothing is lost, and no call stays open, whatever happens

USAGES = st.builds(
    Usage,
    input_tokens=st.integers(0, 5_000),
    output_tokens=st.integers(0, 900),
    cache_read_tokens=st.integers(0, 5_000),
    cache_write_tokens=st.integers(0, 5_000),
    cost=st.decimals(0, "0.2", places=9),
    unpriced=st.integers(0, 1),
)
COMMANDS = st.one_of(
    st.builds(Resend),
    st.integers(1, 4).map(
        lambda count: RunBatches(
            calls=tuple(Proposal(slot=slot, call_id=str(slot), tool="t") for slot in range(count)),
            batches=(tuple(range(count)),),
        )
    ),
)
TURNS = st.lists(st.builds(Turn, head=st.just(D2), next=COMMANDS, usage=USAGES), min_size=1, max_size=30)
SOME_LIMITS = st.builds(
    Limits,
    turns=st.integers(1, 20),
    requests=st.integers(1, 20),
    wall_seconds=st.just(1e6),
    calls=st.none() | st.integers(1, 30),
    input_tokens=st.none() | st.integers(1, 50_000),
    output_tokens=st.none() | st.integers(1, 9_000),
    cost=st.none() | st.decimals("0.01", 1, places=4),
)


@given(SOME_LIMITS, TURNS)
def test_r13_r29_r52_budgets_leave_no_call_unanswered_and_usage_adds_up(limits: Limits, turns: list[Turn]) -> None:
    """A limit is passed by one response at the most, and money adds up to the last digit."""
    now = state(limits)
    asked: list[Turn] = []
    states = [now]
    for turn in turns:
        if loop.decided_end(now, START) is not None:
            break
        now = loop.after_turn(now, turn)
        asked.append(turn)
        if loop.has_calls_to_run(now):
            assert loop.decided_end(now, START) is None
            now = loop.after_calls(now, {call.slot: CallResult(slot=call.slot) for call in now.pending.calls}, ())
        states.append(now)
    for name in Usage.model_fields:
        assert getattr(now.usage, name) == sum(getattr(turn.usage, name) for turn in asked)
    assert now.pending.open_calls() == ()
    for before, _ in pairwise(states):
        assert all(
            getattr(limits, what.limit) is None or what.spent(before, START) < getattr(limits, what.limit)
            for what in budgets.TABLE
        )
