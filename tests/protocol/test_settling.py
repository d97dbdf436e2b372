"""Rule 10: what a settlement does next, what a lookup proves, and how long it waits."""

from dataclasses import replace
from datetime import timedelta

import pytest

from settled.activities import settling
from settled.activities.settling import Move, Patience, Promise
from settled.activities.toolkit import (
    FOREVER,
    Absent,
    Answer,
    Arguments,
    Call,
    Found,
    InFlux,
    LookupAnswer,
    Scope,
    Several,
    write,
)
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.states import Event
from tests.protocol.stories import (
    DEDUPES,
    PATIENCE,
    PROMISE,
    Story,
    body_of_last,
    found,
    sent,
    told,
)

S, E = OperationState, Event
UNBOUNDED = replace(PROMISE, lands_within=None)


# --- Settlement ---


@pytest.mark.parametrize(
    ("state", "can_look_up", "waiting", "move"),
    [
        (S.UNKNOWN, True, True, Move.LOOK_UP),
        (S.UNKNOWN, True, False, Move.LOOK_UP),
        (S.UNKNOWN, False, True, Move.HAND_OVER),
        (S.RESENDABLE, True, True, Move.AWAIT_TASK),
        (S.RESENDABLE, True, False, Move.VOID),
        (S.NEEDS_HUMAN, True, True, Move.AWAIT_PERSON),
        (S.NEEDS_HUMAN, True, False, Move.AWAIT_PERSON),
        (S.COMPLETED, True, True, Move.DONE),
        (S.REJECTED, True, True, Move.DONE),
        (S.NOT_EXECUTED, True, True, Move.DONE),
    ],
)
def test_rule_10_what_a_settlement_does_next(
    state: OperationState, can_look_up: bool, waiting: bool, move: Move
) -> None:
    promise = replace(PROMISE, can_look_up=can_look_up)
    now = told(state).now
    assert settling.next_move(now, promise, now.changed_at + 1.0, waiting=waiting) is move


def test_a_permit_that_nobody_spends_is_void_after_a_while() -> None:
    """The task that waited may have forgotten it: after a reset, say."""
    now = told(S.RESENDABLE).now
    late = now.changed_at + settling.PERMIT_SECONDS
    assert settling.next_move(now, PROMISE, late - 1.0, waiting=True) is Move.AWAIT_TASK
    assert settling.next_move(now, PROMISE, late, waiting=True) is Move.VOID


def test_rule_10_an_attempt_is_waited_for_until_its_deadline() -> None:
    now = told(S.DISPATCHED).now
    assert settling.next_move(now, PROMISE, 10.0, waiting=True) is Move.AWAIT_ATTEMPT
    assert settling.next_move(now, PROMISE, 10.1, waiting=True) is Move.EXPIRE


def test_rule_10_it_is_the_newest_attempts_deadline_that_is_waited_for() -> None:
    story = told(S.RESENDABLE)
    story.claim(200.0, permit=2)
    assert settling.next_move(story.now, PROMISE, 209.0, waiting=True) is Move.AWAIT_ATTEMPT
    assert settling.next_move(story.now, PROMISE, 210.1, waiting=True) is Move.EXPIRE


def test_rule_10_without_a_lookup_what_cannot_be_out_is_closed() -> None:
    story = Story()
    story.miss(0.0)
    promise = replace(PROMISE, can_look_up=False)
    assert settling.next_move(story.now, promise, 1.0, waiting=True) is Move.CLOSE


def test_rule_10_a_permit_is_issued_only_while_a_task_waits() -> None:
    assert sent(DEDUPES).look(2.0, Absent(), waiting=False) is E.ABSENT_SO_FAR
    assert sent(PROMISE).look(110.1, Absent(), waiting=False) is E.ABSENT_FINAL
    missed = Story()
    missed.miss(0.0)
    assert missed.look(1.0, Absent(), waiting=False) is E.ABSENT_FINAL


def test_rule_10_once_patience_is_spent_no_permit_is_issued() -> None:
    assert sent(PROMISE).look(5_000.0, Absent()) is E.ABSENT_RESEND
    assert sent(PROMISE).look(5_000.1, Absent()) is E.ABSENT_FINAL
    assert sent(replace(DEDUPES, dedupes=1e12)).look(5_000.0, Absent()) is E.ABSENT_RESEND
    assert sent(replace(DEDUPES, dedupes=1e12)).look(5_000.1, Absent()) is E.HANDED_TO_PERSON


def test_rule_10_patience_does_not_shorten_what_will_be_proven() -> None:
    """An attempt that may land for longer than patience lasts: it is waited for, since waiting will tell."""
    story = sent(replace(PROMISE, lands_within=6_000.0))
    assert story.look(5_500.0, Absent()) is E.ABSENT_SO_FAR
    assert story.look(6_010.1, Absent()) is E.ABSENT_FINAL


