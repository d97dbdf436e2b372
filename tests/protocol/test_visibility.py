"""A business scope is shared: what another principal of the tenant is told of an action, and what not."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from settled.activities.admission import Admitted, Grants, Refusal, conflict_text, may_see, propose
from settled.activities.intents import Meant
from settled.activities.journal import Operation
from settled.activities.keys import Realm
from settled.activities.standing import stand
from settled.activities.toolkit import Answer, Arguments, Call, Scope, ShownTo, Tool, WriteTool, read, write
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.contract.operation import OperationState, Standing
from settled.workflows.states import Event
from tests.protocol.stories import KEY, told
from tests.protocol.test_standing import DECLINE, ordered, shown

S, E = OperationState, Event
ARGUMENTS = '{"sku": "A1", "price": "secret"}'


class Reserve(Arguments):
    sku: str


async def reserve(asked: Reserve, call: Call) -> Answer:
    """Reserve stock."""
    raise NotImplementedError


OWN: WriteTool = write(
    key=("sku",), scope=Scope.BUSINESS, lookup=None, dedupes=None, lands_within=timedelta(seconds=1)
)(reserve)
SHARED = replace(OWN, shown_to=ShownTo.TENANT)


def anns(state: OperationState) -> Operation:
    """What was done in ann's name."""
    operation = told(state).now
    return replace(operation, subject=replace(operation.subject, shown=ARGUMENTS))


def declined() -> Operation:
    story = told(S.DISPATCHED)
    story.report(1.0, E.DECLINED, failure=DECLINE)
    return story.now


# --- Who may see ---


@pytest.mark.parametrize(
    ("tool", "principal", "sees"),
    [
        (OWN, "ann", True),
        (OWN, "ben", False),
        (OWN, "", False),
        (SHARED, "ben", True),
        (read()(reserve), "ben", False),
        (None, "ben", False),
        (None, "ann", True),
    ],
    ids=["own", "another's", "nobody's", "of the tenant", "no write", "no tool", "own, and no tool"],
)
def test_who_may_see_what_an_action_came_to(tool: Tool | None, principal: str, sees: bool) -> None:
    """Only in whose name it was done, unless its tool says that all of the tenant may."""
    assert may_see(tool, anns(S.COMPLETED), principal) is sees


# --- The result ---


@pytest.mark.parametrize("state", [S.COMPLETED, S.UNDONE])
def test_another_principal_is_told_that_it_was_done_and_not_what_it_came_to(state: OperationState) -> None:
    stands = stand(anns(state), ordered(), repeated=True, seen=False)
    assert (stands.standing, stands.error) == (Standing.SETTLED, None)
    text = stands.text({"source": "stock service", "data": {"id": "secret"}})
    assert "secret" not in text
    assert "stock service" not in text
    told_to_model = json.loads(text)
    assert told_to_model["status"] == "completed"
    assert "in another principal's name" in told_to_model["note"]
    assert ("undone" in told_to_model) is (state is S.UNDONE)


def test_who_may_see_it_is_shown_the_stored_result() -> None:
    text = stand(anns(S.COMPLETED), ordered(), repeated=True).text({"data": {"id": "secret"}})
    assert json.loads(text)["data"] == {"id": "secret"}


# --- The service's words, and a person's ---


def test_another_principal_is_told_that_it_was_declined_and_not_in_which_words() -> None:
    stands = stand(declined(), ordered(), seen=False)
    assert (stands.standing, stands.error) == (Standing.SETTLED, ErrorKind.NOT_EXECUTED)
    assert DECLINE["text"] not in stands.text({})
    assert shown(stands) == {"status": "not_executed", "message": "The service declined; nothing happened."}
    assert DECLINE["text"] in stand(declined(), ordered()).text({})


def test_another_principal_is_not_told_what_a_person_has_found_out() -> None:
    story = told(S.NEEDS_HUMAN)
    story.resolve(3.0, E.RESOLVED_NOT_EXECUTED, who="carl", because="ann's account is empty")
    text = stand(story.operation, ordered(), seen=False).text({})
    assert "carl" not in text
    assert "account" not in text
    assert json.loads(text)["message"] == "It did not happen and will not."


# --- The arguments ---


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("state", [S.UNKNOWN, S.COMPLETED])
def test_another_principal_whose_request_differs_is_not_shown_the_one_that_stands(
    state: OperationState, generation: int
) -> None:
    order = ordered(generation=generation, fingerprint="f2")
    assert "secret" not in stand(anns(state), order, seen=False).text({})
    assert "secret" in stand(anns(state), order).text({})


def test_what_is_said_of_a_conflict_is_that_there_is_one_and_how_it_stands() -> None:
    text = conflict_text(anns(S.UNKNOWN), seen=False)
    assert "already exists with other arguments, and is unknown" in text
    assert "may not be shown" in text


@pytest.mark.parametrize(
    ("tool", "principal", "sees"), [(OWN, "ann", True), (OWN, "ben", False), (SHARED, "ben", True)]
)
def test_admission_shows_the_request_that_stands_only_to_those_who_may_see_it(
    tool: WriteTool, principal: str, sees: bool
) -> None:
    realm = Realm(namespace="default", tenant="acme", root_task="task-b")
    grants = Grants(tools={"reserve": tool}, principal=principal, realm=realm)
    admitted = Admitted(slot=0, call_id="toolu_1", tool=tool, arguments=Reserve(sku="A1"))
    refusal = propose(admitted, grants, Meant(key=KEY, operation=anns(S.COMPLETED), generation=1))
    assert isinstance(refusal, Refusal)
    assert ("secret" in refusal.text) is sees
