"""What is said of the recorded facts of a task: a word and a line for each. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from settled.activities.calls import ProposedCall
from settled.activities.journal import Row
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.operation import Outcome, Standing
from settled.workflows.contract.result import Finding, TaskResult
from settled.workflows.contract.task import Opened
from settled.workflows.contract.turn import Effect, End, Proposal, Turn
from settled.workflows.states import Event

MOST_SHOWN = 240
SHOWN_OF_A_KEY = 12


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that happened."""

    at: float
    """When, in seconds since 1970, by the clock of the record."""
    record: tuple[str, int, int]
    """Where it stands: the history or journal, the place in it, and which of the facts of that place it is."""
    about: str
    """One word."""
    text: str
    """One line."""


Said = tuple[str, str]
"""What a fact is about, and its line."""

ROWS: Mapping[Event, Said] = {
    Event.CLAIMED: ("dispatch", "permit {permit} of operation {key} is spent: one send, and no second one with it"),
    Event.SUCCEEDED: ("settled", "the service answered that it is done"),
    Event.DECLINED: ("settled", "the service declined: nothing happened"),
    Event.NOT_SENT: ("settled", "no byte left the worker: nothing happened"),
    Event.UNCLEAR: ("unknown", "no answer that can be trusted came back: it may have happened, so it is looked up"),
    Event.EXPIRED: ("unknown", "its time is over and nobody reported: it may have happened, so it is looked up"),
    Event.MISSED: ("unknown", "the dispatch left no trace: its permit is void, and it is looked up"),
    Event.FOUND_UNDONE: ("lookup", "the service has it, and it was taken back since"),
    Event.FOUND: ("lookup", "the service has it, under our key and with our request: it was done"),
    Event.ABSENT_FINAL: ("lookup", "the service doesn't have it, and it can't land any more: it did not happen"),
    Event.ABSENT_RESEND: ("lookup", "the service doesn't have it, and a resend is safe: permit {permit} is issued"),
    Event.ABSENT_SO_FAR: ("lookup", "the service doesn't have it so far, but it may still land: look again"),
    Event.IN_FLUX: ("lookup", "the service is still working on it: look again"),
    Event.LOOKUP_FAILED: ("lookup", "the lookup got no answer: look again"),
    Event.HANDED_TO_PERSON: ("person", "only a person can say what happened"),
    Event.WITHDRAWN: ("withdrawn", "permit {permit} is void: it is not sent"),
}
"""The rows of a journal; one that is not here goes by its own name."""


def of_row(operation: str, row: Row) -> Said:
    """A row of an operation's journal."""
    about, text = ROWS.get(row.event, ("ledger", str(row.event).replace("_", " ")))
    why = (row.body.get("failure") or {}).get("text") or row.body.get("alarm")
    return about, text.format(permit=row.permit, key=key(operation)) + (f" ({why})" if why else "")


def of_opening(opened: Opened) -> list[Said]:
    """What `open_task` recorded."""
    if opened.faults or opened.limits is None:
        return [("refused", fault) for fault in opened.faults]
    limits = opened.limits
    return [("opened", f"agent {opened.agent}, at most {limits.turns} turns and {limits.requests} model requests")]


def of_turn(turn: Turn, calls: list[ProposedCall]) -> list[Said]:
    """What the model answered: calls, or that it is done.

    Args:
        turn: what the activity recorded.
        calls: the calls of the response, as they stand in the transcript.
    """
    match turn.next:
        case End(reason=EndReason.COMPLETED):
            return [("answer", f"the model says that it is done: {short(turn.preview)}")]
        case End(reason=reason, detail=detail):
            return [("end", f"{reason}: {detail}")]
        case _:
            proposals = getattr(turn.next, "calls", ())
            return [_of_proposal(proposal, calls[proposal.slot].input) for proposal in proposals]


def _of_proposal(proposal: Proposal, arguments: Any) -> Said:
    call = f"{proposal.tool} {short(json.dumps(arguments, ensure_ascii=False))}"
    if proposal.answer is not None:
        return "proposal", f"the model proposes {call}, which is not run: {proposal.answer.error}"
    if proposal.effect is Effect.WRITE and proposal.intent is not None:
        return "proposal", f"the model proposes {call}: operation {key(proposal.intent.key)}"
    return "proposal", f"the model proposes {call}: a read"


def of_outcome(outcome: Outcome, content: str) -> list[Said]:
    """What a dispatch, or asking how things stand, came to.

    Args:
        outcome: what the activity recorded.
        content: the text of its result.
    """
    match outcome.standing:
        case Standing.SETTLED:
            return [("result", f"the model will read {short(content)}")]
        case Standing.SEND:
            blocked = f", once operation {key(outcome.blocked_by)} is settled" if outcome.blocked_by else ""
            return [("send", f"permit {outcome.permit} may be spent{blocked}")]
        case Standing.PERSON:
            return [("person", "the task waits for a person")]
        case _:
            return [("wait", "the task waits for the settlement, and sends nothing")]


def of_finding(finding: Finding) -> Said:
    """What acceptance found about one criterion."""
    verdict = "passed" if finding.passed else "not passed"
    version = f" ({finding.version})" if finding.version else ""
    return "acceptance", f"{finding.check} {verdict}: {finding.evidence}{version}"


def of_result(result: TaskResult) -> list[Said]:
    """What acceptance found, and what the model requests came to."""
    spent = [("spent", result.spent)] if result.spent else []
    return [*(of_finding(finding) for finding in result.findings), *spent]


def key(operation: str) -> str:
    """An operation's key, as short as people read it."""
    return operation[:SHOWN_OF_A_KEY]


def short(text: str) -> str:
    """The text's words in one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_SHOWN else f"{line[:MOST_SHOWN]} ..."


def printable(text: str) -> str:
    """The text without characters that do something to a terminal: a model and a service say what they like."""
    return "".join(character if character.isprintable() else " " for character in text)
