"""What others hand to a task: the state of the run before, more budget; and how a request is refused that is no use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from settled.workflows import extending
from settled.workflows.contract import names
from settled.workflows.contract.loop import LoopState


def carried(inputs: tuple[Any, ...]) -> LoopState | None:
    """The state that the run before this one handed over; None in a task's first run."""
    continued = workflow.info().continued_run_id is not None
    if continued and len(inputs) == 1 and isinstance(inputs[0], dict) and "carried" in inputs[0]:
        with suppress(ValidationError):  # a cron's second run has its own input, whatever that looks like
            return LoopState.model_validate(inputs[0])
    return None


def extended(state: LoopState | None, words: tuple[Any, ...], *, closing: bool) -> LoopState | None:
    """The state with more added to its budget; none before the task is open. The same update again adds nothing.

    Raises:
        ApplicationError: nothing can be added, and why.
    """
    update = workflow.current_update_info()
    if state is not None and update is not None and update.id in state.extended_by:
        return state
    try:
        given = extending.extension(words)
        if closing:
            raise extending.BadExtension("the task is ending; nothing can be added to its budget any more")
        if state is None:
            return None
        more = extending.extended(state, given, workflow.now().timestamp())
    except extending.BadExtension as error:
        raise ApplicationError(str(error), type=names.NOT_EXTENDED, non_retryable=True) from None
    return more if update is None else extending.noted(more, update.id)


def invalid(faults: Sequence[str]) -> ApplicationError:
    """The failure of a task whose request can't be run."""
    return ApplicationError("\n".join(faults), list(faults), type=names.INVALID_TASK, non_retryable=True)
