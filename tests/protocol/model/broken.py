"""What if a rule didn't hold? Each broken in one place, with worlds in which that leads to a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import NamedTuple

from settled.activities import protocol
from settled.activities.journal import Entry, Operation
from settled.activities.protocol import Around, Blocked, Refused
from settled.activities.settling import Lookup, Patience, Promise
from settled.activities.toolkit import Absent
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.model import people, restore, two_tasks, undo
from tests.protocol.model.model import Model, Walkable, walk
from tests.protocol.model.rules import Rules, claim, judge, table_with
from tests.protocol.model.world import (
    A_WHILE,
    ALWAYS,
    ALWAYS_LATE,
    LONG_AGO,
    NEVER,
    NEVER_LATE,
    NO_LOOKUP,
)

Judged = Entry | Blocked | Refused | None


def claimed(ask: protocol.Claim, now: float) -> Entry:
    """The row of a claim that ought to be refused."""
    body = {"deadline": now + ask.seconds, "subject": asdict(ask.subject)}
    return Entry(event=Event.CLAIMED, generation=ask.generation, permit=ask.permit, task=ask.task, body=body)


def claims_without_permit(operation: Operation | None, ask: protocol.Claim, now: float, around: Around) -> Judged:
    if operation and operation.generation == ask.generation and operation.state is OperationState.UNKNOWN:
        return claimed(ask, now)
    return claim(operation, ask, now, around)


def claims_in_closed_generation(operation: Operation | None, ask: protocol.Claim, now: float, around: Around) -> Judged:
    if operation and operation.generation > ask.generation:
        return claimed(ask, now)
    return claim(operation, ask, now, around)


def claims_with_missed_permit(operation: Operation | None, ask: protocol.Claim, now: float, around: Around) -> Judged:
    if operation and operation.generation == ask.generation and operation.state is not OperationState.NONE:
        unspent = all(attempt.permit != ask.permit for attempt in operation.attempts)
        if unspent and operation.state in (UNKNOWN, DISPATCHED, RESENDABLE):
            return claimed(ask, now)
    return claim(operation, ask, now, around)


def claims_after_the_window(operation: Operation | None, ask: protocol.Claim, now: float, around: Around) -> Judged:
    return claim(operation and replace(operation, permit_until=None), ask, now, around)


def claims_the_next_while_unknown(
    operation: Operation | None, ask: protocol.Claim, now: float, around: Around
) -> Judged:
    if operation and operation.state is OperationState.UNKNOWN and operation.generation == ask.generation - 1:
        return claimed(ask, now)
    return claim(operation, ask, now, around)


def next_while_unknown(operation: Operation | None) -> int:
    opens = operation is not None and operation.state is OperationState.UNKNOWN
    return protocol.next_generation(operation) + opens


def decline_settles_all(operation: Operation | None, ended: protocol.Report, now: float) -> Entry | None:
    entry = protocol.report(operation, ended, now)
    if entry and entry.event is Event.DECLINED_WHILE_OTHERS_OUT:
        return replace(entry, event=Event.DECLINED)
    return entry


def old_is_as_good_as_answered(operation: Operation | None, ended: protocol.Report, now: float) -> Entry | None:
    assert operation is not None, "nothing is lost here"
    young = tuple(a for a in operation.attempts if a.deadline > LONG_AGO or a.permit == ended.permit)
    return protocol.report(replace(operation, attempts=young), ended, now)


def absent_permits_a_resend(
    operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience
) -> Entry:
    if isinstance(lookup.answer, Absent) and waiting:
        promise = replace(promise, dedupes=1e12)
    return judge(operation, promise, lookup, waiting, patience)


def absent_means_not_executed(
    operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience
) -> Entry:
    return judge(replace(operation, attempts=()), promise, lookup, waiting, patience)


def window_counts_sends(
    operation: Operation, promise: Promise, lookup: Lookup, waiting: bool, patience: Patience
) -> Entry:
    entry = judge(operation, promise, lookup, waiting, patience)
    if entry.body.get("until") is not None and promise.lands_within is not None:
        return replace(entry, body=entry.body | {"until": entry.body["until"] + promise.lands_within})
    return entry


UNKNOWN, DISPATCHED = OperationState.UNKNOWN, OperationState.DISPATCHED
RESENDABLE, NOT_EXECUTED = OperationState.RESENDABLE, OperationState.NOT_EXECUTED
COMPLETED, UNDONE = OperationState.COMPLETED, OperationState.UNDONE


class Broken(NamedTuple):
    """A broken rule, and what it leads to."""

    leads_to: str
    model: Callable[[Rules], Walkable]
    rules: Rules

    def walk(self) -> str:
        """The shortest way to a fault."""
        with table_with(self.rules.arrows):
            return walk(self.model(self.rules))


def alone(rules: Rules) -> Model:
    """One operation at a service without dedupe."""
    return Model(NEVER, rules)


def deduped(rules: Rules) -> Model:
    """One operation at a service with it."""
    return Model(ALWAYS, rules)


def deduped_a_while(rules: Rules) -> Model:
    """One operation at a service that forgets."""
    return Model(A_WHILE, rules)


def undoing(rules: Rules) -> undo.Undoing:
    """An operation and its undo."""
    return undo.Undoing(NEVER_LATE, NEVER, rules)


LIE = "closed without an effect, with an effect"
TWO = "two effects"
EARLY = "the next generation is open while an attempt of this one may land"

BROKEN: dict[str, Broken] = {
    "no permit": Broken(LIE, alone, Rules(claim=claims_without_permit, arrows={(UNKNOWN, Event.CLAIMED): DISPATCHED})),
    "a decline settles all": Broken(LIE, deduped, Rules(report=decline_settles_all)),
    "old is as good as answered": Broken(LIE, deduped, Rules(report=old_is_as_good_as_answered)),
    "withdrawn means not executed": Broken(LIE, deduped, Rules(arrows={(RESENDABLE, Event.WITHDRAWN): NOT_EXECUTED})),
    "absent permits a resend": Broken(TWO, alone, Rules(judge=absent_permits_a_resend)),
    "absent means not executed": Broken(LIE, alone, Rules(judge=absent_means_not_executed)),
    "a closed generation's permit still claims": Broken(EARLY, alone, Rules(claim=claims_in_closed_generation)),
    "a missed dispatch keeps its permit": Broken(
        TWO,
        alone,
        Rules(
            claim=claims_with_missed_permit,
            arrows={(UNKNOWN, Event.CLAIMED): DISPATCHED, (DISPATCHED, Event.CLAIMED): DISPATCHED},
        ),
    ),
    "the next generation opens while unknown": Broken(
        EARLY, alone, Rules(claim=claims_the_next_while_unknown, next_generation=next_while_unknown)
    ),
    "a permit outlives the key": Broken(TWO, deduped_a_while, Rules(claim=claims_after_the_window)),
    "the window counts sends, not landings": Broken(TWO, deduped_a_while, Rules(judge=window_counts_sends)),
    "a lookup speaks for the time of its answer": Broken(LIE, alone, Rules(judges_late=True)),
    "a row is written though the journal has moved": Broken(LIE, alone, Rules(writes_stale=True)),
    # People
    "a person's word counts while an attempt is out": Broken(
        "a person is heard of what is yet to be sent",
        lambda rules: people.Peopled(NO_LOOKUP, rules),
        Rules(
            resolve=people.heard_while_out,
            arrows={
                (DISPATCHED, Event.RESOLVED_NOT_EXECUTED): NOT_EXECUTED,
                (DISPATCHED, Event.RESOLVED_COMPLETED): COMPLETED,
            },
        ),
    ),
    "a person's word counts for whatever generation is open": Broken(
        "completed without an effect",
        lambda rules: people.Peopled(NO_LOOKUP, rules),
        Rules(resolve=people.heard_of_any_generation),
    ),
    "a success that contradicts a person raises no alarm": Broken(
        "a success that contradicts a person raises no alarm",
        lambda rules: people.Peopled(NO_LOOKUP, rules),
        Rules(report=people.believes_people),
    ),
    # Two tasks
    "withdrawn though another task waits": Broken(
        "withdrawn, though another task waits",
        lambda rules: two_tasks.TwoTasks(NEVER, rules, most=2),
        Rules(withdraw=two_tasks.withdrawn_under_others),
    ),
    "a permit is issued for nobody": Broken(
        "a permit is issued, though no task waits",
        lambda rules: two_tasks.TwoTasks(NEVER, rules, most=2),
        Rules(judge=two_tasks.issued_for_nobody),
    ),
    # Undo
    "undone without the undo being completed": Broken(
        "undone, and its undo is not completed", undoing, Rules(undone=undo.undone_too_early)
    ),
    "an undo may be sent while the target is unknown": Broken(
        "an undo may be sent, though its target is not settled as done", undoing, Rules(claim=undo.looks_at_no_target)
    ),
    "an undo's resend looks at no target": Broken(
        "an undo may be sent, though its target is not settled as done", undoing, Rules(claim=undo.looks_only_at_first)
    ),
    "a late success of what was undone does it again": Broken(
        "the undo is completed, and its target is not undone",
        undoing,
        Rules(arrows={(UNDONE, Event.SUCCEEDED): COMPLETED}),
    ),
    "what was undone is told as never done": Broken(
        "a late success of what was undone raises an alarm", undoing, Rules(report=undo.forgets_what_was_undone)
    ),
    # A restored ledger
    "nobody says that the ledger was restored": Broken(
        EARLY, lambda rules: restore.Restored(NEVER, rules, 2), Rules(opens_epoch=False)
    ),
    "a restored ledger claims at once": Broken(
        EARLY, lambda rules: restore.Restored(ALWAYS_LATE, rules, 2), Rules(claim=restore.claims_at_once)
    ),
    "missed in a restored ledger counts as nothing out": Broken(
        LIE, lambda rules: restore.Restored(ALWAYS_LATE, rules, 2), Rules(miss=restore.missed_is_nothing_out)
    ),
    "given up in a restored ledger counts as not sent": Broken(
        EARLY, lambda rules: restore.Restored(ALWAYS_LATE, rules, 2), Rules(withdraw=restore.withdrawn_is_not_sent)
    ),
    "what the copy has is all there was": Broken(
        LIE, lambda rules: restore.Restored(ALWAYS_LATE, rules, 2), Rules(restored=restore.copy_is_all)
    ),
    "permits that may be lost are given again": Broken(
        TWO, lambda rules: restore.Restored(ALWAYS_LATE, rules, 2), Rules(restored=restore.permits_are_given_again)
    ),
    "one lost attempt's answer speaks for all": Broken(
        LIE, lambda rules: restore.Restored(ALWAYS_LATE, rules, 2), Rules(report=restore.one_no_for_all)
    ),
}
"""By name."""
