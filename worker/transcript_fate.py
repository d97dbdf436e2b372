"""What became of each response: by its stop reason first, then by where the task went on from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from settled.activities.responses import Purpose, Stored
from settled.activities.roots import Root
from settled.activities.stop_table import TABLE, Step, kind_of
from settled.activities.transcript import Node, Role


class Fate(StrEnum):
    """What became of a response."""

    KEPT = "kept"
    SUMMARY = "a summary of the conversation, and no part of it"
    CUT = "left out: it was cut off at its token limit"
    OVERFULL = "left out: it was cut off because the model's context was full"
    REFUSED = "left out: the model refused"
    MALFORMED = "left out: it said that it calls a tool, and held no call"
    INVALID = "left out: it stopped in a way that nothing can be made of"
    LEFT_BEHIND = "left out: the task went on from an earlier message"
    UNTAKEN = "left out: the task ended before it was taken up"


STEPS = {
    Step.RAISE: Fate.CUT,
    Step.SUM_UP: Fate.OVERFULL,
    Step.FALL_BACK: Fate.REFUSED,
    Step.ASK_AGAIN: Fate.MALFORMED,
    Step.INVALID: Fate.INVALID,
}
"""What the stop table's step says of a response that nothing goes on from, whatever the transcript looks like."""


class Fates:
    """The fates of a task's responses.

    Args:
        answers: the responses, in the order in which they came.
        nodes: the task's nodes, by digest.
        head: where the task's transcript stood when it was opened or closed last.
        closed_at: when it was closed; none: it is open, or a release before this one closed it.
    """

    def __init__(
        self, answers: Sequence[Stored], nodes: Mapping[str, Node], head: str, closed_at: float | None
    ) -> None:
        self._last = answers[-1] if answers else None
        self._closed = not _is_goal(nodes.get(head), nodes) if closed_at is None else not self._reset(head, closed_at)
        self._line = _line(nodes, head if self._closed or self._last is None else self._last.asked)
        # Of equal responses, which share a node, the conversation has gone on from the last one.
        self._taken = {one.node: one for one in answers if one.purpose is not Purpose.SUMMARY and _step(one) is None}

    def of(self, stored: Stored) -> Fate:
        """What became of one of the responses."""
        if stored.purpose is Purpose.SUMMARY:
            return Fate.SUMMARY
        if (stopped := _step(stored)) is not None:
            return stopped
        is_last = stored is self._last
        if stored.node in self._line and self._taken[stored.node] is stored:
            return Fate.KEPT
        if is_last and not self._closed:
            return Fate.KEPT
        return Fate.UNTAKEN if is_last and stored.asked in self._line else Fate.LEFT_BEHIND

    def _reset(self, head: str, closed_at: float) -> bool:
        """Whether the closed task goes on after a reset: it was asked for more, and not just answered too late."""
        return self._last is not None and self._last.at > closed_at and self._last.asked != head


def _step(stored: Stored) -> Fate | None:
    """The fate that the response has by itself, if any."""
    reason = stored.message.get("stop_reason")
    kind = kind_of(stored.message["content"])
    step = TABLE.get(reason, {}).get(kind, Step.INVALID) if isinstance(reason, str) else Step.INVALID
    return STEPS.get(step)


def _is_goal(node: Node | None, nodes: Mapping[str, Node]) -> bool:
    """Whether the node is what a task begins with, or is not known."""
    root = nodes.get(node.parent or "") if node is not None else None
    return node is None or (root is not None and root.role is Role.ROOT and Root.of(root).replaces is None)


def _line(nodes: Mapping[str, Node], head: str) -> set[str]:
    """The head and all that led to it, also in the conversations that it goes on from."""
    found: set[str] = set()
    digest: str | None = head
    while digest and digest in nodes and digest not in found:
        found.add(digest)
        node = nodes[digest]
        digest = Root.of(node).replaces if node.role is Role.ROOT else node.parent
    return found