@pytest.mark.parametrize("answer", [InFlux("working"), None])
def test_rule_10_a_lookup_that_settles_nothing_is_made_again_until_patience_is_spent(
    answer: LookupAnswer | None,
) -> None:
    story = sent(PROMISE)
    again = E.LOOKUP_FAILED if answer is None else E.IN_FLUX
    note = "timed out" if answer is None else "working"
    assert story.look(2.0, answer) is again
    assert body_of_last(story)["note"] == note
    assert story.look(5_000.0, answer) is again
    assert story.look(5_000.1, answer) is E.HANDED_TO_PERSON
    assert story.state is S.NEEDS_HUMAN


def test_rule_10_patience_counts_from_the_generations_beginning() -> None:
    story = told(S.NOT_EXECUTED)
    story.claim(10_000.0, generation=2)
    story.report(10_001.0, E.UNCLEAR, generation=2)
    assert story.look(14_999.0, None) is E.LOOKUP_FAILED
    assert story.look(15_000.1, None) is E.HANDED_TO_PERSON


def test_r67_what_is_found_is_completed_at_any_time() -> None:
    for at in (2.0, 110.0, 6_000.0):
        for waiting in (True, False):
            story = sent(PROMISE)
            assert story.look(at, found(), waiting=waiting) is E.FOUND
            assert (story.state, story.now.evidence) == (S.COMPLETED, Evidence.LOOKUP)


@pytest.mark.parametrize(
    ("key", "request_shown", "note"),
    [
        ("somebody else's", {"sku": "A1"}, "doesn't carry our key"),
        (None, {"sku": "A1"}, "doesn't carry our key"),
        ("ours", {"sku": "A1", "quantity": 3}, "shows another request"),
        ("ours", {"sku": "A1", "warehouse": 1}, "shows another request"),
    ],
)
def test_a_record_that_is_not_ours_or_shows_another_request_goes_to_a_person(
    key: str | None, request_shown: dict[str, object], note: str
) -> None:
    story = sent(PROMISE)
    ours = found().key if key == "ours" else key
    record = Found(key=ours, request=request_shown, answer=Answer(data=None, source="stock service"))
    assert story.look(2.0, record) is E.HANDED_TO_PERSON
    assert note in str(body_of_last(story)["note"])
    assert body_of_last(story)["found"] == {"key": ours, "request": request_shown}
    assert story.state is S.NEEDS_HUMAN


@pytest.mark.parametrize("request_shown", [None, {}, {"quantity": 2}, {"sku": "A1", "quantity": 2}])
def test_a_record_under_our_key_may_show_less_than_was_asked(request_shown: dict[str, object] | None) -> None:
    record = Found(key=found().key, request=request_shown, answer=Answer(data=None, source="stock service"))
    assert sent(PROMISE).look(2.0, record) is E.FOUND


def test_the_record_of_an_older_generation_is_not_ours() -> None:
    story = told(S.NOT_EXECUTED)
    story.claim(1.0, generation=2)
    story.report(2.0, E.UNCLEAR, generation=2)
    assert story.look(3.0, found(generation=1)) is E.HANDED_TO_PERSON
    assert str(body_of_last(story)["note"]).endswith("is of generation 1 of this operation, an earlier one")


def test_the_record_of_a_generation_that_the_ledger_has_lost_is_named_with_the_word_that_helps() -> None:
    """The natural word would be "completed"; but what is done is the other generation, under another key."""
    story = sent(PROMISE)
    assert story.look(3.0, found(generation=2)) is E.HANDED_TO_PERSON
    note = str(body_of_last(story)["note"])
    assert "is of generation 2 of this operation, which this ledger has lost" in note
    assert "say that generation 1 was not executed" in note


def test_what_a_lookup_finds_taken_back_was_done_and_is_undone() -> None:
    """It is told as such, and may be proposed anew; "done" alone would be half of the truth."""
    story = sent(PROMISE)
    assert story.look(2.0, replace(found(), stands=False)) is E.FOUND_UNDONE
    assert (story.state, story.now.evidence) == (S.UNDONE, Evidence.LOOKUP)
    assert str(body_of_last(story)["note"]).endswith("and that it was taken back since")
    assert story.claim(3.0, generation=2) is E.CLAIMED
    assert story.now.undone_before == (1,)


def test_a_record_without_a_key_that_was_taken_back_excludes_no_other_one() -> None:
    """It may be an older one of the same order; ours may still land."""
    story = sent(replace(PROMISE, unique=("sku",)))
    record = Found(key=None, request={"sku": "A1"}, answer=found().answer, stands=False)
    assert story.look(2.0, record) is E.HANDED_TO_PERSON
    assert "there may be others" in str(body_of_last(story)["note"])
    assert sent(replace(PROMISE, unique=("sku",))).look(2.0, replace(record, stands=True)) is E.FOUND


