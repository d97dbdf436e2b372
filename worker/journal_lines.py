"""What a row of an operation's journal says, in one line for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from settled.activities.journal import Row
from settled.worker.printing import moment

HEADERS = ("row", "time", "gen", "permit", "event", "state", "task", "what it says")


def cells(row: Row) -> Sequence[str]:
    """The row, in the columns of the head."""
    numbers = (str(row.generation), str(row.permit))
    return (str(row.seq), moment(row.at), *numbers, row.event, row.state, row.task or "-", says(row.body) or "-")


def says(body: Mapping[str, Any]) -> str:
    """The row's body as text. A field that this release doesn't know is shown as it is."""
    lines = [WORDS[name](body) if name in WORDS else f"{name} {_json(body[name])}" for name in _in_order(body)]
    return "; ".join(line for line in lines if line)


def _in_order(body: Mapping[str, Any]) -> list[str]:
    return [*(name for name in WORDS if name in body), *(name for name in body if name not in WORDS)]


def _subject(body: Mapping[str, Any]) -> str:
    subject = body["subject"]
    said = f"arguments {subject.get('shown') or '-'}; for {subject.get('principal')} of {subject.get('tenant')}"
    if subject.get("undoes_key"):
        said += f"; takes back operation {subject['undoes_key'][:12]}, generation {subject['undoes_generation']}"
    return said


def _failure(body: Mapping[str, Any]) -> str:
    failure = body["failure"]
    return f"{failure.get('kind')} ({failure.get('phase')}): {failure.get('text')}"


def _unseen(body: Mapping[str, Any]) -> str:
    return f"an attempt that this ledger has lost may have been out until {moment(body['unseen']['deadline'])}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "alarm": lambda body: f"ALARM: {body['alarm']}",
    "who": lambda body: f"{body['who']} says: {body.get('because')}",
    "because": lambda body: "" if "who" in body else str(body["because"]),
    "subject": _subject,
    "deadline": lambda body: f"may send until {moment(body['deadline'])}",
    "unseen": _unseen,
    "note": lambda body: str(body["note"]),
    "failure": _failure,
    "sent": lambda body: "" if body["sent"] else "nothing left the worker",
    "records": lambda body: f"found {_json(body['records'])}",
    "found": lambda body: f"found {_json(body['found'])}",
    "until": lambda body: "" if body["until"] is None else f"the permit is good until {moment(body['until'])}",
    "proven": lambda body: "no earlier attempt can land any more" if body["proven"] else "",
    "by": lambda body: f"taken back by operation {str(body['by'])[:12]}, generation {body.get('generation_of_by')}",
    "generation_of_by": lambda body: "",
    "result": lambda body: f"result {str(body['result'])[:12]}",
    "update": lambda body: "",
}
"""How each field of a body reads, in the order in which they are told; empty: not at all."""
