"""An agent that reads page after page, for tests of long conversations: its tool, its profile, and a model for it."""

from __future__ import annotations

from typing import Any

from settled.activities.registry import Registry, discover
from settled.activities.toolkit import Answer, Arguments, Call, read
from settled.local.clerk import asks_for_summary
from settled.local.messages_script import Reply, Step, tool_use
from tests.desk import CLERK

PAGE = 20_000
"""Characters of a page."""


class Page(Arguments):
    number: int


@read(resources=lambda asked: [f"page/{asked.number}"])
async def page(asked: Page, call: Call) -> Answer:
    """Give a page of 20 kB."""
    return Answer(data=f"page {asked.number} " + "x" * PAGE, source="test")


READER = CLERK.model_copy(
    update={"tools": ("page",), "limits": CLERK.limits.model_copy(update={"turns": 5_000, "requests": 10_000})}
)
"""Reads as much as it wants."""


def library(*others: Any) -> Registry:
    """The shipped tools, `page`, and others."""
    return Registry({**discover().tools, **{tool.name: tool for tool in (page, *others)}})


class Reader:
    """A model that reads so many pages, one a turn, and sums up when it is asked to.

    Args:
        pages: how many.
        last: what it does after the last one, step by step.
    """

    def __init__(self, pages: int, *last: Step) -> None:
        self.pages = pages
        self.last = list(last) or [Reply.of("Read.")]
        self.read = 0
        """Pages that it has asked for."""
        self.summaries = 0
        """Summaries that it has given."""

    def __call__(self, body: dict[str, Any]) -> Step:
        """Answer a request."""
        if asks_for_summary(body):
            self.summaries += 1
            return Reply.of(f"SUMMARY {self.summaries}: pages 1 to {self.read} are read.")
        if self.read < self.pages:
            self.read += 1
            return Reply.of(tool_use("page", {"number": self.read}))
        return self.last.pop(0)
