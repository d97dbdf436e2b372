"""One turn: what `request_model` is asked, the calls that the model proposed, and what the loop is to do next."""

from __future__ import annotations

from decimal import Decimal
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


class Again(OpenEnum):
    """Why the model is asked once more, without a turn having been run."""

    PAUSED = "paused"
    """The provider paused its turn: the transcript goes back as it stands."""
    TRUNCATED = "truncated"
    """The response was cut at its token limit: the same request, with a higher one."""
    MALFORMED = "malformed"
    """The response said that it calls a tool, and called none: the same request."""
    EMPTY = "empty"
    """The response was empty: the model is told so."""
    FALLBACK = "fallback"
    """The model refused, or is overloaded: the next one of the profile's chain, in a conversation of its own."""
    LOWERED = "lowered"
    """The model allows no such token limit, or its context has no room for it: the same request, with a lower one."""
    COMPACTED = "compacted"
    """The conversation was summed up, and goes on in a new one."""


class Resend(Value):
    """Ask the model again, from the head that comes with it."""

    do: Literal["resend"] = "resend"
    """The command's name."""
    why: Again = Again.PAUSED
    """What it is for; each reason is bounded by itself."""
    max_tokens: int | None = None
    """The token limit of the next response, where it is not the profile's."""


class Compact(Value):
    """Have the conversation summed up before anything else is asked: it doesn't fit the model's context."""

    do: Literal["compact"] = "compact"
    """The command's name."""


class End(Value):
    """Go to acceptance and end."""

    do: Literal["end"] = "end"
    """The command's name."""
    reason: EndReason = EndReason.COMPLETED
    """Why the loop ended."""
    detail: str = ""
    """One line that explains it, for people."""


Next = Annotated[RunBatches | Resend | Compact | End, Field(discriminator="do")]
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
    cost: Decimal = Decimal(0)
    """US dollars, by the worker's price table; without the requests that it has no price for."""
    unpriced: int = 0
    """Requests whose model has no price in the table, or whose response doesn't say its tokens or was lost on the way;
    they cost more."""

    def plus(self, other: Usage) -> Usage:
        """The sum of both."""
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})

    @property
    def read_tokens(self) -> int:
        """Tokens read, the cached ones too."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


class Repeats(Value):
    """How many times the model was asked again since the last turn was run, by reason."""

    paused: int = 0
    """After a pause of the provider's."""
    truncated: int = 0
    """After a response that was cut off."""
    malformed: int = 0
    """After a response that said that it calls, and didn't."""
    empty: int = 0
    """After an empty response."""
    fallback: int = 0
    """By another model."""
    lowered: int = 0
    """After a token limit was refused."""
    compacted: int = 0
    """After the conversation was summed up."""

    def plus(self, why: Again) -> Repeats:
        """One more, for this reason; a reason of a newer release is counted by nobody."""
        if why not in Repeats.model_fields:
            return self
        return self.model_copy(update={why: getattr(self, why) + 1})


class Ask(Value):
    """What `request_model` is asked: the transcript so far, and the results that belong to its last message."""

    head: Digest
    """The last node of the transcript."""
    results: tuple[CallResult, ...] = ()
    """One result for each call of the last assistant message."""
    repeats: Repeats = Repeats()
    """How many times in a row the model was asked again."""
    max_tokens: int | None = None
    """The token limit of the response, where it is not the profile's."""
    compact: bool = False
    """Whether the conversation is to be summed up instead of going on."""
    requests_left: int | None = None
    """Requests that the task's limit leaves for a summary; none: they are not counted for it."""
    stream: bool = False
    """Whether the text is to be published while it is written."""
    cut_short: str = ""
    """The activity that was asked last, where it was cut short: it may have bought the response to the same request."""


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
    requests: int = 1
    """Requests that it took: those for a summary that were too long count, too."""
    model: str = ""
    """The model that was asked."""
    server_calls: int = 0
    """Calls in the response that the provider ran itself."""
    taken_over: bool = False
    """Whether the response is one that the activity had bought that was cut short: that request is counted already."""
    context_full: bool = False
    """Whether the conversation is to be summed up before the next request."""
    preview: str = ""
    """The beginning of the model's text, for people who watch."""
    ledger: LedgerView = LedgerView()
    """The task's operations as the ledger has them."""
