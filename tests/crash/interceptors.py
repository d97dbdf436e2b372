"""Interceptors of workers in the test's own process: they lose an answer, and count."""

from __future__ import annotations

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
