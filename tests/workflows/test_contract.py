"""The values that cross a boundary: they survive the way through history, and another release can read them."""

import json
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import PydanticUndefined
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from settled.workflows.contract import loop, operation, result, stream, task, turn
from settled.workflows.contract.calls import CallResult, ErrorKind
from settled.workflows.contract.ending import EndReason, Status, Verdict
from settled.workflows.contract.names import settlement_id
from settled.workflows.contract.operation import Evidence, OperationState, Standing
from settled.workflows.contract.task import OnExhausted, OnNeedsHuman, TaskRequest
from settled.workflows.contract.turn import Again, Effect, Turn
from settled.workflows.contract.values import OpenEnum, Value
from settled.workflows.converter import data_converter
from settled.workflows.reporting import MOST_INPUT, fault_of_size

Json = dict[str, Any]
LATER = "of_a_later_release"
D1, D2, D3 = "1" * 64, "2" * 64, "3" * 64

# One value of each kind, in which no field stands at its default.
USAGE = turn.Usage(
    input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cost=Decimal("0.05"), unpriced=6
)
REPEATS = turn.Repeats(paused=1, truncated=2, malformed=3, empty=4, fallback=5, compacted=6, lowered=7)
VIEW = operation.OperationView(
    key=D1, tool="reserve", state=OperationState.UNKNOWN, generation=2, sends=3, evidence=Evidence.NO_ANSWER
)
TALLY = operation.Tally(operations=3, completed=1, unsettled=2)
LEDGER = operation.LedgerView(tally=TALLY, unsettled=(VIEW,))
RESULT = CallResult(slot=1, error=ErrorKind.REJECTED, content=D2, note="no")
TARGET = operation.Target(key=D3, generation=3)
INTENT = operation.Intent(key=D1, generation=2, fingerprint=D2, resources=("stock/A1",), undoes=TARGET, expected=True)
CALL = turn.Proposal(
    slot=1, call_id="toolu_1", tool="reserve", effect=Effect.WRITE, seconds=5.5, intent=INTENT, answer=RESULT
)
BATCHES = turn.RunBatches(calls=(CALL,), batches=((0, 2), (1,)))
END = turn.End(reason=EndReason.DEADLINE, detail="late")
COUNTERS = loop.Counters(turns=1, requests=2, attempts=3, calls=4, server_calls=5)
CONDUCT = task.Conduct(
    model_seconds=1.5,
    model_attempts=2,
    read_attempts=3,
    recheck_seconds=4.5,
    cut_events=500,
    on_needs_human=OnNeedsHuman.END,
    on_exhausted=OnExhausted.WAIT,
    stream=True,
)
LIMITS = task.Limits(
    turns=1, requests=2, wall_seconds=3.5, calls=4, input_tokens=5, output_tokens=6, cost=Decimal("7.5")
)
OPENED = task.Opened(head=D3, limits=LIMITS, conduct=CONDUCT, agent="clerk", title="reserve", faults=("goal: missing",))
PENDING = loop.Pending(calls=(CALL,), batches=((1,),), results=(RESULT,), handed_over=(1,), processed=True)
STATE = loop.LoopState(
    carried=2,
    opened_at=1.5,
    opened=OPENED,
    head=D1,
    pending=PENDING,
    repeats=REPEATS,
    max_tokens=2_000,
    context_full=True,
    model="claude-scripted",
    context_tokens=3_000,
    extended_by=("update-1",),
    stream={"log": []},
    counters=COUNTERS,
    usage=USAGE,
    cut_short="7",
    ledger=LEDGER,
    last_text="Hello",
    ending=END,
)
FINDING = result.Finding(check="operation", passed=True, evidence="it is there", version="7")
RESOLUTION = operation.Resolution(
    outcome=operation.Resolved.NOT_EXECUTED, because="I asked them", who="ann", generation=2
)
CRITERION = task.Criterion(check="operation", tool="reserve", arguments={"order": "1001"})
BUDGET = task.Budget(
    turns=1, requests=2, wall_seconds=3.5, calls=4, input_tokens=5, output_tokens=6, cost=Decimal("7.5")
)
RESEND = turn.Resend(why=Again.TRUNCATED, max_tokens=2_000)

