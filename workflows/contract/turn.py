"""One turn: what `request_model` is asked, the calls that the model proposed, and what the loop is to do next."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from settled.workflows.contract.calls import CallResult
from settled.workflows.contract.ending import EndReason
from settled.workflows.contract.operation import Intent, LedgerView
from settled.workflows.contract.values import Digest, OpenEnum, Value


class Effect(OpenEnum):
    """What running a tool does to the world."""

    READ = "read"
    WRITE = "write"


class Proposal(Value):
    """A call that the model proposed, as admission judged it."""

    slot: int
    """The call's place in its response, from 0."""
    call_id: str
    """The model's id of the call, as received; never a part of a key."""
    tool: str
    """The name of the tool, as proposed."""
    effect: Effect | None = None
    """What running it does; none if it is not to be run."""
    seconds: float = 30.0
    """The time budget of one attempt."""
    intent: Intent | None = None
    """For a write: the business action that it means."""
    answer: CallResult | None = None
    """The result, where admission already answered the call; it is not run then."""


class Read(Value):
    """What `run_read` is told."""

    head: Digest
    """The assistant message that holds the call."""
    slot: int
    """The call's place in it."""
    tool: str
    """The tool's name."""
    seconds: float
    """The time budget of one attempt."""
    attempts: int
    """Attempts in all; the last one answers instead of failing."""


class RunBatches(Value):
    """Run the calls, batch after batch; the calls of one batch run together."""

    do: Literal["run_batches"] = "run_batches"
    """The command's name."""
    calls: tuple[Proposal, ...] = ()
    """Every call of the response, in its order."""
    batches: tuple[tuple[int, ...], ...] = ()
    """Slots, in the order in which they may run."""


class Resend(Value):
    """Send the transcript again as it stands (the provider paused its turn)."""

    do: Literal["resend"] = "resend"
    """The command's name."""


class End(Value):
    """Go to acceptance and end."""

    do: Literal["end"] = "end"
    """The command's name."""
    reason: EndReason = EndReason.COMPLETED
    """Why the loop ended."""
    detail: str = ""
    """One line that explains it, for people."""


Next = Annotated[RunBatches | Resend | End, Field(discriminator="do")]
"""The closed set of commands that the loop interprets. A command from a newer release stops the task until a worker
that knows it comes back: it fails the workflow task, not the workflow."""


class Usage(Value):
    """Tokens as the provider counted them."""

    input_tokens: int = 0
    """Tokens read, without the cached ones."""
    output_tokens: int = 0
    """Tokens written."""
    cache_read_tokens: int = 0
    """Tokens read from the provider's prompt cache."""
    cache_write_tokens: int = 0
    """Tokens written to the provider's prompt cache."""

    def plus(self, other: Usage) -> Usage:
        """The sum of both."""
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class Ask(Value):
    """What `request_model` is asked: the transcript so far, and the results that belong to its last message."""

    head: Digest
    """The last node of the transcript."""
    results: tuple[CallResult, ...] = ()
    """One result for each call of the last assistant message."""
    resends: int = 0
    """How many times in a row the transcript was sent again as it stood."""


class Turn(Value):
    """What `request_model` did and decided; the messages themselves are in the transcript."""

    head: Digest
    """The node of the assistant message."""
    next: Next
    """What the loop is to do."""
    usage: Usage = Usage()
    """What the request cost."""
    request_id: str = ""
    """The provider's id of the request."""
    attempts: int = 1
    """Attempts that it took."""
    preview: str = ""
    """The beginning of the model's text, for people who watch."""
    ledger: LedgerView = LedgerView()
    """The task's operations as the ledger has them."""
