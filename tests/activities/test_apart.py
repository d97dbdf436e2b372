"""What is large is worked on in a thread, what is small at once; no result is lost to who is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from settled.activities import presenting
from settled.activities.apart import ITEM, LARGE, apart, is_large
from settled.activities.attempt import Ended, Person, Terms, send
from settled.activities.presenting import answered, answered_apart
from settled.activities.steady import steady
from settled.activities.toolkit import Answer, Arguments, Call, Scope, transaction
from settled.workflows.states import Event

LARGE_TEXT = "x" * LARGE


@pytest.mark.parametrize(
    ("given", "large"),
    [
        ("", False),
        ("x" * (LARGE - ITEM - 1), False),
        (LARGE_TEXT, True),
        (LARGE_TEXT.encode(), True),
        ([1] * (LARGE // ITEM), True),
        ([[1] * 100] * (LARGE // ITEM // 100), True),
        ({"deep": [{"name": "x" * 1_000}] * 100}, False),
        ({"deep": [{"name": "x" * 1_000}] * 300}, True),
        ({LARGE_TEXT: 1}, True),
        (dict.fromkeys(map(str, range(LARGE // ITEM))), True),
        (None, False),
        (object(), False),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_large_is_known_by_its_characters_and_its_items(given: Any, large: bool) -> None:
    assert is_large(given) == large


async def test_large_work_runs_in_a_thread_and_small_work_here() -> None:
    here = threading.get_ident()
    assert await apart(threading.get_ident, "small") == here
    assert await apart(threading.get_ident, LARGE_TEXT) != here


async def test_what_the_work_raises_is_raised() -> None:
    def fails() -> None:
        raise LookupError("no such line")

    for given in ("small", LARGE_TEXT):
        with pytest.raises(LookupError, match="no such line"):
            await apart(fails, given)


async def test_who_is_cancelled_gets_the_result_and_is_cancelled_where_it_awaits_next() -> None:
    begun, go, got = threading.Event(), threading.Event(), list[str]()

    def work() -> str:
        begun.set()
        assert go.wait(60)
        return "done"

    async def asks() -> None:
        got.append(await apart(work, LARGE_TEXT))
        await asyncio.sleep(0)
        got.append("went on")

    asking = asyncio.create_task(asks())
    await asyncio.to_thread(begun.wait, 60)
    for _ in range(2):
        asking.cancel()
        await asyncio.sleep(0.01)
    assert got == []
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert got == ["done"]


@pytest.mark.parametrize(
    "data", ["small", LARGE_TEXT, [1] * LARGE, ["\ud83d", float("nan")] * LARGE, object(), b"\xff"]
)
async def test_an_answer_has_the_same_form_wherever_it_is_made(data: Any) -> None:
    answer = Answer(data=data, source="bank", version="v1")
    assert await answered_apart(answer) == answered(answer)


class Asked(Arguments):
    name: str


@transaction(key=("name",), scope=Scope.TASK)
async def write_much(asked: Asked, call: Call) -> Answer:
    """Write, and answer at length. Writes."""
    return Answer(data=LARGE_TEXT, source="bank")


async def test_a_write_that_is_cancelled_while_its_long_answer_is_encoded_has_succeeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was done: nothing but that may reach the journal."""
    begun, go, stored, got = threading.Event(), threading.Event(), presenting._stored, list[Ended]()

    def slowly(answer: Answer, data: Any) -> dict[str, Any]:
        begun.set()
        assert go.wait(60)
        return stored(answer, data)

    async def sends() -> None:
        person, terms = Person(tenant="t", principal="p"), Terms(deadline=steady() + 60)
        got.append(await send(write_much, Asked(name="n"), person, terms))

    monkeypatch.setattr(presenting, "_stored", slowly)
    sending = asyncio.create_task(sends())
    await asyncio.to_thread(begun.wait, 60)
    sending.cancel()
    await asyncio.sleep(0.01)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert got == [Ended(event=Event.SUCCEEDED, answer={"source": "bank", "data": LARGE_TEXT})]
