"""The stock tools against the real service, over HTTP: what each answer and each fault is taken for. R36, R37, R75."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import HttpUrl, ValidationError

from settled.activities.declarations import faults_of
from settled.activities.keys import key_forms, remote_key
from settled.activities.settling import names_our_request
from settled.activities.steady import steady
from settled.activities.tool_errors import Phase, failure_of, read_failure_of
from settled.activities.tool_http import tool_client
from settled.activities.toolkit import (
    FOREVER,
    Absent,
    Answer,
    Call,
    Found,
    InFlux,
    NotFound,
    NotSent,
    RateLimited,
    Rejected,
    Scope,
)
from settled.activities.tools import stock
from settled.activities.tools.stock import (
    LookupStock,
    ReleaseStock,
    ReserveStock,
    find_release,
    find_reservation,
    lookup_stock,
    release_stock,
    reserve_stock,
)
from settled.local.stock_service import StockService
from settled.workflows.contract.calls import ErrorKind
from settled.workflows.errors import ConfigurationError

TWO = ReserveStock(order="O-1", sku="A1", quantity=2)
KEY = remote_key("1" * 64, 1)
ITS = ReleaseStock(order="O-1", sku="A1")
RELEASE_KEY = remote_key("2" * 64, 1)


class Shop:
    """The service, and the tools' way to it; each call has a client of its own, as each attempt has."""

    def __init__(self, service: StockService) -> None:
        self.service = service

    async def reserve(self, asked: ReserveStock = TWO, key: str = KEY) -> Answer:
        answer: Answer = await self._call(reserve_stock.handler, asked, key)
        return answer

    async def look_up(self, sku: str = "A1") -> Answer:
        answer: Answer = await self._call(lookup_stock.handler, LookupStock(sku=sku), "")
        return answer

    async def find(self, key: str = KEY) -> Any:
        return await self._call(find_reservation, TWO, key)

    async def release(self, undoes_key: str = KEY, key: str = RELEASE_KEY) -> Answer:
        answer: Answer = await self._call(release_stock.handler, ITS, key, undoes_key)
        return answer

    async def find_release(self, asked: ReleaseStock = ITS, undoes_key: str = KEY) -> Any:
        return await self._call(find_release, asked, RELEASE_KEY, undoes_key)

    async def _call(self, function: Any, asked: Any, key: str, undoes_key: str = "") -> Any:
        async with tool_client(0.5) as http:
            call = Call(
                tenant="acme",
                principal="anna",
                http=http,
                deadline=steady() + 0.5,
                idempotency_key=key,
                undoes_key=undoes_key,
            )
            return await function(asked, call)

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        async with httpx2.AsyncClient(base_url=self.service.url, trust_env=False) as http:
            return (await http.request(method, path, **options)).raise_for_status().json()

    async def arm(self, fault: str, **options: Any) -> None:
        await self.ask("POST", "/faults", json={"fault": fault, **options})

    async def effects(self) -> int:
        count: int = (await self.ask("GET", "/effects"))["count"]
        return count


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shop]:
    async with StockService(tmp_path / "stock.sqlite", {"A1": 3, "caf\u00e9 / 1?": 7}) as service:
        monkeypatch.setattr(stock, "SETTINGS", stock.StockSettings(url=HttpUrl(service.url)))
        yield Shop(service)


# Looking up how much there is


async def test_r36_the_stock_comes_with_its_source_its_version_and_its_time(shop: Shop) -> None:
    answer = await shop.look_up()
    assert answer.data == {"sku": "A1", "on_hand": 3, "reserved": 0, "available": 3}
    assert answer.source == "stock service"
    assert answer.version.startswith("version 1, as of 2")
    await shop.reserve()
    after = await shop.look_up()
    assert after.data == {"sku": "A1", "on_hand": 3, "reserved": 2, "available": 1}
    assert after.version.startswith("version 2, as of 2")


async def test_a_sku_may_hold_any_character(shop: Shop) -> None:
    assert (await shop.look_up("caf\u00e9 / 1?")).data["available"] == 7


