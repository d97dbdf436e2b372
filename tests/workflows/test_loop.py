"""The loop's decisions, as functions from one state to the next. Nothing here runs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, RetryState

from settled.workflows import loop
from settled.workflows.answers import attempts_of
from settled.workflows.contract.calls import CallResult, ErrorKind
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.loop import Counters, LoopState, Pending
from settled.workflows.contract.operation import (
    Intent,
    LedgerView,
    OperationState,
    OperationView,
    Order,
    Outcome,
    Standing,
    Tally,
)
from settled.workflows.contract.task import Conduct, Limits, OnNeedsHuman, Opened
from settled.workflows.contract.turn import Again, Ask, Compact, End, Proposal, Repeats, Resend, RunBatches, Turn, Usage

D1, D2 = "1" * 64, "2" * 64
LIMITS = Limits(turns=3, requests=5, wall_seconds=100.0)
OPENED = Opened(head=D1, limits=LIMITS, conduct=Conduct(model_attempts=6))
START = 1000.0


def state(**changes: Any) -> LoopState:
    return loop.first_state(OPENED, START).model_copy(update=changes)


def counted(turns: int = 0, requests: int = 0, attempts: int = 0, calls: int = 0) -> Counters:
    return Counters(turns=turns, requests=requests, attempts=attempts, calls=calls)


def calls(count: int, answered: Sequence[int] = ()) -> tuple[Proposal, ...]:
    return tuple(
        Proposal(
            slot=slot,
            call_id=f"call_{slot}",
            tool="look_up",
            answer=CallResult(slot=slot, error=ErrorKind.UNKNOWN_TOOL) if slot in answered else None,
        )
        for slot in range(count)
    )


def turn(command: RunBatches | Resend | Compact | End, **more: Any) -> Turn:
    return Turn(head=D2, next=command, **more)


def running(count: int, **changes: Any) -> LoopState:
    """A state whose last response holds this many calls, none of which was run."""
    return state(pending=Pending(calls=calls(count), batches=(tuple(range(count)),)), **changes)


def ledger(*states: OperationState, unsettled: int | None = None) -> LedgerView:
    views = tuple(OperationView(key=D1, tool="reserve", state=state) for state in states)
    count = len(views) if unsettled is None else unsettled
    return LedgerView(tally=Tally(operations=5, unsettled=count), unsettled=views)


RESULTS = {slot: CallResult(slot=slot, note=f"result {slot}") for slot in range(9)}

INTENT = Intent(key=D1, generation=2, fingerprint=D2)


# Opening and asking


def test_a_task_begins_at_the_head_that_opening_recorded() -> None:
    assert loop.first_state(OPENED, START) == LoopState(opened_at=START, opened=OPENED, head=D1)


def test_the_next_request_takes_along_the_results_and_how_it_came_to_be_asked() -> None:
    results, repeats = (RESULTS[0], RESULTS[1]), Repeats(paused=3, truncated=1)
    pending = Pending(calls=calls(2), results=results)
    asked = loop.question(state(head=D2, pending=pending, repeats=repeats, max_tokens=200))
    assert asked == Ask(head=D2, results=results, repeats=repeats, max_tokens=200)


@pytest.mark.parametrize(("limit", "left"), [(5, 2), (4, 1)])
def test_r10_a_summary_is_told_how_many_requests_are_left_for_it(limit: int, left: int) -> None:
    """It may take several, and the limit is looked at before the first one only."""
    opened = OPENED.model_copy(update={"limits": LIMITS.model_copy(update={"requests": limit})})
    asked = loop.question(state(opened=opened, counters=counted(requests=3), context_full=True))
    assert asked == Ask(head=D1, compact=True, requests_left=left)


# R11: the four counters


def test_r11_a_response_with_calls_counts_request_attempts_and_calls_but_no_turn_yet() -> None:
    after = loop.after_turn(
        state(counters=counted(turns=2, requests=3, attempts=4, calls=5)),
        turn(RunBatches(calls=calls(2), batches=((0, 1),)), attempts=3),
    )
    assert after.counters == counted(turns=2, requests=4, attempts=7, calls=7)


def test_r11_a_turn_is_counted_when_the_last_of_its_calls_is_answered() -> None:
    before = running(3, counters=counted(turns=1))
    part = loop.after_calls(before, {0: RESULTS[0], 2: RESULTS[2]}, handed_over={1})
    assert (part.counters.turns, part.pending.processed) == (1, False)
    whole = loop.after_calls(part, {1: RESULTS[1]}, handed_over=())
    assert (whole.counters.turns, whole.pending.processed) == (2, True)


@pytest.mark.parametrize("command", [Resend(), End(reason=EndReason.COMPLETED)])
def test_r11_a_response_without_calls_counts_no_turn(command: Resend | End) -> None:
    after = loop.after_turn(state(), turn(command, attempts=2))
    assert after.counters == counted(requests=1, attempts=2)


@pytest.mark.parametrize(
    ("details", "retry", "attempts"),
    [
        ((4,), RetryState.NON_RETRYABLE_FAILURE, 4),
        ((6,), RetryState.MAXIMUM_ATTEMPTS_REACHED, 6),
        ((), RetryState.MAXIMUM_ATTEMPTS_REACHED, 6),
        ((), RetryState.NON_RETRYABLE_FAILURE, 1),
        (("four",), None, 1),
    ],
    ids=str,
)
def test_r11_a_request_that_failed_for_good_counts_with_all_its_attempts(
    details: tuple[Any, ...], retry: RetryState | None, attempts: int
) -> None:
    """As the last attempt says; after a time-out, which says nothing, as many as were allowed."""
    error = ActivityError(
        "failed",
        scheduled_event_id=5,
        started_event_id=6,
        identity="",
        activity_type="request_model",
        activity_id="1",
        retry_state=retry,
    )
    error.__cause__ = ApplicationError("Overloaded (request req_1)", *details)
    before = state(counters=counted(requests=1, attempts=1))
    after = loop.after_model_failure(before, str(error.cause), attempts_of(error))
    assert after.counters == counted(requests=2, attempts=1 + attempts)
    assert after.ending == End(reason=EndReason.MODEL_ERROR, detail="Overloaded (request req_1)")


def test_r11_a_request_that_was_given_up_counts_with_the_attempts_that_were_made() -> None:
    after = loop.after_model_failure(state(), "BadRequestError (request req_1)", attempts=1)
    assert after.counters == counted(requests=1, attempts=1)


def test_a_response_that_was_bought_by_a_request_that_was_cut_short_is_counted_once() -> None:
    """R29: until it is found, nobody knows what it costs; and another request than that one is one more."""
    before = loop.after_cut_request(state(), 1, lost=True, activity="7")
    assert (before.usage, loop.question(before).cut_short) == (Usage(unpriced=1), "7")
    found = loop.after_turn(before, turn(Resend(), usage=Usage(input_tokens=10), taken_over=True))
    assert (found.usage, found.counters.requests) == (Usage(input_tokens=10), 1)
    other = loop.after_turn(before, turn(Resend(), usage=Usage(input_tokens=10)))
    assert (other.usage, other.counters.requests) == (Usage(input_tokens=10, unpriced=1), 2)
    assert loop.question(found).cut_short == loop.question(other).cut_short == ""


def test_a_request_that_said_of_itself_that_it_brought_nothing_costs_nothing() -> None:
    after = loop.after_cut_request(state(), 3, lost=False, activity="7")
    assert (after.usage, loop.question(after).cut_short) == (Usage(), "")


def test_a_response_moves_the_head_adds_its_usage_and_replaces_the_ledger() -> None:
    before = state(usage=Usage(input_tokens=1, output_tokens=2), ledger=ledger(OperationState.UNKNOWN), last_text="old")
    now = ledger(OperationState.DISPATCHED, OperationState.UNKNOWN)
    after = loop.after_turn(
        before, turn(Resend(), usage=Usage(input_tokens=10, cache_read_tokens=5), ledger=now, preview="new")
    )
    assert (after.head, after.ledger, after.last_text) == (D2, now, "new")
    assert after.usage == Usage(input_tokens=11, output_tokens=2, cache_read_tokens=5)


def test_a_response_without_words_leaves_the_last_ones_standing() -> None:
    assert loop.after_turn(state(last_text="old"), turn(Resend())).last_text == "old"


# The closed set of commands


def test_calls_that_admission_answered_have_their_results_at_once() -> None:
    before = state(repeats=Repeats(empty=2), max_tokens=200)
    after = loop.after_turn(before, turn(RunBatches(calls=calls(3, answered=[1]), batches=((0, 2),))))
    assert after.pending.calls == calls(3, answered=[1])
    assert after.pending.batches == ((0, 2),)
    assert after.pending.results == (CallResult(slot=1, error=ErrorKind.UNKNOWN_TOOL),)
    assert (after.repeats, after.max_tokens) == (Repeats(), None)
    assert (after.ending, after.pending.processed) == (None, False)
    assert [call.slot for call in after.pending.open_calls()] == [0, 2]


def test_a_turn_whose_calls_were_all_refused_is_processed_before_it_counts() -> None:
    """R23: nothing is dispatched, and the turn is a turn all the same."""
    after = loop.after_turn(state(), turn(RunBatches(calls=calls(2, answered=[0, 1]))))
    assert loop.has_calls_to_run(after)
    done = loop.after_calls(after, {}, ())
    assert (done.counters.turns, loop.has_calls_to_run(done)) == (1, False)
    assert [result.slot for result in done.pending.results] == [0, 1]


def test_what_is_asked_again_is_counted_in_a_row_by_reason_and_forgotten_after_a_turn() -> None:
    once = loop.after_turn(running(1), turn(Resend(why=Again.PAUSED)))
    twice = loop.after_turn(once, turn(Resend(why=Again.PAUSED)))
    cut = loop.after_turn(twice, turn(Resend(why=Again.TRUNCATED, max_tokens=200)))
    assert [each.repeats for each in (once, twice, cut)] == [
        Repeats(paused=1),
        Repeats(paused=2),
        Repeats(paused=2, truncated=1),
    ]
    assert (once.pending, once.ending) == (Pending(), None), "the results that went along are not sent twice"
    assert loop.after_turn(cut, turn(RunBatches(calls=calls(1)))).repeats == Repeats()


def test_b16_a_raised_token_limit_holds_for_the_next_request_only() -> None:
    """R6: the same limits on each request, but for this one."""
    raised = loop.after_turn(state(), turn(Resend(why=Again.TRUNCATED, max_tokens=200)))
    assert raised.max_tokens == 200
    for command in (RunBatches(calls=calls(1)), Resend(why=Again.PAUSED), Compact(), End()):
        assert loop.after_turn(raised, turn(command)).max_tokens is None


def test_a_full_context_is_summed_up_before_anything_else_is_asked() -> None:
    full = loop.after_turn(state(repeats=Repeats(paused=1)), turn(Compact()))
    assert (full.context_full, full.repeats, full.ending) == (True, Repeats(paused=1), None)
    assert loop.question(full).compact
    summed = loop.after_turn(full, turn(Resend(why=Again.COMPACTED)))
    assert (summed.context_full, summed.repeats.compacted) == (False, 1)
    assert loop.after_turn(state(), turn(RunBatches(calls=calls(1)), context_full=True)).context_full


def test_r95_the_model_that_answered_last_is_known() -> None:
    fallen = loop.after_turn(state(), turn(Resend(why=Again.FALLBACK), model="claude-a"))
    assert fallen.model == "claude-a"
    assert loop.after_turn(fallen, turn(End(), model="claude-b")).model == "claude-b"
    assert loop.after_turn(fallen, turn(End())).model == "claude-a"


def test_r40_calls_that_the_provider_ran_are_counted_apart() -> None:
    after = loop.after_turn(state(), turn(RunBatches(calls=calls(1)), server_calls=2))
    assert (after.counters.calls, after.counters.server_calls) == (1, 2)


def test_an_end_is_taken_over_as_it_is() -> None:
    end = End(reason=EndReason.REFUSED, detail="it refused")
    after = loop.after_turn(running(2), turn(end))
    assert after.ending == end
    assert after.pending == Pending()


def test_an_unknown_command_is_not_carried_out() -> None:
    """R106: the workflow task fails, and the task waits for a worker that knows the command."""

    class Ponder:
        pass

    unheard_of = turn(Resend()).model_copy(update={"next": Ponder()})
    with pytest.raises(loop.UnknownCommand, match="Ponder"):
        loop.after_turn(state(), unheard_of)


# The results of calls


def test_r27_results_pair_by_slot_and_stand_in_the_order_of_the_calls() -> None:
    after = loop.after_calls(running(3), {2: RESULTS[2], 0: RESULTS[0], 1: RESULTS[1]}, ())
    assert after.pending.results == (RESULTS[0], RESULTS[1], RESULTS[2])


def test_what_was_handed_over_stays_so_until_it_has_its_result() -> None:
    part = loop.after_calls(running(4), {0: RESULTS[0]}, handed_over=[3, 1, 0])
    assert part.pending.handed_over == (1, 3), "what has its result no longer waits"
    assert loop.after_calls(part, {3: RESULTS[3]}, [1, 3]).pending.handed_over == (1,)


def test_results_that_were_there_stay() -> None:
    part = loop.after_calls(running(2), {1: RESULTS[1]}, ())
    assert loop.after_calls(part, {0: RESULTS[0]}, ()).pending.results == (RESULTS[0], RESULTS[1])


@pytest.mark.parametrize(
    ("pending", "to_run"),
    [
        (Pending(), False),
        (Pending(calls=calls(1)), True),
        (Pending(calls=calls(1), results=(RESULTS[0],)), True),
        (Pending(calls=calls(1), results=(RESULTS[0],), processed=True), False),
    ],
    ids=["no calls", "open", "answered", "processed"],
)
def test_there_are_calls_to_run_until_the_turn_is_processed(pending: Pending, to_run: bool) -> None:
    assert loop.has_calls_to_run(state(pending=pending)) is to_run


# R50, R52: budgets


def test_a_task_within_its_limits_goes_on() -> None:
    assert loop.decided_end(state(counters=counted(turns=2, requests=4)), START + 99.9) is None


@pytest.mark.parametrize("turns", [3, 4])
def test_r52_the_limit_of_turns_ends_the_task_before_the_next_request(turns: int) -> None:
    end = loop.decided_end(state(counters=counted(turns=turns)), START)
    assert end == End(reason=EndReason.MAX_TURNS, detail="the limit of 3 turns is reached")


@pytest.mark.parametrize("requests", [5, 6])
def test_r52_the_limit_of_requests_ends_the_task_before_the_next_request(requests: int) -> None:
    end = loop.decided_end(state(counters=counted(requests=requests)), START)
    assert end == End(reason=EndReason.MAX_REQUESTS, detail="the limit of 5 model requests is reached")


def test_r50_with_one_turn_allowed_the_proposed_tools_still_run() -> None:
    """R50, from one state to the next: response, calls, then the end before the second request."""
    opened = OPENED.model_copy(update={"limits": Limits(turns=1, requests=1, wall_seconds=100.0)})
    first = loop.first_state(opened, START)
    assert loop.decided_end(first, START) is None
    asked = loop.after_turn(first, turn(RunBatches(calls=calls(1), batches=((0,),))))
    assert loop.decided_end(asked, START) is None, "the calls of the one turn are still to be run"
    done = loop.after_calls(asked, {0: RESULTS[0]}, ())
    end = loop.decided_end(done, START)
    assert end is not None
    assert end.reason is EndReason.MAX_TURNS
    assert done.pending.results == (RESULTS[0],), "the records are kept"


@pytest.mark.parametrize("at", [START + 100.0, START + 1000.0])
@pytest.mark.parametrize("count", [0, 2])
def test_r52_the_deadline_ends_the_task_even_while_calls_run(at: float, count: int) -> None:
    end = loop.decided_end(running(count), at)
    assert end == End(reason=EndReason.DEADLINE, detail="the task's 100 s are over")


def test_the_time_that_is_left_counts_from_the_start_of_the_task() -> None:
    assert loop.seconds_left(state(), START) == 100.0
    assert loop.seconds_left(state(), START + 30.5) == 69.5
    assert loop.seconds_left(state(), START + 101.0) == -1.0


def test_a_decided_end_comes_before_any_limit() -> None:
    """What the model did is the reason, even where a limit is reached by the same response."""
    spent = counted(turns=9, requests=9)
    end = End(reason=EndReason.REFUSED, detail="it refused")
    assert loop.decided_end(state(counters=spent, ending=end), START + 999.0) == end
    assert loop.decided_end(state(counters=spent, ending=End()), START + 999.0) == End()


# R74: what the model doesn't remember


def test_r74_a_claim_to_be_done_waits_for_what_is_unsettled() -> None:
    """R74: an unsettled operation blocks the end `completed`; limits of turns and requests don't matter any more."""
    waiting = state(ending=End(), ledger=ledger(OperationState.UNKNOWN), counters=counted(turns=9, requests=9))
    assert loop.must_settle_first(waiting)
    assert loop.decided_end(waiting, START) is None
    settled = waiting.model_copy(update={"ledger": ledger()})
    assert not loop.must_settle_first(settled)
    assert loop.decided_end(settled, START) == End()


