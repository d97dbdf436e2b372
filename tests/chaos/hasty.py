"""Shorter timeouts for the activities of the storm's workflows. A module of its own: the workflow sandbox sees it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

MOST = timedelta(seconds=10)
"""The longest that an activity may take: what a killed worker had is somebody else's after that."""
BEAT = timedelta(seconds=5)
"""The same for an activity that says that it lives."""
BETWEEN = timedelta(seconds=3)
"""The longest pause between two attempts."""
BEATING = "request_model"


class Hasty(Interceptor):
    """Gives no activity more time than a storm has."""

    def workflow_interceptor_class(self, _: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Come between a workflow and its activities."""
        return HastyInbound


class HastyInbound(WorkflowInboundInterceptor):
    """Puts the outbound half in place."""

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        """Wrap what goes out."""
        super().init(HastyOutbound(outbound))


class HastyOutbound(WorkflowOutboundInterceptor):
    """The outbound half."""

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        """Start it with shorter timeouts, and shorter pauses between its attempts."""
        given, policy = input.start_to_close_timeout, input.retry_policy
        if given is not None:
            input.start_to_close_timeout = min(given, MOST)
        if input.activity == BEATING:
            input.heartbeat_timeout = BEAT
        if policy is not None and policy.maximum_attempts != 1:
            input.retry_policy = replace(policy, maximum_interval=BETWEEN)
        return super().start_activity(input)
