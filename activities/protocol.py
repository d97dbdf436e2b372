"""The operation protocol's decisions: from what the journal says and what just happened, to the next row. Pure.

Each function looks at an operation (None: its journal is empty) and gives the entry to append, or None to append
nothing. The ledger runs them inside its transaction, so what they saw still holds when the row is written.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from settled.activities.journal import UNSEEN, Entry, Operation, Subject
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event

LOST_PERMITS = 1_000
"""How many permits a lost part of the past may have issued at the most. They are skipped: otherwise a lost attempt's
late "no" would be taken for the answer of the attempt that has spent the same permit since."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A dispatch that wants to spend a permit."""

    subject: Subject
    generation: int
    permit: int
    seconds: float
    """How long the attempt may send, from the commit on."""
    task: str
    known: bool = False
    """Whether the workflow has seen that this generation was opened."""
    expected: bool = False
    """Whether the generation was not read from the ledger: earlier calls of the response were to lead to it."""
    declaration: str = ""
    """How the tool makes its keys, by the worker that asks."""
    namesakes: tuple[str, ...] = ()
    """The keys under which the same action may stand, besides this one: its tool made its keys in another way once."""
    shared: bool = False
    """Whether what the action takes back may be another principal's."""
    own_store: bool = False
    """Whether the effect is in the ledger's own database, and so was lost, or kept, together with its rows."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A time in which the ledger lacks a part of its past: it was restored from an older copy."""

    number: int
    since: float
    """When the last row was written that the copy has: what came after it is lost."""
    opened_at: float
    """When workers began to use the copy."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What a claim depends on besides its own operation, as it stands in the same transaction."""

    epoch: Epoch | None = None
    """The open epoch, if the ledger has lost a part of its past."""
    target: Operation | None = None
    """The operation that the claim's one takes back."""
    namesakes: tuple[Operation, ...] = ()
    """The operations under the claim's other keys."""


@dataclass(frozen=True)
class Blocked:
    """A claim has to wait: the operation of this key must be settled first."""

    by: str


@dataclass(frozen=True)
class Refused:
    """A claim can't be granted, and won't be if it waits. What the model is told."""

    text: str


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
    dedupes: bool = False
    """Whether the service gives one effect per key: then the success of two attempts is still one effect."""


def opens(operation: Operation | None, generation: int) -> bool:
    """Whether this generation is the next one to open: the first, or the one after a closed one."""
    if operation is None:
        return generation == 1
    return operation.state.closed and operation.generation == generation - 1


def lost(operation: Operation | None, ask: Claim, epoch: Epoch | None = None) -> bool:
    """Whether the order is from a past that the journal doesn't know.

    It names a later permit, a generation too far ahead, or one that its workflow has seen. Such a journal was restored
    from an older copy. What isn't in it may have been sent all the same. A generation that was only expected says
    nothing, unless it is known that the ledger was restored.
    """
    if _only_expected(ask) and epoch is None:
        return False
    if opens(operation, ask.generation):
        return ask.permit != 1 or ask.known
    return operation is None or (operation.state.closed and operation.generation < ask.generation)


def _only_expected(ask: Claim) -> bool:
    """Whether nobody has seen the generation: it is what earlier calls of the same response were to lead to."""
    return ask.expected and not ask.known and ask.permit == 1


def _came_otherwise(operation: Operation | None, ask: Claim) -> bool:
    """Whether the earlier calls have not led to the generation that the claim was to open."""
    closed = operation is None or (operation.state.closed and operation.generation < ask.generation)
    return _only_expected(ask) and closed and not opens(operation, ask.generation)


def conflicts(operation: Operation | None, generation: int, fingerprint: str) -> bool:
    """Whether another request stands under this key and generation, open or completed."""
    return (
        operation is not None
        and operation.generation == generation
        and not operation.state.closed
        and operation.subject.fingerprint != fingerprint
    )


def claim(operation: Operation | None, ask: Claim, now: float, around: Around = Around()) -> Entry | None:
    """A permit is good once, for the current generation, and only while it is open."""
    first = opens(operation, ask.generation)
    if lost(operation, ask, around.epoch) or (first and around.epoch is not None and not ask.own_store):
        return miss(operation, ask, now, around)
    body: dict[str, Any] = {"deadline": now + ask.seconds}
    entry = Entry(event=Event.CLAIMED, generation=ask.generation, permit=ask.permit, task=ask.task, body=body)
    if first:
        body["subject"] = asdict(ask.subject)
        return entry
    if operation is None or not _may_resend(operation, ask):
        return None
    # Past its time, the service may have forgotten the first attempt's key.
    late = operation.permit_until is not None and now + ask.seconds > operation.permit_until
    return _void(operation, ask, around) if late or _may_be_spent(operation, ask, around) else entry


