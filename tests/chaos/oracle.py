"""The judgement: what happened at the service, against what the ledger and the tasks say. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from settled.workflows.contract.operation import OperationState
from tests.chaos.plan import Name


class Fault(StrEnum):
    """What can be wrong."""

    DUPLICATE = "duplicates"
    """A business action with more than one effect."""
    LOST = "lost"
    """Said to be done without an effect; or to be done, and neither done nor told."""
    WRONG_STATE = "wrong_state"
    """The ledger contradicts the service's journal."""
    UNRESOLVED = "unresolved"
    """An operation that isn't settled, or a task that isn't closed."""


@dataclass(frozen=True)
class Effect:
    """One line of the service's journal."""

    action: Name
    key: str
    """The idempotency key that it came with."""


@dataclass(frozen=True)
class Known:
    """An operation, as the ledger has it."""

    key: str
    action: Name
    state: OperationState

    def is_behind(self, effect: Effect) -> bool:
        """Whether the effect came with one of this operation's keys."""
        return effect.key.startswith(f"{self.key[:30]}-")


@dataclass(frozen=True)
class Ended:
    """A task, as it ended."""

    id: str
    actions: frozenset[Name]
    """What it was to do."""
    closed: bool = True
    normally: bool = True
    """Whether it ended by itself, with its work done as it says."""
    done: frozenset[Name] = frozenset()
    """What it says is done."""
    told: frozenset[Name] = frozenset()
    """What it says is not done, or can't be said to be."""
    how: str = "completed"
    """How it ended, in Temporal's word."""
    why: str = ""
    """What it says of its failure."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    fault: Fault
    what: str
    """In one line."""
    action: Name | None = None
    operation: str | None = None
    """Whose journal tells more."""


@dataclass(frozen=True)
class Judgement:
    """Everything that is wrong, and how much there was to look at."""

    operations: int
    effects: int
    findings: Sequence[Finding] = field(default_factory=tuple)

    def count(self, fault: Fault) -> int:
        """How many actions, or tasks, are wrong in this way."""
        return len({finding.action or finding.what for finding in self.findings if finding.fault is fault})

    @property
    def counts(self) -> str:
        """The counts, as the last line says them."""
        found = " ".join(f"{fault}={self.count(fault)}" for fault in Fault)
        return f"operations={self.operations} effects={self.effects} {found}"


def judge(effects: Sequence[Effect], operations: Sequence[Known], tasks: Sequence[Ended]) -> Judgement:
    """Hold the service's journal against the ledger, and against what the tasks say."""
    by_action: Mapping[Name, Known] = {known.action: known for known in operations}
    happened = Counter(effect.action for effect in effects)
    findings = [
        *_duplicates(happened, by_action),
        *_of_ledger(happened, operations),
        *_strays(effects, by_action),
        *_of_tasks(happened, tasks, by_action),
    ]
    return Judgement(len(operations), len(effects), tuple(findings))


def _duplicates(happened: Mapping[Name, int], by_action: Mapping[Name, Known]) -> Iterable[Finding]:
    for action, times in happened.items():
        if times > 1:
            known = by_action.get(action)
            yield Finding(Fault.DUPLICATE, f"{times} effects", action, known.key if known else None)


def _of_ledger(happened: Mapping[Name, int], operations: Sequence[Known]) -> Iterable[Finding]:
    for known in operations:
        done = happened.get(known.action, 0) > 0
        if known.state is OperationState.COMPLETED and not done:
            yield Finding(Fault.LOST, "completed without an effect", known.action, known.key)
            yield Finding(Fault.WRONG_STATE, "completed without an effect", known.action, known.key)
        if known.state.closed and done:
            yield Finding(Fault.WRONG_STATE, f"{known.state} with an effect", known.action, known.key)
        if not known.state.settled:
            yield Finding(Fault.UNRESOLVED, f"the operation is {known.state}", known.action, known.key)


def _strays(effects: Sequence[Effect], by_action: Mapping[Name, Known]) -> Iterable[Finding]:
    for effect in effects:
        known = by_action.get(effect.action)
        if known is None or not known.is_behind(effect):
            yield Finding(Fault.WRONG_STATE, f"an effect of no operation, under key {effect.key}", effect.action)


def _of_tasks(
    happened: Mapping[Name, int], tasks: Sequence[Ended], by_action: Mapping[Name, Known]
) -> Iterable[Finding]:
    said: defaultdict[tuple[str, Name], list[str]] = defaultdict(list)
    for task in tasks:
        if not task.closed:
            yield Finding(Fault.UNRESOLVED, f"{task.id} is not closed")
        for action in task.done:
            if not happened.get(action):
                said["reported done without an effect", action].append(task.id)
        for action in task.actions - task.done - task.told if task.closed and task.normally else ():
            if not happened.get(action):
                said["was to be done, and is neither done nor told", action].append(task.id)
    for (what, action), names in said.items():
        known = by_action.get(action)
        yield Finding(Fault.LOST, f"{what} ({', '.join(names)})", action, known.key if known else None)
