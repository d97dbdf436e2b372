"""Interceptors of workers in the test's own process: they lose an answer, count, and hold back."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor


class Loses(Interceptor):
    """Runs an activity to its end and then loses what it returned: Temporal hears of a failure that may pass.

    Args:
        name: the activity's type.
        times: how many times.
    """

    def __init__(self, name: str, times: int = 1) -> None:
        self.name = name
        self.times = times
        self.attempts: list[int] = []
        """Temporal's number of each attempt that came to its end."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Come between an activity and its completion."""
        return _Losing(next, self)


class _Losing(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, loses: Loses) -> None:
        super().__init__(next)
        self._loses = loses

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        result = await super().execute_activity(input)
        if activity.info().activity_type == self._loses.name:
            self._loses.attempts.append(activity.info().attempt)
            if self._loses.times:
                self._loses.times -= 1
                raise ApplicationError("the completion is lost")
        return result


class Holds(Interceptor):
    """Holds an activity back before any of its code has run.

    Args:
        name: the activity's type.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.reached = asyncio.Event()
        """It was started."""
        self.let_go = asyncio.Event()
        """It may run."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Come between Temporal and an activity."""
        return _Holding(next, self)


class _Holding(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, holds: Holds) -> None:
        super().__init__(next)
        self._holds = holds

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if activity.info().activity_type == self._holds.name:
            self._holds.reached.set()
            await self._holds.let_go.wait()
        return await super().execute_activity(input)
