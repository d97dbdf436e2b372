"""Admission: which calls may run, with which intent, and together with which others."""

import json
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from settled.activities.admission import (
    Admitted,
    Grants,
    Refusal,
    admit,
    batches,
    conflict_text,
    propose,
    resources_of,
    validate,
)
from settled.activities.calls import ProposedCall
from settled.activities.intents import Meant
from settled.activities.journal import Operation, Subject
from settled.activities.keys import Realm, fingerprint, key_forms, operation_key
from settled.activities.protocol import next_generation
from settled.activities.toolkit import Answer, Arguments, Call, Scope, Tool, WriteTool, read, write
from settled.workflows.contract.calls import CallResult, ErrorKind
from settled.workflows.contract.operation import Intent, OperationState, Target
from settled.workflows.contract.turn import Effect, Proposal

Json = dict[str, Any]


class Look(Arguments):
    sku: str
    ids: list[int] = Field(default_factory=list)
    since: AwareDatetime | None = None


class Pay(Arguments):
    order: str
    amount: Annotated[Decimal, Field(gt=0)] = Decimal(1)
    note: str = ""
    ratio: float | None = None
    tags: dict[str, Any] = Field(default_factory=dict)


class Lax(BaseModel):
    """Without `strict`: admission is strict all the same."""

    model_config = ConfigDict(extra="forbid")

    count: int


class Raw(Arguments):
    data: bytes


async def look_up(asked: Look, call: Call) -> Answer:
    """Look it up."""
    raise NotImplementedError


async def lax_read(asked: Lax, call: Call) -> Answer:
    """Look it up."""
    raise NotImplementedError


async def pay(asked: Pay, call: Call) -> Answer:
    """Pay an order."""
    raise NotImplementedError


async def upload(asked: Raw, call: Call) -> Answer:
    """Upload it."""
    raise NotImplementedError


def orders(asked: Any) -> list[str]:
    return [f"order/{asked.order}"]


WORDS: Json = {"scope": Scope.BUSINESS, "lookup": None, "dedupes": None, "lands_within": None}
LOOK = read(timeout=timedelta(seconds=7))(look_up)
PAY = write(key=("order",), **WORDS, resources=orders, timeout=timedelta(seconds=5))(pay)
PAY_QUIETLY = write(key=("order",), **WORDS)(pay)
UPLOAD = write(key=("data",), **WORDS)(upload)
LAX = read()(lax_read)


def grants(*tools: Tool, tenant: str = "acme") -> Grants:
    return Grants(
        tools={tool.name: tool for tool in tools or (LOOK, PAY, UPLOAD, LAX)},
        principal="anna",
        realm=Realm(namespace="default", tenant=tenant, root_task="order-1001"),
    )


GRANTS = grants()


def asked(name: Any, given: Any, slot: int = 0) -> ProposedCall:
    return ProposedCall(slot=slot, block=slot, call_id=f"toolu_{slot}", name=name, input=given)


def meant(checked: Admitted, tool: WriteTool, granted: Grants = GRANTS) -> Meant:
    """What the call means where the ledger is empty."""
    key = operation_key(key_forms(tool)[0], checked.arguments, granted.realm)
    return Meant(key=key, operation=None, generation=1)


def refusal(name: Any, given: Any, granted: Grants = GRANTS) -> Refusal:
    checked = admit(asked(name, given, slot=3), granted)
    assert isinstance(checked, Refusal)
    assert (checked.slot, checked.call_id) == (3, "toolu_3")
    return checked


def admitted(name: str, given: Any, slot: int = 0, granted: Grants = GRANTS) -> Admitted:
    checked = admit(asked(name, given, slot), granted)
    assert isinstance(checked, Admitted), checked
    return checked


# R23, B27: names


@pytest.mark.parametrize("name", ["delete_stock", "", "Pay", "pay ", "look_up\n", "__class__"])
def test_r23_b27_an_unknown_tool_is_answered_with_the_known_ones(name: str) -> None:
    """R23, B27: nothing is dispatched, and the model hears which tools there are."""
    refused = refusal(name, {"order": "1001"})
    assert (refused.kind, refused.tool) == (ErrorKind.UNKNOWN_TOOL, name)
    assert refused.text == f"There is no tool {name!r}. The tools of this task: lax_read, look_up, pay, upload."


