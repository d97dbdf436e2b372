"""Keys and fingerprints: what makes two proposals the same business action, and what makes them the same request."""

import hashlib
import inspect
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from settled.activities.keys import Realm, fingerprint, key_forms, operation_key, remote_key
from settled.activities.toolkit import Answer, Arguments, Call, Scope, WriteTool, write


class Speed(StrEnum):
    SLOW = "slow"
    FAST = "fast"


class Pay(Arguments):
    order: str
    amount: Decimal
    currency: str = "EUR"
    speed: Speed = Speed.SLOW
    notes: list[str] = Field(default_factory=list)


class PayInCents(Arguments):
    order: str
    amount: int
    currency: str = "EUR"


class Currency(StrEnum):
    EUR = "EUR"


class PayInCurrency(Arguments):
    order: str
    amount: Decimal
    currency: Currency = Currency.EUR


async def pay(asked: Pay, call: Call) -> Answer:
    """Pay an order."""
    return Answer(data=asked.order, source="bank")


def tool(
    key: tuple[str, ...] = ("order", "amount", "currency"), scope: Scope = Scope.BUSINESS, name: str = "pay"
) -> WriteTool:
    made = write(key=key, scope=scope, lookup=None, dedupes=None, lands_within=timedelta(seconds=1))(pay)
    return WriteTool(**{**vars(made), "name": name})


PAY = tool()
ASKED = Pay(order="1001", amount=Decimal("9.90"))


def key_of(asked: BaseModel = ASKED, made_by: WriteTool = PAY, **where: str) -> str:
    place = {"namespace": "default", "tenant": "acme", "root_task": "order-1001", **where}
    return operation_key(key_forms(made_by)[0], asked, Realm(**place))


def key_declaration(made_by: WriteTool) -> str:
    return key_forms(made_by)[0].declaration


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# R64, B52: what a key is made of, and what it is never made of


def test_r64_b52_a_key_can_depend_on_no_run_no_call_and_no_time() -> None:
    """R64, B52: what is not handed in can't be in the key. Nothing here may ever name a run, a call or an activity."""
    assert list(inspect.signature(operation_key).parameters) == ["form", "arguments", "realm", "undoes"]
    assert [part.name for part in fields(Realm)] == ["namespace", "tenant", "root_task"]
    assert list(inspect.signature(fingerprint).parameters) == ["arguments"]
    assert list(inspect.signature(remote_key).parameters) == ["key", "generation"]


def test_r64_the_key_of_an_action_stays_for_ever() -> None:
    """Ledgers hold these: another key for the same action would be a second effect."""
    fields = '[["amount","9.9"],["currency","EUR"],["order","1001"]]'
    assert key_of() == sha256(f'[1,"default","acme","business","pay",{fields}]')
    assert key_of(made_by=tool(scope=Scope.TASK)) == sha256(f'[1,"default","acme","task:order-1001","pay",{fields}]')
    assert fingerprint(ASKED) == sha256('{"amount":"9.9","order":"1001"}')


def test_a_key_is_a_digest() -> None:
    assert len(key_of()) == 64
    assert set(key_of()) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "other",
    [
        lambda: key_of(namespace="other"),
        lambda: key_of(tenant="other"),
        lambda: key_of(made_by=tool(name="pay_again")),
        lambda: key_of(made_by=tool(scope=Scope.TASK)),
        lambda: key_of(Pay(order="1002", amount=Decimal("9.90"))),
        lambda: key_of(Pay(order="1001", amount=Decimal("9.91"))),
        lambda: key_of(Pay(order="1001", amount=Decimal("9.90"), currency="USD")),
        lambda: key_of(made_by=tool(("order", "amount"))),
        lambda: key_of(made_by=tool(("order", "amount", "currency", "speed"))),
    ],
    ids=["namespace", "tenant", "tool", "scope", "order", "amount", "currency", "one field less", "one field more"],
)
def test_r63_each_part_of_a_key_tells_actions_apart(other: Any) -> None:
    assert other() != key_of()


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert key_of(namespace="ab", tenant="c") != key_of(namespace="a", tenant="bc")
    assert key_of(Pay(order="1", amount=Decimal(23))) != key_of(Pay(order="12", amount=Decimal(3)))


def test_r63_the_task_counts_where_the_scope_is_the_task_and_only_there() -> None:
    by_task = tool(scope=Scope.TASK)
    assert key_of(made_by=by_task) != key_of(made_by=by_task, root_task="order-1002")
    assert key_of() == key_of(root_task="order-1002")


def test_a_task_named_business_is_not_the_business_scope() -> None:
    by_task = tool(scope=Scope.TASK)
    assert key_of(made_by=by_task, root_task="business") != key_of()


