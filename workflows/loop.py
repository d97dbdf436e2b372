"""The loop's decisions, as pure functions from one state to the next. The workflow asks them and carries them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from settled.workflows import budgets
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.loop import Counters, LoopState, Pending
from settled.workflows.contract.operation import LedgerView, OperationState, Order, Outcome, Standing
from settled.workflows.contract.task import Conduct, OnExhausted, OnNeedsHuman, Opened
from settled.workflows.contract.turn import Ask, Compact, End, Repeats, Resend, RunBatches, Turn, Usage

MOST_RECHECK_SECONDS = 3600.0
MOST_BLOCKED_SECONDS = 300.0
MOST_DETAIL = 1_000
"""Characters of an explanation that stand in history."""
EVENTS_OF_A_WAIT = 20
"""History events that one call may need before it waits: a run must have room for all of its calls."""


class UnknownCommand(Exception):
    """A command from a newer release. It fails the workflow task, so that the task waits for a worker that knows it."""


def first_state(opened: Opened, began: float) -> LoopState:
    """The state of a task that was just opened.

    Args:
        opened: what `open_task` recorded.
        began: when it was first asked to, in seconds since 1970; opening may take long, where the store is away.
    """
    assert opened.head is not None, "a task without faults has a head"
    return LoopState(opened_at=began, opened=opened, head=opened.head)


def question(state: LoopState) -> Ask:
    """The next model request."""
    return Ask(
        head=state.head,
        results=state.pending.results,
        repeats=state.repeats,
        max_tokens=state.max_tokens,
        compact=state.context_full,
        requests_left=budgets.limits_of(state).requests - state.counters.requests if state.context_full else None,
        stream=state.opened.conduct.stream,
        cut_short=state.cut_short,
    )


def after_turn(state: LoopState, turn: Turn) -> LoopState:
    """The state after a model request that brought a response.

    Raises:
        UnknownCommand: the response's command is none of this release.
    """
    pending, repeats, max_tokens, ending = Pending(), Repeats(), None, None
    context_full = turn.context_full
    match turn.next:
        case RunBatches(calls=calls, batches=batches):
            answers = tuple(call.answer for call in calls if call.answer is not None)
            pending = Pending(calls=calls, batches=batches, results=answers)
        case Resend(why=why):
            repeats, max_tokens = state.repeats.plus(why), turn.next.max_tokens
        case Compact():
            repeats, context_full = state.repeats, True
        case End() as end:
            ending = end
        case _:
            raise UnknownCommand(type(turn.next).__name__)
    taken = int(turn.taken_over and bool(state.cut_short))
    counters = state.counters.model_copy(
        update={
            "requests": state.counters.requests + turn.requests - taken,
            "attempts": state.counters.attempts + turn.attempts + turn.requests - 1,
            "calls": state.counters.calls + len(pending.calls),
            "server_calls": state.counters.server_calls + turn.server_calls,
        }
    )
    return state.model_copy(
        update={
            "head": turn.head,
            "pending": pending,
            "repeats": repeats,
            "max_tokens": max_tokens,
            "context_tokens": turn.usage.read_tokens + turn.usage.output_tokens or state.context_tokens,
            "context_full": context_full,
            "model": turn.model or state.model,
            "ending": ending,
            "counters": counters,
            "usage": state.usage.plus(turn.usage).plus(Usage(unpriced=-taken)),
            "cut_short": "",
            "ledger": turn.ledger,
            "last_text": turn.preview or state.last_text,
        }
    )


def after_model_failure(state: LoopState, detail: str, attempts: int | None = None, *, lost: bool = False) -> LoopState:
    """The state after a model request that failed for good.

    Args:
        state: before it.
        detail: what went wrong.
        attempts: how many there were; none: nobody knows, and all that there may be are counted.
        lost: whether there may be a response that got lost on the way.
    """
    made = state.opened.conduct.model_attempts if attempts is None else attempts
    return ending_with(after_cut_request(state, made, lost=lost), EndReason.MODEL_ERROR, detail[:MOST_DETAIL])


def after_cut_request(state: LoopState, attempts: int | None, *, lost: bool, activity: str = "") -> LoopState:
    """The state after a model request that the deadline or a cancel cut short: it is counted, and no more.

    Args:
        state: before it.
        attempts: how many there were, as far as is known. One is counted at least: it may have been sent.
        lost: whether there may be a response that got lost on the way, so that nobody knows what it costs.
        activity: which one made it.
    """
    counters = state.counters.model_copy(
        update={"requests": state.counters.requests + 1, "attempts": state.counters.attempts + (attempts or 1)}
    )
    usage = state.usage.plus(Usage(unpriced=int(lost)))
    return state.model_copy(update={"counters": counters, "usage": usage, "cut_short": activity if lost else ""})


def after_calls(state: LoopState, results: Mapping[int, CallResult], handed_over: Iterable[int]) -> LoopState:
    """The state after calls of the turn were run; the turn is over once each has its result."""
    merged = {result.slot: result for result in state.pending.results} | dict(results)
    pending = state.pending.model_copy(
        update={
            "results": tuple(merged[slot] for slot in sorted(merged)),
            "handed_over": tuple(sorted(set(handed_over) - merged.keys())),
            "processed": all(call.slot in merged for call in state.pending.calls),
        }
    )
    counters: Counters = state.counters
    if pending.processed:
        counters = counters.model_copy(update={"turns": counters.turns + 1})
    return state.model_copy(update={"pending": pending, "counters": counters})


def with_ledger(state: LoopState, ledger: LedgerView | None) -> LoopState:
    """The state with the ledger's newest answer; ending where only a person can help, if the task is so opened."""
    if ledger is None:
        return state
    state = state.model_copy(update={"ledger": ledger})
    for_people = [operation for operation in ledger.unsettled if operation.state is OperationState.NEEDS_HUMAN]
    if for_people and state.opened.conduct.on_needs_human is OnNeedsHuman.END:
        detail = f"operation {for_people[0].key[:12]} ({for_people[0].tool}) can only be settled by a person"
        return ending_with(state, EndReason.UNRESOLVED_OPERATION, detail)
    return state