@pytest.mark.parametrize("name", [None, 7, ["pay"], {"name": "pay"}], ids=repr)
def test_r27_a_name_that_is_no_text_is_an_unknown_tool(name: Any) -> None:
    refused = refusal(name, {})
    assert (refused.kind, refused.tool) == (ErrorKind.UNKNOWN_TOOL, repr(name))


def test_r35_a_tool_that_the_task_was_not_given_is_unknown_to_it() -> None:
    """R35: what a task may not use it doesn't learn of."""
    refused = refusal("pay", {"order": "1001"}, grants(LOOK))
    assert refused.kind is ErrorKind.UNKNOWN_TOOL
    assert refused.text == "There is no tool 'pay'. The tools of this task: look_up."


def test_r23_a_task_without_tools_is_told_so() -> None:
    no_tools = Grants(tools={}, principal="anna", realm=GRANTS.realm)
    assert refusal("pay", {}, no_tools).text == "There is no tool 'pay'. The tools of this task: none."


# R34, B25, B26: input


@pytest.mark.parametrize(
    ("name", "given", "fault"),
    [
        ("pay", {}, "order: Field required"),
        ("pay", {"order": 1001}, "order: Input should be a valid string"),
        ("pay", {"order": None}, "order: Input should be a valid string"),
        ("pay", {"order": "1", "colour": "red"}, "colour: unknown field"),
        ("pay", {"order": "1", "amount": "abc"}, "amount: Input should be a valid decimal"),
        ("pay", {"order": "1", "amount": 0}, "amount: Input should be greater than 0"),
        ("pay", {"order": "1", "amount": "NaN"}, "amount: Input should be a finite number"),
        ("pay", {"order": "1", "ratio": "0.5"}, "ratio: Input should be a valid number"),
        ("pay", {"order": "1", "ratio": float("nan")}, "Out of range float values are not JSON compliant"),
        ("pay", {"order": "1", "ratio": float("inf")}, "Out of range float values are not JSON compliant"),
        ("pay", {"order": "ok \ud83d"}, "Invalid JSON"),
        ("look_up", {"sku": "A1", "ids": "[1,2]"}, "ids: Input should be a valid array"),
        ("look_up", {"sku": "A1", "ids": ["1"]}, "ids.0: Input should be a valid integer"),
        ("look_up", {"sku": "A1", "ids": [1.0]}, "ids.0: Input should be a valid integer"),
        ("look_up", {"sku": "A1", "ids": [True]}, "ids.0: Input should be a valid integer"),
        ("look_up", {"sku": "A1", "since": 1767225600}, "since: Input should be a valid datetime"),
        ("look_up", {"sku": "A1", "since": "2026-01-01T00:00:00"}, "since: Input should have timezone info"),
        ("lax_read", {"count": "5"}, "count: Input should be a valid integer"),
    ],
    ids=str,
)
def test_r34_b25_b26_input_that_does_not_fit_is_refused_without_coercion(name: str, given: Any, fault: str) -> None:
    """R34, B25, B26: the model is told what to correct; nothing is guessed, and nothing fails."""
    refused = refusal(name, given)
    assert (refused.kind, refused.tool) == (ErrorKind.INVALID_ARGUMENTS, name)
    assert refused.text.startswith(f"{name} was not run. ")
    assert fault in refused.text


def test_b26_every_fault_of_an_input_is_named_at_once() -> None:
    refused = refusal("pay", {"amount": "abc", "colour": "red", "note": 5})
    assert refused.text == (
        "pay was not run. Correct the input: order: Field required; amount: Input should be a valid decimal; "
        "note: Input should be a valid string; colour: unknown field."
    )


