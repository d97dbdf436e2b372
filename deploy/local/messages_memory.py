"""The memory of what was answered, which judges a request by the replies given before.

The API binds a reply to the model, system, tools and messages that it was given for; so does `Conversations`. Another
model may go on where one refused or failed, if the system and the tools are the same and its thoughts are left out.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from settled.local.messages_odd import Fields, free_fields, sent_back, without_fields
from settled.local.messages_rules import THINKING, Block, Body, Message, blocks, call_ids, canonical, is_blank

FROZEN = ("model", "system", "tools")


def compared(content: Sequence[Block]) -> str:
    """Content in the form that is compared: blank texts may be left out, cache marks may move from block to block."""
    kept = [block for block in content if not is_blank(block)]
    return canonical([{name: value for name, value in block.items() if name != "cache_control"} for block in kept])


def without_thoughts(messages: Sequence[Message]) -> list[Message]:
    """The messages without thinking blocks, which belong to the model that had them."""
    return [
        {**message, "content": [block for block in blocks(message) if block["type"] not in THINKING]}
        for message in messages
    ]


def chain(messages: Sequence[Message]) -> tuple[str, ...]:
    """Digests of every beginning of `messages`: item k stands for the first k, so item 1 names the conversation.

    A message of which nothing is left to compare counts for nothing: a client leaves it out.
    """
    links = [""]
    for message in messages:
        said = compared(blocks(message))
        link = f"{links[-1]} {message['role']} {said}"
        links.append(links[-1] if said == "[]" else hashlib.sha256(link.encode()).hexdigest())
    return tuple(links)


def conversation(body: Body) -> str:
    """The name of the conversation: requests with the same first message share it."""
    return chain(body["messages"][:1])[1]


class _Given(NamedTuple):
    content: str
    frozen: tuple[str, ...]
    free: Fields  # what is not compared, since a client has to change it

    @classmethod
    def to(cls, body: Body, content: Sequence[Block]) -> Self:
        free = free_fields(content, (call_id for message in body["messages"] for call_id in call_ids(message)))
        return cls(compared(without_fields(content, free)), _frozen(body), free)

    def is_said_by(self, content: Sequence[Block]) -> bool:
        return compared(without_fields(content, self.free)) == self.content


class Conversations:
    """What was answered, as a tree: a request may go on from any reply, so resent, restarted and reset tasks all pass.

    Every assistant message of a request must be, verbatim, a reply given to exactly the messages before it, under the
    same model, system and tools. A request without assistant messages starts afresh. Replies from before this memory
    (the server was restarted, or the conversation was written by hand) are believed. A reply may be dropped: a client
    does that after a refusal, a cut or a reset. `strict=False` checks nothing but that thinking blocks are unchanged.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._given: dict[str, list[_Given]] = {}  # by the link of the messages that were answered
        self._homes: dict[tuple[str, str], tuple[str, ...]] = {}  # (conversation or "", content) -> chain before it
        self._thinking: dict[str, set[str]] = {}  # by signature
        self._words: dict[str, list[_Given]] = {}  # what was given, all of it without thoughts
        self._left: dict[str, set[tuple[str, ...]]] = {}  # where a model refused or failed, without thoughts
        self._paused: set[str] = set()  # by the link of the reply itself

    def admit(self, body: Body) -> str | None:
        """Why `body`, which has no fault of its own, does not continue what was said before; None notes it as asked."""
        links = chain(body["messages"])
        fault = self._thinking_fault(body) or (self._prefix_fault(body, links) if self._strict else None)
        if fault is None:
            self._given.setdefault(links[-1], [])
        return fault

    def left(self, body: Body) -> None:
        """Note that the model refuses to answer `body`, or fails: another may go on, or begin a paused turn anew."""
        messages = body["messages"]
        last = max((place for place, message in enumerate(messages, 1) if message["role"] == "user"), default=0)
        links = chain(without_thoughts(messages))
        for link in (links[last], links[-1]):
            self._left.setdefault(link, set()).add(_frozen(body))

    def paused(self, body: Body) -> bool:
        """Whether `body` ends with a reply that was only a pause, so that no user message follows it."""
        return chain(body["messages"])[-1] in self._paused

    def answered(self, body: Body, content: Sequence[Block], *, paused: bool = False) -> None:
        """Note that `content` is given, in full, as a reply to `body`."""
        content = sent_back(content)
        links, said = chain(body["messages"]), compared(content)
        reply: Message = {"role": "assistant", "content": content}
        if paused:
            self._paused.add(chain([*body["messages"], reply])[-1])
        (words,) = without_thoughts([reply])
        before = chain(without_thoughts(body["messages"]))[-1]
        self._words.setdefault(before, []).append(_Given.to(body, blocks(words)))
        self._given.setdefault(links[-1], []).append(_Given.to(body, content))
        self._homes[links[1], said] = links
        for block in content:
            if block["type"] in THINKING:  # bound to the messages before it in any conversation, not in its own only
                self._homes["", said] = links
            if block["type"] == "thinking":
                self._thinking.setdefault(block["signature"], set()).add(canonical(block))

    def _thinking_fault(self, body: Body) -> str | None:
        for index, message in enumerate(body["messages"]):
            for position, block in enumerate(blocks(message)):
                given = self._thinking.get(block["signature"]) if block["type"] == "thinking" else None
                if given is not None and canonical(block) not in given:
                    return f"messages.{index}.content.{position}: `thinking` blocks cannot be modified"
        return None

    def _prefix_fault(self, body: Body, links: tuple[str, ...]) -> str | None:
        frozen, continues = _frozen(body), False
        taken_over = self._taken_over(body)
        for index, message in enumerate(body["messages"]):
            if message["role"] != "assistant":
                continue
            if index in taken_over:
                continues = True
                continue
            said, given = compared(blocks(message)), self._given.get(links[index])
            same = [reply.frozen for reply in given or () if reply.is_said_by(blocks(message))]
            home = self._homes.get((links[1], said)) or self._homes.get(("", said))
            if same and frozen not in same:
                changed = [f"`{name}`" for name, old, new in zip(FROZEN, same[0], frozen, strict=True) if old != new]
                return f"{', '.join(changed)}: changed since messages.{index} was given; resend the same bytes"
            if not same and given is None and home is not None:
                edited = sum(old == new for old, new in zip(home, links, strict=False)) - 1  # the first to differ
                return f"messages.{edited}: changed since messages.{index} was given; earlier messages stay unchanged"
            if not same and (given is not None or continues):
                return f"messages.{index}: not a reply of this server to the messages before it; resend it verbatim"
            continues = continues or bool(same)
        return None

    def _taken_over(self, body: Body) -> set[int]:
        """Which of the messages another model said, before it left the conversation to this one."""
        frozen, messages = _frozen(body), without_thoughts(body["messages"])
        links = chain(messages)
        last = max((place for place, link in enumerate(links) if _others(self._left.get(link, ()), frozen)), default=0)
        return {
            index
            for index, message in enumerate(messages[:last])
            if message["role"] == "assistant"
            and len(blocks(message)) == len(blocks(body["messages"][index]))
            and any(
                words.is_said_by(blocks(message)) and _others([words.frozen], frozen)
                for words in self._words.get(links[index], ())
            )
        }


def _others(those: Iterable[tuple[str, ...]], frozen: tuple[str, ...]) -> bool:
    """Whether one of those has another model, and the same system and tools."""
    return any(that[0] != frozen[0] and that[1:] == frozen[1:] for that in those)


def _frozen(body: Body) -> tuple[str, ...]:
    """The parts that must not change, byte for byte: unlike messages they are compared in the order of their keys."""
    return tuple(json.dumps(body.get(name)) for name in FROZEN)
