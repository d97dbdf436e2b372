"""The same work without Settled: a plain workflow and a plain activity, with Temporal's defaults.

The activity is retried without a limit, and sends the idempotency key that Temporal's documentation advises: the run id
and the activity id. So a service that dedupes has one effect for each activity of each run.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import aiohttp
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

NAIVE_TASK = "NaiveTask"
RESERVE = "reserve"
MARGIN_SECONDS = 3.0
"""On top of the request's own time: the same as the product's dispatch has in the storm."""
NO = (404, 409, 422)
"""The service's refusals of a request; all else is worth a retry."""


@workflow.defn(name=NAIVE_TASK)
class NaiveTask:
    """Runs the goal's turns, one after the other; what stands in one turn runs together."""

    @workflow.run
    async def run(self, turns: list[list[dict[str, Any]]], seconds: float) -> dict[str, list[list[Any]]]:
        """Returns what was done and what wasn't, in the words of the storm's model."""
        heard: dict[tuple[Any, ...], str] = {}
        for turn in turns:
            answers = await asyncio.gather(*(self._reserve(action, seconds) for action in turn))
            for action, answer in zip(turn, answers, strict=True):
                name = (action["order"], action["sku"], action["line"])
                if heard.get(name) != "":
                    heard[name] = answer
        done = [list(name) for name, no in heard.items() if not no]
        return {"done": done, "told": [[*name, no] for name, no in heard.items() if no]}

    async def _reserve(self, action: dict[str, Any], seconds: float) -> str:
        answer: str = await workflow.execute_activity(
            RESERVE, action, result_type=str, start_to_close_timeout=timedelta(seconds=seconds + MARGIN_SECONDS)
        )
        return answer


class Reserving:
    """The activity, and what it works with."""

    def __init__(self, service: str, seconds: float) -> None:
        self._service = service
        self._seconds = seconds

    @activity.defn(name=RESERVE)
    async def reserve(self, action: dict[str, Any]) -> str:
        """Reserve; the service's "no", or nothing if it was done.

        Raises:
            ClientError, ValueError, TimeoutError: Temporal tries again.
        """
        info = activity.info()
        headers = {"Idempotency-Key": f"{info.workflow_run_id}-{info.activity_id}"}
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{self._service}/reservations", json=action, headers=headers) as response,
        ):
            said = await response.json()
            if response.status in NO:
                return str(said["error"])
            response.raise_for_status()
            return "" if said["order"] == action["order"] else "another order"


def naive_worker(client: Client, task_queue: str, service: str, seconds: float) -> Worker:
    """A worker that serves the plain workflow."""
    reserving = Reserving(service, seconds)
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[NaiveTask],
        activities=[reserving.reserve],
        graceful_shutdown_timeout=timedelta(seconds=5),
    )
