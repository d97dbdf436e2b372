"""Whatever happens to two operations on one resource: the journal, the current row and the holds agree."""

from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from settled.activities import protocol, schema, settling
from settled.activities.journal import Entry, Operation, Row, fold
from settled.activities.keys import remote_key
from settled.activities.ledger import Ledger
from settled.activities.settling import Lookup, Move, Patience
from settled.activities.toolkit import Absent, Answer, Found, InFlux, LookupAnswer, Several
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.protocol.books import Clock, holds, key, report, rows_of
from tests.protocol.stories import DEDUPES, PROMISE, order, subject

S, E = OperationState, Event
NAMES = count()


ANSWERS: dict[str, LookupAnswer | None] = {
    "absent": Absent(),
    "in flux": InFlux(),
    "failed": None,
    "several": Several([{"id": 1}]),
}
STEPS = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 3), st.sampled_from("fg")),
    st.tuples(st.just("claim next"), st.sampled_from("ab")),
    st.tuples(
        st.just("report"),
        st.sampled_from("ab"),
        st.sampled_from([E.SUCCEEDED, E.DECLINED, E.NOT_SENT, E.UNCLEAR]),
        st.integers(0, 3),
    ),
    st.tuples(st.just("miss"), st.sampled_from("ab"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("withdraw"), st.sampled_from("ab"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("settle"), st.sampled_from("ab"), st.sampled_from(["found", *ANSWERS, "absent"]), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 11.0, 120.0, 2_000.0])),
)


@dataclass
class Player:
    """Takes steps on two operations that share a resource, and checks the store after each."""

    books: Ledger
    clock: Clock
    example: int

    def key(self, name: str) -> str:
        return key(f"{self.example} {name}")

    @property
    def resource(self) -> str:
        return f"shared by example {self.example}"

    async def take(self, step: tuple[Any, ...]) -> None:
        what, *given_ = step
        if what == "wait":
            self.clock.at += given_[0]
            return
        at, rest = self.key(given_[0]), given_[1:]
        before = await self.books.read(at)
        match what:
            case "claim":
                generation, permit, fingerprint = rest
                await self.books.claim(at, self.order(generation, permit, fingerprint))
            case "claim next":
                generation = protocol.next_generation(before)
                current = before is not None and before.generation == generation
                permit = before.permit if before is not None and current else 1
                await self.books.claim(at, self.order(generation, permit, "f"))
            case "report":
                await self.report(at, rest[0], rest[1])
            case "miss":
                ask = self.order(rest[0], rest[1], "f")
                await self.books.amend(at, lambda operation, now: protocol.miss(operation, ask, now))
            case "withdraw":
                ask = self.order(rest[0], 1, "f")
                await self.books.amend(
                    at, lambda operation, now: protocol.withdraw(operation, ask, now, others_wait=rest[1])
                )
            case "settle":
                await self.settle(before, rest[0], waiting=rest[1])

    def order(self, generation: int, permit: int, fingerprint: str) -> protocol.Claim:
        return order(generation, permit, about=subject(fingerprint, resources=(self.resource,)))

    async def report(self, at: str, event: Event, which: int) -> None:
        """One of the attempts that were ever made speaks up, perhaps not for the first time."""
        claims = [row for row in await self.books.journal(at) if row.event is E.CLAIMED]
        if claims:
            claim = claims[which % len(claims)]
            await report(self.books, event, at=at, generation=claim.generation, permit=claim.permit)

    async def settle(self, operation: Operation | None, answer: str, *, waiting: bool) -> None:
        """A settlement's step, as the activity takes it."""
        if operation is None:
            return
        now = await self.books.now()
        event = {
            Move.EXPIRE: E.EXPIRED,
            Move.CLOSE: E.NOTHING_OUT,
            Move.HAND_OVER: E.HANDED_TO_PERSON,
            Move.VOID: E.WITHDRAWN,
        }.get(move := settling.next_move(operation, PROMISE, now, waiting=waiting))
        if event is not None:
            entry = Entry(event=event, generation=operation.generation, permit=operation.permit, body={})
        elif move is Move.LOOK_UP:
            ours = remote_key(operation.key, operation.generation)
            record = Found(key=ours, request=None, answer=Answer(data=None, source="stock service"))
            promise = replace(PROMISE, dedupes=DEDUPES.dedupes)
            entry = settling.judge(
                operation,
                promise,
                Lookup(answer=record if answer == "found" else ANSWERS[answer], asked_at=now),
                remote_key=ours,
                arguments={},
                waiting=waiting,
                patience=Patience(total=5_000.0),
            )
        else:
            return
        await self.books.amend(operation.key, lambda current, _: entry if current == operation else None)

    async def check(self) -> None:
        held = {
            resource: by for resource, by in (await holds(self.books.database)).items() if resource == self.resource
        }
        for name in "ab":
            rows = await self.books.journal(self.key(name))
            stored = await rows_of(
                self.books.database, select(schema.operations).where(schema.operations.c.key == self.key(name))
            )
            if not rows:
                assert stored == []
                continue
            operation = fold(self.key(name), rows)
            assert operation is not None
            (current,) = stored
            view = operation.view()
            assert (current.state, current.generation, current.sends, current.evidence, current.tool) == (
                view.state, view.generation, view.sends, view.evidence, view.tool,
            )  # fmt: skip
            assert (current.seq, current.opened_at, current.changed_at) == (
                operation.seq, operation.opened_at, operation.changed_at,
            )  # fmt: skip
            holds_it = held.get(self.resource) == operation.key
            if operation.state.settled:
                assert not holds_it
            elif any(row.event is E.CLAIMED and row.generation == operation.generation for row in rows):
                assert holds_it, "what was claimed holds its resource"
            # What was never claimed, as far as the ledger knows, holds its resource only if that was free when its last
            # row was written.
            check_journal(rows)


def check_journal(rows: list[Row]) -> None:
    """What no journal may say."""
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    generations = [row.generation for row in rows if row.event in (E.CLAIMED, E.MISSED, E.WITHDRAWN)]
    assert generations == sorted(generations), "no row but a late report belongs to a generation that is over"
    claims = [(row.generation, row.permit) for row in rows if row.event is E.CLAIMED]
    assert len(claims) == len(set(claims)), "no permit is spent twice"
    for first, then in pairwise(row for row in rows if row.event is E.CLAIMED):
        between = [row.event for row in rows[first.seq : then.seq - 1] if row.generation == then.generation]
        if first.generation == then.generation:
            assert E.ABSENT_RESEND in between, "R68: before a second send there was a lookup that said absent"
    for row, then in pairwise(rows):
        if row.state.settled and not then.state.settled:
            assert then.generation > row.generation
            assert row.state.closed
    for generation in {row.generation for row in rows}:
        mine = [
            row.body["subject"]["fingerprint"] for row in rows if row.generation == generation and "subject" in row.body
        ]
        assert len(mine) == 1, "one row opens a generation, and its fingerprint stands"


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=25))
async def test_r66_r68_the_fold_the_current_row_and_the_holds_agree_whatever_happens(
    books: Ledger, clock: Clock, steps: list[tuple[Any, ...]]
) -> None:
    player = Player(books, clock, next(NAMES))
    for step in steps:
        await player.take(step)
        await player.check()