async def test_r38_an_unknown_article_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound, match="there is no article 'ZZ'") as raised:
        await shop.look_up("ZZ")
    assert read_failure_of(raised.value).kind is ErrorKind.NOT_FOUND


@pytest.mark.parametrize("sku", [".", ".."])
async def test_a_sku_that_looks_like_a_path_leads_nowhere_else(shop: Shop, sku: str) -> None:
    with pytest.raises(NotFound):
        await shop.look_up(sku)


# Reserving


async def test_r36_a_reservation_is_answered_with_its_record(shop: Shop) -> None:
    answer = await shop.reserve()
    record = await shop.ask("GET", f"/reservations/{KEY}")
    assert answer.data == {
        "reservation_id": record["reservation_id"],
        "order": "O-1",
        "sku": "A1",
        "quantity": 2,
        "line": 1,
    }
    assert answer.source == "stock service"
    assert answer.version == f"version 2, as of {record['created_at']}"
    assert record["idempotency_key"] == KEY
    assert await shop.effects() == 1


async def test_the_same_key_again_is_the_same_reservation(shop: Shop) -> None:
    assert await shop.reserve() == await shop.reserve()
    assert await shop.effects() == 1


async def test_r37_a_decline_is_rejected_with_the_services_words(shop: Shop) -> None:
    with pytest.raises(Rejected, match=r"\(3 available\)$") as raised:
        await shop.reserve(ReserveStock(order="O-1", sku="A1", quantity=4))
    assert not isinstance(raised.value, NotFound)
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase) == (ErrorKind.REJECTED, Phase.REFUSED)
    await shop.arm("decline")
    with pytest.raises(Rejected, match="we would rather not"):
        await shop.reserve()
    assert await shop.effects() == 0


async def test_r37_reserving_an_unknown_article_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound) as raised:
        await shop.reserve(ReserveStock(order="O-1", sku="ZZ", quantity=1))
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase) == (ErrorKind.NOT_FOUND, Phase.REFUSED)


async def test_r65_a_key_that_stands_for_another_request_is_rejected(shop: Shop) -> None:
    await shop.reserve()
    with pytest.raises(Rejected):
        await shop.reserve(ReserveStock(order="O-1", sku="A1", quantity=1))
    assert await shop.effects() == 1


@pytest.mark.parametrize(("options", "after"), [({}, 1.0), ({"seconds": 7}, 7.0)])
async def test_r37_a_limit_is_told_with_the_wait_it_asks_for(shop: Shop, options: dict[str, int], after: float) -> None:
    await shop.arm("rate_limit", **options)
    with pytest.raises(RateLimited) as raised:
        await shop.reserve()
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase, failure.after) == (ErrorKind.RATE_LIMITED, Phase.REFUSED, after)
    assert await shop.effects() == 0


@pytest.mark.parametrize(
    ("fault", "options", "effects"),
    [
        ("drop_reply_after_commit", {}, 1),
        ("drop_before_commit", {}, 0),
        ("bad_gateway_after_commit", {}, 1),
        ("garbage_after_commit", {}, 1),
        ("hold_reply_after_commit", {}, 1),
    ],
    ids=str,
)
async def test_r67_r75_an_answer_that_cannot_be_trusted_is_unknown(
    shop: Shop, fault: str, options: dict[str, Any], effects: int
) -> None:
    """R67, R75: whether it happened, the attempt can't tell, and doesn't claim to."""
    await shop.arm(fault, **options)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - any error will do, so long as it isn't one of ours
        await shop.reserve()
    assert not isinstance(raised.value, Rejected | NotSent | RateLimited)
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase) == (ErrorKind.UNKNOWN_RESULT, Phase.AFTER_SEND)
    assert await shop.effects() == effects
    await shop.ask("DELETE", "/faults")


