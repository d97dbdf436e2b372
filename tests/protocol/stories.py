"""Journals to test with: what happened to one operation, decided by what ships, at times that the test names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from settled.activities import protocol, settling
from settled.activities.journal import Entry, Operation, Row, Subject, advance
from settled.activities.keys import remote_key
from settled.activities.settling import Lookup, Patience, Promise
from settled.activities.toolkit import Absent, Answer, Found, LookupAnswer
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event

KEY = "ab" * 32
UNDOING_KEY = "ba" * 32
SECONDS = 10.0
PROMISE = Promise(dedupes=None, lands_within=100.0, seconds=SECONDS, can_look_up=True)
DEDUPES = replace(PROMISE, dedupes=1_000.0, lands_within=None)
PATIENCE = Patience(first=1.0, most=300.0, total=5_000.0)
SUBJECT = Subject(
    tool="reserve", tenant="acme", principal="ann", fingerprint="f1", arguments="a1", resources=("acme/stock/A1",)
)


def subject(fingerprint: str = "f1", **changes: Any) -> Subject:
    """What an operation is about."""
    return replace(SUBJECT, fingerprint=fingerprint, **changes)


def order(
    generation: int = 1, permit: int = 1, *, task: str = "task-a", seconds: float = SECONDS, about: Subject = SUBJECT
) -> protocol.Claim:
    """What a dispatch asks for."""
    return protocol.Claim(subject=about, generation=generation, permit=permit, seconds=seconds, task=task)


def ended(event: Event, generation: int = 1, permit: int = 1, **body: Any) -> protocol.Report:
    """How an attempt ended."""
    return protocol.Report(event=event, generation=generation, permit=permit, task="task-a", body=body)


def found(generation: int = 1) -> Found:
    """A lookup's answer that shows our record."""
    answer = Answer(data={"id": 7}, source="stock service")
    return Found(key=remote_key(KEY, generation), request={"sku": "A1"}, answer=answer)


@dataclass
class Story:
    """What happened to an operation so far. Each step returns the event that it added, None if it added none."""

    promise: Promise = PROMISE
    patience: Patience = PATIENCE
    operation: Operation | None = None
    rows: list[Row] = field(default_factory=list)

    @property
    def now(self) -> Operation:
        """The operation as it stands."""
        assert self.operation is not None, "something has happened"
        return self.operation

    @property
    def state(self) -> OperationState:
        """Where it stands."""
        return self.now.state

    def write(self, entry: Entry | None, at: float) -> Event | None:
        """Append the entry, if there is one."""
        if entry is None:
            return None
        row = Row(**vars(entry), seq=len(self.rows) + 1, at=at, state=OperationState.NONE)
        self.operation = advance(KEY, self.operation, row)
        self.rows.append(replace(row, state=self.operation.state))
        return entry.event

    def claim(self, at: float, generation: int = 1, permit: int = 1, **asked: Any) -> Event | None:
        """A dispatch claims."""
        return self.write(protocol.claim(self.operation, order(generation, permit, **asked), at), at)

    def report(self, at: float, event: Event, generation: int = 1, permit: int = 1, **body: Any) -> Event | None:
        """An attempt reports."""
        return self.write(protocol.report(self.now, ended(event, generation, permit, **body), at), at)

    def miss(self, at: float, generation: int = 1, permit: int = 1) -> Event | None:
        """A task asks what became of a dispatch."""
        return self.write(protocol.miss(self.operation, order(generation, permit), at), at)

    def withdraw(self, at: float, generation: int = 1, *, others_wait: bool = False) -> Event | None:
        """A task gives up."""
        return self.write(protocol.withdraw(self.operation, order(generation), at, others_wait=others_wait), at)

    def undo(self, at: float) -> Event | None:
        """Another operation, which takes this one back, is completed."""
        taking_back = subject(undoes_key=KEY, undoes_generation=self.now.generation)
        undoing = replace(self.now, key=UNDOING_KEY, generation=1, subject=taking_back)
        return self.write(protocol.undone(self.operation, undoing), at)

    def resolve(self, at: float, event: Event, **body: Any) -> Event | None:
        """A person says what became of it."""
        return self.write(protocol.resolve(self.now, event, body), at)

    def expire(self, at: float) -> Event | None:
        """A settlement finds that nobody reported in time."""
        entry = Entry(event=Event.EXPIRED, generation=self.now.generation, permit=self.now.permit, body={})
        return self.write(entry, at)

    def judged(self, at: float, answer: LookupAnswer | None, *, waiting: bool = True) -> Entry:
        """The row that a lookup leads to."""
        return settling.judge(
            self.now,
            self.promise,
            Lookup(answer=answer, asked_at=at, note="timed out"),
            remote_key=remote_key(KEY, self.now.generation),
            arguments={"sku": "A1", "quantity": 2},
            waiting=waiting,
            patience=self.patience,
        )

    def look(self, at: float, answer: LookupAnswer | None, *, waiting: bool = True) -> Event | None:
        """A settlement asks the service."""
        return self.write(self.judged(at, answer, waiting=waiting), at)


def told(state: OperationState) -> Story:
    """The shortest story that ends in this state."""
    story = Story()
    if state is OperationState.NOT_EXECUTED:
        story.withdraw(0.0)
        return story
    story.claim(0.0)
    match state:
        case OperationState.COMPLETED | OperationState.UNDONE:
            story.report(1.0, Event.SUCCEEDED, result="r1")
        case OperationState.REJECTED:
            story.report(1.0, Event.DECLINED)
        case OperationState.UNKNOWN:
            story.report(1.0, Event.UNCLEAR)
        case OperationState.RESENDABLE:
            story.report(1.0, Event.UNCLEAR)
            story.look(110.1, Absent())
        case OperationState.NEEDS_HUMAN:
            story.report(1.0, Event.UNCLEAR)
            story.write(Entry(event=Event.HANDED_TO_PERSON, generation=1, permit=1, body={}), 2.0)
    if state is OperationState.UNDONE:
        story.undo(3.0)
    assert story.state is state
    return story


def sent(promise: Promise, *, at: float = 0.0) -> Story:
    """One attempt is out, until 10 s after; its reply was lost."""
    story = Story(promise=promise)
    story.claim(at)
    story.report(at + 1.0, Event.UNCLEAR)
    return story


def body_of_last(story: Story) -> dict[str, object]:
    """What the journal's last row says."""
    return story.rows[-1].body
