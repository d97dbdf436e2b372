"""The state of the loop: all of it, in one value, so that a cut run (continue-as-new) ends like an uncut one."""

from __future__ import annotations

from typing import Any

from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.operation import LedgerView
from settled.workflows.contract.task import Opened
from settled.workflows.contract.turn import End, Proposal, Repeats, Usage
from settled.workflows.contract.values import Digest, Value


class Counters(Value):
    """The loop's counters."""

    turns: int = 0
    """Turns that were run: one more each time a response's calls are all answered."""
    requests: int = 0
    """Model requests: one more for each response or final failure."""
    attempts: int = 0
    """Attempts of model requests."""
    calls: int = 0
    """Calls that the model proposed."""
    server_calls: int = 0
    """Calls that the provider ran itself."""


class Pending(Value):
    """The calls of the last response, and their results so far; the next model request takes them."""

    calls: tuple[Proposal, ...] = ()
    """Every call of the response, in its order."""
    batches: tuple[tuple[int, ...], ...] = ()
    """Slots, in the order in which they may run."""
    results: tuple[CallResult, ...] = ()
    """The results that are there, in the order of the calls."""
    handed_over: tuple[int, ...] = ()
    """Slots of writes that were dispatched, and whose outcome is being found out."""
    processed: bool = False
    """Whether the turn is over: each call has its result."""

    def open_calls(self) -> tuple[Proposal, ...]:
        """The calls that have no result yet."""
        answered = {result.slot for result in self.results}
        return tuple(call for call in self.calls if call.slot not in answered)


class LoopState(Value):
    """All that the loop knows. Messages and results are in the store; here are their digests."""

    carried: int = 1
    """The form of this value; tells it from a task request in the input of a continued run."""
    opened_at: float
    """When the task began, in seconds since 1970."""
    opened: Opened
    """What `open_task` recorded."""
    head: Digest
    """The last node of the transcript."""
    pending: Pending = Pending()
    """The calls of the last response."""
    repeats: Repeats = Repeats()
    """How many times the model was asked again since the last turn was run."""
    max_tokens: int | None = None
    """The token limit of the next response, where it is not the profile's."""
    context_tokens: int = 0
    """Tokens of the last model request and its response: how much the model has in front of it."""
    context_full: bool = False
    """Whether the conversation is to be summed up before the next request."""
    model: str = ""
    """The model that answered last."""
    counters: Counters = Counters()
    """The counters."""
    usage: Usage = Usage()
    """What all model requests cost."""
    cut_short: str = ""
    """The activity that made the last model request, where it was cut short."""
    ledger: LedgerView = LedgerView()
    """The task's operations, as of the last activity."""
    last_text: str = ""
    """The beginning of the model's last text. A claim, not evidence."""
    ending: End | None = None
    """The end that was decided, once it was; operations may still have to be settled before."""
    extended_by: tuple[str, ...] = ()
    """The ids of the last updates that extended the budget: Temporal knows only those of a task's current run."""
    stream: dict[str, Any] | None = None
    """What the run before this one has kept of the task's stream, as Temporal's library has it."""


class Ending(Value):
    """What `close_task` is asked."""

    end: End
    """Why the loop ended."""
    state: LoopState
    """Where the loop stood."""
