"""Every error of ours, as one tree.

    SettledError
    ├── ProtocolError            a rule of the operation protocol would be broken; nothing was changed
    │   ├── IllegalTransition      the state table has no such arrow
    │   ├── JournalConflict        somebody else wrote the journal's next row first: read again
    │   ├── OutdatedWorker         a newer release makes this tool's keys in another way: leave it to its workers
    │   └── TaskLost               the ledger doesn't know the task, or its conversation: it was restored
    ├── TranscriptError          the transcript would not be valid; nothing was sent
    ├── ConfigurationError       the worker can't start like this: names the setting or the tool, and the mend
    └── ToolError                what is said about a call that was given to a tool
        ├── InvalidCall            the tool, as this worker has it, can't take the call; it was not run
        ├── Rejected               the business declined; the call had no effect
        │   └── NotFound             what the call names doesn't exist
        ├── NotSent                no byte of the request left this process
        ├── RateLimited            the service refused before executing, and says when to come back
        └── Unclear                everything else: it may have happened

A tool raises `Rejected`, `NotFound`, `NotSent` or `RateLimited`; whatever else comes out of it is made an `Unclear` by
`settled.activities.tool_errors.translate`, the one place that knows foreign errors.
"""

from __future__ import annotations


class SettledError(Exception):
    """The root: catches everything of ours and nothing else."""


class ProtocolError(SettledError):
    """A rule of the operation protocol would be broken."""


class IllegalTransition(ProtocolError):
    """The state table has no arrow for this event in this state."""


class JournalConflict(ProtocolError):
    """Another writer appended the journal's next row first."""


class OutdatedWorker(ProtocolError):
    """A newer release makes the tool's keys in another way: its workers have to send this."""


class TaskLost(ProtocolError):
    """The ledger doesn't know the task, or its conversation, though the task is open: it was restored."""


class TranscriptError(SettledError):
    """The transcript would not be valid: a call without its result, or a result without its call."""


class ConfigurationError(SettledError):
    """The worker can't start like this. The text is one line that names the setting or the tool, and the mend."""


class ToolError(SettledError):
    """What is said about a call that was given to a tool."""


class InvalidCall(ToolError):
    """The tool, as this worker has it, can't take the call; it was not run."""


class Rejected(ToolError):
    """The service declined: the call had no effect, and repeating it as it is would be declined again."""


class NotFound(Rejected):
    """What the call names doesn't exist."""


class NotSent(ToolError):
    """No byte of the request left this process, so nothing can have happened."""


class RateLimited(ToolError):
    """The service refused before executing.

    Args:
        message: what the service said.
        after: seconds after which it may be asked again.
    """

    def __init__(self, message: str, after: float) -> None:
        super().__init__(message)
        self.after = after


class Unclear(ToolError):
    """The attempt did not end in an answer: it may have happened."""
