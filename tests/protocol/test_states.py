"""The state table: what its own documentation says, no more and no less."""

import re

import pytest

from settled.workflows import states
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import IllegalTransition, ProtocolError
from settled.workflows.states import ANSWERED_NO, EVIDENCE, TRANSITIONS, Event, after

S = OperationState
AFTER_A_CLAIM = [state for state in S if state is not S.NONE]
UNSETTLED = [state for state in S if not state.settled]
Arrow = tuple[OperationState, Event, OperationState]

LOOPS: dict[Event, set[OperationState]] = {
    Event.WORD_REFUSED: {state for state in S if state is not S.NONE},
    Event.LATE_NO: set(AFTER_A_CLAIM),
    Event.RESTORED: {S.UNKNOWN, S.NEEDS_HUMAN},
    Event.UNCLEAR: {S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED, S.REJECTED, S.NOT_EXECUTED, S.UNDONE},
    Event.SUCCEEDED: {S.COMPLETED, S.UNDONE},
    Event.DECLINED_WHILE_OTHERS_OUT: {S.UNKNOWN},
    Event.NOT_SENT_WHILE_OTHERS_OUT: {S.UNKNOWN},
    Event.ABSENT_SO_FAR: {S.UNKNOWN},
    Event.IN_FLUX: {S.UNKNOWN},
    Event.LOOKUP_FAILED: {S.UNKNOWN},
    Event.ALARM: {S.COMPLETED, S.REJECTED, S.NOT_EXECUTED, S.UNDONE},
}
"""The events that are noted without changing the state, and where."""


def arrows() -> set[Arrow]:
    return {(state, event, to) for state, row in TRANSITIONS.items() for event, to in row.items()}


def drawn() -> set[Arrow]:
    """The arrows in the module's docstring, e.g. `NONE, UNKNOWN ─CLAIMED, MISSED▶ DISPATCHED ─SUCCEEDED▶ COMPLETED`."""
    found: set[Arrow] = set()
    names = r"[A-Z_]+(?:, [A-Z_]+)*"
    for line in (states.__doc__ or "").splitlines():
        for chain in re.findall(rf"{names}(?: ─{names}▶ [A-Z_]+)+", line):
            first, *rest = re.split(r" ─|▶ ", chain)
            froms = first.split(", ")
            for events, to in zip(rest[::2], rest[1::2], strict=True):
                found |= {
                    (OperationState[a], Event[event], OperationState[to]) for a in froms for event in events.split(", ")
                }
                froms = [to]
    return found


def test_every_state_has_its_row() -> None:
    assert set(TRANSITIONS) == set(S)


def test_the_docstring_draws_every_arrow_that_changes_the_state() -> None:
    """But for late successes, of which it says that they are taken in any state."""
    changing = {(state, event, to) for state, event, to in arrows() if state is not to}
    assert drawn() == {arrow for arrow in changing if arrow[1] is not Event.SUCCEEDED} | {
        (S.DISPATCHED, Event.SUCCEEDED, S.COMPLETED)
    }


def test_only_these_events_are_noted_without_a_change() -> None:
    loops = {(event, state) for state, event, to in arrows() if state is to}
    assert loops == {(event, state) for event, where in LOOPS.items() for state in where}


@pytest.mark.parametrize(("state", "event"), [(state, event) for state in S for event in Event])
def test_the_table_and_nothing_else_says_what_follows(state: OperationState, event: Event) -> None:
    if event in TRANSITIONS[state]:
        assert after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=rf"{state} can't take '{event}'"):
            after(state, event)


def test_an_event_of_another_release_is_refused() -> None:
    assert issubclass(IllegalTransition, ProtocolError)
    with pytest.raises(IllegalTransition, match="teleported"):
        after(S.UNKNOWN, Event("teleported"))


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
def test_a_late_success_is_taken_in_every_state_after_a_claim(state: OperationState) -> None:
    """What was undone stays undone: that it was done is no news."""
    assert after(state, Event.SUCCEEDED) is (S.UNDONE if state is S.UNDONE else S.COMPLETED)


