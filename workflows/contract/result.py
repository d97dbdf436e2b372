"""The result of a task, and its status while it runs."""

from __future__ import annotations

from settled.workflows.contract.ending import EndReason, Status, Verdict
from settled.workflows.contract.loop import Counters
from settled.workflows.contract.operation import LedgerView, OperationView, Tally
from settled.workflows.contract.task import Limits
from settled.workflows.contract.turn import Usage
from settled.workflows.contract.values import Value


class Finding(Value):
    """What was found about one acceptance criterion."""

    check: str
    """The check that was run."""
    passed: bool
    """Whether the evidence shows what the criterion asks for."""
    evidence: str
    """What was looked at and found, in one line."""
    version: str = ""
    """The version or time of what was looked at, as its source states it."""


class TaskResult(Value):
    """What a task came to. Status, end reason, final text and evidence are separate."""

    status: Status
    """What a person sees."""
    end_reason: EndReason
    """Why the loop ended."""
    detail: str = ""
    """One line that explains the end reason, for people."""
    verdict: Verdict = Verdict.NOT_JUDGED
    """What acceptance found."""
    findings: tuple[Finding, ...] = ()
    """The evidence, one entry for each criterion."""
    final_text: str = ""
    """The model's last words, at most 20,000 characters; the whole is in the transcript. A claim, not evidence."""
    operations: tuple[OperationView, ...] = ()
    """The task's operations, oldest first, at most 200."""
    tally: Tally = Tally()
    """How many there are."""
    counters: Counters = Counters()
    """The loop's counters."""
    usage: Usage = Usage()
    """What all model requests cost."""
    spent: str = ""
    """The same in one line."""
    head: str = ""
    """The last node of the transcript."""


class StatusReport(Value):
    """The answer to the query `status`."""

    status: Status
    """What a person sees."""
    turn: int
    """The number of the current turn, from 1."""
    counters: Counters
    """The loop's counters."""
    usage: Usage = Usage()
    """What all model requests have cost so far."""
    spent: str = ""
    """The same in one line."""
    limits: Limits | None = None
    """The task's budget, with all that was added to it; none before the task is open."""
    waits_for: tuple[str, ...] = ()
    """What the task waits for, a line each; empty while it works."""
    ledger: LedgerView = LedgerView()
    """The task's operations, as of the last activity."""
    last_text: str = ""
    """The beginning of the model's last text. A claim, not evidence."""
    model: str = ""
    """The model that was asked last."""
    context_tokens: int = 0
    """Tokens of the last model request and its response: how much the model has in front of it."""
    end_reason: EndReason | None = None
    """Why the loop ended, once it has."""
