"""Handlers of `reserve_stock` that behave as no tool should, until the test lets them go."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from settled.activities.registry import Registry, discover
from settled.activities.toolkit import Answer, Call
from settled.workflows.errors import Rejected
from tests.desk import hurried


class Stubborn:
    """The tool `reserve_stock`, whose first call doesn't hear that its time is over, and sends when it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.calls = 0
        self._tool = discover().write("reserve_stock")

    def registry(self, lands_within: float = 1.0) -> Registry:
        """The tools, with this one among them."""
        tools = {**discover().tools, self._tool.name: replace(self._tool, handler=self.handle)}
        return hurried(Registry(tools), seconds=1.0, lands_within=timedelta(seconds=lands_within))

    async def handle(self, asked: Any, call: Call) -> Answer:
        """Reserve, sooner or later."""
        self.calls += 1
        if self.calls == 1:
            while not self.let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await self.let_go.wait()
        return await self._tool.handler(asked, call)


class Hesitant:
    """The tool `reserve_stock`, at a service that thinks about it for as long as it likes, and declines."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    def registry(self) -> Registry:
        """The tools, with this one among them."""
        tool = replace(discover().write("reserve_stock"), handler=self.handle)
        return hurried(Registry({**discover().tools, tool.name: tool}), seconds=12.0)

    async def handle(self, asked: Any, call: Call) -> Answer:
        """Decline, in the end."""
        await self.let_go.wait()
        raise Rejected("we would rather not")
