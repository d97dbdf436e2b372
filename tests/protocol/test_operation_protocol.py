"""The protocol's rules hold in every interleaving; and each rule is needed: without it, there is a way to a fault."""

import re
from collections.abc import Callable

import pytest

from settled.workflows.contract.operation import OperationState
from settled.workflows.states import TRANSITIONS
from tests.protocol.operation_protocol import BROKEN, KINDS, Kind, Model, Rules, check

LEADS_TO = {
    "no permit": "closed without an effect, with an effect",
    "a decline settles all": "closed without an effect, with an effect",
    "old is as good as answered": "closed without an effect, with an effect",
    "withdrawn means not executed": "closed without an effect, with an effect",
    "absent permits a resend": "two effects",
    "absent means not executed": "closed without an effect, with an effect",
    "a closed generation's permit still claims": "the next generation is open while an attempt of this one may land",
    "a missed dispatch keeps its permit": "two effects",
    "the next generation opens while unknown": "the next generation is open while an attempt of this one may land",
    "a permit outlives the key": "two effects",
    "the window counts sends, not landings": "two effects",
    "a lookup speaks for the time of its answer": "closed without an effect, with an effect",
    "a row is written though the journal has moved": "closed without an effect, with an effect",
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_interleaving_holds(kind: Kind, record_property: Callable[[str, object], None]) -> None:
    """One effect per generation at most, no lie in a settled state, no generation too early, no endless question."""
    result = check(kind)
    record_property("worlds", result)
    assert re.fullmatch(r"holds \(\d+ worlds\)", result)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_leads_to_a_fault(rule: str) -> None:
    before = {state: dict(row) for state, row in TRANSITIONS.items()}
    kind, rules = BROKEN[rule]
    fault, _, way = check(kind, rules).partition(": ")
    assert fault == LEADS_TO[rule]
    assert "claim 1." in way
    assert before == TRANSITIONS, "the table is as it ships again"


def test_the_worlds_reach_every_state_in_both_generations() -> None:
    """A model in which nothing happens would hold, too."""
    model = Model(Kind("always", bounded=False), Rules())
    assert model.check().startswith("holds")
    assert model.reached == {
        (generation, state) for generation in (1, 2) for state in OperationState if state is not OperationState.NONE
    }