def _may_resend(operation: Operation | None, ask: Claim) -> bool:
    """Whether the claim's permit was issued after an earlier one, for the same request, and is open."""
    if operation is None or operation.state is not OperationState.RESENDABLE:
        return False
    if conflicts(operation, ask.generation, ask.subject.fingerprint):
        return False
    return (operation.generation, operation.permit) == (ask.generation, ask.permit)


def _may_be_spent(operation: Operation, ask: Claim, around: Around) -> bool:
    """Whether the open permit may have been spent in a part of the past that the ledger has lost."""
    return around.epoch is not None and operation.changed_at <= around.epoch.opened_at and not ask.own_store


def _void(operation: Operation, ask: Claim, around: Around) -> Entry:
    """The open permit of a resend is void from here on; what was sent before is looked up."""
    body: dict[str, Any] = {}
    if around.epoch is not None and _may_be_spent(operation, ask, around):
        body["unseen"] = _unseen(around.epoch.since, around.epoch.opened_at, ask)
    permit = operation.permit
    return Entry(event=Event.WITHDRAWN, generation=ask.generation, permit=permit, task=ask.task, body=body)


def _unseen(since: float, latest: float, ask: Claim) -> dict[str, float]:
    """An attempt that the journal doesn't show: claimed at the earliest then, and at the latest then."""
    return {"claimed_at": since, "deadline": latest + ask.seconds}


def obstacle(operation: Operation | None, ask: Claim, around: Around) -> Blocked | Refused | None:
    """What stands in the way of sending, in another operation's journal."""
    if _came_otherwise(operation, ask):
        return Refused(
            "It was to follow another action of the same response, which has not come about. Propose it again."
        )
    if lost(operation, ask, around.epoch) or not (opens(operation, ask.generation) or _may_resend(operation, ask)):
        return None
    for other in around.namesakes:
        if other.state is OperationState.COMPLETED:
            return Refused("The same action was done under the key that this tool used before; propose it again.")
        if not other.state.settled:
            return Blocked(other.key)
    subject, target = ask.subject, around.target
    if not subject.undoes_key:
        return None
    if target is not None and target.subject.principal != subject.principal and not ask.shared:
        return Refused("What this action would take back was done in another principal's name.")
    if target is None or target.generation != subject.undoes_generation or target.state.closed:
        return Refused("There is nothing to undo: what this action takes back is not done, or is undone already.")
    return None if target.state is OperationState.COMPLETED else Blocked(target.key)


def report(operation: Operation | None, ended: Report, _now: float) -> Entry | None:
    """An outcome is a fact: a success counts whenever it comes, a "no" speaks for its own attempt only."""
    if operation is None or operation.generation < ended.generation:
        return None  # the ledger lost the generation, and can't open it; whoever waits for it asks, and it is looked up
    event, body = ended.event, dict(ended.body)
    if event is Event.NOT_SENT:
        body["sent"] = False
    current = operation.generation == ended.generation
    live = current and operation.state in (OperationState.DISPATCHED, OperationState.UNKNOWN)
    live = live and operation.permit == ended.permit
    others = [attempt for attempt in operation.out if attempt.permit != ended.permit]
    # What nobody has seen may be this very attempt, or one whose place it took.
    seen = [attempt for attempt in others if attempt.permit != UNSEEN]
    match event:
        case Event.SUCCEEDED if ended.generation in operation.undone_before:
            pass
        case Event.SUCCEEDED if not current:
            event = Event.ALARM
            body["alarm"] = "an attempt of a closed generation had an effect"
        case Event.SUCCEEDED if operation.state.closed and operation.state is not OperationState.UNDONE:
            body["alarm"] = "it had been settled as not done; whatever was done instead may be a second effect"
        case Event.SUCCEEDED if not ended.dedupes and not all(attempt.absent for attempt in seen):
            body["alarm"] = "another attempt of this operation may have had an effect, too"
        case Event.DECLINED | Event.NOT_SENT if not live:
            event = Event.LATE_NO
        case Event.DECLINED if others:
            event = Event.DECLINED_WHILE_OTHERS_OUT
        case Event.NOT_SENT if others:
            event = Event.NOT_SENT_WHILE_OTHERS_OUT
        case Event.UNCLEAR if not live:
            return None
    return Entry(event=event, generation=ended.generation, permit=ended.permit, task=ended.task, body=body)