async def test_r75_a_commit_after_the_callers_timeout_is_unknown_first_and_found_later(shop: Shop) -> None:
    await shop.arm("commit_after_timeout", seconds=0.6)
    with pytest.raises(httpx2.ReadTimeout) as raised:
        await shop.reserve()
    assert failure_of(raised.value).kind is ErrorKind.UNKNOWN_RESULT
    async with asyncio.timeout(10):
        while isinstance(await shop.find(), Absent):  # noqa: ASYNC110 - the service can't set an event of ours
            await asyncio.sleep(0.01)
    assert isinstance(await shop.find(), Found)
    assert await shop.effects() == 1


async def test_r75_a_service_that_is_too_late_for_its_own_limit_says_nothing_that_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 504 may as well be a gateway's, behind which the commit went on."""
    async with StockService(tmp_path / "s.sqlite", {"A1": 3}, processing_limit=0.05) as service:
        monkeypatch.setattr(stock, "SETTINGS", stock.StockSettings(url=HttpUrl(service.url)))
        shop = Shop(service)
        await shop.arm("commit_after_timeout", seconds=0.1)
        with pytest.raises(httpx2.HTTPStatusError) as raised:
            await shop.reserve()
        assert failure_of(raised.value).kind is ErrorKind.UNKNOWN_RESULT


async def test_r75_a_service_that_is_not_there_was_sent_nothing(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StockService(tmp_path / "other.sqlite", {}) as gone:
        pass
    monkeypatch.setattr(stock, "SETTINGS", stock.StockSettings(url=HttpUrl(gone.url)))
    with pytest.raises(NotSent) as raised:
        await shop.reserve()
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase) == (ErrorKind.UNAVAILABLE, Phase.BEFORE_SEND)


# Releasing


async def test_a_release_is_answered_with_its_record_and_names_the_reservation_it_undoes(shop: Shop) -> None:
    await shop.reserve()
    answer = await shop.release()
    record = await shop.ask("GET", f"/releases/{RELEASE_KEY}")
    assert answer.data == {
        "release_id": record["release_id"],
        "order": "O-1",
        "sku": "A1",
        "quantity": 2,
        "line": 1,
    }
    assert answer.source == "stock service"
    assert answer.version == f"version 3, as of {record['created_at']}"
    assert (record["idempotency_key"], record["reservation"]) == (RELEASE_KEY, KEY)
    assert (await shop.look_up()).data["available"] == 3


async def test_the_same_release_again_is_the_same_release(shop: Shop) -> None:
    await shop.reserve()
    assert await shop.release() == await shop.release()
    assert await shop.effects() == 2


async def test_what_was_released_is_reserved_and_released_again_under_the_next_generations_keys(shop: Shop) -> None:
    for generation in (1, 2):
        reservation, release = (remote_key(operation * 64, generation) for operation in "12")
        await shop.reserve(key=reservation)
        await shop.release(reservation, release)
    assert await shop.effects() == 4
    assert (await shop.look_up()).data["available"] == 3


async def test_a_release_of_what_was_never_reserved_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound, match="no reservation under this key") as raised:
        await shop.release()
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase) == (ErrorKind.NOT_FOUND, Phase.REFUSED)


async def test_a_release_of_what_was_released_already_is_rejected(shop: Shop) -> None:
    await shop.reserve()
    await shop.release()
    with pytest.raises(Rejected, match="it was released at 2") as raised:
        await shop.release(key=remote_key("2" * 64, 2))
    assert not isinstance(raised.value, NotFound)
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase) == (ErrorKind.REJECTED, Phase.REFUSED)
    assert await shop.effects() == 2


async def test_a_release_key_that_stands_for_another_reservation_is_rejected(shop: Shop) -> None:
    """A release of the reservation's next generation must have a key of its own."""
    await shop.reserve()
    await shop.release()
    await shop.reserve(key=remote_key("1" * 64, 2))
    with pytest.raises(Rejected, match="another request"):
        await shop.release(remote_key("1" * 64, 2))
    assert await shop.effects() == 3


