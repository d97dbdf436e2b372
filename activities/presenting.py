"""What the model is told of a call's outcome: short JSON, the same fields in the same places."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from settled.activities.apart import apart
from settled.activities.artifacts import clean
from settled.activities.journal import Operation
from settled.activities.layout import laid_out_json
from settled.activities.outputs import MOST_SHOWN, Shown, laid_out, shortened
from settled.activities.tool_errors import Failure
from settled.activities.toolkit import Answer
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import OperationState

SMALL = 1_000
"""Characters of a result that is shown as JSON whatever it holds; longer text is shown as it is, line by line."""
MOST_NAMED = 500
"""Characters of a source or a version."""
MOST_STORED = 8 * 1024 * 1024
"""Bytes of a result that are stored at all."""
ALWAYS_STORABLE = frozenset({int, bool, type(None)})


def answered(answer: Answer) -> dict[str, Any]:
    """A tool's answer in its JSON form.

    A result that can't be put into JSON, or is too large to be stored, is still the result of a call that succeeded:
    its place is taken by a note.
    """
    # A tool may hand back anything; whatever its conversion raises, the call itself has succeeded.
    try:
        return _stored(answer, to_jsonable_python(answer.data))
    except Exception as error:
        return _without_form(answer, error)


async def answered_apart(answer: Answer) -> dict[str, Any]:
    """The same; in a thread, where it is large."""
    try:
        # Not in the thread: what a tool hands back may be bound to this one, or be changed by the tool meanwhile.
        data = to_jsonable_python(answer.data)
        return await apart(lambda: _stored(answer, data), data)
    except Exception as error:
        return _without_form(answer, error)


def _stored(answer: Answer, data: Any) -> dict[str, Any]:
    data = _storable(data)
    size = len(json.dumps(data, ensure_ascii=False).encode())
    if size > MOST_STORED:
        note = f"the call succeeded, but its result of {size} bytes is too large"
        return _named(answer) | {"data": None, "note": note}
    return _named(answer) | {"data": data}


def _without_form(answer: Answer, error: Exception) -> dict[str, Any]:
    note = f"the call succeeded, but its result has no JSON form ({type(error).__name__}: {error})"
    return _named(answer) | {"data": None, "note": clean(note[:500])}


def _named(answer: Answer) -> dict[str, Any]:
    version = {"version": clean(answer.version)} if answer.version else {}
    return {"source": clean(answer.source), **version}


def _storable(value: Any) -> Any:
    """The JSON value without what can't be stored or sent: lone surrogates, and numbers that JSON doesn't have."""
    match value:
        case str():
            return clean(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {clean(name): _storable(item) for name, item in value.items()}
        case list() if ALWAYS_STORABLE.issuperset(map(type, value)):
            return value
        case list():
            return [_storable(item) for item in value]
        case _:
            return value


def completed_text(body: Mapping[str, Any], *, repeated: bool = False, undone: bool = False) -> str:
    """A completed write, or a read, as the model sees it."""
    return completed(body, repeated=repeated, undone=undone).text


def completed(body: Mapping[str, Any], *, repeated: bool = False, undone: bool = False, pages: bool = True) -> Shown:
    """A completed write, or a read: in JSON where that is short enough, else as text below a line of JSON.

    Args:
        body: as `answered` made it.
        repeated: whether it had been done before, and was not done again.
        undone: whether it has been undone since.
        pages: whether the model can page through what is left out.
    """
    named = {name: shortened(body[name], MOST_NAMED) for name in ("source", "version") if name in body}
    shown = {"status": "completed", **body, **named}
    if undone:
        shown["undone"] = "it was done, and has been undone since"
    if repeated:
        shown["repeated"] = (
            "this action had already been done; it was not executed again, and this is its stored result"
        )
    data, text = body.get("data"), _json(shown)
    as_lines = isinstance(data, str) and "\n" in data and len(text) > SMALL
    if len(text) <= MOST_SHOWN and not as_lines:
        return Shown(text=text)
    head = _json({name: value for name, value in shown.items() if name != "data"})
    return laid_out(head, data if isinstance(data, str) else clean(laid_out_json(data)), pages=pages)


def failure_text(failure: Failure, *, status: str) -> str:
    """A call that did not succeed, and what to do about it."""
    shown: dict[str, Any] = {"status": status, "error": failure.kind, "message": failure.text}
    if failure.after is not None:
        shown["retry_after_seconds"] = failure.after
    return _cut(shown)


ADVICE = {
    OperationState.NONE: "It was not sent.",
    OperationState.DISPATCHED: "It was sent, and its answer is awaited. Do not try it again by other means.",
    OperationState.UNKNOWN: "It may have happened. It is being looked up. Do not try it again by other means.",
    OperationState.RESENDABLE: "It has not happened so far, and may be sent again. Do not try it by other means.",
    OperationState.NEEDS_HUMAN: "It may have happened, and a person has to find out. Do not try it by other means.",
    OperationState.NOT_EXECUTED: "It did not happen and will not.",
    OperationState.REJECTED: "The service declined; nothing happened.",
    OperationState.COMPLETED: "It was done.",
    OperationState.UNDONE: "It was done, and has been undone since.",
}
LEFT = "Not sent by this task. Another task has proposed the same action, and it may still be done for that one."


def standing_text(operation: Operation | None) -> tuple[ErrorKind, str]:
    """The truth about a write that has no result to show, from the ledger."""
    state = operation.state if operation else OperationState.NONE
    kind = ErrorKind.NOT_EXECUTED if operation is None or state.closed else ErrorKind.UNKNOWN_RESULT
    return kind, _cut(
        {
            "status": "not_executed" if kind is ErrorKind.NOT_EXECUTED else str(state),
            "message": ADVICE.get(state, ADVICE[OperationState.UNKNOWN]),
        }
    )


def _json(value: Any) -> str:
    return clean(json.dumps(value, ensure_ascii=False, default=str))


def _cut(shown: Mapping[str, Any]) -> str:
    """The JSON text of what we say ourselves, cut in the middle where somebody's words in it are too long."""
    return clean(shortened(_json(shown), MOST_SHOWN))
