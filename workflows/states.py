"""The operation's state machine, as one table.

    claim      NONE ─CLAIMED▶ DISPATCHED
    answer     DISPATCHED ─SUCCEEDED▶ COMPLETED
               DISPATCHED, UNKNOWN ─DECLINED▶ REJECTED        (no other attempt is out)
               DISPATCHED, UNKNOWN ─NOT_SENT▶ NOT_EXECUTED    (no other attempt is out)
    no answer  DISPATCHED ─UNCLEAR, EXPIRED, DECLINED_WHILE_OTHERS_OUT, NOT_SENT_WHILE_OTHERS_OUT▶ UNKNOWN
    lookup     UNKNOWN ─FOUND▶ COMPLETED   UNKNOWN ─FOUND_UNDONE▶ UNDONE   UNKNOWN ─ABSENT_FINAL▶ NOT_EXECUTED
               UNKNOWN ─ABSENT_RESEND▶ RESENDABLE ─CLAIMED▶ DISPATCHED
    no lookup  UNKNOWN ─NOTHING_OUT▶ NOT_EXECUTED
    give up    NONE ─WITHDRAWN▶ NOT_EXECUTED   NONE ─MISSED▶ UNKNOWN   RESENDABLE ─WITHDRAWN▶ UNKNOWN
    restored   DISPATCHED, RESENDABLE ─RESTORED▶ UNKNOWN
    people     UNKNOWN ─HANDED_TO_PERSON▶ NEEDS_HUMAN ─RESOLVED_COMPLETED▶ COMPLETED
                                           NEEDS_HUMAN ─RESOLVED_NOT_EXECUTED▶ NOT_EXECUTED
    undo       COMPLETED ─UNDONE▶ UNDONE

Outcomes are facts: from the first claim on, SUCCEEDED is taken in any state and makes it COMPLETED (what was undone
stays undone), and LATE_NO changes nothing. An event that has no entry raises `IllegalTransition` and changes nothing.
Each generation of an operation walks through the table on its own.
"""

from __future__ import annotations

from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.contract.values import OpenEnum
from settled.workflows.errors import IllegalTransition

NONE, DISPATCHED, COMPLETED = OperationState.NONE, OperationState.DISPATCHED, OperationState.COMPLETED
REJECTED, UNKNOWN, RESENDABLE = OperationState.REJECTED, OperationState.UNKNOWN, OperationState.RESENDABLE
NEEDS_HUMAN, NOT_EXECUTED = OperationState.NEEDS_HUMAN, OperationState.NOT_EXECUTED
UNDONE = OperationState.UNDONE