async def test_a_release_of_one_of_several_reservations_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StockService(tmp_path / "s.sqlite", {"A1": 9}, dedupe=False) as service:
        monkeypatch.setattr(stock, "SETTINGS", stock.StockSettings(url=HttpUrl(service.url)))
        shop = Shop(service)
        await shop.reserve()
        await shop.reserve()
        with pytest.raises(Rejected, match="2 reservations"):
            await shop.release()
        assert await shop.effects() == 2


@pytest.mark.parametrize(
    ("fault", "effects"),
    [
        ("drop_reply_after_commit", 1),
        ("drop_before_commit", 0),
        ("bad_gateway_after_commit", 1),
        ("garbage_after_commit", 1),
        ("hold_reply_after_commit", 1),
    ],
)
async def test_a_release_whose_answer_cannot_be_trusted_is_unknown_and_then_looked_up(
    shop: Shop, fault: str, effects: int
) -> None:
    await shop.reserve()
    await shop.arm(fault, of="releases")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - any error will do, so long as it isn't one of ours
        await shop.release()
    failure = failure_of(raised.value)
    assert (failure.kind, failure.phase) == (ErrorKind.UNKNOWN_RESULT, Phase.AFTER_SEND)
    assert isinstance(await shop.find_release(), Found if effects else Absent)
    assert await shop.effects() == 1 + effects
    await shop.ask("DELETE", "/faults")


# Looking up what became of a request


async def test_a_release_whose_reply_was_lost_is_found_as_our_request(shop: Shop) -> None:
    await shop.reserve()
    await shop.arm("drop_reply_after_commit", of="releases")
    with pytest.raises(httpx2.TransportError):
        await shop.release()
    found = await shop.find_release()
    assert names_our_request(found, RELEASE_KEY, ITS.model_dump(mode="json"))
    another = ReleaseStock(order="O-1", sku="A1", line=2)
    assert not names_our_request(await shop.find_release(another), RELEASE_KEY, another.model_dump(mode="json"))
    of_another = await shop.find_release(undoes_key=remote_key("1" * 64, 2))
    assert not names_our_request(of_another, RELEASE_KEY, ITS.model_dump(mode="json"))
    assert of_another.request["reservation"] == KEY, "for the person who has to say what happened"
    assert found.answer == await shop.release(), "what the tool would have answered"
    assert await shop.effects() == 2


async def test_a_lookup_of_a_release_says_absent_in_flux_or_nothing_as_one_of_a_reservation_does(shop: Shop) -> None:
    await shop.reserve()
    assert await shop.find_release() == Absent()
    await shop.release()
    for fault in ("lookup_lags", "lookup_in_flux", "lookup_fails"):
        await shop.arm(fault, of="releases")
    assert await shop.find_release() == Absent()
    assert isinstance(await shop.find_release(), InFlux)
    with pytest.raises(httpx2.HTTPStatusError):
        await shop.find_release()
    assert isinstance(await shop.find_release(), Found)


async def test_a_reservation_that_was_released_is_still_found(shop: Shop) -> None:
    """It did happen; what undid it is another operation."""
    await shop.reserve()
    await shop.release()
    assert names_our_request(await shop.find(), KEY, TWO.model_dump(mode="json"))


async def test_r67_a_reservation_whose_reply_was_lost_is_found(shop: Shop) -> None:
    await shop.arm("drop_reply_after_commit")
    with pytest.raises(httpx2.TransportError):
        await shop.reserve()
    found = await shop.find()
    assert isinstance(found, Found)
    assert found.key == KEY
    assert found.request == {"order": "O-1", "sku": "A1", "quantity": 2, "line": 1}
    assert found.answer == await shop.reserve(), "what the tool would have answered"
    assert await shop.effects() == 1


async def test_r67_what_is_found_shows_whether_it_is_our_request(shop: Shop) -> None:
    await shop.reserve()
    found = await shop.find()
    assert names_our_request(found, KEY, TWO.model_dump(mode="json"))
    assert not names_our_request(found, KEY, {**TWO.model_dump(mode="json"), "quantity": 1})
    assert not names_our_request(found, remote_key("1" * 64, 2), TWO.model_dump(mode="json"))