@pytest.mark.parametrize(
    "same",
    [
        lambda: key_of(made_by=tool(("currency", "order", "amount"))),
        lambda: key_of(Pay(order="1001", amount=Decimal("9.90"), currency="EUR")),
        lambda: key_of(Pay(order="1001", amount=Decimal("9.9"))),
        lambda: key_of(Pay(order="1001", amount=Decimal("9.900"))),
        lambda: key_of(Pay(order="1001", amount=Decimal("990E-2"))),
        lambda: key_of(Pay(order="1001", amount=Decimal("9.90"), notes=["hurry"], speed=Speed.FAST)),
        lambda: key_of(Pay.model_validate_json('{"amount": "9.90", "order": "1001"}', strict=True)),
    ],
    ids=["order of the declaration", "default", "9.9", "9.900", "990E-2", "other fields", "from JSON"],
)
def test_r63_the_way_an_action_is_written_does_not_change_its_key(same: Any) -> None:
    assert same() == key_of()


def test_r63_one_text_has_one_key_whichever_way_its_accents_are_encoded() -> None:
    composed, decomposed = (Pay(order=text, amount=Decimal(1)) for text in ("caf\u00e9", "cafe\u0301"))
    assert composed != decomposed
    assert key_of(composed) == key_of(decomposed)
    assert fingerprint(composed) == fingerprint(decomposed)
    assert key_of(tenant="caf\u00e9") == key_of(tenant="cafe\u0301")


# B34, R65: what a request is


def test_a_default_that_is_spelled_out_is_no_other_request() -> None:
    spelled = Pay(order="1001", amount=Decimal("9.90"), currency="EUR", speed=Speed.SLOW, notes=[])
    assert fingerprint(spelled) == fingerprint(ASKED)


def test_a_field_that_a_later_release_adds_with_a_default_changes_no_fingerprint() -> None:
    """A deploy that adds one must not make conflicts out of open operations."""

    class LaterPay(Pay):
        note: str = ""
        tags: list[str] = Field(default_factory=list)

    assert fingerprint(LaterPay(order="1001", amount=Decimal("9.90"))) == fingerprint(ASKED)
    assert fingerprint(LaterPay(order="1001", amount=Decimal("9.90"), note="x")) != fingerprint(ASKED)


@pytest.mark.parametrize(
    "change",
    [{"order": "1002"}, {"amount": Decimal("9.91")}, {"currency": "USD"}, {"speed": Speed.FAST}, {"notes": ["x"]}],
    ids=str,
)
def test_r65_any_other_argument_is_another_request(change: dict[str, Any]) -> None:
    assert fingerprint(ASKED.model_copy(update=change)) != fingerprint(ASKED)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.decimals(allow_nan=False, allow_infinity=False))
def test_what_was_read_back_from_json_has_the_same_key_and_fingerprint(order: str, amount: Decimal) -> None:
    """R34: the arguments are read from the transcript again where they are executed."""
    asked = Pay(order=order, amount=amount)
    again = Pay.model_validate_json(asked.model_dump_json(), strict=True)
    assert key_of(again) == key_of(asked)
    assert fingerprint(again) == fingerprint(asked)


# What the service sees


def test_r65_the_service_sees_one_key_for_each_generation() -> None:
    key = key_of()
    seen = [remote_key(key, generation) for generation in (1, 2, 3, 11, 99_999)]
    assert len(set(seen)) == len(seen)
    assert max(map(len, seen)) <= 36
    assert all(one.isascii() and one.startswith(key[:30]) for one in seen)
    assert remote_key(key, 1) == f"{key[:30]}-1"


def test_services_see_different_keys_for_different_actions() -> None:
    assert remote_key(key_of(), 1) != remote_key(key_of(tenant="other"), 1)


# R75c: what the ledger records of a declaration


@pytest.mark.parametrize(
    "other",
    [
        tool(("order",)),
        tool(scope=Scope.TASK),
        tool(name="pay_again"),
        replace(PAY, undoes="order"),
        replace(PAY, arguments=PayInCents),
    ],
    ids=["other fields", "other scope", "other name", "takes something back", "another type"],
)
def test_r75c_a_declaration_that_gives_other_keys_reads_differently(other: WriteTool) -> None:
    assert key_declaration(other) != key_declaration(PAY)


def test_r75c_a_declaration_that_gives_the_same_keys_reads_the_same() -> None:
    assert key_declaration(tool(("currency", "amount", "order"))) == key_declaration(PAY)
    assert key_declaration(PAY) == ('[1,"pay","business",[["amount","Decimal"],["currency","str"],["order","str"]],""]')
    assert key_declaration(replace(PAY, arguments=PayInCurrency)) == key_declaration(PAY), "an Enum of text is text"


def test_a_key_field_that_has_no_faithful_form_is_refused() -> None:
    class Weigh(Arguments):
        weight: Annotated[float, Field(allow_inf_nan=True)]

    with pytest.raises(ValueError, match="nan has no JSON form"):
        key_of(Weigh(weight=float("nan")), replace(tool(("weight",)), arguments=Weigh))