def test_r74_waiting_for_what_is_unsettled_ends_at_the_deadline() -> None:
    end = loop.decided_end(state(ending=End(), ledger=ledger(OperationState.UNKNOWN)), START + 100.0)
    assert end is not None
    assert end.reason is EndReason.DEADLINE


def test_r74_what_is_unsettled_counts_even_where_it_is_not_listed() -> None:
    """The list is bounded; the tally isn't."""
    assert loop.must_settle_first(state(ending=End(), ledger=ledger(unsettled=1)))


@pytest.mark.parametrize("reason", [reason for reason in EndReason if reason is not EndReason.COMPLETED], ids=str)
def test_only_a_claim_to_be_done_waits(reason: EndReason) -> None:
    end = End(reason=reason)
    stopped = state(ending=end, ledger=ledger(OperationState.UNKNOWN))
    assert not loop.must_settle_first(stopped)
    assert loop.decided_end(stopped, START) == end


def test_an_unfinished_task_does_not_wait() -> None:
    assert not loop.must_settle_first(state(ledger=ledger(OperationState.UNKNOWN)))


# Operations that only a person can settle

FOR_PEOPLE = ledger(OperationState.UNKNOWN, OperationState.NEEDS_HUMAN)


def opened_to(what: OnNeedsHuman) -> Opened:
    return OPENED.model_copy(update={"conduct": Conduct(on_needs_human=what)})