def test_several_records_go_to_a_person_with_the_records() -> None:
    story = sent(PROMISE)
    assert story.look(2.0, Several([{"id": 1}, {"id": 2}])) is E.HANDED_TO_PERSON
    assert body_of_last(story)["records"] == [{"id": 1}, {"id": 2}]


def test_a_person_is_waited_for_and_a_late_answer_helps() -> None:
    story = told(S.NEEDS_HUMAN)
    assert (story.report(3.0, E.DECLINED), story.state) == (E.LATE_NO, S.NEEDS_HUMAN)
    assert (story.report(4.0, E.SUCCEEDED), story.state) == (E.SUCCEEDED, S.COMPLETED)


# --- How long to wait ---


def test_lookups_back_off_up_to_a_limit() -> None:
    patience = Patience(first=1.0, most=300.0, total=1e9)
    assert [patience.delay(n) for n in (0, 1, 2, 8, 9, 1_000_000)] == [1.0, 2.0, 4.0, 256.0, 300.0, 300.0]


def test_the_first_lookup_is_made_at_once_and_the_next_ones_later_each_time() -> None:
    story = sent(UNBOUNDED)
    waits = [settling.wait_after(story.now, UNBOUNDED, PATIENCE, 2.0)]
    for n in range(3):
        story.look(3.0 + n, InFlux())
        waits.append(settling.wait_after(story.now, UNBOUNDED, PATIENCE, 3.0 + n))
    assert waits == [0.0, 1.0, 2.0, 4.0]


def test_the_time_from_which_absence_proves_something_is_not_slept_through() -> None:
    story = sent(PROMISE)
    for _ in range(8):
        story.look(50.0, Absent())
    assert PATIENCE.delay(7) == 128.0
    assert settling.wait_after(story.now, PROMISE, PATIENCE, 50.0) == pytest.approx(60.05)
    assert settling.wait_after(story.now, PROMISE, PATIENCE, 111.0) == 128.0


def test_a_claimed_attempt_is_looked_at_just_after_its_deadline() -> None:
    now = told(S.DISPATCHED).now
    wait = settling.wait_after(now, PROMISE, PATIENCE, 4.0)
    assert settling.next_move(now, PROMISE, 4.0 + wait, waiting=True) is Move.EXPIRE
    assert wait == pytest.approx(6.05)
    assert settling.wait_after(now, PROMISE, PATIENCE, 1e6) == pytest.approx(0.05)


def test_a_task_or_a_person_is_not_asked_every_moment() -> None:
    assert settling.wait_after(told(S.RESENDABLE).now, PROMISE, PATIENCE, 111.0) == 16.0
    assert settling.wait_after(told(S.NEEDS_HUMAN).now, PROMISE, PATIENCE, 111.0) == 3_600.0


def test_a_change_starts_the_lookups_afresh() -> None:
    story = sent(UNBOUNDED)
    story.look(2.0, InFlux())
    story.look(3.0, None)
    assert story.now.lookups == 2
    story.report(4.0, E.UNCLEAR)
    assert story.now.lookups == 0


# --- What a tool promises ---


class Reserve(Arguments):
    """The arguments of a tool."""

    order: str


async def look_it_up(reserve: Reserve, call: Call) -> Absent:
    """A lookup."""
    return Absent()


@pytest.mark.parametrize(
    ("dedupes", "lands_within", "lookup", "promise"),
    [
        (None, None, None, Promise(dedupes=None, lands_within=None, seconds=7.0, can_look_up=False)),
        (
            timedelta(hours=1),
            timedelta(seconds=30),
            look_it_up,
            Promise(dedupes=3600.0, lands_within=30.0, seconds=7.0, can_look_up=True),
        ),
        (timedelta(0), timedelta(0), None, Promise(dedupes=None, lands_within=0.0, seconds=7.0, can_look_up=False)),
    ],
)
def test_a_tools_declaration_is_its_promise(
    dedupes: timedelta | None, lands_within: timedelta | None, lookup: object, promise: Promise
) -> None:
    @write(
        key=("order",),
        scope=Scope.TASK,
        lookup=lookup,  # type: ignore[arg-type]
        dedupes=dedupes,
        lands_within=lands_within,
        timeout=timedelta(seconds=7),
    )
    async def reserve(reserve: Reserve, call: Call) -> Answer:
        """Reserve."""
        raise NotImplementedError

    assert Promise.of(reserve) == promise


def test_forever_outlasts_any_clock() -> None:
    promise = replace(DEDUPES, dedupes=FOREVER.total_seconds())
    story = sent(promise, at=4e9)
    story.patience = Patience(total=1e12)
    assert story.look(8e9, Absent()) is E.ABSENT_RESEND
    assert story.claim(9e9, permit=2) is E.CLAIMED