def miss(operation: Operation | None, ask: Claim, now: float, around: Around = Around()) -> Entry | None:
    """A dispatch ended without a trace. Its permit is void from here on, and it is looked up all the same.

    Where the ledger has lost a part of its past, an attempt that nobody sees any more may be out.
    """
    gone = lost(operation, ask, around.epoch)
    if not (opens(operation, ask.generation) or gone):
        return None
    body: dict[str, Any] = {"subject": asdict(ask.subject)}
    epoch = around.epoch
    if not ask.own_store and (gone or epoch is not None):
        latest = epoch.opened_at if epoch and not gone else now
        body["unseen"] = _unseen(epoch.since if epoch else 0.0, latest, ask)
    permit = ask.permit + (LOST_PERMITS if "unseen" in body else 0)
    return Entry(event=Event.MISSED, generation=ask.generation, permit=permit, task=ask.task, body=body)


def restored(operation: Operation, epoch: Epoch, seconds: float) -> Entry | None:
    """The ledger was set back to a copy in which the operation wasn't settled. It may have been sent again since then.

    The copy's open permit may be spent, and its attempts may not be the last ones: neither proves anything.
    """
    if operation.state.settled:
        return None
    unseen = {"claimed_at": epoch.since, "deadline": epoch.opened_at + seconds}
    permit = operation.permit + LOST_PERMITS
    body = {"unseen": unseen, "epoch": epoch.number}
    return Entry(event=Event.RESTORED, generation=operation.generation, permit=permit, body=body)


def withdraw(
    operation: Operation | None, ask: Claim, now: float, around: Around = Around(), *, others_wait: bool
) -> Entry | None:
    """A task gives up: a permit that wasn't spent is void. What was sent stays for the settlement.

    What another task waits for as well is left to that one. Where the ledger has lost a part of its past, that there
    is no row doesn't mean that nothing was sent: the permit is void, and it is looked up.
    """
    if lost(operation, ask, around.epoch) and (ask.known or ask.permit != 1):
        return miss(operation, ask, now, around)
    if others_wait:
        return None
    body = {"subject": asdict(ask.subject)}
    if opens(operation, ask.generation):
        if around.epoch is not None and not ask.own_store:
            return miss(operation, ask, now, around)
        return Entry(event=Event.WITHDRAWN, generation=ask.generation, permit=ask.permit, task=ask.task, body=body)
    if operation is None or operation.generation != ask.generation:
        return None
    return _void(operation, ask, around) if operation.state is OperationState.RESENDABLE else None


def resolve(operation: Operation, event: Event, body: dict[str, Any], generation: int | None = None) -> Entry | None:
    """A person's word counts where it was asked for, and only of the generation that it is about, if it says which.

    Unasked, a person may say of what is done that it has been taken back: nobody else could tell the ledger. Not of an
    undo: what it took back would stand again then, and the ledger would have it done once more.
    """
    if operation.state is not state_for(event) or generation not in (None, operation.generation):
        return None
    if event is Event.UNDONE and operation.subject.undoes_key:
        return None
    return Entry(event=event, generation=operation.generation, permit=operation.permit, body=body)


def refuse(operation: Operation, body: dict[str, Any]) -> Entry:
    """A person's word that isn't taken is noted, and never counts."""
    body = {name: value for name, value in body.items() if name != "result"}
    return Entry(event=Event.WORD_REFUSED, generation=operation.generation, permit=operation.permit, body=body)


def state_for(event: Event) -> OperationState:
    """The state in which a person's word of this kind counts."""
    return OperationState.COMPLETED if event is Event.UNDONE else OperationState.NEEDS_HUMAN


def undone(target: Operation | None, undoing: Operation) -> Entry | None:
    """What a completed operation takes back is undone, if it still stands."""
    generation = undoing.subject.undoes_generation
    if target is None or target.generation != generation or target.state is not OperationState.COMPLETED:
        return None
    body = {"by": undoing.key, "generation_of_by": undoing.generation}
    return Entry(event=Event.UNDONE, generation=generation, permit=target.permit, body=body)


def next_generation(operation: Operation | None) -> int:
    """Which generation a proposal made now means: the open or completed one, or the next after a closed one."""
    if operation is None:
        return 1
    return operation.generation + 1 if operation.state.closed else operation.generation