@pytest.mark.parametrize("given", [None, "{}", '{"order": "1001"}', [], 5, True], ids=repr)
def test_b25_an_input_that_is_no_object_is_refused_even_if_it_spells_one(given: Any) -> None:
    refused = refusal("pay", given)
    assert refused.kind is ErrorKind.INVALID_ARGUMENTS
    assert "The input must be a JSON object, not a " in refused.text


@pytest.mark.parametrize("note", ["[1,2]", '{"a": 1}', "null", "5", "  spaces  "])
def test_b25_text_that_looks_like_json_stays_text(note: str) -> None:
    assert admitted("pay", {"order": "1", "note": note}).arguments == Pay(order="1", note=note)


def test_r34_what_json_can_only_say_as_text_may_be_text() -> None:
    checked = admitted("look_up", {"sku": "A1", "since": "2026-01-01T00:00:00+02:00"}).arguments
    assert isinstance(checked, Look)
    assert checked.since is not None
    assert checked.since.utcoffset() == timedelta(hours=2)
    assert admitted("pay", {"order": "1", "amount": "0.10"}).arguments == Pay(order="1", amount=Decimal("0.10"))


def test_r35_the_refusal_does_not_repeat_the_input() -> None:
    """R35: a refusal is stored and shown; what was given may be a secret."""
    refused = refusal("pay", {"order": {"secret": "hunter2"}, "hunter3": "hunter4"})
    assert "hunter2" not in refused.text
    assert "hunter4" not in refused.text


def test_r39_the_name_is_checked_before_the_shape_and_the_shape_before_the_types() -> None:
    """R39: of several faults the first in this order is told."""
    assert refusal("delete_stock", "no object").kind is ErrorKind.UNKNOWN_TOOL
    assert "must be a JSON object" in refusal("pay", ["abc"]).text
    assert "amount" in refusal("pay", {"order": "1", "amount": "abc"}).text


@pytest.mark.parametrize(
    ("name", "given", "fault"),
    [
        ("upload", {"data": "abc"}, "a bytes has no JSON form"),
        ("pay", {"order": "1", "tags": {"caf\u00e9": 1, "cafe\u0301": 2}}, "two keys of an object are the same in NFC"),
    ],
    ids=["bytes", "keys"],
)
def test_b26_a_write_whose_request_cannot_be_told_apart_is_refused(name: str, given: Any, fault: str) -> None:
    """B26: it would otherwise fail the model request's activity, again and again."""
    refused = refusal(name, given)
    assert refused.kind is ErrorKind.INVALID_ARGUMENTS
    assert fault in refused.text


def test_b26_a_monstrous_number_is_an_argument_like_any_other() -> None:
    checked = admitted("pay", {"order": "1", "amount": "1E+999999999"})
    proposal = propose(checked, GRANTS, meant(checked, PAY))
    assert isinstance(proposal, Proposal)


def test_validation_is_the_same_for_the_executor() -> None:
    """R34: input is validated at execution too, by the same function."""
    assert validate(PAY, {"order": "1"}) == Pay(order="1")
    with pytest.raises(ValueError, match="colour: unknown field"):
        validate(PAY, {"order": "1", "colour": "red"})


# Proposals


def test_a_read_is_proposed_without_an_intent() -> None:
    checked = admitted("look_up", {"sku": "A1"}, slot=2)
    assert propose(checked, GRANTS, None) == Proposal(
        slot=2, call_id="toolu_2", tool="look_up", effect=Effect.READ, seconds=7.0
    )


def test_a_write_is_proposed_with_key_generation_fingerprint_and_resources() -> None:
    checked = admitted("pay", {"order": "1001", "amount": 5}, slot=1)
    key = meant(checked, PAY).key
    assert propose(checked, GRANTS, meant(checked, PAY)) == Proposal(
        slot=1,
        call_id="toolu_1",
        tool="pay",
        effect=Effect.WRITE,
        seconds=5.0,
        intent=Intent(
            key=key,
            generation=1,
            fingerprint=fingerprint(Pay(order="1001", amount=Decimal(5))),
            resources=("4:acme/order/1001",),
        ),
    )