async def test_r68_a_complete_look_that_finds_nothing_says_absent(shop: Shop) -> None:
    assert await shop.find() == Absent()
    await shop.arm("decline")
    with pytest.raises(Rejected):
        await shop.reserve()
    assert await shop.find() == Absent()
    await shop.reserve()
    assert await shop.find(remote_key("1" * 64, 2)) == Absent(), "of another generation"


async def test_a_lookup_that_lags_behind_says_absent_all_the_same(shop: Shop) -> None:
    """Which is why `lands_within` counts, and not the lookup alone."""
    await shop.reserve()
    await shop.arm("lookup_lags")
    assert await shop.find() == Absent()
    assert isinstance(await shop.find(), Found)


async def test_a_lookup_while_the_service_still_works_says_so(shop: Shop) -> None:
    await shop.arm("lookup_in_flux")
    assert isinstance(await shop.find(), InFlux)


async def test_r68_a_lookup_that_fails_says_neither_found_nor_absent(shop: Shop) -> None:
    await shop.reserve()
    await shop.arm("lookup_fails")
    with pytest.raises(httpx2.HTTPStatusError):
        await shop.find()


async def test_r68_several_records_are_no_answer_of_a_service_that_dedupes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StockService(tmp_path / "s.sqlite", {"A1": 9}, dedupe=False) as service:
        monkeypatch.setattr(stock, "SETTINGS", stock.StockSettings(url=HttpUrl(service.url)))
        shop = Shop(service)
        await shop.reserve()
        await shop.reserve()
        with pytest.raises(httpx2.HTTPStatusError):
            await shop.find()


NOT_THE_SERVICE = [
    (404, b"<html>no such page</html>"),
    (404, b'{"error": "not_found"}'),
    (404, b'{"error": "no_reservation", "complete": false}'),
    (404, b'{"error": "no_reservation", "complete": "true"}'),
    (404, b"[]"),
    (200, b"null"),
    (200, b"{}"),
    (200, b"<html>Welcome</html>"),
    (301, b'{"complete": true}'),
    (503, b'{"complete": true}'),
]


class Impostor(httpx2.AsyncBaseTransport):
    """What stands in front of a service may answer anything."""

    def __init__(self, status: int, body: bytes) -> None:
        self.response = httpx2.Response(status, content=body)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.response


@pytest.mark.parametrize(("status", "body"), NOT_THE_SERVICE, ids=str)
async def test_r68_only_the_services_own_word_is_believed(status: int, body: bytes) -> None:
    """R68: a 404 of a proxy says absent of everything, and would permit a second send."""
    async with httpx2.AsyncClient(transport=Impostor(status, body), trust_env=False) as http:
        call = Call(tenant="", principal="", http=http, deadline=steady() + 5, idempotency_key=KEY)
        with pytest.raises((httpx2.HTTPStatusError, ValueError, TypeError, KeyError)):
            await find_reservation(TWO, call)
        with pytest.raises((httpx2.HTTPStatusError, ValueError, TypeError, KeyError)):
            await find_release(ITS, call)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error": "declined", "message": "no"}'),
        (302, b'{"error": "declined", "message": "no"}'),
        (400, b'{"error": "missing_key", "message": "no"}'),
        (404, b'{"error": "not_found", "message": "no such path"}'),
        (409, b'{"error": "of_a_later_year"}'),
        (200, b'{"order": "O-1"}'),
        (200, b"[]"),
        (204, b""),
    ],
    ids=str,
)
async def test_r75_only_a_documented_refusal_is_believed_to_have_changed_nothing(status: int, body: bytes) -> None:
    async with httpx2.AsyncClient(transport=Impostor(status, body), trust_env=False) as http:
        call = Call(tenant="", principal="", http=http, deadline=steady() + 5, idempotency_key=KEY)
        for tool, asked in ((reserve_stock, TWO), (release_stock, ITS)):
            with pytest.raises((httpx2.HTTPStatusError, ValueError, TypeError, KeyError)) as raised:
                await tool.handler(asked, call)
            assert failure_of(raised.value).kind is ErrorKind.UNKNOWN_RESULT


