"""Where a crash point is played: a desk, a worker process that falls over at one activity, and its successor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from sqlalchemy import select
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import RetryPolicy, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import UpdateActivityOptionsRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from settled.activities import schema
from settled.workflows.contract.names import SETTLEMENT_LOOK, TASK_WAKE
from settled.workflows.contract.operation import OperationState, OperationView
from settled.workflows.states import Event
from tests.crash.detours import Detour
from tests.crash.operator import Handle
from tests.crash.outcomes import in_ledger, until_reserved
from tests.crash.processes import LANDS_WITHIN, SECONDS, Bench, Crew, WorkerProcess
from tests.crash.traps import Act, Point
from tests.crash.worker_process import tools
from tests.desk import CLERK, Desk, open_desk, until

ACTOR = CLERK.model_copy(update={"tools": (*CLERK.tools, "release_stock", "note_order")})


@dataclass(frozen=True)
class Stage:
    """A desk where some activities are left to a worker process of their own."""

    desk: Desk
    crew: Crew
    detour: Detour
    tasks: list[Handle] = field(default_factory=list)
    """What was started here."""

    async def start(self, request: Any) -> Handle:
        """Start a task."""
        self.tasks.append(await self.desk.start(request))
        return self.tasks[-1]

    async def end(self) -> None:
        """End what still runs: a task that goes on would start its settlement anew, on a queue that nobody serves."""
        await self.crew.leave()
        for task in self.tasks:
            with suppress(RPCError):
                await task.terminate()

    async def victim(self, point: Point, act: Act, row: Event | None = None) -> WorkerProcess:
        """The worker process that serves those activities, until it comes to this point."""
        trap = None if point is Point.IN_FLIGHT else point
        which = {"serves": (self.detour.activity,), "task_queue": self.detour.queue}
        return await self.crew.hire(trap=trap, act=act, row=row, **which)  # type: ignore[arg-type]  # they fit

    async def falls(self, victim: WorkerProcess, point: Point, act: Act) -> None:
        """Wait until it has come to the point, and is dead or stopped."""
        if point is Point.IN_FLIGHT:
            await until_reserved(self.desk)
            await (victim.freeze() if act is Act.STOP else victim.kill())
        elif act is Act.STOP:
            await victim.is_frozen()
        else:
            await victim.ends()
        assert point is Point.IN_FLIGHT or f"trapped {point}" in victim.said()

    def successor(self) -> Worker:
        """Another worker, which serves in the victim's place."""
        return Worker(self.desk.client, task_queue=self.detour.queue, activities=self.desk.parts.activities())

    async def give_up(self, handle: Handle) -> None:
        """Have Temporal give up the attempt that the victim has begun, as an operator would who knows that it is gone.

        An activity that is retried then has all its time again.
        """
        (begun,) = await self._pending(handle)
        await self._allow(handle, begun, timedelta(milliseconds=50))

        async def over() -> bool:
            return (await self._pending(handle)).get(begun, 2) > 1

        await until(over)
        try:
            await self._allow(handle, begun, timedelta(seconds=60))
        except RPCError as error:  # it is not retried, or was already
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def _pending(self, handle: Handle) -> dict[str, int]:
        """The activities that are left to the victim, and which attempt of each it is."""
        pending = (await handle.describe()).raw_description.pending_activities
        return {each.activity_id: each.attempt for each in pending if each.activity_type.name == self.detour.activity}

    async def _allow(self, handle: Handle, activity: str, time: timedelta) -> None:
        timeout, pause = Duration(), Duration()
        timeout.FromTimedelta(time)
        pause.FromTimedelta(timedelta(milliseconds=200))
        options = ActivityOptions(start_to_close_timeout=timeout, retry_policy=RetryPolicy(initial_interval=pause))
        await self.desk.client.workflow_service.update_activity_options(
            UpdateActivityOptionsRequest(
                namespace=self.desk.client.namespace,
                execution=WorkflowExecution(workflow_id=handle.id),
                id=activity,
                activity_options=options,
                update_mask=FieldMask(paths=["start_to_close_timeout", "retry_policy.initial_interval"]),
            )
        )

    async def hurry(self, handle: Handle, sends: int) -> None:
        """Have a task send for this time now, instead of after a pause that only makes the test long."""

        async def sent() -> bool:
            operation = await self.one()
            assert operation is not None, "it was sent before"
            if operation.state is OperationState.RESENDABLE:
                await handle.signal(TASK_WAKE)
            return operation.sends == sends

        await until(sent)

    async def wakes(self, victim: WorkerProcess) -> str:
        """Let a frozen victim go on until its activity has said its last word, which is returned."""
        before = victim.said().count(" answers ")
        victim.wake()

        async def answered() -> bool:
            assert victim.process.returncode is None, victim.said()
            return victim.said().count(" answers ") > before

        await until(answered)
        return [line for line in victim.said().splitlines() if " answers " in line][before]

    async def one(self, tool: str = "reserve_stock") -> OperationView | None:
        """The tool's one operation; None if the ledger has none."""
        found = [view for view in await in_ledger(self.desk) if view.tool == tool]
        assert len(found) < 2
        return found[0] if found else None

    async def requests(self, name: str) -> int:
        """How many requests of this kind the service has received."""
        return int((await self.desk.requests())[name])

    async def times_woken(self, handle: Handle) -> int:
        """How often a task was told that an operation has changed."""
        signals = [
            event.workflow_execution_signaled_event_attributes.signal_name
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
        ]
        return signals.count(TASK_WAKE)

    async def until_quiet(self, *handles: Handle) -> None:
        """Wait until these workflows, each after the one before it, have done all that there is to do for now."""
        for handle in handles:

            async def quiet(handle: Handle = handle) -> bool:
                stands = (await handle.describe()).raw_description
                return not stands.pending_activities and not stands.HasField("pending_workflow_task")

            await until(quiet)

    async def assert_nothing_is_left(self) -> None:
        """No resource is held, nobody stands in line or waits, and no question is open."""
        async with self.desk.parts.stores.database.read() as connection:
            for table in (schema.holds, schema.queue):
                assert list(await connection.execute(select(table))) == [], table.name
        for operation in await in_ledger(self.desk):
            assert operation.state.settled, operation
            assert await self.desk.parts.stores.ledger.waiters(operation.key) == []
            await closes(await self.desk.settlement(operation))