SAMPLES: list[Value] = [
    *(USAGE, VIEW, TALLY, LEDGER, RESULT, INTENT, CALL, BATCHES, END, COUNTERS, CONDUCT, LIMITS, OPENED, PENDING),
    *(STATE, FINDING, CRITERION, BUDGET, TARGET, RESOLUTION),
    *(REPEATS, RESEND, turn.Compact()),
    turn.Ask(
        head=D1,
        results=(RESULT,),
        repeats=REPEATS,
        max_tokens=2_000,
        compact=True,
        requests_left=2,
        stream=True,
        cut_short="7",
    ),
    stream.TextPiece(request="r/1", attempt=2, model="m", start=3, text="x", whole=True, stop_reason="end_turn"),
    turn.Read(head=D1, slot=1, tool="look_up", seconds=2.5, attempts=3),
    Turn(
        head=D1,
        next=BATCHES,
        usage=USAGE,
        request_id="req_1",
        attempts=2,
        requests=3,
        model="claude-scripted",
        server_calls=3,
        taken_over=True,
        context_full=True,
        preview="Hello",
        ledger=LEDGER,
    ),
    loop.Ending(end=END, state=STATE),
    operation.Order(head=D1, slot=1, tool="reserve", intent=INTENT, permit=2, seconds=1.5, known=True),
    operation.Outcome(
        standing=Standing.PERSON, permit=2, generation=3, after=1.5, result=RESULT, blocked_by=D2, ledger=LEDGER
    ),
    operation.Question(key=D1),
    operation.Resolve(key=D1, resolution=RESOLUTION, update="u-1"),
    operation.ResolveAnswer(view=VIEW, refused="it is settled"),
    operation.SettlementStep(settled=True, view=VIEW, after=2.5, note="found"),
    result.TaskResult(
        status=Status.FAILED,
        end_reason=EndReason.REFUSED,
        detail="it refused",
        verdict=Verdict.ACCEPTED,
        findings=(FINDING,),
        final_text="No.",
        operations=(VIEW,),
        tally=TALLY,
        counters=COUNTERS,
        usage=USAGE,
        spent="2 requests",
        head=D1,
    ),
    result.StatusReport(
        status=Status.WAITING,
        turn=2,
        counters=COUNTERS,
        usage=USAGE,
        spent="2 requests",
        limits=LIMITS,
        waits_for=("reserve",),
        ledger=LEDGER,
        last_text="Hello",
        model="claude-scripted",
        context_tokens=3_000,
        end_reason=EndReason.COMPLETED,
    ),
    TaskRequest(
        goal="reserve",
        agent="clerk",
        tools=("reserve",),
        budget=BUDGET,
        acceptance=(CRITERION,),
        tenant="acme",
        principal="anna",
    ),
    task.Extension(
        turns=1,
        requests=2,
        wall_seconds=3.5,
        calls=4,
        input_tokens=5,
        output_tokens=6,
        cost=Decimal("7.5"),
        because="more to do",
        who="ada",
    ),
]

ASKED_FOR_BY_PEOPLE = (TaskRequest, task.Budget, task.Extension, task.Criterion)
"""What a person writes, where a field that we don't know is a typing error."""


def name_of(sample: object) -> str:
    return type(sample).__name__ if isinstance(sample, Value) else getattr(sample, "__name__", str(sample))


each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
each_tolerant_sample = pytest.mark.parametrize(
    "sample", [sample for sample in SAMPLES if not isinstance(sample, ASKED_FOR_BY_PEOPLE)], ids=name_of
)


def kinds(root: type[Any]) -> Iterator[type[Any]]:
    for kind in root.__subclasses__():
        if kind.__module__.startswith("settled.workflows."):
            yield kind
        yield from kinds(kind)


