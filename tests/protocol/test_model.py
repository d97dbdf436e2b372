"""The protocol's rules hold in every interleaving; and each rule is needed: without it, there is a way to a fault."""

import re
from collections.abc import Callable

import pytest

from settled.workflows.contract.operation import OperationState
from settled.workflows.states import TRANSITIONS
from tests.protocol.model.broken import BROKEN
from tests.protocol.model.configurations import WORLDS
from tests.protocol.model.model import Model, walk
from tests.protocol.model.people import Peopled
from tests.protocol.model.restore import Restored
from tests.protocol.model.rules import Rules
from tests.protocol.model.undo import Undoing
from tests.protocol.model.world import A_WHILE, ALWAYS, ALWAYS_LATE, NEVER, NEVER_LATE, NO_LOOKUP

S = OperationState


LONG = {
    *(f"one operation: {name}" for name in (A_WHILE, ALWAYS)),
    *(f"restored: {name}" for name in (NEVER, ALWAYS_LATE)),
    f"people: {A_WHILE}",
    *(name for name in WORLDS if name.startswith("undo: ")),
}
"""The worlds that there are most of."""


@pytest.mark.parametrize("worlds", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in WORLDS])
def test_every_interleaving_holds(worlds: str, record_property: Callable[[str, object], None]) -> None:
    """One effect per generation at most, no lie in a settled state, no generation too early, no endless question."""
    result = WORLDS[worlds]()
    record_property("worlds", result)
    assert re.fullmatch(r"holds \(\d+ worlds\)", result)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_leads_to_a_fault(rule: str) -> None:
    before = {state: dict(row) for state, row in TRANSITIONS.items()}
    fault, _, way = BROKEN[rule].walk().partition(": ")
    assert fault == BROKEN[rule].leads_to
    assert way
    assert before == TRANSITIONS, "the table is as it ships again"


def test_the_worlds_reach_every_state_in_both_generations() -> None:
    """A model in which nothing happens would hold, too."""
    model = Model(ALWAYS_LATE, Rules())
    assert walk(model).startswith("holds")
    assert model.reached == {(generation, state) for generation in (1, 2) for state in S} - {
        (generation, state) for generation in (1, 2) for state in (S.NONE, S.UNDONE)
    }


def test_the_worlds_of_an_undo_reach_an_undone_generation_and_the_one_after_it() -> None:
    model = Undoing(NEVER_LATE, NEVER, Rules())
    assert walk(model).startswith("holds")
    assert (1, S.UNDONE) in model.target.reached
    assert {state for generation, state in model.target.reached if generation == 2} >= {S.DISPATCHED, S.COMPLETED}
    assert {(1, S.COMPLETED), (1, S.REJECTED), (1, S.NOT_EXECUTED), (1, S.RESENDABLE)} <= model.undo.reached


def test_people_are_heard_in_both_generations_and_contradicted() -> None:
    model = Peopled(NO_LOOKUP, Rules())
    assert walk(model).startswith("holds")
    assert {(g, state) for g in (1, 2) for state in (S.NEEDS_HUMAN, S.COMPLETED, S.NOT_EXECUTED)} <= model.reached


def test_a_restored_ledger_sends_again_where_that_is_safe() -> None:
    """It would be easy to hold what never sends."""
    model = Restored(NEVER, Rules(), 2)

    def resent() -> set[int]:
        known = [operation for operation in model.operations if operation is not None]
        return {each.generation for each in known if each.state is S.DISPATCHED and each.permit > 1_000}

    assert walk(model, until=lambda: resent() == {1, 2}) == "reached"
