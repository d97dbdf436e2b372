"""The operation protocol's decisions: from what the journal says and what just happened, to the next row. Pure.

Each function looks at an operation (None: its journal is empty) and gives the entry to append, or None to append
nothing. The ledger runs them inside its transaction, so what they saw still holds when the row is written.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from settled.activities.journal import Entry, Operation, Subject
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A dispatch that wants to spend a permit."""

    subject: Subject
    generation: int
    permit: int
    seconds: float
    """How long the attempt may send, from the commit on."""
    task: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """How an attempt ended."""

    event: Event
    """SUCCEEDED, DECLINED, NOT_SENT or UNCLEAR."""
    generation: int
    permit: int
    task: str
    body: dict[str, Any]
    """The result, or what is known of the failure."""


def opens(operation: Operation | None, generation: int) -> bool:
    """Whether this generation is the next one to open: the first, or the one after a closed one."""
    if operation is None:
        return generation == 1
    return operation.state.closed and operation.generation == generation - 1


def lost(operation: Operation | None, ask: Claim) -> bool:
    """Whether the order is from a past that the journal doesn't know: a later permit, or a generation too far ahead.

    Such a journal was restored from an older copy. What isn't in it may have been sent all the same.
    """
    if opens(operation, ask.generation):
        return ask.permit != 1
    return operation is None or (operation.state.closed and operation.generation < ask.generation)


def conflicts(operation: Operation | None, generation: int, fingerprint: str) -> bool:
    """Whether another request stands under this key and generation, open or completed."""
    return (
        operation is not None
        and operation.generation == generation
        and not operation.state.closed
        and operation.subject.fingerprint != fingerprint
    )


def claim(operation: Operation | None, ask: Claim, now: float) -> Entry | None:
    """A permit is good once, for the current generation, and only while it is open."""
    if lost(operation, ask):
        return miss(operation, ask, now)
    body: dict[str, Any] = {"deadline": now + ask.seconds}
    entry = Entry(event=Event.CLAIMED, generation=ask.generation, permit=ask.permit, task=ask.task, body=body)
    if opens(operation, ask.generation):
        body["subject"] = asdict(ask.subject)
        return entry
    if operation is None or conflicts(operation, ask.generation, ask.subject.fingerprint):
        return None
    open_permit = operation.state is OperationState.RESENDABLE and operation.permit == ask.permit
    if not open_permit or operation.generation != ask.generation:
        return None
    if operation.permit_until is not None and now + ask.seconds > operation.permit_until:
        # The service may have forgotten the first attempt's key by then: this permit is void.
        return Entry(event=Event.WITHDRAWN, generation=ask.generation, permit=ask.permit, task=ask.task, body={})
    return entry


def report(operation: Operation, ended: Report, _now: float) -> Entry | None:
    """An outcome is a fact: a success counts whenever it comes, a "no" speaks for its own attempt only."""
    event, body = ended.event, dict(ended.body)
    if event is Event.NOT_SENT:
        body["sent"] = False
    current = operation.generation == ended.generation
    live = current and operation.state in (OperationState.DISPATCHED, OperationState.UNKNOWN)
    live = live and operation.permit == ended.permit
    others_out = any(attempt.permit != ended.permit for attempt in operation.out)
    match event:
        case Event.SUCCEEDED if not current:
            event = Event.ALARM
            body["alarm"] = "an attempt of a closed generation had an effect"
        case Event.SUCCEEDED if operation.state.closed:
            body["alarm"] = "it had been settled as not done; whatever was done instead may be a second effect"
        case Event.SUCCEEDED if others_out:
            body["alarm"] = "another attempt of this operation may have had an effect, too"
        case Event.DECLINED | Event.NOT_SENT if not live:
            event = Event.LATE_NO
        case Event.DECLINED if others_out:
            event = Event.DECLINED_WHILE_OTHERS_OUT
        case Event.NOT_SENT if others_out:
            event = Event.NOT_SENT_WHILE_OTHERS_OUT
        case Event.UNCLEAR if not live:
            return None
    return Entry(event=event, generation=ended.generation, permit=ended.permit, task=ended.task, body=body)


def miss(operation: Operation | None, ask: Claim, _now: float) -> Entry | None:
    """A dispatch ended without a trace. Its permit is void from here on, and it is looked up all the same."""
    if not (opens(operation, ask.generation) or lost(operation, ask)):
        return None
    body = {"subject": asdict(ask.subject)}
    return Entry(event=Event.MISSED, generation=ask.generation, permit=ask.permit, task=ask.task, body=body)


def withdraw(operation: Operation | None, ask: Claim, *, others_wait: bool) -> Entry | None:
    """A task gives up: a permit that wasn't spent is void. What was sent stays for the settlement."""
    entry = Entry(
        event=Event.WITHDRAWN,
        generation=ask.generation,
        permit=ask.permit,
        task=ask.task,
        body={"subject": asdict(ask.subject)},
    )
    if opens(operation, ask.generation):
        return entry
    if operation is None or operation.generation != ask.generation or others_wait:
        return None
    if operation.state is OperationState.RESENDABLE:
        return Entry(event=Event.WITHDRAWN, generation=ask.generation, permit=operation.permit, task=ask.task, body={})
    return None


def next_generation(operation: Operation | None) -> int:
    """Which generation a proposal made now means: the open or completed one, or the next after a closed one."""
    if operation is None:
        return 1
    return operation.generation + 1 if operation.state.closed else operation.generation
