"""The operation: one business action, what the workflow says of it, and what the ledger answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.values import Digest, OpenEnum, Value


class OperationState(OpenEnum):
    """Where an operation's current generation stands. The arrows between them are in `settled.workflows.states`."""

    NONE = "none"
    """Nothing was claimed yet: nothing was sent."""
    DISPATCHED = "dispatched"
    """Claimed: an attempt is out."""
    COMPLETED = "completed"
    """Done once."""
    REJECTED = "rejected"
    """The service declined or refused, and no other attempt is out."""
    UNKNOWN = "unknown"
    """It may have happened; it is being looked up."""
    RESENDABLE = "resendable"
    """A lookup said absent and a resend is safe: the next permit may be spent."""
    NEEDS_HUMAN = "needs_human"
    """Only a person can say what happened."""
    NOT_EXECUTED = "not_executed"
    """Known not to have happened, and no attempt can still land."""
    UNDONE = "undone"
    """Done once, and taken back by another operation since."""

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""
        return self is OperationState.COMPLETED or self.closed

    @property
    def closed(self) -> bool:
        """Whether a new proposal opens the next generation."""
        return self in (OperationState.REJECTED, OperationState.NOT_EXECUTED, OperationState.UNDONE)


class Evidence(OpenEnum):
    """What the last change of state rests on."""

    CLAIM = "claim"
    ANSWER = "answer"
    LOOKUP = "lookup"
    NO_ANSWER = "no_answer"
    WITHDRAWAL = "withdrawal"
    PERSON = "person"
    UNDO = "undo"


class Target(Value):
    """One generation of an operation: what another operation takes back."""

    key: Digest
    """The operation."""
    generation: int
    """Which intent under that key."""


class Intent(Value):
    """The business action that a write proposal means."""

    key: Digest
    """The business idempotency key: the same for every proposal of the same action."""
    generation: int
    """Which intent under that key: the open one, or the next one after a closed one."""
    fingerprint: Digest
    """Digest of the validated arguments."""
    resources: tuple[str, ...] = ()
    """What the action touches; no two unsettled operations share one. The key itself always counts as one."""
    undoes: Target | None = None
    """What the action takes back, where its tool undoes another one."""
    expected: bool = False
    """Whether the generation is not the ledger's, but what earlier calls of the same response are to lead to: it may
    turn out otherwise."""


class Order(Value):
    """What `dispatch` and `reconcile` are told: which call, which action, and which permit."""

    head: Digest
    """The assistant message that holds the call."""
    slot: int
    """The call's place in it."""
    tool: str
    """The tool's name."""
    intent: Intent
    """The action that was admitted."""
    permit: int
    """The permit to spend: number n allows the n-th send of this generation, once."""
    seconds: float
    """The time budget of the attempt."""
    known: bool = False
    """Whether the workflow has seen in the ledger that this generation was opened. A ledger that has no row of it then
    was restored from an older copy."""


class Standing(OpenEnum):
    """What a workflow can do about an operation now."""

    SETTLED = "settled"
    """Take the result."""
    SEND = "send"
    """Spend the permit named in the outcome, after the wait named there."""
    WAIT = "wait"
    """Wait for the settlement, then ask again."""
    PERSON = "person"
    """Wait for a person, or end, as the task was opened to do."""


class OperationView(Value):
    """An operation in one line, for status, lists and results."""

    key: str
    """The operation key."""
    tool: str
    """The tool that acts."""
    state: OperationState
    """Where its current generation stands."""
    generation: int = 1
    """The current generation."""
    sends: int = 0
    """Attempts of this generation that may have been sent."""
    evidence: Evidence | None = None
    """What the state rests on."""


class Tally(Value):
    """What was proposed, executed and left open, counted apart."""

    operations: int = 0
    """Operations of this task."""
    completed: int = 0
    """Operations that were done."""
    unsettled: int = 0
    """Operations whose outcome isn't known."""


class LedgerView(Value):
    """The ledger's answer about one task."""

    tally: Tally = Tally()
    """The counts."""
    unsettled: tuple[OperationView, ...] = ()
    """The operations that aren't settled, oldest first, at most 20."""


class Outcome(Value):
    """What `dispatch` and `reconcile` answer."""

    standing: Standing
    """What the workflow can do now."""
    permit: int
    """The permit to spend next."""
    generation: int | None = None
    """The generation that the ledger has; none if it has none, or could not be asked."""
    after: float = 60.0
    """Seconds to wait at the most before asking, or sending, again."""
    result: CallResult | None = None
    """The call's result, once it is settled."""
    blocked_by: str | None = None
    """The operation that holds a resource that this one needs."""
    ledger: LedgerView | None = None
    """The task's operations; none if the ledger could not be asked."""


class Question(Value):
    """What a settlement is about."""

    key: Digest
    """The operation."""


class Resolved(OpenEnum):
    """What a person may say of an operation that needs one; or, of one that is done, that it was taken back."""

    COMPLETED = "completed"
    NOT_EXECUTED = "not_executed"
    UNDONE = "undone"
    """It was done, as the ledger says, and somebody else has taken it back since."""


class Resolution(Value):
    """A person's word on an operation that needs one."""

    outcome: Resolved
    """What has become of it."""
    because: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)]
    """How the person knows."""
    who: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    """Who says so."""
    generation: int | None = None
    """Which intent under the key was looked at; left out: the one that is asked about when the word is heard."""


class Resolve(Value):
    """What the activity `resolve` is asked."""

    key: Digest
    """The operation."""
    resolution: Resolution
    """The person's word."""
    update: str
    """The update's id: a word that is heard twice counts once."""


class ResolveAnswer(Value):
    """What became of a person's word."""

    view: OperationView | None = None
    """The operation now."""
    refused: str = ""
    """Why the word changed nothing, in one line; empty if it counts."""


class SettlementStep(Value):
    """What one step of a settlement found."""

    settled: bool
    """Whether nothing is left to find out."""
    view: OperationView | None = None
    """The operation now."""
    after: float = 1.0
    """Seconds until the next step, unless somebody asks earlier."""
    note: str = ""
    """One line for people: what was found, and what is waited for."""