@pytest.mark.parametrize("state", AFTER_A_CLAIM)
def test_a_late_no_changes_nothing(state: OperationState) -> None:
    assert after(state, Event.LATE_NO) is state


def test_before_a_claim_nothing_can_have_succeeded() -> None:
    assert set(TRANSITIONS[S.NONE]) == {Event.CLAIMED, Event.MISSED, Event.WITHDRAWN}


def test_what_is_settled_stays_settled() -> None:
    assert {(state, event, to) for state, event, to in arrows() if state.settled and not to.settled} == set()
    assert {state for state in S if state.settled} == {S.COMPLETED, S.REJECTED, S.NOT_EXECUTED, S.UNDONE}


def test_what_is_completed_stays_completed_until_it_is_undone() -> None:
    changes = {event: to for event, to in TRANSITIONS[S.COMPLETED].items() if to is not S.COMPLETED}
    assert changes == {Event.UNDONE: S.UNDONE}


def test_only_what_was_done_can_be_undone_and_it_stays_undone() -> None:
    assert {state for state, event, _ in arrows() if event is Event.UNDONE} == {S.COMPLETED}
    assert set(TRANSITIONS[S.UNDONE].values()) == {S.UNDONE}
    assert S.UNDONE.closed


def test_a_persons_word_is_taken_only_where_it_was_asked_for() -> None:
    by_people = {Event.RESOLVED_COMPLETED: S.COMPLETED, Event.RESOLVED_NOT_EXECUTED: S.NOT_EXECUTED}
    assert {(state, event, to) for state, event, to in arrows() if event in by_people} == {
        (S.NEEDS_HUMAN, event, to) for event, to in by_people.items()
    }


@pytest.mark.parametrize("state", [S.REJECTED, S.NOT_EXECUTED])
def test_only_a_success_reopens_what_was_closed(state: OperationState) -> None:
    changes = {event: to for event, to in TRANSITIONS[state].items() if to is not state}
    assert changes == {Event.SUCCEEDED: S.COMPLETED}
    assert state.closed


def test_a_claim_alone_leads_to_an_attempt_and_needs_an_open_permit() -> None:
    into = {(state, event) for state, event, to in arrows() if to is S.DISPATCHED and state is not to}
    assert into == {(S.NONE, Event.CLAIMED), (S.RESENDABLE, Event.CLAIMED)}


def test_r68_an_absent_lookup_alone_issues_the_next_permit() -> None:
    assert {(state, event) for state, event, to in arrows() if to is S.RESENDABLE and state is not to} == {
        (S.UNKNOWN, Event.ABSENT_RESEND)
    }


def test_b38_an_attempt_that_expires_is_unknown_and_nothing_else() -> None:
    assert {(state, to) for state, event, to in arrows() if event is Event.EXPIRED} == {(S.DISPATCHED, S.UNKNOWN)}


def test_what_was_withdrawn_after_a_send_is_unknown() -> None:
    assert {(state, to) for state, event, to in arrows() if event is Event.WITHDRAWN} == {
        (S.NONE, S.NOT_EXECUTED),
        (S.RESENDABLE, S.UNKNOWN),
    }


def test_every_unsettled_state_can_be_left() -> None:
    for state in UNSETTLED:
        assert any(to is not state for to in TRANSITIONS[state].values()), state


def test_every_change_says_what_it_rests_on() -> None:
    """Handing over to a person rests on nothing new: why nobody else can say stands already."""
    assert {event for state, event, to in arrows() if state is not to} - set(EVIDENCE) == {Event.HANDED_TO_PERSON}


def test_a_no_speaks_of_its_own_attempt() -> None:
    assert {event for event in Event if "declined" in event or "not_sent" in event or event is Event.LATE_NO} == (
        ANSWERED_NO
    )