async def closes(settlement: Handle) -> None:
    """Wait until a settlement has ended, if there is one. It is asked to look: nothing else is left to wait for."""
    try:
        await settlement.signal(SETTLEMENT_LOOK)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return  # there is none, or it has ended

    async def closed() -> bool:
        return (await settlement.describe()).status is WorkflowExecutionStatus.COMPLETED

    await until(closed)


@asynccontextmanager
async def open_stage(
    client: Client, folder: Path, bench: Bench, activity: str, *, changes: dict[str, Any] | None = None, **which: Any
) -> AsyncIterator[Stage]:
    """A stage.

    Args:
        client: of the Temporal server.
        folder: where its databases go.
        bench: where worker processes come from.
        activity: what is left to the victim.
        changes: to what the stock tools state of their service.
        which: of those activities, as a `Detour` has it.
    """
    detour = Detour(queue=f"victims-{uuid4().hex[:8]}", activity=activity, **which)
    registry = tools(SECONDS, LANDS_WITHIN, **(changes or {}))
    # Who waits is woken, or the test takes too long: nobody asks again by himself before.
    patient: dict[str, Any] = {"recheck_seconds": 60.0, "lookup_most_seconds": 0.2}
    profiles = {"stock-clerk": ACTOR}
    async with open_desk(
        client, folder, registry=registry, profiles=profiles, interceptors=[detour], **patient
    ) as desk:
        await desk.parts.provider.warm_up()  # the first one imports the SDK: not while the test's time runs
        stage = Stage(desk, Crew(desk, bench), detour)
        try:
            yield stage
        finally:
            await stage.end()