def test_b52_two_calls_of_one_action_have_one_key() -> None:
    """B52: neither slot nor call id nor the spelling is in it; the tenant is."""
    one = meant(admitted("pay", {"order": "1001"}, slot=0), PAY)
    assert meant(admitted("pay", {"amount": "7.0", "order": "1001"}, slot=5), PAY) == one
    assert meant(admitted("pay", {"order": "1001"}), PAY, grants(tenant="other")).key != one.key


def test_resources_belong_to_the_tenant_and_are_sorted() -> None:
    def several(asked: Any) -> list[str]:
        return ["b", "a", "b"]

    tool = write(key=("order",), **WORDS, resources=several)(pay)
    assert resources_of(tool, Pay(order="1"), "acme") == ("4:acme/a", "4:acme/b")
    assert resources_of(PAY_QUIETLY, Pay(order="1"), "acme") == ()


def standing(state: OperationState, arguments: Pay, generation: int = 1) -> Operation:
    subject = Subject(
        tool="pay",
        tenant="acme",
        principal="anna",
        fingerprint=fingerprint(arguments),
        arguments="",
        resources=(),
    )
    return Operation(
        key="1" * 64,
        seq=1,
        subject=subject,
        state=state,
        generation=generation,
        permit=1,
        opened_at=0.0,
        changed_at=0.0,
    )


SAME, OTHER = Pay(order="1001"), Pay(order="1001", note="other")
OPEN = [state for state in OperationState if not state.closed]
CLOSED = [state for state in OperationState if state.closed]


def proposed(operation: Operation) -> Proposal | Refusal:
    meant = Meant(key=operation.key, operation=operation, generation=next_generation(operation))
    return propose(admitted("pay", {"order": "1001"}), GRANTS, meant)


@pytest.mark.parametrize("state", OPEN)
def test_r63_a_repeat_means_the_generation_that_stands(state: OperationState) -> None:
    proposal = proposed(standing(state, SAME, generation=2))
    assert isinstance(proposal, Proposal)
    assert proposal.intent is not None
    assert proposal.intent.generation == 2


@pytest.mark.parametrize("state", OPEN)
def test_r65_another_request_under_the_same_key_is_a_conflict(state: OperationState) -> None:
    """R65: nothing is sent, and the model is told how the first one stands."""
    operation = standing(state, OTHER)
    refused = proposed(operation)
    assert isinstance(refused, Refusal)
    assert refused.kind is ErrorKind.NOT_EXECUTED
    assert refused.text == conflict_text(operation)
    assert refused.text.startswith("Not sent: ")
    assert f"is {state}: " in refused.text


@pytest.mark.parametrize("state", CLOSED)
@pytest.mark.parametrize("arguments", [SAME, OTHER], ids=["same", "other"])
def test_r65_after_a_closed_generation_the_next_one_is_meant(state: OperationState, arguments: Pay) -> None:
    proposal = proposed(standing(state, arguments, generation=4))
    assert isinstance(proposal, Proposal)
    assert proposal.intent is not None
    assert proposal.intent.generation == 5


# R77, R78, R80: batches


