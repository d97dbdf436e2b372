"""A task while it runs: all of it that changes, which the parts of the loop share, and what is shown of it."""

from __future__ import annotations

from temporalio import workflow

from settled.workflows import budgets, loop, reporting
from settled.workflows.contract.ending import Status
from settled.workflows.contract.loop import LoopState
from settled.workflows.contract.result import StatusReport, TaskResult
from settled.workflows.contract.turn import End
from settled.workflows.streaming import TaskStream

NO_CALL = -1
"""Stands for a slot where the task itself waits, and none of its calls."""


class LiveTask:
    """One task, in one run of its workflow. Only the state goes on to the next run.

    Args:
        carried: the state that the run before this one handed over; none in the first run.
    """

    def __init__(self, carried: LoopState | None) -> None:
        self.state: LoopState | None = None
        """All that the loop knows; none before the task is open."""
        self.waiting: dict[int, str] = {}
        """What the calls that wait are waiting for, by slot."""
        self.handed_over: set[int] = set()
        """The slots of writes whose outcome is being found out."""
        self.wakes = 0
        """How many times somebody said that an operation has changed."""
        self.heard = 0
        """How many of these there were before the ledger was last asked about all that is open."""
        self.reviews = 0
        """How many times it was asked how the leftovers stand."""
        self.shown: Status | None = None
        """The status that lists show."""
        self.closing = False
        """Whether the end is decided, so that nothing can be added any more."""
        self.ended: TaskResult | None = None
        """What the task came to, once it has ended."""
        self.stream: TaskStream | None = None
        """The task's stream, if it has one."""
        if carried is not None:
            self.begin(carried)  # here, since a reader of the run before may be the first to call

    def begin(self, state: LoopState) -> None:
        """Take the state to begin with, and make the task's stream, if it is to have one."""
        self.state = state
        if state.opened.conduct.stream:
            self.stream = TaskStream(state.stream)
            self.state = state.model_copy(update={"stream": None})  # carried on at the next cut, and nowhere else

    def handed_on(self) -> LoopState:
        """The state that the next run begins with."""
        return self.current if self.stream is None else self.current.model_copy(update={"stream": self.stream.kept()})

    @property
    def current(self) -> LoopState:
        """The state, once the task is open."""
        assert self.state is not None, "the task is open"
        return self.state

    def seconds_left(self) -> float:
        """Seconds until the task's deadline; zero or less once it has passed."""
        return loop.seconds_left(self.current, workflow.now().timestamp())

    def exhausted(self) -> tuple[budgets.Reached, ...]:
        """The limits that stand in the way of the next step."""
        return loop.exhausted(self.current, workflow.now().timestamp())

    def decided_end(self) -> End | None:
        """The end that the state itself demands."""
        return loop.decided_end(self.current, workflow.now().timestamp())

    def must_stop(self) -> bool:
        """Whether calls are to be left open: the checkpoint will say why."""
        ending = self.current.ending is not None and not loop.must_settle_first(self.current)
        late = self.seconds_left() <= 0
        return ending or late or workflow.cancellation_reason() is not None or self.wants_cut()

    def wants_cut(self) -> bool:
        """Whether the history is long enough for a new run."""
        info = workflow.info()
        return info.is_continue_as_new_suggested() or info.get_current_history_length() >= loop.cut_at(self.current)

    @property
    def stands(self) -> Status:
        """The status as it is now: a task for which nothing is named that it waits for is at work."""
        if self.shown is None or (self.shown is Status.WAITING and not self.waiting):
            return Status.RUNNING
        return self.shown

    def waits_no_more(self, slot: int) -> None:
        """Take note that the slot's call has what it waited for. Lists follow with the next step: it costs an event."""
        self.waiting.pop(slot, None)
        self._tell(self.stands)

    def show(self, status: Status) -> None:
        """Show the status where lists and the web page show it. Only a change costs an event."""
        self._tell(status)
        if status is not self.shown:
            self.shown = status
            workflow.upsert_memo(reporting.memo(status, self.state, self.ended))

    def _tell(self, status: Status) -> None:
        """Tell the web page, which costs no event."""
        if self.state is not None:
            workflow.set_current_details(reporting.details(self.report(status), self.state.opened, self.ended))

    def report(self, status: Status) -> StatusReport:
        """The task as it stands."""
        return reporting.report(self.state, status, tuple(self.waiting.values()), self.ended)