def test_a_task_ends_where_only_a_person_can_help_if_it_is_opened_so() -> None:
    after = loop.with_ledger(state(opened=opened_to(OnNeedsHuman.END)), FOR_PEOPLE)
    assert after.ledger == FOR_PEOPLE
    assert after.ending == End(
        reason=EndReason.UNRESOLVED_OPERATION,
        detail=f"operation {D1[:12]} (reserve) can only be settled by a person",
    )


def test_a_claim_to_be_done_gives_way_to_an_operation_for_people() -> None:
    after = loop.with_ledger(state(opened=opened_to(OnNeedsHuman.END), ending=End()), FOR_PEOPLE)
    assert after.ending is not None
    assert after.ending.reason is EndReason.UNRESOLVED_OPERATION


@pytest.mark.parametrize("what", [OnNeedsHuman.WAIT, OnNeedsHuman("ring_the_bell")], ids=str)
def test_a_task_waits_for_people_otherwise(what: OnNeedsHuman) -> None:
    after = loop.with_ledger(state(opened=opened_to(what)), FOR_PEOPLE)
    assert (after.ledger, after.ending) == (FOR_PEOPLE, None)


@pytest.mark.parametrize("operation", [item for item in OperationState if item is not OperationState.NEEDS_HUMAN])
def test_no_other_state_ends_a_task(operation: OperationState) -> None:
    assert loop.with_ledger(state(opened=opened_to(OnNeedsHuman.END)), ledger(operation)).ending is None


