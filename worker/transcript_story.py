"""The whole transcript of a task, over all its conversations, as the store has it: each request with its response.

A task's requests are numbered in the order in which their responses came. A response of which the conversation did not
go on is told, too, with the reason: it was cut off, malformed, refused, or the task went on from an earlier message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, select

from settled.activities import schema
from settled.activities.calls import proposed_calls, shown_ids
from settled.activities.database import Database
from settled.activities.rerooting import THOUGHTS
from settled.activities.responses import Responses, Stored
from settled.activities.roots import Root
from settled.activities.stores import Stores, TaskRecord
from settled.activities.transcript import Node, Role, node_of
from settled.worker.transcript_fate import Fate, Fates


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a response, with its result."""

    slot: int
    id: str
    """As the conversation shows it."""
    name: Any
    input: Any
    results: tuple[Mapping[str, Any], ...]
    """The blocks that answered it: one; none, where it has none so far; several, where a reset ran it again."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A model request and its response."""

    number: int
    """The request's, from 1."""
    conversation: int
    """The number of the conversation that it belongs to, from 1."""
    stored: Stored
    sent: tuple[Node, ...]
    """The messages that no request before has sent."""
    fate: Fate
    calls: tuple[Call, ...]


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages over one root."""

    number: int
    root: Root
    replaces: int | None
    """The conversation that it goes on from."""
    carried: int
    """Messages that it took over from there as they were, apart from another model's thoughts."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """A task's transcript."""

    record: TaskRecord
    conversations: tuple[Conversation, ...]
    exchanges: tuple[Exchange, ...]
    after: tuple[Node, ...]
    """The messages that no request has sent: the goal of a task that has asked nothing, the last results."""


async def story_of(database: Database, task: str) -> Story | None:
    """The transcript of a task; None if the store doesn't know the task."""
    stores = Stores.over(database)
    record = await stores.tasks.get(task)
    if record is None:
        return None
    answers = await Responses(database).of_task(task)
    head, closed_at = await stores.tasks.stood_at(task), await stores.tasks.closed_at(task)
    nodes = await _nodes_of(database, task, head)
    return _Teller(answers, nodes, head, Fates(answers, nodes, head, closed_at)).story(record)


async def _nodes_of(database: Database, task: str, head: str) -> dict[str, Node]:
    """Every node of the task's conversations, by digest, each read once."""
    digest, responses = schema.nodes.c.digest, schema.responses.c
    asked = select(responses.asked).where(responses.task == task)
    answered = select(responses.node).where(responses.task == task)
    found = await _nodes_above(database, digest.in_(asked) | digest.in_(answered) | (digest == head))
    # A model that never answered has no response, only a conversation that another one has taken over.
    while replaced := _replaced_by(found.values()) - found.keys():
        more = await _nodes_above(database, digest.in_(replaced))
        if not more:
            break
        found |= more
    return found


def _replaced_by(nodes: Iterable[Node]) -> set[str]:
    roots = [Root.of(node) for node in nodes if node.role is Role.ROOT]
    return {root.replaces for root in roots if root.replaces is not None}


async def _nodes_above(database: Database, ends: ColumnElement[bool]) -> dict[str, Node]:
    """These nodes, and what comes before each."""
    nodes = schema.nodes
    walk = select(nodes.c.digest, nodes.c.parent).where(ends).cte("walk", recursive=True)
    walk = walk.union(select(nodes.c.digest, nodes.c.parent).join(walk, nodes.c.digest == walk.c.parent))
    query = select(nodes).where(nodes.c.digest.in_(select(walk.c.digest)))
    async with database.read() as connection:
        return {row.digest: node_of(row) for row in await connection.execute(query)}


class _Teller:
    """Puts the responses and the nodes together, response after response."""

    def __init__(self, answers: Sequence[Stored], nodes: Mapping[str, Node], head: str, fates: Fates) -> None:
        self._answers = answers
        self._fates = fates
        self._nodes = nodes
        self._head = head if head in nodes else ""
        self._children: dict[str, list[Node]] = {}
        for node in nodes.values():
            if node.parent:
                self._children.setdefault(node.parent, []).append(node)
        self._told: set[str] = set()
        self._whole: set[str] = set()
        """Nodes that are told with all that comes before them: nobody need look there again."""
        self._roots: dict[str, str] = {}
        self._conversations: dict[str, Conversation] = {}

    def story(self, record: TaskRecord) -> Story:
        exchanges = tuple(self._exchange(number, stored) for number, stored in enumerate(self._answers, 1))
        if self._head:
            self._enter(self._head)
        return Story(
            record=record,
            exchanges=exchanges,
            after=self._untold(self._head) if self._head else (),
            conversations=tuple(self._conversations.values()),
        )

    def _exchange(self, number: int, stored: Stored) -> Exchange:
        conversation = self._enter(stored.asked)
        sent = self._untold(stored.asked)
        self._told.add(stored.node)
        self._whole.add(stored.node)
        return Exchange(
            number=number,
            conversation=conversation.number,
            stored=stored,
            sent=sent,
            fate=self._fates.of(stored),
            calls=tuple(self._calls(stored)),
        )

    def _enter(self, head: str) -> Conversation:
        """The conversation that the head belongs to. What it takes over from another one is not told again."""
        digest = self._root(head)
        if digest in self._conversations:
            return self._conversations[digest]
        root, replaced, carried = Root.of(self._nodes[digest]), None, 0
        if root.replaces is not None and root.replaces in self._nodes:
            replaced = self._enter(root.replaces).number
            before = {_words(node) for node in self._up(root.replaces) if node.digest in self._told}
            taken = [node.digest for node in self._up(head) if node.role is not Role.ROOT and _words(node) in before]
            self._told.update(taken)
            carried = len(taken)
        number = len(self._conversations) + 1
        made = Conversation(number=number, root=root, replaces=replaced, carried=carried)
        return self._conversations.setdefault(digest, made)

    def _untold(self, head: str) -> tuple[Node, ...]:
        found = []
        for node in self._up(head):
            if node.digest in self._whole or node.role is Role.ROOT:
                break
            if node.digest not in self._told:
                found.append(node)
        self._told.update(node.digest for node in found)
        self._whole.add(head)
        return tuple(reversed(found))

    def _up(self, head: str) -> Iterator[Node]:
        """The head, and what comes before it, back to the root."""
        node: Node | None = self._nodes[head]
        while node is not None:
            yield node
            node = self._nodes.get(node.parent) if node.parent else None

    def _root(self, head: str) -> str:
        for node in self._up(head):
            if node.digest in self._roots or node.role is Role.ROOT:
                self._roots[head] = self._roots.get(node.digest, node.digest)
                break
        return self._roots[head]

    def _calls(self, stored: Stored) -> Iterator[Call]:
        node = self._nodes.get(stored.node)
        if node is None:
            return
        ids = shown_ids(node)
        answers = [block for child in self._children.get(stored.node, []) for block in child.content]
        for call in proposed_calls(node.content):
            shown = ids[call.slot]
            results = tuple(block for block in answers if block.get("tool_use_id") == shown)
            yield Call(slot=call.slot, id=shown, name=call.name, input=call.input, results=results)


def _words(node: Node) -> tuple[Role, str]:
    """What a message says, as a model that takes over is given it."""
    said = [block for block in node.content if not isinstance(block, dict) or block.get("type") not in THOUGHTS]
    return node.role, json.dumps(said)
