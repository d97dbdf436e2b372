"""How an operation stands towards one order: the result, the next permit, or what is waited for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from settled.activities.admission import conflict_text
from settled.activities.journal import Operation
from settled.activities.outputs import Shown
from settled.activities.presenting import completed, completed_text, failure_text, standing_text
from settled.activities.tool_errors import Failure, Phase
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import Evidence, OperationState, Order, Standing

RECHECK_SECONDS = 60.0
NOT_SHOWN = "this action was done in another principal's name; it was not executed again, and its result is not shown"
NOT_KEPT = "this action was done, undone, and has been proposed anew since; its result is not shown"


@dataclass(frozen=True, kw_only=True)
class Stands:
    """What a workflow is told about its order."""

    standing: Standing
    permit: int
    """The permit to spend next."""
    after: float = RECHECK_SECONDS
    """Seconds to wait at the most before asking again."""
    error: ErrorKind | None = None
    """Why the call did not succeed, where its result is there."""
    shown: str = ""
    """What the model is told, unless it is shown the stored result."""
    repeated: bool = False
    """Whether the stored result is that of an earlier call."""
    undone: bool = False
    """Whether what was done has been undone since."""

    def text(self, stored: Mapping[str, Any]) -> str:
        """What the model is told."""
        return self.told(stored).text

    def told(self, stored: Mapping[str, Any], *, pages: bool = True) -> Shown:
        """What the model is told; with the whole, where it is only told a part.

        Args:
            stored: the stored result.
            pages: whether it can page through the rest.
        """
        if self.shown:
            return Shown(text=self.shown)
        return completed(stored, repeated=self.repeated, undone=self.undone, pages=pages)


def stand(
    operation: Operation | None, order: Order, *, refused: str = "", repeated: bool = False, seen: bool = True
) -> Stands:
    """How the operation stands towards the order.

    Args:
        operation: as the ledger has it.
        order: what the workflow wants.
        refused: why this worker can't send, where it can't; what was sent before is still told truthfully.
        repeated: whether the order's claim was refused, so that a completed operation was done by somebody else.
        seen: whether the principal may see what another one's equal action came to.
    """
    permit, intent = order.permit, order.intent
    if operation is None or (operation.state.closed and operation.generation < intent.generation):
        return _not_executed(permit, refused or "It was not sent.")
    other_request = operation.subject.fingerprint != intent.fingerprint
    if intent.generation in operation.undone_before:
        text = completed_text({"data": None, "note": NOT_KEPT}, undone=True)
        return Stands(standing=Standing.SETTLED, permit=permit, undone=True, shown=text)
    if operation.generation > intent.generation or (operation.state.closed and other_request):
        return _not_executed(permit, refused or "This proposal was closed without an effect; propose it again.")
    if other_request:
        return _not_executed(permit, conflict_text(operation, seen=seen))
    match operation.state:
        case OperationState.COMPLETED | OperationState.UNDONE:
            shown = "" if seen else completed_text({"data": None, "note": NOT_SHOWN}, undone=operation.undone)
            return Stands(
                standing=Standing.SETTLED, permit=permit, repeated=repeated, undone=operation.undone, shown=shown
            )
        case OperationState.REJECTED | OperationState.NOT_EXECUTED:
            return _closed(operation, permit, refused, seen=seen)
        case OperationState.RESENDABLE if not refused and operation.generation == intent.generation:
            return Stands(standing=Standing.SEND, permit=operation.permit, after=pause_before(operation))
        case OperationState.NEEDS_HUMAN:
            return Stands(standing=Standing.PERSON, permit=operation.permit)
        case _:
            return Stands(standing=Standing.WAIT, permit=operation.permit)


def pause_before(operation: Operation) -> float:
    """Seconds until the next send: none before the second, then longer each time, so that nobody is hammered."""
    sent = len(operation.attempts)
    return 0.0 if sent <= 1 else float(min(RECHECK_SECONDS, 2 ** min(sent - 1, 20)))


def _not_executed(permit: int, text: str) -> Stands:
    failure = Failure(kind=ErrorKind.NOT_EXECUTED, phase=Phase.BEFORE_SEND, text=text)
    shown = failure_text(failure, status=OperationState.NOT_EXECUTED)
    return Stands(standing=Standing.SETTLED, permit=permit, error=failure.kind, shown=shown)


def _closed(operation: Operation, permit: int, refused: str, *, seen: bool) -> Stands:
    """Declined or not executed: the service's own words where it has said some."""
    if operation.evidence is Evidence.PERSON and seen:
        return _not_executed(permit, f"A person has found that it did not happen: {_words_of_a_person(operation)}")
    failure = failure_in(operation)
    if failure is not None and seen:
        shown = failure_text(failure, status=operation.state)
        return Stands(standing=Standing.SETTLED, permit=permit, error=failure.kind, shown=shown)
    if refused:
        return _not_executed(permit, refused)
    if operation.evidence is Evidence.WITHDRAWAL:
        return _not_executed(permit, "It was withdrawn before it was sent. Propose it again if it is still wanted.")
    kind, shown = standing_text(operation)
    return Stands(standing=Standing.SETTLED, permit=permit, error=kind, shown=shown)


def _words_of_a_person(operation: Operation) -> str:
    said = operation.result or {}
    return f"{said.get('because', '')} ({said.get('who', '')})"


def failure_in(operation: Operation) -> Failure | None:
    """The failure that the journal's settling row holds; where that was a lookup, what an attempt was told before."""
    stored = (operation.result or {}).get("failure") or operation.declined
    if not stored:
        return None
    return Failure(
        kind=ErrorKind(stored["kind"]), phase=Phase(stored["phase"]), text=stored["text"], after=stored.get("after")
    )
