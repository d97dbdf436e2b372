"""The scripted model: a function of the request alone, so that a conversation that was reset goes on sensibly.

It proposes the goal's turns one after the other; then, as an agent would, once more what it was told had not been
executed; then it says which actions are done and which are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from settled.local.messages_rules import blocks
from settled.local.messages_script import Cut, CutStream, HttpError, Reply, Step, StreamError, tool_use
from tests.chaos.plan import Name, read_goal

RESERVE, LOOK_UP = "reserve_stock", "lookup_stock"
MOST_TURNS = 10
"""Turns until it gives up what is still open, and says so."""
WORTH_ANOTHER_TRY = frozenset({"not_executed", "unavailable", "rate_limited", "unknown_result"})
CONFLICT = "already exists with other arguments"


@dataclass(frozen=True)
class Heard:
    """What the model was told of an action, by the last result."""

    arguments: Mapping[str, Any]
    done: bool
    again: bool
    """Whether it makes sense to propose it again."""
    why: str


def answer(body: Mapping[str, Any]) -> Reply:
    """The next step of a conversation."""
    messages = body["messages"]
    reads, turns = read_goal(blocks(messages[0])[0]["text"])
    turn = sum(any(block["type"] == "tool_use" for block in blocks(message)) for message in messages)
    if turn < len(turns):
        looks = [tool_use(LOOK_UP, {"sku": reads})] if reads and not turn else []
        return Reply.of(*looks, *(tool_use(RESERVE, arguments) for arguments in turns[turn]))
    heard = outcomes(messages)
    again = [each.arguments for each in heard.values() if each.again and not each.done]
    if again and turn < MOST_TURNS:
        return Reply.of(*(tool_use(RESERVE, arguments) for arguments in again))
    return Reply.of(report(heard))


def outcomes(messages: list[Mapping[str, Any]]) -> dict[Name, Heard]:
    """What came of each action that was proposed; once done is done."""
    heard: dict[Name, Heard] = {}
    for arguments, text in _told(messages):
        name = (arguments["order"], arguments["sku"], arguments["line"])
        said = json.loads(text) if text.startswith("{") else {"error": "unreadable", "message": text}
        kind, why = str(said.get("error", "")), str(said.get("message", ""))
        done = said.get("status") == "completed"
        if name in heard and heard[name].done:
            continue
        again = kind in WORTH_ANOTHER_TRY and CONFLICT not in why
        heard[name] = Heard(arguments, done, again, f"{kind or said.get('status')}: {why}"[:120])
    return heard


def _told(messages: list[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    calls: dict[str, Mapping[str, Any]] = {}
    for message in messages:
        for block in blocks(message):
            if block["type"] == "tool_use" and block["name"] == RESERVE:
                calls[block["id"]] = block["input"]
            if block["type"] == "tool_result" and block["tool_use_id"] in calls:
                content = block.get("content") or ""
                text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
                yield calls[block["tool_use_id"]], text


def report(heard: Mapping[Name, Heard]) -> str:
    """The last words: which actions are done, and which are not."""
    done = [list(name) for name, each in heard.items() if each.done]
    told = [[*name, each.why] for name, each in heard.items() if not each.done]
    return json.dumps({"done": done, "told": told})


class Provider:
    """The model behind a provider that is sometimes overloaded, slow, or cut off in the middle of a reply."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.quiet = False
        """Whether all is well."""
        self.faults = 0

    def __call__(self, body: Mapping[str, Any]) -> Step:
        """Answer a request, or fail it."""
        reply, drawn = answer(body), self._random.random()
        if self.quiet or drawn >= 0.08:
            return reply
        self.faults += 1
        if drawn < 0.03:
            return HttpError(status=529)
        if drawn < 0.05:
            return CutStream(reply=reply, after_events=self._random.randint(0, 6), how=self._random.choice(list(Cut)))
        if drawn < 0.06:
            return StreamError(reply=reply)
        return Reply(reply.content, stop_reason=reply.stop_reason, delay=self._random.uniform(0.5, 2.0))