def batched(*kinds: str) -> tuple[tuple[int, ...], ...]:
    """The batches of calls: `r` reads; `w1` pays order 1 and says so; `q1` does, and doesn't; `x` is answered."""
    proposals: list[Proposal] = []
    run: dict[int, Admitted] = {}
    for slot, kind in enumerate(kinds):
        if kind == "x":
            answer = CallResult(slot=slot, error=ErrorKind.UNKNOWN_TOOL)
            proposals.append(Proposal(slot=slot, call_id="", tool="?", answer=answer))
            continue
        name, granted = ("look_up", GRANTS) if kind == "r" else ("pay", grants(PAY if kind[0] == "w" else PAY_QUIETLY))
        given = {"sku": "A1"} if kind == "r" else {"order": kind[1:]}
        checked = admitted(name, given, slot, granted)
        run[slot] = checked
        means = meant(checked, checked.tool, granted) if isinstance(checked.tool, WriteTool) else None
        proposal = propose(checked, granted, means)
        assert isinstance(proposal, Proposal)
        proposals.append(proposal)
    return batches(proposals, run)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), ()),
        (("r", "r", "r"), ((0, 1, 2),)),
        (("r", "r", "w1"), ((0, 1), (2,))),
        (("w1", "r", "r"), ((0,), (1, 2))),
        (("r", "w1", "r"), ((0,), (1,), (2,))),
        (("w1", "w2", "w3"), ((0, 1, 2),)),
        (("w1", "w1"), ((0,), (1,))),
        (("w1", "w2", "w1"), ((0, 1), (2,))),
        (("w1", "w2", "w2"), ((0, 1), (2,))),
        (("w1", "w1", "w2"), ((0,), (1, 2))),
        (("w1", "w2", "w1", "w2"), ((0, 1), (2, 3))),
        (("w1", "r", "w2"), ((0,), (1,), (2,))),
        (("q1", "q2"), ((0,), (1,))),
        (("q1", "w2"), ((0,), (1,))),
        (("w1", "q2"), ((0,), (1,))),
        (("w1", "q2", "w3"), ((0,), (1,), (2,))),
        (("r", "q1", "r"), ((0,), (1,), (2,))),
        (("x", "x"), ()),
        (("r", "x", "r"), ((0, 2),)),
        (("w1", "x", "w2"), ((0, 2),)),
        (("w1", "x", "w1"), ((0,), (2,))),
        (("x", "q1", "x", "r"), ((1,), (3,))),
    ],
    ids=str,
)
def test_r77_r78_r80_batches_follow_effects_and_resources(
    kinds: Sequence[str], expected: tuple[tuple[int, ...], ...]
) -> None:
    """R77: a write waits for the reads before it. R78: one resource, one after another. R80: undeclared runs alone."""
    assert batched(*kinds) == expected


def test_r63_the_same_key_twice_in_one_response_runs_one_after_another() -> None:
    """R63: the key counts as a resource of its own, also where the declared resources differ."""

    def by_note(asked: Any) -> list[str]:
        return [f"note/{asked.note}"]

    tool = write(key=("order",), **WORDS, resources=by_note)(pay)
    granted = grants(tool)
    run = {slot: admitted("pay", {"order": "1", "note": str(slot)}, slot, granted) for slot in (0, 1)}
    proposals = [propose(one, granted, meant(one, tool, granted)) for one in run.values()]
    assert batches([one for one in proposals if isinstance(one, Proposal)], run) == ((0,), (1,))


def test_r75a_what_takes_something_back_never_runs_beside_it() -> None:
    """Whatever resources they name: the one that comes first decides what the other one means."""
    first = Proposal(slot=0, call_id="a", tool="pay", intent=Intent(key="a" * 64, generation=1, fingerprint="f" * 64))
    target = Target(key="a" * 64, generation=1)
    back = Intent(key="b" * 64, generation=1, fingerprint="f" * 64, undoes=target)
    second = Proposal(slot=1, call_id="b", tool="void", intent=back)
    granted = grants(PAY)
    run = {slot: admitted("pay", {"order": "1"}, slot, granted) for slot in (0, 1)}
    assert batches([first, second], run) == ((0,), (1,))
    swapped = [second.model_copy(update={"slot": 0}), first.model_copy(update={"slot": 1})]
    assert batches(swapped, run) == ((0,), (1,))


def test_every_call_that_is_not_answered_is_in_exactly_one_batch_in_proposal_order() -> None:
    kinds = ("r", "w1", "x", "w2", "w1", "r", "q3", "r", "r", "w9", "x")
    flat = [slot for batch in batched(*kinds) for slot in batch]
    assert flat == [slot for slot, kind in enumerate(kinds) if kind != "x"]


def test_admission_reads_json_as_it_stands_in_the_transcript() -> None:
    """What is validated here is read back and validated again where it runs: both see the same."""
    given = {"order": "caf\u00e9", "amount": 1.10, "tags": {"a": [1, None, 2.5]}}
    again = json.loads(json.dumps(given, ensure_ascii=False))
    assert validate(PAY, again) == validate(PAY, given)
