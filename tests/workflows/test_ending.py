"""How a task ends, and what people are shown of it: no exit is a success by default."""

from decimal import Decimal
from itertools import product

import pytest

from settled.workflows import reporting
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.ending import EndReason, Status, Verdict
from settled.workflows.contract.loop import Counters, LoopState
from settled.workflows.contract.operation import (
    Intent,
    LedgerView,
    OperationState,
    OperationView,
    Outcome,
    SettlementStep,
    Standing,
    Tally,
)
from settled.workflows.contract.result import StatusReport, TaskResult
from settled.workflows.contract.task import Limits, Opened
from settled.workflows.contract.turn import Proposal, Usage
from settled.workflows.ending import status_of

D1, D2 = "1" * 64, "2" * 64

STATUSES = {
    EndReason.MAX_TURNS: Status.BUDGET_EXHAUSTED,
    EndReason.MAX_REQUESTS: Status.BUDGET_EXHAUSTED,
    EndReason.MAX_CALLS: Status.BUDGET_EXHAUSTED,
    EndReason.MAX_TOKENS_BUDGET: Status.BUDGET_EXHAUSTED,
    EndReason.MAX_COST: Status.BUDGET_EXHAUSTED,
    EndReason.DEADLINE: Status.BUDGET_EXHAUSTED,
    EndReason.ABORTED_MODEL: Status.CANCELLED,
    EndReason.ABORTED_TOOLS: Status.CANCELLED,
    EndReason.MODEL_ERROR: Status.FAILED,
    EndReason.REFUSED: Status.FAILED,
    EndReason.INVALID_RESPONSE: Status.FAILED,
    EndReason.OUTPUT_TRUNCATED: Status.FAILED,
    EndReason.CONTEXT_EXHAUSTED: Status.FAILED,
    EndReason.NO_PROGRESS: Status.FAILED,
    EndReason.ACCEPTANCE_FAILED: Status.FAILED,
    EndReason.STOP_HOOK_PREVENTED: Status.FAILED,
    EndReason.HOOK_STOPPED: Status.FAILED,
    EndReason.UNRESOLVED_OPERATION: Status.FAILED,
}
"""Every reason but `completed`, where the verdict decides."""

# R44, R47, R48: reason, verdict and status are three things


def test_r48_each_end_reason_is_mapped_by_hand() -> None:
    """R48: the enum is closed, and a new member needs a decision here."""
    assert set(EndReason) == {*STATUSES, EndReason.COMPLETED}
    assert len(EndReason) == 19


@pytest.mark.parametrize(("reason", "verdict"), list(product(STATUSES, [*Verdict, Verdict("shrugged")])), ids=str)
def test_r48_a_reason_other_than_completed_has_its_status_whatever_the_verdict(
    reason: EndReason, verdict: Verdict
) -> None:
    assert status_of(reason, verdict) is STATUSES[reason]


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.ACCEPTED, Status.SUCCEEDED),
        (Verdict.NO_CRITERIA, Status.UNVERIFIED),
        (Verdict.NOT_ACCEPTED, Status.FAILED),
        (Verdict.NOT_JUDGED, Status.FAILED),
        (Verdict("shrugged"), Status.FAILED),
    ],
    ids=str,
)
def test_r44_a_claim_to_be_done_has_the_status_that_acceptance_gives_it(verdict: Verdict, status: Status) -> None:
    assert status_of(EndReason.COMPLETED, verdict) is status


def test_r61_no_exit_defaults_to_success() -> None:
    """R61: of all pairs, those of another release included, one succeeds and one more is not a failure of the task."""
    pairs = list(product([*EndReason, EndReason("bored")], [*Verdict, Verdict("shrugged")]))
    assert [pair for pair in pairs if status_of(*pair) is Status.SUCCEEDED] == [(EndReason.COMPLETED, Verdict.ACCEPTED)]
    assert [pair for pair in pairs if status_of(*pair) is Status.UNVERIFIED] == [
        (EndReason.COMPLETED, Verdict.NO_CRITERIA)
    ]