def written(value: Any) -> bytes:
    """The value as it stands in history."""
    (payload,) = data_converter.payload_converter.to_payloads([value])
    assert payload.metadata["encoding"] == b"json/plain"
    return payload.data


def read(data: bytes, kind: type[Any] | None) -> Any:
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
    return data_converter.payload_converter.from_payloads([payload], [kind] if kind else None)[0]


def everywhere(value: Any, change: Callable[[Json], Json]) -> Any:
    """The JSON value with each object in it changed, however deep; but for what is Temporal's own."""
    match value:
        case dict():
            return change(
                {name: item if name == "stream" else everywhere(item, change) for name, item in value.items()}
            )
        case list():
            return [everywhere(item, change) for item in value]
        case _:
            return value


def test_each_value_has_a_sample() -> None:
    assert set(kinds(Value)) == {type(sample) for sample in SAMPLES}


@each_sample
def test_no_field_of_a_sample_stands_at_its_default(sample: Value) -> None:
    fields = {name: field for name, field in type(sample).model_fields.items() if name != "do"}
    assert [name for name, field in fields.items() if getattr(sample, name) == field.get_default()] == []


@each_sample
def test_each_value_survives_the_way_through_history(sample: Value) -> None:
    back = read(written(sample), type(sample))
    assert back == sample
    assert type(back) is type(sample)


@each_sample
def test_each_value_is_plain_json_in_history(sample: Value) -> None:
    assert json.loads(written(sample)) == sample.model_dump(mode="json")


@each_tolerant_sample
def test_r106_fields_of_a_newer_release_are_ignored_at_any_depth(sample: Value) -> None:
    newer = everywhere(json.loads(written(sample)), lambda item: {**item, LATER: {LATER: [1, None]}})
    assert read(json.dumps(newer).encode(), type(sample)) == sample


@each_sample
def test_r106_fields_that_an_older_release_did_not_write_have_defaults(sample: Value) -> None:
    fields = type(sample).model_fields
    needed = {name: item for name, item in json.loads(written(sample)).items() if fields[name].is_required()}
    back = read(json.dumps(needed).encode(), type(sample))
    for name, field in fields.items():
        expected = getattr(sample, name) if field.is_required() else field.get_default(call_default_factory=True)
        assert getattr(back, name) == expected
        assert expected is not PydanticUndefined


@each_sample
def test_r106_names_of_a_newer_release_are_kept_and_written_again(sample: Value) -> None:
    """A worker that is rolled back hands on what it doesn't know, unchanged."""
    names = {str(member) for kind in kinds(OpenEnum) for member in kind}

    def renamed(item: Json) -> Json:
        return {
            name: f"{value}_{LATER}" if name != "do" and isinstance(value, str) and value in names else value
            for name, value in item.items()
        }

    newer = everywhere(json.loads(written(sample)), renamed)
    back = read(json.dumps(newer).encode(), type(sample))
    assert json.loads(written(back)) == newer


def test_r106_the_whole_state_of_a_newer_release_can_be_carried_on() -> None:
    """The sum of it: unknown fields, unknown names and missing fields, in the largest value there is."""
    newer = json.loads(written(STATE))
    newer["ending"]["reason"] = "bored"
    newer["pending"]["calls"][0]["effect"] = "dream"
    newer["pending"]["results"][0]["error"] = "shrugged"
    newer["ledger"]["unsettled"][0]["state"] = "quantum"
    newer["opened"]["conduct"]["on_needs_human"] = "ring_the_bell"
    del newer["usage"], newer["pending"]["handed_over"]
    back = read(json.dumps({**newer, LATER: 1}).encode(), loop.LoopState)
    assert (back.ending.reason, back.ending.reason.known) == ("bored", False)
    assert back.ledger.unsettled[0].state == "quantum"
    assert not back.ledger.unsettled[0].state.settled
    assert not back.ledger.unsettled[0].state.closed
    assert back.usage == turn.Usage()
    assert back.pending.handed_over == ()
    assert back.counters == COUNTERS