def test_a_ledger_that_gave_no_answer_changes_nothing() -> None:
    before = state(ledger=ledger(OperationState.UNKNOWN))
    assert loop.with_ledger(before, None) == before


# Cancelling and waiting


def test_a_task_cancelled_while_calls_are_open_was_aborted_in_its_tools() -> None:
    assert loop.aborted(running(1)).reason is EndReason.ABORTED_TOOLS


@pytest.mark.parametrize(
    "pending",
    [Pending(), Pending(calls=calls(1), results=(RESULTS[0],), processed=True)],
    ids=["no calls", "all answered"],
)
def test_a_task_cancelled_otherwise_was_aborted_in_its_model_request(pending: Pending) -> None:
    assert loop.aborted(state(pending=pending)).reason is EndReason.ABORTED_MODEL


@pytest.mark.parametrize(
    ("seconds", "asked", "wait"),
    [
        (60.0, 0, 60),
        (60.0, 1, 120),
        (60.0, 5, 1920),
        (60.0, 6, 3600),
        (60.0, 10**6, 3600),
        (0.5, 1, 1.0),
        (7200.0, 0, 3600),
    ],
)
def test_the_wait_before_asking_again_doubles_up_to_an_hour(seconds: float, asked: int, wait: float) -> None:
    assert loop.recheck_after(seconds, asked) == timedelta(seconds=wait)


