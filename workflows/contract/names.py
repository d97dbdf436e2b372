"""The names under which workflows, signals, queries and activities are known, in histories and on the command line."""

from __future__ import annotations

AGENT_TASK = "AgentTask"
SETTLEMENT = "Settlement"

OPEN_TASK = "open_task"
REQUEST_MODEL = "request_model"
RUN_READ = "run_read"
DISPATCH = "dispatch"
RECONCILE = "reconcile"
REVIEW = "review"
CLOSE_TASK = "close_task"
SETTLE = "settle"
RESOLVE = "resolve"

TASK_WAKE = "wake"
"""Signal to a task: an operation that it waits for has changed."""
SETTLEMENT_LOOK = "look"
"""Signal to a settlement: look now."""
SETTLEMENT_RESOLVE = "resolve"
"""Update of a settlement: a person says what became of the operation."""
EXTEND_BUDGET = "extend_budget"
"""Update of a task: more is added to its budget."""

INVALID_TASK = "InvalidTask"
"""The failure type of a task whose request can't be run."""
NOT_RESOLVED = "NotResolved"
"""The failure type of a person's word that changes nothing."""
NOT_EXTENDED = "NotExtended"
"""The failure type of an extension that can't be added to a budget."""
NO_SUCH_TOOL = "NoSuchTool"
"""The failure type of a settlement's step on a worker that hasn't got the tool; it is tried again."""
CANNOT_JUDGE = "CannotJudge"
"""The failure type of a task's close on a worker that can't check its criteria; it is tried again, for a while."""
TASK_NOT_SUCCEEDED = "TaskNotSucceeded"
"""The failure type of a task that failed or exhausted its budget; the whole result is in its details."""

TASK_LOST = "TaskLost"
"""The failure type of an activity whose task isn't in the ledger: it was restored from an older copy."""
CANNOT_CLOSE = "CannotClose"
"""The failure type of a task that can't be closed, however often that is tried."""


def settlement_id(key: str) -> str:
    """The workflow id of an operation's settlement."""
    return f"settlement-{key}"
