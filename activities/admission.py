"""Admission: from a response's calls to proposals. Whatever may change with a deploy is judged here, and recorded.

Checks run in this order: registered name, shape, types, permission, and (where the tool runs) existence. A call that
fails one is answered at once and never dispatched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from settled.activities import protocol
from settled.activities.agents import lines_of
from settled.activities.calls import ProposedCall
from settled.activities.canonical import digest_of
from settled.activities.intents import Meant
from settled.activities.journal import Operation
from settled.activities.keys import Realm, fingerprint
from settled.activities.registry import effect_of
from settled.activities.toolkit import ShownTo, Tool, WriteTool
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import Intent
from settled.workflows.contract.turn import Proposal

MOST_RESOURCE = 256
MOST_TOGETHER = 50
"""Calls that run together at the most; the server has a limit of its own for a run's open activities."""
MOST_ID = 80
"""Characters of a call's id or name that are told in history; calls are told apart by slot."""


@dataclass(frozen=True, kw_only=True)
class Grants:
    """What a task may do, and in whose name."""

    tools: Mapping[str, Tool]
    """The tools of this task, by name."""
    principal: str
    realm: Realm
    """Where its operations' keys are made."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A call that is answered instead of run."""

    slot: int
    call_id: str
    tool: str
    kind: ErrorKind
    text: str
    """What the model is told: what is wrong, and the mend."""


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """A call that may run, before the ledger was asked."""

    slot: int
    call_id: str
    tool: Tool
    arguments: BaseModel


def admit(call: ProposedCall, grants: Grants) -> Admitted | Refusal:
    """Check one call against the task's tools."""
    name = call.name if isinstance(call.name, str) else repr(call.name)

    def refuse(kind: ErrorKind, text: str) -> Refusal:
        return Refusal(slot=call.slot, call_id=call.call_id, tool=name, kind=kind, text=text)

    tool = grants.tools.get(name)
    if tool is None:
        known = ", ".join(sorted(grants.tools)) or "none"
        return refuse(ErrorKind.UNKNOWN_TOOL, f"There is no tool {name!r}. The tools of this task: {known}.")
    try:
        arguments = validate(tool, call.input)
        if isinstance(tool, WriteTool):
            fingerprint(arguments)  # what has none can be neither told apart nor found again
        return Admitted(slot=call.slot, call_id=call.call_id, tool=tool, arguments=arguments)
    except ValueError as error:
        return refuse(ErrorKind.INVALID_ARGUMENTS, f"{name} was not run. {error}")


def validate(tool: Tool, given: Any) -> BaseModel:
    """The call's input as the tool's arguments, without any coercion.

    Raises:
        ValueError: it doesn't fit; the text has a line for each fault.
    """
    assert tool.arguments is not None, "the registry refuses a tool without an input model"
    if not isinstance(given, dict):
        raise ValueError(f"The input must be a JSON object, not a {type(given).__name__}.")
    try:
        # By way of JSON, so that a time or a decimal may be given as text while a number may not.
        return tool.arguments.model_validate_json(json.dumps(given, allow_nan=False), strict=True)
    except ValidationError as error:
        raise ValueError("Correct the input: " + "; ".join(lines_of(error)) + ".") from None


def intent_of(admitted: Admitted, tool: WriteTool, grants: Grants, meant: Meant) -> Intent:
    """The business action that the call means."""
    return Intent(
        key=meant.key,
        generation=meant.generation,
        fingerprint=fingerprint(admitted.arguments),
        resources=resources_of(tool, admitted.arguments, grants.realm.tenant),
        undoes=meant.undoes,
        expected=meant.expected,
    )


def resources_of(tool: Tool, arguments: BaseModel, tenant: str) -> tuple[str, ...]:
    """What the call touches, by tenant: two tenants' equal names are different things."""
    names: Iterable[str] = tool.resources(arguments) if tool.resources else ()
    return tuple(sorted({_resource(tenant, str(name)) for name in names}))


def _resource(tenant: str, name: str) -> str:
    """A resource's name, told apart by tenant; a long one by its digest."""
    full = f"{len(tenant)}:{tenant}/{name}"
    return full if len(full) <= MOST_RESOURCE else digest_of(full)


def propose(admitted: Admitted, grants: Grants, meant: Meant | None) -> Proposal | Refusal:
    """The proposal for an admitted call, with the ledger's answer about what it means.

    Args:
        admitted: the call.
        grants: of the task.
        meant: which operation a write means; None for a read.
    """
    tool = admitted.tool
    intent = None
    if isinstance(tool, WriteTool):
        assert meant is not None, "a write means an operation"
        intent = intent_of(admitted, tool, grants, meant)
        operation = meant.operation
        if operation is not None and protocol.conflicts(operation, intent.generation, intent.fingerprint):
            return Refusal(
                slot=admitted.slot,
                call_id=admitted.call_id,
                tool=tool.name,
                kind=ErrorKind.NOT_EXECUTED,
                text=conflict_text(operation, seen=may_see(tool, operation, grants.principal)),
            )
    return Proposal(
        slot=admitted.slot,
        call_id=admitted.call_id[:MOST_ID],
        tool=tool.name,
        effect=effect_of(tool),
        seconds=tool.seconds,
        intent=intent,
    )


def may_see(tool: Tool | None, operation: Operation, principal: str) -> bool:
    """Whether the principal may see the operation's arguments and result, which may be another one's."""
    shared = isinstance(tool, WriteTool) and tool.shown_to is ShownTo.TENANT
    return shared or operation.subject.principal == principal


def conflict_text(operation: Operation, *, seen: bool = True) -> str:
    """What the model is told when another request stands under the same key."""
    shown = operation.subject.shown if seen else "of another principal, which may not be shown"
    return (
        f"Not sent: this business action already exists with other arguments, and is {operation.state}: "
        f"{shown or 'not shown'}. "
        "A different request for it is only possible after that one is declined, withdrawn or undone."
    )


def batches(proposals: Sequence[Proposal], admitted: Mapping[int, Admitted]) -> tuple[tuple[int, ...], ...]:
    """Which calls may run together, in the order in which they were proposed.

    Reads run together. A write waits for the earlier calls, and runs beside other writes only where both say what they
    touch and share nothing. A write that says nothing of its resources runs alone.
    """
    made: list[list[int]] = []
    touched: set[str] | None = None  # by the last batch, if it is one of writes that can take another one
    reading = False
    for proposal in proposals:
        if proposal.answer is not None:
            continue
        if proposal.intent is None:
            if reading and len(made[-1]) < MOST_TOGETHER:
                made[-1].append(proposal.slot)
            else:
                made.append([proposal.slot])
            reading, touched = True, None
            continue
        declares = admitted[proposal.slot].tool.resources is not None
        needs = {proposal.intent.key, *proposal.intent.resources}
        needs |= {proposal.intent.undoes.key} if proposal.intent.undoes else set()
        room = bool(made) and len(made[-1]) < MOST_TOGETHER
        if room and touched is not None and declares and not needs & touched:
            made[-1].append(proposal.slot)
            touched |= needs
        else:
            made.append([proposal.slot])
            touched = needs if declares else None
        reading = False
    return tuple(tuple(batch) for batch in made)
