"""`open_task`: can the request be run? Every fault is named at once; what will hold for the task is frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.common import RawValue

from settled.activities.acceptance import faults_of_criteria
from settled.activities.agents import MOST_FAULTS, AgentProfile, lines_of
from settled.activities.artifacts import clean
from settled.activities.canonical import canonical, digest_of
from settled.activities.outputs import READ_OUTPUT
from settled.activities.prices import Prices, no_price
from settled.activities.registry import Registry
from settled.activities.request_faults import faults_of_agent, readable_part
from settled.activities.roots import root_of
from settled.activities.stores import Stores, TaskRecord
from settled.activities.transcript import Role, make_node
from settled.workflows.contract.names import OPEN_TASK, settlement_id
from settled.workflows.contract.task import Budget, Conduct, Limits, Opened, TaskRequest

MOST_TITLE = 80
MOST_TASK_ID = 255
MOST_LINE = 500
"""Characters of a fault."""
SHAPE = 'a JSON object like {"goal": "…"}, or a JSON string with the goal'


@dataclass(frozen=True)
class OpeningActivities:
    """The activity, and what it works with."""

    stores: Stores
    registry: Registry
    profiles: Mapping[str, AgentProfile]
    default_agent: str
    conduct: Conduct
    prices: Prices

    @activity.defn(name=OPEN_TASK)
    async def open_task(self, *inputs: Any) -> Opened:
        """Validate the workflow's inputs and open the task, or say what is wrong with them."""
        request, faults = parse(inputs)
        if len(faults) > MOST_FAULTS:
            return Opened(faults=tuple(clean(fault)[:MOST_LINE] for fault in faults))  # that is cut already
        readable = request or readable_part(inputs)
        if readable is not None:
            faults += self._faults_of(readable, self._agent_of(readable, inputs))
        if faults or request is None:
            return refused(faults)
        agent = request.agent or self.default_agent
        profile = self.profiles[agent]
        tools = request.tools if request.tools is not None else profile.tools
        acceptance = request.acceptance if request.acceptance is not None else profile.acceptance
        return await self._open(request, agent, profile, tools, acceptance)

    def _agent_of(self, request: TaskRequest, inputs: Sequence[Any]) -> str | None:
        """The agent that is meant; None if what is said of it can't be read."""
        said = inputs[0].get("agent") if isinstance(inputs[0], dict) else None
        return None if said is not None and request.agent is None else request.agent or self.default_agent

    def _faults_of(self, request: TaskRequest, agent: str | None) -> list[str]:
        """What is wrong with a request, as far as it can be read, on this worker and under this task id."""
        faults = faults_of_agent(request, agent, self.profiles)
        task = str(activity.info().workflow_id)
        if len(task) > MOST_TASK_ID:
            faults.append(
                f"task id: longer than {MOST_TASK_ID} characters, which the ledger can't keep; give a shorter one"
            )
        if task.startswith(settlement_id("")):
            faults.append(f"task id: {settlement_id('')}… are the ids of settlements; give it another one")
        profile = self.profiles.get(agent or "")
        acceptance = request.acceptance
        if acceptance is None and profile is not None:
            acceptance = profile.acceptance
        if request.budget.cost is not None and profile is not None and (models := self.prices.unpriced(profile)):
            faults.append(f"budget.{no_price(models)}")
        return faults + faults_of_criteria(acceptance or (), self.registry)

    async def _open(
        self, request: TaskRequest, agent: str, profile: AgentProfile, tools: Sequence[str], acceptance: Any
    ) -> Opened:
        task = str(activity.info().workflow_id)
        record = TaskRecord(
            task=task,
            request_digest=digest_of(canonical(request.model_dump(mode="json", exclude_none=True))),
            request=request.model_dump(mode="json"),
            agent=agent,
            tenant=request.tenant,
            principal=request.principal,
            root_task=task,
            tools=_offered(tools, self.registry),
            acceptance=tuple(acceptance),
        )
        standing = await self.stores.tasks.open(record)
        if standing.request_digest != record.request_digest:
            return Opened(
                faults=(
                    f"task id {task!r}: it was already used for another request; "
                    "start this one under a new id, or repeat the first one unchanged",
                )
            )
        # Those that it was opened with first: admission goes by the record, and the model must be told the same.
        frozen = [name for name in standing.tools if name in self.registry.tools]
        root = root_of(profile, self.registry, frozen, self.prices.for_task(profile)).node()
        goal = make_node(root, Role.USER, [{"type": "text", "text": request.goal}])
        await self.stores.transcripts.add(root, goal)
        await self.stores.tasks.stands_at(task, goal.digest)
        return Opened(
            head=goal.digest,
            limits=_limits(request.budget, profile.limits.resolved()),
            conduct=self.conduct.model_copy(
                update={
                    "on_needs_human": profile.on_needs_human,
                    "on_exhausted": profile.on_exhausted,
                    "stream": profile.stream,
                }
            ),
            agent=agent,
            title=clean(" ".join(request.goal.split())[:MOST_TITLE]),
        )


def _offered(tools: Sequence[str], registry: Registry) -> tuple[str, ...]:
    """The tools of a task: any of them may answer at length, so the one that pages through outputs comes with them."""
    pages = bool(tools) and READ_OUTPUT not in tools and READ_OUTPUT in registry.tools
    return (*tools, READ_OUTPUT) if pages else tuple(tools)


def parse(inputs: Sequence[Any]) -> tuple[TaskRequest | None, list[str]]:
    """The workflow's inputs as a request, or the faults that they have."""
    if len(inputs) != 1:
        count = "no input" if not inputs else f"{len(inputs)} inputs"
        return None, [f"input: expected one, {SHAPE}; got {count}"]
    given = inputs[0]
    if isinstance(given, RawValue):
        encoding = " ".join(given.payload.metadata.get("encoding", b"none").decode(errors="replace").split())[:40]
        return None, [f"input: expected {SHAPE}; got something that can't be read as JSON (encoding {encoding})"]
    if isinstance(given, str):
        given = {"goal": given}
    if not isinstance(given, dict):
        kind = "null" if given is None else type(given).__name__
        return None, [f"input: expected {SHAPE}; got a JSON {kind}"]
    try:
        return TaskRequest.model_validate_json(json.dumps(given, allow_nan=False), strict=True), []
    except ValidationError as error:
        return None, lines_of(error, of=TaskRequest)
    except ValueError as error:
        return None, [f"input: holds a number that JSON doesn't have: {error}"]


def refused(faults: Sequence[str]) -> Opened:
    """The answer to a request with faults; what is too much to read is cut."""
    shown = [clean(fault)[:MOST_LINE] for fault in faults[:MOST_FAULTS]]
    if len(faults) > MOST_FAULTS:
        shown.append(f"and {len(faults) - MOST_FAULTS} more")
    return Opened(faults=tuple(shown))


def _limits(budget: Budget, most: Limits) -> Limits:
    return most.model_copy(update=budget.model_dump(exclude_none=True))
