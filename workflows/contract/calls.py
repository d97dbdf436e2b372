"""The result of a call, and the closed set of ways in which a call can fail to succeed."""

from __future__ import annotations

from settled.workflows.contract.values import Digest, OpenEnum, Value


class ErrorKind(OpenEnum):
    """Why a call did not succeed. Each kind has its own way of going on."""

    UNKNOWN_TOOL = "unknown_tool"
    """No such tool for this task: propose another one."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The input doesn't fit the schema: correct it."""
    NOT_FOUND = "not_found"
    """What the call names doesn't exist: name another one."""
    PERMISSION_DENIED = "permission_denied"
    """This principal may not: don't ask again."""
    RATE_LIMITED = "rate_limited"
    """The service asks to wait: wait, then retry."""
    REJECTED = "rejected"
    """The business declined: change the request, or accept it."""
    UNAVAILABLE = "unavailable"
    """The service could not be asked: retry later."""
    UNKNOWN_RESULT = "unknown_result"
    """It may have happened: it is looked up, and must not be tried again by other means."""
    NOT_EXECUTED = "not_executed"
    """It did not happen, and nothing was sent."""


class CallResult(Value):
    """The one result of a call, by slot; its text is kept outside of history."""

    slot: int
    """The call's place in its response, from 0. Results pair by slot: a call id can be missing or repeated."""
    error: ErrorKind | None = None
    """Why the call did not succeed; none if it did. Exactly then the model sees `is_error`."""
    content: Digest | None = None
    """The artifact with the text that the model sees."""
    note: str = ""
    """A short text that stands for the content where there is no artifact."""
