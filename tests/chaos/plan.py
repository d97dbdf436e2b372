"""What a seed decides: the tasks, what each is to do, and the numbers that everybody else draws from.

How the processes' timing falls out is not the seed's: a storm can be repeated, not replayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

ORDINARY, PIECES = 250, 1_000_000
"""Articles of which there is always enough, and how many pieces of each."""
RARE, RARE_PIECES = 10, 4
"""Articles of which there is never enough, and how many pieces of each."""
TOO_MANY = 50
TURNS = (3, 3, 2, 2)
"""New actions in each turn of a task."""
LEAD = "Work through this list, a turn at a time, and say what was done: "

Name = tuple[str, str, int]
"""A business action's name: order, sku and line."""


@dataclass(frozen=True)
class Action:
    """A reservation that a task is to make."""

    order: str
    sku: str
    quantity: int
    line: int = 1

    @property
    def name(self) -> Name:
        """What tells it from other actions."""
        return (self.order, self.sku, self.line)

    def arguments(self) -> dict[str, Any]:
        """As the tool takes it."""
        return {"order": self.order, "sku": self.sku, "quantity": self.quantity, "line": self.line}


@dataclass(frozen=True)
class TaskPlan:
    """A task: what it proposes, turn by turn."""

    number: int
    turns: tuple[tuple[Action, ...], ...]
    reads: str
    """An article that it looks up in its first turn; none if empty."""

    @property
    def id(self) -> str:
        """The workflow id."""
        return f"task-{self.number}"

    @property
    def actions(self) -> frozenset[Name]:
        """Everything that it is to do."""
        return frozenset(action.name for turn in self.turns for action in turn)

    def goal(self) -> str:
        """The goal, which says it all: the model knows nothing else."""
        turns = [[action.arguments() for action in turn] for turn in self.turns]
        return LEAD + json.dumps({"reads": self.reads, "turns": turns})


def read_goal(goal: str) -> tuple[str, list[list[dict[str, Any]]]]:
    """What a goal says: the article to look up, and the turns."""
    said = json.loads(goal.removeprefix(LEAD))
    return said["reads"], said["turns"]


@dataclass(frozen=True)
class Plan:
    """What a seed decides."""

    seed: int
    operations: int
    """How many operations the storm is to see at least."""
    tasks_at_once: int
    """Tasks that run at the same time."""
    workers: int
    """Worker processes."""
    server_seconds: tuple[float, float] = (20.0, 45.0)
    """Between two kills of the server."""
    dedupes: bool = True
    """Whether the service has one effect for each key; else only the ledger stands in the way of a second."""

    def random(self, who: str) -> Random:
        """Numbers for one part of the storm; another part's use of its own doesn't change them."""
        return Random(f"{self.seed} {who}")

    def tasks(self) -> Iterator[TaskPlan]:
        """The tasks, without an end: the storm takes as many as its operations need."""
        number = 0
        while True:
            number += 1
            yield self.task(number)

    def task(self, number: int) -> TaskPlan:
        """One task: new actions, some of them proposed again later, changed, shared, or more than there is."""
        random = self.random(f"task {number}")
        turns = [list(turn) for turn in self._new_actions(number)]
        if number > 2 and random.random() < 0.2:
            turns[0].append(self._shared(number, random))
        if random.random() < 0.15:
            scarce = Action(f"O{number}", f"RARE{random.randrange(RARE)}", TOO_MANY)
            turns[1].append(scarce)
            if random.random() < 0.5:
                turns[3].append(Action(scarce.order, scarce.sku, 1))
        for later in range(1, len(turns)):
            earlier = [action for turn in turns[:later] for action in turn if action.sku.startswith("S")]
            if random.random() < 0.4:
                turns[later].append(random.choice(earlier))
            if random.random() < 0.1:
                taken = random.choice(earlier)
                turns[later].append(Action(taken.order, taken.sku, taken.quantity + 1, taken.line))
        reads = f"S{random.randrange(ORDINARY)}" if random.random() < 0.2 else ""
        return TaskPlan(number, tuple(tuple(random.sample(turn, len(turn))) for turn in turns), reads)

    def _new_actions(self, number: int) -> list[list[Action]]:
        """The actions that are this task's own; some of a turn are on one article, so that one waits for the other."""
        random = self.random(f"actions {number}")
        lines: dict[str, int] = {}
        turns: list[list[Action]] = []
        for count in TURNS:
            turn: list[Action] = []
            for _ in range(count):
                again = turn and random.random() < 0.25
                sku = turn[-1].sku if again else f"S{random.randrange(ORDINARY)}"
                lines[sku] = lines.get(sku, 0) + 1
                turn.append(Action(f"O{number}", sku, random.randint(1, 5), lines[sku]))
            turns.append(turn)
        return turns

    def _shared(self, number: int, random: Random) -> Action:
        """An action that an earlier task, which most likely still runs, is to do as well; sometimes it wants more."""
        theirs = random.choice(self._new_actions(number - random.choice((1, 2)))[0])
        more = 1 if random.random() < 0.2 else 0
        return Action(theirs.order, theirs.sku, theirs.quantity + more, theirs.line)


def stock() -> dict[str, int]:
    """What is on the shelves when the storm begins."""
    ordinary = {f"S{number}": PIECES for number in range(ORDINARY)}
    return ordinary | {f"RARE{number}": RARE_PIECES for number in range(RARE)}