@pytest.mark.parametrize("kind", [*ASKED_FOR_BY_PEOPLE], ids=name_of)
def test_r103_what_a_person_writes_may_have_no_unknown_field(kind: type[Value]) -> None:
    sample = next(sample for sample in SAMPLES if type(sample) is kind)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        kind.model_validate({**sample.model_dump(mode="json"), LATER: 1})


def test_only_what_a_person_writes_forbids_unknown_fields() -> None:
    forbidding = {kind for kind in kinds(Value) if kind.model_config.get("extra") != "ignore"}
    assert forbidding == set(ASKED_FOR_BY_PEOPLE)


@pytest.mark.parametrize(
    "command",
    [
        {"do": "dream"},
        {"do": "ask", "calls": [], "batches": []},
        {"do": "End", "reason": "completed"},
        {"reason": "completed", "detail": ""},
        {},
        None,
    ],
    ids=str,
)
def test_r106_a_command_of_a_newer_release_is_not_taken_for_one_of_ours(command: Json | None) -> None:
    with pytest.raises(ValidationError):
        read(json.dumps({"head": D1, "next": command}).encode(), Turn)


@pytest.mark.parametrize("command", [BATCHES, turn.Resend(), RESEND, turn.Compact(), END])
def test_each_command_of_this_release_is_read_back_as_itself(command: Any) -> None:
    back = read(written(Turn(head=D1, next=command)), Turn)
    assert back.next == command
    assert type(back.next) is type(command)


@each_sample
def test_each_value_is_frozen(sample: Value) -> None:
    for name in type(sample).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(sample, name, None)


@pytest.mark.parametrize("kind", sorted(kinds(Value), key=name_of), ids=name_of)
def test_each_field_and_each_value_has_prose(kind: type[Value]) -> None:
    silent = [name for name, field in kind.model_fields.items() if not (field.description or "").strip()]
    assert silent == []
    assert (kind.__doc__ or "").strip()


@pytest.mark.parametrize("digest", ["", "1" * 63, "1" * 65, "G" * 64, "A" * 64, "1" * 64 + "\n", " " + "1" * 64])
def test_a_digest_is_64_lower_case_hexadecimal_digits(digest: str) -> None:
    with pytest.raises(ValidationError):
        operation.Question(key=digest)


# Names that are added by a later release


@pytest.mark.parametrize("kind", sorted(kinds(OpenEnum), key=name_of), ids=name_of)
def test_a_name_of_another_release_is_kept_but_not_known(kind: type[OpenEnum]) -> None:
    name = kind(LATER)
    assert isinstance(name, kind)
    assert (name, str(name), name.value, name.known) == (LATER, LATER, LATER, False)
    assert name == kind(LATER)
    assert hash(name) == hash(kind(LATER))
    assert all(name != member and member.known for member in kind)
    assert LATER not in [str(member) for member in kind], "keeping a name doesn't add it"
    assert pickle.loads(pickle.dumps(name)) == name
    assert {name: 1}[kind(LATER)] == 1


