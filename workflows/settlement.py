"""The workflow that finds out what became of an operation, for as long as that takes. It never sends.

It outlives the task: cancel, termination and continue-as-new of a task need no special care. All it knows stands in the
ledger, so a new run starts where the old one ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    # As in `agent_task`, and for the same reasons.
    import settled.workflows.asks as asks  # noqa: PLR0402  # see there
    import settled.workflows.reporting as reporting  # noqa: PLR0402  # see there
    from settled.workflows.contract import names
    from settled.workflows.contract.operation import (
        OperationView,
        Question,
        Resolution,
        Resolve,
        SettlementStep,
    )
    from settled.workflows.words import faults_of, word_in

MOST_PAUSE_SECONDS = 30 * 86_400.0
"""No step is due later; a wait that a timer can't hold would hang the settlement."""


@workflow.defn(name=names.SETTLEMENT)
class Settlement:
    """Settles one operation."""

    @workflow.init
    def __init__(self, *inputs: Any) -> None:
        self.inputs = inputs
        self.looks = 0
        self.last: SettlementStep | None = None

    @workflow.run
    async def run(self, *inputs: Any) -> SettlementStep:
        """Take steps until nothing is left to find out, and nobody asked since.

        Args:
            inputs: one `Question`, as JSON; whatever else somebody sends fails the workflow instead of hanging it.
        """
        question = asked(inputs)
        while True:
            seen = self.looks
            self.last = step = await asks.settle(question)
            workflow.set_current_details(reporting.settlement_details(step))
            quiet = workflow.all_handlers_finished()
            if step.settled and self.looks == seen and quiet:
                return step
            if workflow.info().is_continue_as_new_suggested() and quiet:
                workflow.continue_as_new(question)
            # Never at once: a step that changes nothing must not spin.
            await self.pause(seen, min(max(step.after, 0.01), MOST_PAUSE_SECONDS))

    async def pause(self, seen: int, seconds: float) -> None:
        """Wait until somebody asks to look, or the time is over."""
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: self.looks > seen, timeout=seconds)

    @workflow.signal(name=names.SETTLEMENT_LOOK, description="Look now.")
    def look(self) -> None:
        """Take the next step now."""
        self.looks += 1

    @workflow.update(
        name=names.SETTLEMENT_RESOLVE,
        description='A person says what became of it: {"outcome": …, "because": …, "who": …}.',
    )
    async def resolve(self, *words: Any) -> OperationView | None:
        """Take a person's word on an operation that needs one; who, when and why stands in its journal.

        Raises:
            ApplicationError: the word changes nothing, and why.
        """
        update = workflow.current_update_info()
        assert update is not None, "this is one"
        asked_for = Resolve(key=asked(self.inputs).key, resolution=resolution(words), update=update.id)
        answer = await asks.resolve(asked_for)
        self.looks += 1
        if answer.refused:
            raise ApplicationError(answer.refused, type=names.NOT_RESOLVED, non_retryable=True)
        return answer.view

    @resolve.validator
    def _must_be_a_word(self, *words: Any) -> None:
        if faults := faults_of(words):
            raise not_a_word(faults)

    @workflow.query(name="status", description="What the last step found, and what is waited for.")
    def status(self) -> SettlementStep | None:
        """The last step."""
        return self.last


def asked(inputs: tuple[Any, ...]) -> Question:
    """The operation that a settlement is about.

    Raises:
        ApplicationError: the input names none.
    """
    try:
        return Question.model_validate(inputs[0] if len(inputs) == 1 else None)
    except ValidationError:
        message = 'input: expected one, {"key": …} with an operation key; settlements are started by the executor'
        raise ApplicationError(message, type=names.INVALID_TASK, non_retryable=True) from None


def resolution(words: tuple[Any, ...]) -> Resolution:
    """A person's word, read from history.

    Raises:
        ApplicationError: it is none.
    """
    if (word := word_in(words)) is None:
        raise not_a_word(faults_of(words) or ["input: this release doesn't know such a word"])
    return word


def not_a_word(faults: Sequence[str]) -> ApplicationError:
    """The refusal of what a person said."""
    return ApplicationError("; ".join(faults), type=names.NOT_RESOLVED, non_retryable=True)
