"""Whether an activity's answer can be acted on. Pure.

An operator may complete an activity with anything. What isn't of the answer's form at all pydantic finds; what is of
its form, and would still hang the task, is found here. What comes to an end in any case is left to that: tasks have
gone on from such answers, and their histories must replay.
"""

from __future__ import annotations

from settled.workflows.contract.ending import Status
from settled.workflows.contract.result import TaskResult
from settled.workflows.contract.task import Opened
from settled.workflows.contract.turn import Effect, Proposal, RunBatches, Turn

MOST_CALL_SECONDS = 366 * 86_400.0
MOST_ATTEMPTS = 2**31 - 1
"""The highest number that a retry policy holds."""
LEAST_EVENTS = 10
"""History events of a run; with fewer, a task would go on in a new run before it has done anything."""


def opened_fits(opened: Opened) -> bool:
    """Whether it says what holds for the task, or why there is none; and whether that can be gone by."""
    if opened.faults or opened.head is None or opened.limits is None:
        return bool(opened.faults)
    conduct = opened.conduct
    seconds = (conduct.model_seconds, conduct.recheck_seconds, opened.limits.wall_seconds)
    tried = all(0 <= each <= MOST_ATTEMPTS for each in (conduct.model_attempts, conduct.read_attempts))
    return tried and conduct.cut_events >= LEAST_EVENTS and all(0 < each <= MOST_CALL_SECONDS for each in seconds)


def turn_fits(turn: Turn) -> bool:
    """Whether each call that is to be run has its place in a batch, and its terms."""
    if not isinstance(turn.next, RunBatches):
        return True
    calls = turn.next.calls
    placed = {slot for batch in turn.next.batches for slot in batch}
    answered = {call.answer.slot for call in calls if call.answer is not None}
    return all(call.slot in answered or (call.slot in placed and _has_terms(call)) for call in calls)


def _has_terms(call: Proposal) -> bool:
    return 0 < call.seconds <= MOST_CALL_SECONDS and (call.effect is not Effect.WRITE or call.intent is not None)


def task_result_fits(result: TaskResult) -> bool:
    """Whether it says how the task has ended."""
    return result.status not in (Status.RUNNING, Status.WAITING)