@pytest.mark.parametrize("value", [1, None, b"read", ["read"]], ids=str)
def test_what_is_not_text_is_no_name(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid Effect"):
        Effect(value)


def test_a_state_of_another_release_is_neither_settled_nor_closed() -> None:
    """Whatever it means, it must not open the way for a second send."""
    known = {state: (state.settled, state.closed) for state in OperationState}
    assert [state for state, (settled, _) in known.items() if settled] == [
        OperationState.COMPLETED,
        OperationState.REJECTED,
        OperationState.NOT_EXECUTED,
        OperationState.UNDONE,
    ]
    assert [state for state, (_, closed) in known.items() if closed] == [
        OperationState.REJECTED,
        OperationState.NOT_EXECUTED,
        OperationState.UNDONE,
    ]
    later = OperationState(LATER)
    assert (later.settled, later.closed) == (False, False)


# Small methods of the values


def test_open_calls_are_those_without_a_result() -> None:
    calls = tuple(turn.Proposal(slot=slot, call_id="same", tool="t") for slot in range(3))
    pending = loop.Pending(calls=calls, results=(CallResult(slot=1),))
    assert [call.slot for call in pending.open_calls()] == [0, 2]


def test_usage_adds_up_field_by_field() -> None:
    more = turn.Usage(
        input_tokens=10,
        output_tokens=20,
        cache_read_tokens=30,
        cache_write_tokens=40,
        cost=Decimal("0.10"),
        unpriced=60,
    )
    assert USAGE.plus(more) == turn.Usage(
        input_tokens=11,
        output_tokens=22,
        cache_read_tokens=33,
        cache_write_tokens=44,
        cost=Decimal("0.15"),
        unpriced=66,
    )
    assert USAGE.read_tokens == 8


def test_each_reason_to_ask_again_is_counted_by_itself() -> None:
    assert {str(why) for why in Again} == turn.Repeats.model_fields.keys()
    for why in Again:
        counted = REPEATS.plus(why).model_dump()
        assert counted == REPEATS.model_dump() | {str(why): getattr(REPEATS, why) + 1}
    assert REPEATS.plus(Again(LATER)) == REPEATS, "a reason of a newer release is counted by nobody"


def test_an_operation_has_one_settlement() -> None:
    assert settlement_id(D1) == f"settlement-{D1}"


# What people send, and the forgiving converter

UNREADABLE = {
    "a lone surrogate": Payload(metadata={"encoding": b"json/plain"}, data=b'{"goal": "\\ud83d"}'),
    "not JSON": Payload(metadata={"encoding": b"json/plain"}, data=b'{"goal": '),
    "nothing": Payload(metadata={"encoding": b"json/plain"}, data=b""),
    "not UTF-8": Payload(metadata={"encoding": b"json/plain"}, data=b'"\xff"'),
    "nested too deep": Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 100_000 + b"]" * 100_000),
    "an unknown encoding": Payload(metadata={"encoding": b"binary/encrypted"}, data=b"\x00\x01"),
    "no encoding": Payload(data=b'{"goal": "x"}'),
}


@pytest.mark.parametrize("payload", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_r103_an_input_that_cannot_be_read_is_kept_as_it_came(payload: Payload) -> None:
    """Raising here would fail the workflow task for ever, and the task would hang without a word."""
    good = Payload(metadata={"encoding": b"json/plain"}, data=b'"reserve"')
    kept = data_converter.payload_converter.from_payloads([good, payload, good])
    assert (kept[0], kept[2]) == ("reserve", "reserve")
    assert isinstance(kept[1], RawValue)
    assert kept[1].payload == payload


@pytest.mark.parametrize("payload", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_value_of_ours_that_cannot_be_read_is_an_error(payload: Payload) -> None:
    """Where a type is asked for, a broken value must not pass as something else."""
    with pytest.raises((ValidationError, KeyError)):
        data_converter.payload_converter.from_payloads([payload], [dict])


def test_a_value_of_the_wrong_shape_is_an_error_where_a_type_is_asked_for() -> None:
    with pytest.raises(ValidationError):
        read(b'{"goal": "x"}', operation.Order)


@pytest.mark.parametrize("given", ["goal", {"goal": "x"}, ["a"], 5, 1.5, True, None], ids=str)
def test_readable_inputs_are_decoded_without_a_type(given: Any) -> None:
    payloads = data_converter.payload_converter.to_payloads([given])
    assert data_converter.payload_converter.from_payloads(payloads) == [given]


def test_the_input_as_a_whole_has_a_size_that_is_still_looked_at() -> None:
    """A larger one would be too large as an activity's input, and hang the task."""
    converter = data_converter.payload_converter
    fits = "x" * (MOST_INPUT - 2)  # two quotation marks
    assert fault_of_size([fits], converter) is None
    assert fault_of_size([], converter) is None
    for too_large in ([fits + "x"], [fits, ""], [RawValue(Payload(data=b"x" * 600_000)), "x" * 600_000]):
        fault = fault_of_size(too_large, converter)
        assert fault is not None
        assert fault.startswith("input: ")
        assert "\n" not in fault
        assert "1,000,000" in fault