@pytest.mark.parametrize("verdict", [*Verdict, Verdict("shrugged")], ids=str)
def test_r61_a_reason_of_another_release_is_a_failure(verdict: Verdict) -> None:
    assert status_of(EndReason("bored"), verdict) is Status.FAILED


def test_r46_a_task_never_ends_as_if_it_still_ran() -> None:
    ends = {status_of(*pair) for pair in product(EndReason, Verdict)}
    assert ends == set(Status) - {Status.RUNNING, Status.WAITING}


# R46, R47: what people see of it


def view(number: int, state: OperationState = OperationState.UNKNOWN) -> OperationView:
    return OperationView(key=f"{number:064x}"[::-1], tool="reserve", state=state, sends=1)


OPEN = view(1)
STATE = LoopState(
    opened_at=0.0,
    opened=Opened(head=D1, limits=Limits(turns=9, requests=9, wall_seconds=9.0), agent="clerk", title="reserve 2"),
    head=D1,
    counters=Counters(turns=2, requests=3, attempts=4, calls=5),
    usage=Usage(
        input_tokens=500, cache_read_tokens=600, cache_write_tokens=100, output_tokens=30, cost=Decimal("0.0125")
    ),
    ledger=LedgerView(tally=Tally(operations=2, completed=1, unsettled=1), unsettled=(OPEN,)),
    last_text="I look\nagain",
)
ENDED = TaskResult(
    status=Status.FAILED,
    end_reason=EndReason.REFUSED,
    detail="it refused",
    operations=(view(1, OperationState.COMPLETED), view(2)),
    tally=Tally(operations=2, completed=2),
)


def test_r46_before_the_task_is_open_its_status_is_there_already() -> None:
    assert reporting.report(None, Status.RUNNING, [], None) == StatusReport(
        status=Status.RUNNING, turn=1, counters=Counters()
    )
    assert reporting.operations(None, None) == ()


def test_r46_a_running_task_reports_its_turn_and_what_it_waits_for() -> None:
    shown = reporting.report(STATE, Status.WAITING, ["reserve: is looked up"], None)
    assert shown == StatusReport(
        status=Status.WAITING,
        turn=3,
        counters=STATE.counters,
        usage=STATE.usage,
        spent="3 requests in 4 attempts · 1,200 tokens read (50 % cached), 30 written · $0.0125",
        limits=STATE.opened.limits,
        waits_for=("reserve: is looked up",),
        ledger=STATE.ledger,
        last_text="I look\nagain",
    )
    assert reporting.operations(STATE, None) == (OPEN,)


def test_r47_an_ended_task_reports_how_it_ended_and_waits_for_nothing() -> None:
    shown = reporting.report(STATE, Status.FAILED, ["a stale line"], ENDED)
    assert (shown.turn, shown.waits_for, shown.end_reason) == (2, (), EndReason.REFUSED)
    assert shown.ledger == LedgerView(tally=ENDED.tally), "as acceptance found it, not as the loop remembers it"
    assert reporting.operations(STATE, ENDED) == ENDED.operations


def test_r46_lists_show_the_status_from_the_start_and_the_operations_at_the_end() -> None:
    assert reporting.memo(Status.RUNNING, None, None) == {"status": "running"}
    assert reporting.memo(Status.FAILED, STATE, ENDED) == {
        "status": "failed",
        "agent": "clerk",
        "goal": "reserve 2",
        "end_reason": "refused",
        "operations": [f"reserve 1{'0' * 11} completed", f"reserve 2{'0' * 11} unknown"],
    }


@pytest.mark.parametrize(("count", "more"), [(10, []), (11, ["and 1 more"]), (200, ["and 190 more"])])
def test_the_memo_of_a_task_with_many_operations_stays_small(count: int, more: list[str]) -> None:
    ended = ENDED.model_copy(update={"operations": tuple(view(number) for number in range(count))})
    lines = reporting.memo(Status.FAILED, STATE, ended)["operations"]
    assert len(lines) == 10 + len(more)
    assert lines[10:] == more


