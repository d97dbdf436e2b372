"""Running the calls of a turn: batch after batch, the calls of a batch together, a write until it is settled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from temporalio import workflow
from temporalio.exceptions import ActivityError

from settled.workflows import answers, asks, budgets, loop, reporting, waits
from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.operation import Order, Standing
from settled.workflows.contract.turn import Effect, Proposal
from settled.workflows.live_task import LiveTask


async def run_calls(task: LiveTask) -> None:
    """Run the turn's calls, batch after batch, as far as nothing stops them."""
    task.heard, pending = task.wakes, task.current.pending
    open_calls = {call.slot: call for call in pending.open_calls()}
    results: dict[int, CallResult] = {}
    for batch in pending.batches:
        calls = [open_calls[slot] for slot in batch if slot in open_calls]
        if not calls:
            continue
        results |= await _run_batch(task, calls)
        if task.must_stop() or not all(call.slot in results for call in calls):
            break
    task.state = loop.after_calls(task.current, results, task.handed_over)
    task.waiting.clear()
    task.handed_over.clear()


async def _run_batch(task: LiveTask, calls: Sequence[Proposal]) -> dict[int, CallResult]:
    """Run these calls together. On a cancel, writes that are out are awaited for as long as they may take."""
    running = {call.slot: asyncio.create_task(_run_call(task, call)) for call in calls}
    try:
        await workflow.wait(running.values())
    except asyncio.CancelledError:
        for call in calls:
            if call.effect is Effect.READ:
                running[call.slot].cancel()
        grace = max(call.seconds for call in calls) + asks.ATTEMPT_MARGIN.total_seconds()
        await workflow.wait(running.values(), timeout=grace)
    ended = {slot: run.result() for slot, run in running.items() if run.done() and not run.cancelled()}
    return {slot: result for slot, result in ended.items() if result is not None}


async def _run_call(task: LiveTask, call: Proposal) -> CallResult | None:
    """Run one call; None if it has to be left open."""
    if call.effect is Effect.WRITE:
        return await _write(task, call)
    given = budgets.limits_of(task.current).wall_seconds
    try:
        return await asks.run_read(task.current.head, call, task.current.opened.conduct, task.seconds_left())
    except asyncio.CancelledError:
        return None
    except ActivityError as error:
        if workflow.cancellation_reason() is None:
            # As a model request, it fails before the deadline if the next attempt would come after it.
            await waits.for_deadline(task, given, answers.next_attempt_after(error))
        return None


async def _write(task: LiveTask, call: Proposal) -> CallResult | None:
    """Send a write, and wait until it is settled, however long that takes; None if it has to be left open."""
    order = _order(task, call)
    seen, asked = task.wakes, 0
    outcome = await (asks.reconcile if order.known else asks.dispatch)(order)
    while outcome.standing is not Standing.SETTLED:
        task.state = loop.with_ledger(task.current, outcome.ledger)
        task.waiting[call.slot] = reporting.waits_for(call, outcome)
        if outcome.standing is not Standing.SEND and loop.is_about(outcome, order):
            task.handed_over.add(call.slot)
        if not await waits.for_outcome(task, outcome, seen, asked):
            return None
        seen, asked = task.wakes, asked + 1
        permit = outcome.permit if loop.is_about(outcome, order) else order.permit
        order = order.model_copy(update={"permit": permit, "known": loop.knows(outcome, order)})
        outcome = await (asks.dispatch if loop.may_send(outcome, order) else asks.reconcile)(order)
    task.state = loop.with_ledger(task.current, outcome.ledger)
    task.waits_no_more(call.slot)
    return outcome.result


def _order(task: LiveTask, call: Proposal) -> Order:
    """What is ordered first: the first send, or word of what the run before has sent."""
    assert call.intent is not None, "admission gives each write its intent"
    return Order(
        head=task.current.head,
        slot=call.slot,
        tool=call.tool,
        intent=call.intent,
        permit=1,
        seconds=call.seconds,
        # A write that waits for a resource was not sent: after a continue-as-new it is simply dispatched again.
        known=call.slot in task.current.pending.handed_over,
    )
