"""From the end reason and the verdict to the status: one table, in which no exit is a success by default."""

from __future__ import annotations

from settled.workflows.contract.ending import EndReason, Status, Verdict

STATUS_OF_REASON: dict[EndReason, Status] = {
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

STATUS_OF_VERDICT: dict[Verdict, Status] = {
    Verdict.ACCEPTED: Status.SUCCEEDED,
    Verdict.NO_CRITERIA: Status.UNVERIFIED,
}
"""The status of a task that ended `completed`; every other verdict is a failure."""


def status_of(reason: EndReason, verdict: Verdict) -> Status:
    """The status of a task that ended so. `succeeded` only where acceptance accepted; what isn't known here failed."""
    if reason is EndReason.COMPLETED:
        return STATUS_OF_VERDICT.get(verdict, Status.FAILED)
    return STATUS_OF_REASON.get(reason, Status.FAILED)
