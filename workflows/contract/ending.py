"""How a task ends: end reason, acceptance verdict and status, kept apart."""

from __future__ import annotations

from settled.workflows.contract.values import OpenEnum


class EndReason(OpenEnum):
    """Why the loop ended. Whether that is a success is not said here: see `settled.workflows.ending`."""

    COMPLETED = "completed"
    MAX_TURNS = "max_turns"
    MAX_REQUESTS = "max_requests"
    MAX_CALLS = "max_calls"
    MAX_TOKENS_BUDGET = "max_tokens_budget"
    MAX_COST = "max_cost"
    DEADLINE = "deadline"
    ABORTED_MODEL = "aborted_model"
    ABORTED_TOOLS = "aborted_tools"
    MODEL_ERROR = "model_error"
    REFUSED = "refused"
    INVALID_RESPONSE = "invalid_response"
    OUTPUT_TRUNCATED = "output_truncated"
    CONTEXT_EXHAUSTED = "context_exhausted"
    NO_PROGRESS = "no_progress"
    ACCEPTANCE_FAILED = "acceptance_failed"
    STOP_HOOK_PREVENTED = "stop_hook_prevented"
    HOOK_STOPPED = "hook_stopped"
    UNRESOLVED_OPERATION = "unresolved_operation"


class Verdict(OpenEnum):
    """What acceptance found, on evidence that it gathered itself."""

    ACCEPTED = "accepted"
    NOT_ACCEPTED = "not_accepted"
    NO_CRITERIA = "no_criteria"
    NOT_JUDGED = "not_judged"
    """The task did not end by the model's own claim, so nothing was judged."""


class Status(OpenEnum):
    """What a person sees of a task."""

    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    UNVERIFIED = "unverified"
    FAILED = "failed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CANCELLED = "cancelled"
