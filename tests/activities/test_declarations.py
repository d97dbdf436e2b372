"""What is wrong with what a write says of undoing, of earlier keys, of who sees it, and of the ledger's own store."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import Field

from settled.activities.declarations import LONGEST_TRANSACTION, faults_among, faults_of
from settled.activities.toolkit import (
    Answer,
    Arguments,
    Call,
    Handler,
    Scope,
    ShownTo,
    Supersedes,
    Tool,
    WriteTool,
    read,
    transaction,
    write,
)


class Reserve(Arguments):
    order: str
    sku: str
    quantity: int = Field(default=1, gt=0)


class Release(Arguments):
    order: str
    sku: str
    why: str = ""


class Note(Arguments):
    text: str
    order: int


async def reserve(asked: Reserve, call: Call) -> Answer:
    """Reserve stock."""
    raise NotImplementedError


async def release(asked: Release, call: Call) -> Answer:
    """Release stock."""
    raise NotImplementedError


class Weigh(Arguments):
    order: str
    grams: float


async def weigh(asked: Weigh, call: Call) -> Answer:
    """Weigh something."""
    raise NotImplementedError


async def annotate(asked: Note, call: Call) -> Answer:
    """Note something."""
    raise NotImplementedError


WORDS: dict[str, Any] = {
    "key": ("order", "sku"),
    "scope": Scope.BUSINESS,
    "lookup": None,
    "dedupes": None,
    "lands_within": timedelta(seconds=1),
}


def made(handler: Handler, **words: Any) -> WriteTool:
    return write(**WORDS | words)(handler)


RESERVE, RELEASE = made(reserve), made(release, undoes="reserve")


def among(*tools: Tool) -> list[str]:
    """The faults of the first one, beside the others."""
    return faults_among(tools[0], {tool.name: tool for tool in tools})


def test_what_is_declared_well_has_no_fault() -> None:
    for tool in (RESERVE, RELEASE, transaction(key=("order",), scope=Scope.TASK)(reserve)):
        assert (faults_of(tool), among(tool, RESERVE)) == ([], [])


# --- Undoing ---


@pytest.mark.parametrize("others", [(), (read()(reserve),)], ids=["no such tool", "a tool that reads"])
def test_only_another_tool_that_writes_can_be_undone(others: tuple[Tool, ...]) -> None:
    (fault,) = among(RELEASE, *others)
    assert "there is no other tool 'reserve' that writes" in fault


def test_no_tool_undoes_itself() -> None:
    (fault,) = among(made(reserve, undoes="reserve"))
    assert "no other tool" in fault


def test_an_undo_has_the_scope_of_what_it_undoes() -> None:
    """Else its target would be looked for in one task, and lie in another."""
    assert among(made(release, undoes="reserve", scope=Scope.TASK), RESERVE) == [
        "undoes: reserve has another scope; give both the same"
    ]


def test_what_names_the_target_must_be_an_argument_of_its_undo_of_the_same_type() -> None:
    faults = among(made(annotate, key=("text",), undoes="reserve"), RESERVE)
    assert [fault.split(";")[0] for fault in faults] == [
        "undoes: order is a key field of reserve",
        "undoes: sku is a key field of reserve",
    ]


def test_what_names_no_target_may_be_missing() -> None:
    assert among(RELEASE, made(reserve)) == [], "quantity is no key field"


def test_what_undoes_nothing_says_nothing_of_others() -> None:
    assert among(RESERVE) == []
    assert among(read()(reserve)) == []


# --- Earlier keys ---


@pytest.mark.parametrize(
    ("key", "named"), [(("order", "warehouse"), "order, warehouse"), ((), "the fields of the key")], ids=str
)
def test_the_fields_of_an_earlier_key_must_still_be_arguments(key: tuple[str, ...], named: str) -> None:
    tool = made(reserve, supersedes=(Supersedes(key=key, scope=Scope.BUSINESS),))
    assert faults_of(tool) == [f"supersedes: {named} must still be arguments, so that the old keys can be found"]


def test_the_fields_of_an_earlier_key_are_such_that_can_name_an_action() -> None:
    (fault,) = faults_of(made(weigh, key=("order",), supersedes=(Supersedes(key=("grams",), scope=Scope.TASK),)))
    assert fault.startswith("supersedes: key names 'grams', which must be text")


@pytest.mark.parametrize(
    "words",
    [
        Supersedes(key=("order",), scope=Scope.TASK),
        ("order",),
        (Supersedes(key="order", scope=Scope.TASK),),  # type: ignore[arg-type]  # as an author might write it
        (Supersedes(key=("order",), scope="task"),),  # type: ignore[arg-type]  # likewise
        (Supersedes(key=("order",), scope=Scope.TASK, types=("order",)),),  # type: ignore[arg-type]  # likewise
        (Supersedes(key=("order",), scope=Scope.TASK, undoes=5),),  # type: ignore[arg-type]  # likewise
    ],
    ids=str,
)
def test_earlier_keys_in_other_words_are_a_fault_and_not_an_error_later(words: Any) -> None:
    (fault,) = faults_of(made(reserve, supersedes=words))
    assert fault.startswith("supersedes must be a tuple")
    assert among(made(reserve, supersedes=words)) == []


@pytest.mark.parametrize(
    ("types", "faulty"), [({"order": int}, False), ({"order": Decimal}, True), ({"sku": int}, True), ({"x": int}, True)]
)
def test_an_earlier_type_is_one_that_can_be_made_of_todays(types: dict[str, type], faulty: bool) -> None:
    """Text of a number and back: what else reads alike may have another key."""
    tool = made(reserve, supersedes=(Supersedes(key=("order",), scope=Scope.TASK, types=types),))
    assert ["str then and int now" in fault for fault in faults_of(tool)] == [True] * faulty


def test_a_tool_does_not_take_the_place_of_one_that_is_still_there() -> None:
    """That one's claims would be refused from then on, whatever it does."""
    tool = made(release, supersedes=(Supersedes(key=("order",), scope=Scope.TASK, tool="reserve"),))
    assert ["is a tool of its own still" in fault for fault in among(tool, RESERVE)] == [True]
    assert among(tool) == []
    assert among(made(reserve, supersedes=(Supersedes(key=("order",), scope=Scope.TASK, tool="reserve"),))) == []