def test_deciding_changes_no_state() -> None:
    """A replay asks the same questions again, so that nothing may have been changed by asking."""
    before = running(2, ledger=FOR_PEOPLE)
    copy = before.model_copy(deep=True)
    loop.after_turn(before, turn(RunBatches(calls=calls(1))))
    loop.after_calls(before, RESULTS, ())
    loop.with_ledger(before, FOR_PEOPLE)
    loop.ending_with(before, EndReason.DEADLINE, "late")
    assert before == copy


# Waiting for an earlier generation


def told(generation: int | None, standing: Standing = Standing.WAIT, ledger: LedgerView | None = None) -> Outcome:
    return Outcome(standing=standing, permit=1, generation=generation, ledger=ledger)


@pytest.mark.parametrize(
    ("generation", "about"), [(2, True), (None, True), (1, False)], ids=["the ordered one", "not said", "one before"]
)
def test_what_is_told_of_an_earlier_generation_is_no_knowledge_of_the_ordered_one(
    generation: int | None, about: bool
) -> None:
    """Nothing was sent of what was ordered: it is dispatched when its turn comes, and its permit is the first one."""
    order = Order(head=D1, slot=0, tool="pay", intent=INTENT, permit=1, seconds=1.0)
    seen = told(generation, ledger=LedgerView())
    assert loop.is_about(seen, order) is about
    assert loop.knows(seen, order) is about
    assert loop.may_send(seen, order) is not about


def test_an_outcome_that_the_ledger_was_not_asked_for_is_no_knowledge() -> None:
    order = Order(head=D1, slot=0, tool="pay", intent=INTENT, permit=1, seconds=1.0)
    assert not loop.knows(told(None), order)
    assert not loop.knows(told(2, Standing.SEND, LedgerView()), order)
    assert loop.knows(told(None), order.model_copy(update={"known": True}))
    assert loop.may_send(told(2, Standing.SEND), order)