# What the tools declare


def test_r33_the_family_says_what_its_service_promises() -> None:
    assert faults_of(lookup_stock) == faults_of(reserve_stock) == faults_of(release_stock) == []
    assert (
        key_forms(reserve_stock)[0].declaration
        == '[1,"reserve_stock","business",[["line","int"],["order","str"],["sku","str"]],""]'
    )
    assert (reserve_stock.scope, reserve_stock.dedupes) == (Scope.BUSINESS, FOREVER)
    assert reserve_stock.lookup is find_reservation
    assert reserve_stock.resources is not None
    assert list(reserve_stock.resources(TWO)) == ["stock/A1"]
    assert lookup_stock.resources is not None
    assert list(lookup_stock.resources(LookupStock(sku="A1"))) == ["stock/A1"]


def test_a_release_has_the_key_fields_and_the_resources_of_the_reservation_it_undoes() -> None:
    declared = '[1,"release_stock","business",[["line","int"],["order","str"],["sku","str"]],"reserve_stock"]'
    assert key_forms(release_stock)[0].declaration == declared
    assert release_stock.key == reserve_stock.key
    assert (release_stock.undoes, release_stock.lookup) == (reserve_stock.name, find_release)
    assert (release_stock.scope, release_stock.dedupes) == (Scope.BUSINESS, FOREVER)
    assert release_stock.lands_within == reserve_stock.lands_within
    assert release_stock.resources is not None
    assert list(release_stock.resources(ITS)) == ["stock/A1"]


@pytest.mark.parametrize(
    "given",
    [
        {"order": "", "sku": "A1", "quantity": 1},
        {"order": "1", "sku": "", "quantity": 1},
        {"order": "1", "sku": "A1", "quantity": 0},
        {"order": "1", "sku": "A1", "quantity": -1},
        {"order": "1", "sku": "A1", "quantity": 1_000_001},
        {"order": "1", "sku": "A1", "quantity": 1, "line": 0},
        {"order": "1" * 65, "sku": "A1", "quantity": 1},
        {"order": "1", "sku": "A1"},
    ],
    ids=str,
)
def test_r38_a_reservation_of_nothing_is_invalid(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ReserveStock.model_validate(given)


@pytest.mark.parametrize(
    "given",
    [
        {"order": "", "sku": "A1"},
        {"order": "1", "sku": ""},
        {"order": "1", "sku": "A1", "line": 0},
        {"order": "1", "sku": "A1", "quantity": 1},
        {"order": "1"},
    ],
    ids=str,
)
def test_a_release_of_nothing_or_of_a_part_is_invalid(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ReleaseStock.model_validate(given)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("STOCK_URL", "nonsense"),
        ("STOCK_URL", "ftp://stock"),
        ("STOCK_TIMEOUT_SECONDS", "soon"),
        ("STOCK_TIMEOUT_SECONDS", "0"),
        ("STOCK_TIMEOUT_SECONDS", "inf"),
        ("STOCK_LANDS_WITHIN_SECONDS", "-1"),
        ("STOCK_LANDS_WITHIN_SECONDS", "nan"),
    ],
)
def test_a_wrong_setting_of_the_family_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as refused:
        stock.load_settings()
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{variable}: ")


def test_the_family_is_configured_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCK_URL", "http://stock.example/api")
    monkeypatch.setenv("STOCK_TIMEOUT_SECONDS", "2.5")
    monkeypatch.setenv("STOCK_LANDS_WITHIN_SECONDS", "0")
    loaded = stock.load_settings()
    assert (str(loaded.url), loaded.timeout_seconds, loaded.lands_within_seconds) == (
        "http://stock.example/api",
        2.5,
        0.0,
    )