def test_an_earlier_key_may_have_any_of_the_arguments_any_scope_and_another_name() -> None:
    hold = Supersedes(key=("quantity",), scope=Scope.TASK, tool="hold")
    older = (hold, Supersedes(key=("sku",), scope=Scope.BUSINESS))
    assert faults_of(made(reserve, supersedes=older)) == []


# --- In the ledger's own database ---


@pytest.mark.parametrize(
    ("seconds", "faults"), [(LONGEST_TRANSACTION.total_seconds(), 0), (LONGEST_TRANSACTION.total_seconds() + 1, 1)]
)
def test_a_transaction_is_short_since_all_other_writers_wait_for_it(seconds: float, faults: int) -> None:
    tool = transaction(key=("order",), scope=Scope.TASK, timeout=timedelta(seconds=seconds))(reserve)
    found = faults_of(tool)
    assert len(found) == faults
    assert all("timeout must be at most 4 seconds in a transaction" in fault for fault in found)


@pytest.mark.parametrize("unsaid", ["key", "scope"])
def test_a_transaction_too_says_what_makes_it_the_same_action(unsaid: str) -> None:
    words = {"key": ("order",), "scope": Scope.TASK}
    del words[unsaid]
    (fault,) = faults_of(transaction(**words)(reserve))  # type: ignore[arg-type]  # words by name
    assert fault.startswith(f"says nothing on {unsaid}")


def test_a_transaction_promises_nothing_of_a_service_and_can_never_land_late() -> None:
    tool = transaction(key=("order",), scope=Scope.TASK)(reserve)
    assert (tool.transactional, tool.lookup, tool.dedupes, tool.lands_within) == (True, None, None, timedelta(0))
    assert not RESERVE.transactional


# --- Words of another type ---


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ({"undoes": RESERVE}, "undoes must be the name of a tool"),
        ({"undoes": ("reserve",)}, "undoes must be the name of a tool"),
        ({"shown_to": "tenant"}, "shown_to must be ShownTo.PRINCIPAL or ShownTo.TENANT"),
        ({"shown_to": None}, "shown_to must be ShownTo.PRINCIPAL or ShownTo.TENANT"),
    ],
    ids=["a tool", "a tuple", "a text", "nothing"],
)
def test_a_word_of_another_type_is_a_fault(words: dict[str, Any], fault: str) -> None:
    assert faults_of(made(release, **words)) == [fault]


@pytest.mark.parametrize("how", [made, lambda handler, **words: replace(made(handler), **words)])
def test_what_was_done_is_shown_to_nobody_else_unless_the_tool_says_so(how: Callable[..., WriteTool]) -> None:
    assert how(reserve).shown_to is ShownTo.PRINCIPAL
    assert how(reserve, shown_to=ShownTo.TENANT).shown_to is ShownTo.TENANT


def test_an_undo_of_an_undo_is_refused_at_start() -> None:
    """What it took back is simply done again, under its own tool."""
    undoing = replace(RELEASE, name="again", undoes=RELEASE.name)
    tools = {tool.name: tool for tool in (RESERVE, RELEASE, undoing)}
    assert faults_among(undoing, tools) == [
        f"undoes: {RELEASE.name} takes something back itself; what it took back is simply done again"
    ]
