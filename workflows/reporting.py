"""What people see of a task: status report, memo, the web page's details, and the line it ends with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from temporalio.common import RawValue
from temporalio.converter import PayloadConverter

from settled.workflows.contract.ending import Status
from settled.workflows.contract.loop import Counters, LoopState
from settled.workflows.contract.operation import (
    LedgerView,
    OperationState,
    OperationView,
    Outcome,
    SettlementStep,
    Standing,
)
from settled.workflows.contract.result import StatusReport, TaskResult
from settled.workflows.contract.task import Opened
from settled.workflows.contract.turn import Proposal, Usage

MOST_INPUT = 1_000_000
"""Bytes of input that are passed on: a larger activity input would hang the task instead of failing it."""
MOST_IN_MEMO = 10
LEAST_SHOWN = Decimal("0.0001")
"""US dollars: less isn't told apart."""


def fault_of_size(inputs: Sequence[Any], converter: PayloadConverter) -> str | None:
    """The fault of an input that is too large to be looked at."""
    size = sum(len(value.payload.data) for value in inputs if isinstance(value, RawValue))
    rest = [value for value in inputs if not isinstance(value, RawValue)]
    size += sum(len(payload.data) for payload in converter.to_payloads(rest))
    if size <= MOST_INPUT:
        return None
    return f"input: {size:,} bytes; at most {MOST_INPUT:,} are taken, so put large material where a tool can read it"


def waits_for(call: Proposal, outcome: Outcome) -> str:
    """What a write waits for, in one line."""
    key = call.intent.key[:12] if call.intent else ""
    if outcome.blocked_by:
        return f"{call.tool}: waits until operation {outcome.blocked_by[:12]} lets go of what both touch"
    match outcome.standing:
        case Standing.PERSON:
            return f"{call.tool}: operation {key} may have happened; a person has to find out"
        case Standing.SEND:
            return f"{call.tool}: operation {key} is about to be sent"
        case _:
            return f"{call.tool}: operation {key} may have happened; it is being looked up"


def waits_for_leftovers(state: LoopState) -> str:
    """What a task waits for whose model is done."""
    keys = ", ".join(f"{operation.tool} {operation.key[:12]}" for operation in state.ledger.unsettled)
    return f"the outcome of {keys}"


def report(state: LoopState | None, status: Status, waiting: Sequence[str], ended: TaskResult | None) -> StatusReport:
    """The answer to the query `status`."""
    if state is None:
        return StatusReport(status=status, turn=1, counters=Counters())
    return StatusReport(
        status=status,
        turn=max(1, state.counters.turns + (0 if ended else 1)),
        counters=state.counters,
        usage=state.usage,
        spent=spent(state.counters, state.usage),
        limits=state.opened.limits,
        waits_for=tuple(waiting) if ended is None else (),
        ledger=LedgerView(tally=ended.tally) if ended else state.ledger,
        last_text=state.last_text,
        model=state.model,
        context_tokens=state.context_tokens,
        end_reason=ended.end_reason if ended else None,
    )


def operations(state: LoopState | None, ended: TaskResult | None) -> tuple[OperationView, ...]:
    """The answer to the query `operations`."""
    if ended is not None:
        return ended.operations
    return state.ledger.unsettled if state is not None else ()


def memo(status: Status, state: LoopState | None, ended: TaskResult | None) -> Mapping[str, Any]:
    """What lists show, and what remains of a cancelled task, which has no result in Temporal."""
    shown: dict[str, Any] = {"status": str(status)}
    if state is not None:
        shown |= {"agent": state.opened.agent, "goal": state.opened.title}
    if ended is not None:
        shown["end_reason"] = str(ended.end_reason)
        shown["operations"] = [
            f"{operation.tool} {operation.key[:12]} {operation.state}" for operation in ended.operations[:MOST_IN_MEMO]
        ]
        if len(ended.operations) > MOST_IN_MEMO:
            shown["operations"].append(f"and {len(ended.operations) - MOST_IN_MEMO} more")
    return shown


def details(shown: StatusReport, opened: Opened, ended: TaskResult | None) -> str:
    """The task in Markdown, for the web page."""
    counters = shown.counters
    status = f"**{shown.status}** ({ended.end_reason})" if ended else f"**{shown.status}**"
    listed = ended.operations[:MOST_IN_MEMO] if ended else shown.ledger.unsettled
    lines = [
        f"{opened.agent}: {opened.title}",
        "",
        f"{status} · turn {shown.turn} · calls: {counters.calls}",
        shown.spent,
        *(f"- waits for {line}" for line in shown.waits_for),
        *(f"- {operation.tool} `{operation.key[:12]}`: {operation.state}" for operation in listed),
    ]
    if shown.last_text:
        lines += ["", "> " + shown.last_text.replace("\n", "\n> ")]
    return "\n".join(lines)


def spent(counters: Counters, usage: Usage) -> str:
    """What the model requests came to, in one line."""
    requests = counted(counters.requests, "request")
    if counters.attempts > counters.requests:
        requests += f" in {counted(counters.attempts, 'attempt')}"
    share = f" ({100 * usage.cache_read_tokens // usage.read_tokens} % cached)" if usage.read_tokens else ""
    tokens = f"{usage.read_tokens:,} tokens read{share}, {usage.output_tokens:,} written"
    return f"{requests} · {tokens} · {_cost(usage)}"


def counted(number: int, what: str) -> str:
    """A number of things."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _cost(usage: Usage) -> str:
    unknown = f"cost unknown for {counted(usage.unpriced, 'request')}"
    if usage.unpriced and not usage.cost:
        return unknown
    shown = usage.cost.quantize(LEAST_SHOWN, ROUND_HALF_UP)
    known = f"${shown:,}" if shown or not usage.cost else f"less than ${LEAST_SHOWN}"
    return f"{known}, {unknown}" if usage.unpriced else known


def headline(result: TaskResult) -> str:
    """How the task ended, in one line."""
    detail = f": {result.detail}" if result.detail else ""
    return f"{result.status} ({result.end_reason}){detail}"


def settlement_details(step: SettlementStep) -> str:
    """A settlement in Markdown, for the web page."""
    if step.view is None:
        return step.note
    state = f"**{step.view.state}** · {step.view.tool} `{step.view.key[:12]}` · {step.view.sends} sent"
    if step.settled:
        return f"{state}\n\n{step.note}"
    if step.view.state is OperationState.NEEDS_HUMAN:
        return f"{state}\n\n{step.note}; waits for a person"
    return f"{state}\n\n{step.note}; looks again in {step.after:.0f} s"