def test_the_memo_is_plain_json() -> None:
    """A memo can't be decoded with a type: it must be the same for every client."""
    shown = reporting.memo(Status.FAILED, STATE, ENDED)
    texts = [shown["status"], shown["end_reason"], *shown["operations"]]
    assert [type(text) for text in texts] == [str] * len(texts)


@pytest.mark.parametrize(("detail", "line"), [("it refused", "failed (refused): it refused"), ("", "failed (refused)")])
def test_r47_the_headline_names_status_reason_and_detail(detail: str, line: str) -> None:
    assert reporting.headline(ENDED.model_copy(update={"detail": detail})) == line


def test_the_web_page_shows_the_task_in_markdown() -> None:
    text = reporting.details(
        reporting.report(STATE, Status.WAITING, ["reserve: is looked up"], None), STATE.opened, None
    )
    assert text.splitlines() == [
        "clerk: reserve 2",
        "",
        "**waiting** · turn 3 · calls: 5",
        "3 requests in 4 attempts · 1,200 tokens read (50 % cached), 30 written · $0.0125",
        "- waits for reserve: is looked up",
        f"- reserve `1{'0' * 11}`: unknown",
        "",
        "> I look",
        "> again",
    ]


@pytest.mark.parametrize(
    ("usage", "line"),
    [
        (Usage(), "0 tokens read, 0 written · $0.0000"),
        (
            Usage(input_tokens=9, unpriced=1),
            "9 tokens read (0 % cached), 0 written · cost unknown for 1 request",
        ),
        (
            Usage(cache_read_tokens=2_000, output_tokens=1_234_567, cost=Decimal("1234.56785"), unpriced=2),
            "2,000 tokens read (100 % cached), 1,234,567 written · $1,234.5679, cost unknown for 2 requests",
        ),
        (Usage(output_tokens=1, cost=Decimal("0.00001")), "0 tokens read, 1 written · less than $0.0001"),
    ],
    ids=["nothing", "unknown", "both", "little"],
)
def test_r52_what_was_spent_is_one_line_that_says_what_it_does_not_know(usage: Usage, line: str) -> None:
    assert reporting.spent(Counters(requests=1, attempts=1), usage) == f"1 request · {line}"


def test_the_web_page_shows_a_settlement_in_markdown() -> None:
    step = SettlementStep(settled=False, view=OPEN, after=2.4, note="absent so far")
    title = f"**unknown** · reserve `1{'0' * 11}` · 1 sent"
    assert reporting.settlement_details(step) == f"{title}\n\nabsent so far; looks again in 2 s"
    assert reporting.settlement_details(step.model_copy(update={"settled": True})) == f"{title}\n\nabsent so far"
    assert reporting.settlement_details(SettlementStep(settled=True, note="nothing here")) == "nothing here"


@pytest.mark.parametrize(
    ("standing", "blocked_by", "words"),
    [
        (Standing.WAIT, None, "may have happened; it is being looked up"),
        (Standing("meditate"), None, "may have happened; it is being looked up"),
        (Standing.PERSON, None, "may have happened; a person has to find out"),
        (Standing.SEND, None, "is about to be sent"),
        (Standing.WAIT, D2, f"waits until operation {D2[:12]} lets go of what both touch"),
        (Standing.SEND, D2, f"waits until operation {D2[:12]} lets go of what both touch"),
    ],
    ids=str,
)
def test_what_a_write_waits_for_is_said_in_one_line(standing: Standing, blocked_by: str | None, words: str) -> None:
    intent = Intent(key=D1, generation=1, fingerprint=D2)
    call = Proposal(slot=0, call_id="a", tool="reserve", intent=intent, answer=CallResult(slot=0))
    line = reporting.waits_for(call, Outcome(standing=standing, permit=1, blocked_by=blocked_by))
    assert line.startswith("reserve: ")
    assert line.endswith(words)
    assert blocked_by is not None or D1[:12] in line


def test_what_a_finished_model_still_waits_for_names_each_operation() -> None:
    both = STATE.model_copy(update={"ledger": LedgerView(unsettled=(OPEN, view(2)))})
    assert reporting.waits_for_leftovers(both) == f"the outcome of reserve 1{'0' * 11}, reserve 2{'0' * 11}"
