"""What an activity says of a task that has no record."""

from __future__ import annotations

from temporalio import activity
from temporalio.exceptions import ApplicationError

from settled.workflows.contract.names import AGENT_TASK, TASK_LOST


def no_record() -> ApplicationError:
    """The failure of an activity whose task isn't in the ledger; trying again would not help."""
    return ApplicationError(why_no_record(), type=TASK_LOST, non_retryable=True)


def why_no_record() -> str:
    """Why the ledger has no record of the task: each of our own tasks is opened first."""
    info = activity.info()
    if info.workflow_type == AGENT_TASK:
        return "the ledger has no record of this task: it was restored from an older copy"
    return f"task {info.workflow_id} was never opened"