class Event(OpenEnum):
    """What can happen to an operation; the kinds of its journal's rows."""

    CLAIMED = "claimed"
    """A permit was spent: an attempt may send from now to its deadline."""
    SUCCEEDED = "succeeded"
    """An attempt came back with success."""
    DECLINED = "declined"
    """The current attempt was declined, and every other attempt was answered "no"."""
    DECLINED_WHILE_OTHERS_OUT = "declined_while_others_out"
    """The current attempt was declined; another one may still land. A "no" speaks for its own attempt only."""
    NOT_SENT = "not_sent"
    """The current attempt sent nothing, and every other attempt was answered "no"."""
    NOT_SENT_WHILE_OTHERS_OUT = "not_sent_while_others_out"
    """The current attempt sent nothing; another one may still land."""
    LATE_NO = "late_no"
    """An attempt was declined or sent nothing after its operation had gone on: its answer, and nothing else."""
    UNCLEAR = "unclear"
    """An attempt ended without an answer."""
    EXPIRED = "expired"
    """The attempt's deadline passed and nobody reported."""
    MISSED = "missed"
    """A dispatch ended without a trace: its permit is void, and it is looked up."""
    RESTORED = "restored"
    """The ledger was set back to an older copy: what was sent since, nobody sees any more. Open permits are void."""
    WITHDRAWN = "withdrawn"
    """A task gave up before its permit was spent: the permit is void."""
    FOUND = "found"
    """A lookup found the effect, under our key and with our request."""
    FOUND_UNDONE = "found_undone"
    """A lookup found the effect, and that it has been taken back since."""
    ABSENT_FINAL = "absent_final"
    """A lookup said absent when no attempt could land any more."""
    ABSENT_RESEND = "absent_resend"
    """A lookup said absent, and a resend is safe: the next permit is issued."""
    ABSENT_SO_FAR = "absent_so_far"
    """A lookup said absent, but an attempt may still land: look again."""
    IN_FLUX = "in_flux"
    """A lookup said that the request is still being worked on: look again."""
    LOOKUP_FAILED = "lookup_failed"
    """A lookup did not end in an answer: look again."""
    NOTHING_OUT = "nothing_out"
    """The tool has no lookup, but every attempt was answered "no"."""
    HANDED_TO_PERSON = "handed_to_person"
    """No lookup, several records, another request, or patience spent: only a person can say."""
    RESOLVED_COMPLETED = "resolved_completed"
    """A person said that it was done."""
    RESOLVED_NOT_EXECUTED = "resolved_not_executed"
    """A person said that it was not done."""
    WORD_REFUSED = "word_refused"
    """A person said something that wasn't asked for: it changes nothing, now or when it is heard again."""
    UNDONE = "undone"
    """Another operation, now completed, has taken it back; or a person says so."""
    ALARM = "alarm"
    """A fact contradicts what was settled: there may be two effects."""


TRANSITIONS: dict[OperationState, dict[Event, OperationState]] = {
    NONE: {
        Event.CLAIMED: DISPATCHED,
        Event.MISSED: UNKNOWN,
        Event.WITHDRAWN: NOT_EXECUTED,
    },
    DISPATCHED: {
        Event.SUCCEEDED: COMPLETED,
        Event.DECLINED: REJECTED,
        Event.DECLINED_WHILE_OTHERS_OUT: UNKNOWN,
        Event.NOT_SENT: NOT_EXECUTED,
        Event.NOT_SENT_WHILE_OTHERS_OUT: UNKNOWN,
        Event.UNCLEAR: UNKNOWN,
        Event.EXPIRED: UNKNOWN,
        Event.RESTORED: UNKNOWN,
        Event.LATE_NO: DISPATCHED,
        Event.WORD_REFUSED: DISPATCHED,
    },
    UNKNOWN: {
        Event.SUCCEEDED: COMPLETED,
        Event.DECLINED: REJECTED,
        Event.DECLINED_WHILE_OTHERS_OUT: UNKNOWN,
        Event.NOT_SENT: NOT_EXECUTED,
        Event.NOT_SENT_WHILE_OTHERS_OUT: UNKNOWN,
        Event.UNCLEAR: UNKNOWN,
        Event.RESTORED: UNKNOWN,
        Event.LATE_NO: UNKNOWN,
        Event.FOUND: COMPLETED,
        Event.FOUND_UNDONE: UNDONE,
        Event.ABSENT_FINAL: NOT_EXECUTED,
        Event.ABSENT_RESEND: RESENDABLE,
        Event.ABSENT_SO_FAR: UNKNOWN,
        Event.IN_FLUX: UNKNOWN,
        Event.NOTHING_OUT: NOT_EXECUTED,
        Event.LOOKUP_FAILED: UNKNOWN,
        Event.HANDED_TO_PERSON: NEEDS_HUMAN,
        Event.WORD_REFUSED: UNKNOWN,
    },
    RESENDABLE: {
        Event.CLAIMED: DISPATCHED,
        Event.SUCCEEDED: COMPLETED,
        Event.LATE_NO: RESENDABLE,
        Event.UNCLEAR: RESENDABLE,
        Event.RESTORED: UNKNOWN,
        Event.WITHDRAWN: UNKNOWN,
        Event.WORD_REFUSED: RESENDABLE,
    },
    NEEDS_HUMAN: {
        Event.RESOLVED_COMPLETED: COMPLETED,
        Event.RESOLVED_NOT_EXECUTED: NOT_EXECUTED,
        Event.SUCCEEDED: COMPLETED,
        Event.LATE_NO: NEEDS_HUMAN,
        Event.UNCLEAR: NEEDS_HUMAN,
        Event.RESTORED: NEEDS_HUMAN,
        Event.WORD_REFUSED: NEEDS_HUMAN,
    },
    COMPLETED: {
        Event.SUCCEEDED: COMPLETED,
        Event.LATE_NO: COMPLETED,
        Event.UNCLEAR: COMPLETED,
        Event.ALARM: COMPLETED,
        Event.UNDONE: UNDONE,
        Event.WORD_REFUSED: COMPLETED,
    },
    REJECTED: {
        Event.SUCCEEDED: COMPLETED,
        Event.LATE_NO: REJECTED,
        Event.UNCLEAR: REJECTED,
        Event.ALARM: REJECTED,
        Event.WORD_REFUSED: REJECTED,
    },
    NOT_EXECUTED: {
        Event.SUCCEEDED: COMPLETED,
        Event.LATE_NO: NOT_EXECUTED,
        Event.UNCLEAR: NOT_EXECUTED,
        Event.ALARM: NOT_EXECUTED,
        Event.WORD_REFUSED: NOT_EXECUTED,
    },
    UNDONE: {
        Event.SUCCEEDED: UNDONE,
        Event.LATE_NO: UNDONE,
        Event.UNCLEAR: UNDONE,
        Event.ALARM: UNDONE,
        Event.WORD_REFUSED: UNDONE,
    },
}

