"""An interceptor of workers in the test's own process: some activities go to a task queue of their own.

So a worker process is given just the activity that it is to fall over, and everything else goes on without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle

from settled.workflows.contract.operation import Order


@dataclass(frozen=True, kw_only=True)
class Detour(Interceptor):
    """Which activities go where."""

    queue: str
    """The task queue that they go to."""
    activity: str
    """Their type."""
    tool: str = ""
    """Of orders: only those for this tool."""
    permit: int = 0
    """Of orders: only those that spend this permit."""

    def takes(self, input: StartActivityInput) -> bool:
        """Whether this activity is one of them."""
        if input.activity != self.activity:
            return False
        order = input.args[0]
        if not isinstance(order, Order):
            return True
        return self.tool in ("", order.tool) and self.permit in (0, order.permit)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Come between a workflow and the activities that it starts."""
        detour = self

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(Outbound(outbound, detour))

        return Inbound


class Outbound(WorkflowOutboundInterceptor):
    """Starts the activities of a workflow, each where it belongs."""

    def __init__(self, next: WorkflowOutboundInterceptor, detour: Detour) -> None:
        super().__init__(next)
        self._detour = detour

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[object]:
        """Start it."""
        if self._detour.takes(input):
            input.task_queue = self._detour.queue
        return super().start_activity(input)