def ending_with(state: LoopState, reason: EndReason, detail: str) -> LoopState:
    """The state with an end decided."""
    return state.model_copy(update={"ending": End(reason=reason, detail=detail)})


def has_calls_to_run(state: LoopState) -> bool:
    """Whether the turn isn't over: it has calls, and not each has its result."""
    return bool(state.pending.calls) and not state.pending.processed


def must_settle_first(state: LoopState) -> bool:
    """Whether the task would be done, but for operations whose outcome isn't known."""
    claimed_done = state.ending is not None and state.ending.reason is EndReason.COMPLETED
    return claimed_done and state.ledger.tally.unsettled > 0


def aborted(state: LoopState) -> End:
    """The end of a cancelled task."""
    if has_calls_to_run(state):
        return End(reason=EndReason.ABORTED_TOOLS, detail="cancelled while calls were run")
    return End(reason=EndReason.ABORTED_MODEL, detail="cancelled")


def decided_end(state: LoopState, now: float) -> End | None:
    """The end that the state itself demands: one that was decided, or a limit that is reached."""
    if state.ending is not None and not must_settle_first(state):
        return state.ending
    short = exhausted(state, now)
    return short[0].end if short and state.opened.conduct.on_exhausted is not OnExhausted.WAIT else None


def exhausted(state: LoopState, now: float) -> tuple[budgets.Reached, ...]:
    """The limits that stand in the way of the next step: a model request, or the calls of the last response."""
    return budgets.reached(state, now, asks_model=not has_calls_to_run(state) and state.ending is None)


def cut_at(state: LoopState) -> int:
    """The number of history events from which a new run is wanted."""
    return state.opened.conduct.cut_events + EVENTS_OF_A_WAIT * len(state.pending.open_calls())


def seconds_left(state: LoopState, now: float) -> float:
    """Seconds until the task's deadline; zero or less once it has passed."""
    return state.opened_at + budgets.limits_of(state).wall_seconds - now


def is_about(outcome: Outcome, order: Order) -> bool:
    """Whether the outcome is about what was ordered, not about an earlier generation that comes first."""
    return outcome.generation in (None, order.intent.generation)


def may_send(outcome: Outcome, order: Order) -> bool:
    """Whether the order is to be sent now: its permit is open, or nothing of it was sent so far."""
    return outcome.standing is Standing.SEND or not is_about(outcome, order)


def knows(outcome: Outcome, order: Order) -> bool:
    """Whether the workflow has seen by now that its generation was opened.

    An outcome without the ledger's answer says nothing of what the ledger has.
    """
    seen = outcome.ledger is not None and outcome.standing is not Standing.SEND and is_about(outcome, order)
    return order.known or seen


def pause(outcome: Outcome, conduct: Conduct, asked: int) -> float:
    """Seconds until a write asks, or sends, again.

    Args:
        outcome: what it was told.
        conduct: the task's settings.
        asked: how many times it was told already.
    """
    blocked = outcome.blocked_by is not None
    if outcome.standing is Standing.SEND and outcome.ledger is not None and not blocked:
        return outcome.after  # the ledger has said when; a permit that is kept for too long is void
    most = min(outcome.after, conduct.recheck_seconds)
    return recheck_after(most, asked, blocked=blocked).total_seconds()


def recheck_after(seconds: float, asked: int, *, blocked: bool = False) -> timedelta:
    """How long to wait before asking again: longer each time, up to an hour.

    Args:
        seconds: the first wait.
        asked: how many times it was asked already.
        blocked: whether it waits for a resource: who asks too seldom loses its place in the queue.
    """
    most = MOST_BLOCKED_SECONDS if blocked else MOST_RECHECK_SECONDS
    return timedelta(seconds=min(most, seconds * 2 ** min(asked, 20)))