EVIDENCE: dict[Event, Evidence] = {
    Event.CLAIMED: Evidence.CLAIM,
    Event.SUCCEEDED: Evidence.ANSWER,
    Event.DECLINED: Evidence.ANSWER,
    Event.DECLINED_WHILE_OTHERS_OUT: Evidence.ANSWER,
    Event.NOT_SENT: Evidence.ANSWER,
    Event.NOT_SENT_WHILE_OTHERS_OUT: Evidence.ANSWER,
    Event.UNCLEAR: Evidence.NO_ANSWER,
    Event.EXPIRED: Evidence.NO_ANSWER,
    Event.MISSED: Evidence.NO_ANSWER,
    Event.RESTORED: Evidence.NO_ANSWER,
    Event.WITHDRAWN: Evidence.WITHDRAWAL,
    Event.FOUND: Evidence.LOOKUP,
    Event.FOUND_UNDONE: Evidence.LOOKUP,
    Event.ABSENT_FINAL: Evidence.LOOKUP,
    Event.ABSENT_RESEND: Evidence.LOOKUP,
    Event.ABSENT_SO_FAR: Evidence.LOOKUP,
    Event.IN_FLUX: Evidence.LOOKUP,
    Event.LOOKUP_FAILED: Evidence.LOOKUP,
    Event.NOTHING_OUT: Evidence.ANSWER,
    Event.RESOLVED_COMPLETED: Evidence.PERSON,
    Event.RESOLVED_NOT_EXECUTED: Evidence.PERSON,
    Event.UNDONE: Evidence.UNDO,
}
"""What a change of state by this event rests on."""

ANSWERED_NO = frozenset(
    {
        Event.DECLINED,
        Event.DECLINED_WHILE_OTHERS_OUT,
        Event.NOT_SENT,
        Event.NOT_SENT_WHILE_OTHERS_OUT,
        Event.LATE_NO,
    }
)
"""The events that say of their own attempt that it has no effect."""


def after(state: OperationState, event: Event) -> OperationState:
    """The state after the event.

    Raises:
        IllegalTransition: the table has no such arrow.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(f"an operation that is {state} can't take '{event}'") from None
