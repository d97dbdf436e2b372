"""What is wrong with a task request beyond its form: agents, tools and limits that this worker doesn't have. Pure.

Every fault is named at once, so the readable fields of a request are judged, too, when others can't be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from settled.activities.agents import AgentProfile
from settled.workflows.contract.task import Budget, TaskRequest


def readable_part(inputs: Sequence[Any]) -> TaskRequest | None:
    """The fields of a refused request that can be read by themselves; None where there is no request at all."""
    given = inputs[0] if len(inputs) == 1 else None
    if not isinstance(given, dict):
        return None
    fields = {name: given[name] for name in TaskRequest.model_fields if name in given and name != "budget"}
    parts = [{name: value} for name, value in fields.items()]
    if isinstance(given.get("budget"), dict):
        parts += [{"budget": {name: given["budget"][name]}} for name in Budget.model_fields if name in given["budget"]]
    read: dict[str, Any] = {"goal": "unread"}
    for part in filter(_can_be_read, parts):
        within = read.get("budget", {}) | part["budget"] if "budget" in part else {}
        read |= {"budget": within} if within else part
    return TaskRequest.model_validate_json(json.dumps(read), strict=True)


def _can_be_read(part: dict[str, Any]) -> bool:
    try:
        TaskRequest.model_validate_json(json.dumps({"goal": "unread"} | part, allow_nan=False), strict=True)
    except ValueError:  # pydantic's own is one, too
        return False
    return True


def faults_of_agent(request: TaskRequest, agent: str | None, profiles: Mapping[str, AgentProfile]) -> list[str]:
    """What the agent doesn't allow, a line each; where there is no such agent, what no agent allows.

    Args:
        request: the request, as far as it can be read.
        agent: the agent that is meant; None if that can't be read.
        profiles: the agents of this worker.
    """
    profile = profiles.get(agent) if agent is not None else None
    if profile is None:
        known = ", ".join(sorted(profiles))
        unknown = [] if agent is None else [f"agent: there is no agent {agent!r}; this worker has {known}"]
        return [*unknown, *_allowed_by_none(request, list(profiles.values()))]
    has = ", ".join(profile.tools) or "none"
    return [
        f"tools: agent {agent!r} has no tool {name!r}; it has {has}"
        for name in request.tools or ()
        if name not in profile.tools
    ] + faults_of_budget(request.budget, profile)


def _allowed_by_none(request: TaskRequest, profiles: Sequence[AgentProfile]) -> list[str]:
    if not profiles:
        return []
    tools = {name for profile in profiles for name in profile.tools}
    faults = [f"tools: no agent has a tool {name!r}" for name in request.tools or () if name not in tools]
    for name in Budget.model_fields:
        asked, limits = getattr(request.budget, name), [getattr(profile.limits, name) for profile in profiles]
        most = None if None in limits else max(limits)
        if asked is not None and most is not None and asked > most:
            faults.append(f"budget.{name}: {asked} is above every agent's limit; the highest is {most}")
    return faults


def faults_of_budget(budget: Budget, profile: AgentProfile) -> list[str]:
    """What the budget asks for above the agent's limits, a line each."""
    faults = []
    for name in Budget.model_fields:
        asked, most = getattr(budget, name), getattr(profile.limits, name)
        if asked is not None and most is not None and asked > most:
            faults.append(f"budget.{name}: {asked} is above the agent's limit of {most}")
    return faults
