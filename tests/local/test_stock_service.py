"""The stock service over real HTTP. Others' tests trust its journal and its faults, so they are tested themselves."""

import asyncio
import json
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from settled.local.stock_faults import FaultName
from settled.local.stock_service import StockService

ORDER = {"order": "O-1", "sku": "A1", "quantity": 2}
PATIENCE = 10.0  # seconds until a wait counts as a failure; nothing passes because time went by

Json = dict[str, Any]


class Caller:
    """What a client, and a test, ask of the service."""

    def __init__(self, url: str) -> None:
        # verify=False: no TLS here, and to load the certificates for it takes longer than most of these tests
        self.http = httpx2.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE, verify=False)

    async def reserve(self, key: str, body: Json = ORDER, **options: Any) -> httpx2.Response:
        return await self.http.post("/reservations", json=body, headers={"Idempotency-Key": key}, **options)

    async def look_up(self, key: str) -> httpx2.Response:
        return await self.http.get(f"/reservations/{key}")

    async def release(self, key: str, reservation: str = "k1", **options: Any) -> httpx2.Response:
        body = {"reservation": reservation}
        return await self.http.post("/releases", json=body, headers={"Idempotency-Key": key}, **options)

    async def look_up_release(self, key: str) -> httpx2.Response:
        return await self.http.get(f"/releases/{key}")

    async def get(self, path: str, **query: str) -> Json:
        answer = await self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        body: Json = answer.json()
        return body

    async def effects(self, **query: str) -> int:
        count: int = (await self.get("/effects", **query))["count"]
        return count

    async def arm(self, fault: str, **fields: Any) -> httpx2.Response:
        return await self.http.post("/faults", json={"fault": fault, **fields})

    async def disarm(self) -> None:
        await self.http.delete("/faults")


@asynccontextmanager
async def called(database: Path, **options: Any) -> AsyncIterator[Caller]:
    async with StockService(database, {"A1": 3, "B2": 10}, **options) as service:
        caller = Caller(service.url)
        async with caller.http:
            yield caller


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "stock.sqlite"


@pytest.fixture
async def stock(database: Path) -> AsyncIterator[Caller]:
    async with called(database) as caller:
        yield caller


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 - another process can't set an event of ours
            await asyncio.sleep(0.005)


# The business


async def test_a_reservation_changes_record_stock_and_journal_together(stock: Caller) -> None:
    before = await stock.get("/stock/A1")
    answer = await stock.reserve("k1")
    record = answer.json()
    assert answer.status_code == 201
    assert record == {
        "reservation_id": record["reservation_id"],
        "idempotency_key": "k1",
        **ORDER,
        "line": 1,
        "version": 2,
        "created_at": record["created_at"],
        "released_at": None,
    }
    after = await stock.get("/stock/A1")
    assert (before["on_hand"], before["reserved"], before["available"], before["version"]) == (3, 0, 3, 1)
    assert (after["on_hand"], after["reserved"], after["available"], after["version"]) == (3, 2, 1, 2)
    assert datetime.fromisoformat(after["as_of"]).tzinfo == UTC
    assert (await stock.get("/stock/B2"))["version"] == 1
    effect = {"seq": 1, "at": record["created_at"], "kind": "reserved", "key": "k1", **ORDER, "line": 1}
    assert await stock.get("/effects") == {"count": 1, "effects": [effect]}
    assert (await stock.look_up("k1")).json() == record


async def test_the_same_key_and_body_again_is_the_same_record(stock: Caller) -> None:
    first, again = await stock.reserve("k1"), await stock.reserve("k1", {**ORDER, "line": 1})
    assert (first.status_code, again.status_code) == (201, 200)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == first.json()
    assert await stock.effects() == 1


@pytest.mark.parametrize("other", [{"order": "O-2"}, {"sku": "B2"}, {"line": 2}, {"quantity": 1}])
async def test_the_same_key_with_another_body_is_refused(stock: Caller, other: Json) -> None:
    await stock.reserve("k1")
    answer = await stock.reserve("k1", {**ORDER, **other})
    assert (answer.status_code, answer.json()["error"]) == (422, "key_reused")
    assert await stock.effects() == 1


async def test_one_key_sent_many_times_at_once_has_one_effect(stock: Caller) -> None:
    answers = await asyncio.gather(*(stock.reserve("k1") for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    assert await stock.effects() == 1


async def test_no_more_is_reserved_than_there_is(stock: Caller) -> None:
    answers = await asyncio.gather(*(stock.reserve(f"k{n}", {**ORDER, "quantity": 1}) for n in range(10)))
    refused = [answer.json() for answer in answers if answer.status_code == 409]
    assert len(refused) == 7
    assert {(body["error"], body["available"]) for body in refused} == {("insufficient_stock", 0)}
    assert (await stock.get("/stock/A1"))["available"] == 0
    assert await stock.effects() == 3


async def test_a_refusal_is_not_kept_under_its_key(stock: Caller) -> None:
    assert (await stock.reserve("k1", {**ORDER, "quantity": 4})).status_code == 409
    assert (await stock.reserve("k1")).status_code == 201


async def test_an_unknown_sku_is_not_found(stock: Caller) -> None:
    for answer in (await stock.http.get("/stock/C3"), await stock.reserve("k1", {**ORDER, "sku": "C3"})):
        assert (answer.status_code, answer.json()["error"]) == (404, "unknown_sku")
    assert await stock.effects() == 0


async def test_a_reservation_needs_a_key(stock: Caller) -> None:
    answer = await stock.http.post("/reservations", json=ORDER)
    assert (answer.status_code, answer.json()["error"]) == (400, "missing_key")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"sku": "A1", "quantity": 1}, "order: "),
        ({**ORDER, "quantity": 0}, "quantity: "),
        ({**ORDER, "quantity": "2"}, "quantity: "),
        ({**ORDER, "quantity": True}, "quantity: "),
        ({**ORDER, "line": 2**63}, "line: "),
        ({**ORDER, "colour": "red"}, "colour"),
        ([], "body: "),
    ],
)
async def test_a_malformed_reservation_is_refused_by_field(stock: Caller, body: Any, named: str) -> None:
    answer = await stock.reserve("k1", body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert named in answer.json()["message"]
    assert await stock.effects() == 0


@pytest.mark.parametrize("key", ["k" * 256, "ké"])
async def test_a_key_that_is_too_long_or_not_ascii_is_refused(stock: Caller, key: str) -> None:
    answer = await stock.http.post("/reservations", json=ORDER, headers={b"Idempotency-Key": key.encode()})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "Idempotency-Key" in answer.json()["message"]


async def test_what_is_not_there_is_said_to_be_completely_absent(stock: Caller) -> None:
    answer = await stock.look_up("k1")
    assert answer.status_code == 404
    assert (answer.json()["error"], answer.json()["complete"]) == ("no_reservation", True)
    assert await stock.get("/reservations", order="O-1") == {"complete": True, "reservations": []}


@pytest.mark.parametrize("key", ["a/b", "a b?c#d", "100%", "{key}", "."])
async def test_any_key_is_found_again(stock: Caller, key: str) -> None:
    await stock.reserve(key)
    quoted = "".join(f"%{byte:02X}" for byte in key.encode())
    assert (await stock.look_up(quoted)).json()["idempotency_key"] == key


async def test_lists_are_narrowed_by_order_and_key_and_by_nothing_else(stock: Caller) -> None:
    for number in (1, 2):
        await stock.reserve(f"k{number}", {"order": f"O-{number}", "sku": "B2", "quantity": 1})
    listed = (await stock.get("/reservations", order="O-2"))["reservations"]
    assert [record["idempotency_key"] for record in listed] == ["k2"]
    assert len((await stock.get("/reservations"))["reservations"]) == 2
    queries: list[dict[str, str]] = [{}, {"key": "k1"}, {"order": "O-1", "key": "k2"}, {"key": ""}]
    assert [await stock.effects(**query) for query in queries] == [2, 1, 0, 0]
    answer = await stock.http.get("/effects", params={"ordr": "O-1"})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert "ordr" in answer.json()["message"]


async def test_requests_are_counted_when_received_whatever_becomes_of_them(stock: Caller) -> None:
    await stock.arm("drop_before_commit")
    with pytest.raises(httpx2.RemoteProtocolError):
        await stock.reserve("k1")
    await stock.reserve("k1")
    await stock.reserve("k2", {})
    await stock.look_up("k1")
    await stock.release("r1")
    await stock.release("r1", "k3")
    await stock.look_up_release("r1")
    assert await stock.get("/requests") == {
        "POST /reservations": 3,
        "GET /reservations/{key}": 1,
        "GET /reservations": 0,
        "POST /releases": 2,
        "GET /releases/{key}": 1,
        "GET /stock/{sku}": 0,
        "by_key": {"k1": 2, "k2": 1, "r1": 2},
    }


async def test_a_client_that_goes_in_the_middle_of_its_body_is_nothing_to_report(
    database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with called(database) as stock:
        url = stock.http.base_url
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"POST /reservations HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k1\r\nContent-Length: 99\r\n\r\n{")

        async def received() -> bool:
            return bool((await stock.get("/requests"))["POST /reservations"] == 1)

        await until(received)
        writer.close()
        await writer.wait_closed()
        assert await stock.effects() == 0
    assert caplog.records == []


async def test_the_journal_can_only_grow(stock: Caller, database: Path) -> None:
    await stock.reserve("k1")
    with closing(sqlite3.connect(database)) as connection:
        for change in ("DELETE FROM effects", "UPDATE effects SET quantity = 1"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(change)


# Releasing


async def test_a_release_changes_record_reservation_stock_and_journal_together(stock: Caller) -> None:
    reserved = (await stock.reserve("k1")).json()
    answer = await stock.release("r1")
    record = answer.json()
    assert answer.status_code == 201
    assert record == {
        "release_id": record["release_id"],
        "idempotency_key": "r1",
        "reservation": "k1",
        **ORDER,
        "line": 1,
        "version": 3,
        "created_at": record["created_at"],
    }
    after = await stock.get("/stock/A1")
    assert (after["on_hand"], after["reserved"], after["available"], after["version"]) == (3, 0, 3, 3)
    facts = {"kind": "released", "key": "r1", **ORDER, "line": 1, "reservation": "k1"}
    assert (await stock.get("/effects"))["effects"][1:] == [{"seq": 2, "at": record["created_at"], **facts}]
    assert (await stock.look_up_release("r1")).json() == record
    released = {**reserved, "released_at": record["created_at"]}
    assert (await stock.look_up("k1")).json() == released
    assert (await stock.get("/reservations"))["reservations"] == [released]


async def test_the_same_release_again_is_the_same_record(stock: Caller) -> None:
    await stock.reserve("k1")
    first, again = await stock.release("r1"), await stock.release("r1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.json() == first.json()
    assert (await stock.get("/stock/A1"))["available"] == 3
    assert await stock.effects(key="r1") == 1


async def test_a_reservation_is_released_once_however_often_and_under_whatever_keys_it_is_asked_for(
    stock: Caller,
) -> None:
    await stock.reserve("k1")
    answers = await asyncio.gather(*(stock.release(f"r{n % 4}") for n in range(20)))
    counted = Counter((answer.status_code, answer.json().get("error")) for answer in answers)
    assert counted == {(201, None): 1, (200, None): 4, (409, "already_released"): 15}
    assert (await stock.get("/stock/A1"))["available"] == 3
    assert await stock.effects() == 2


async def test_what_was_released_can_be_reserved_and_released_again_under_other_keys(stock: Caller) -> None:
    """The way of an operation's generations: each has a key of its own."""
    for generation in (1, 2):
        assert (await stock.reserve(f"k{generation}", {**ORDER, "quantity": 3})).status_code == 201
        assert (await stock.release(f"r{generation}", f"k{generation}")).status_code == 201
    kinds = [(effect["kind"], effect["key"]) for effect in (await stock.get("/effects", order="O-1"))["effects"]]
    assert kinds == [("reserved", "k1"), ("released", "r1"), ("reserved", "k2"), ("released", "r2")]
    assert (await stock.get("/stock/A1"))["version"] == 5


async def test_a_released_reservation_is_not_made_again_under_its_key(stock: Caller) -> None:
    await stock.reserve("k1")
    release = (await stock.release("r1")).json()
    again = await stock.reserve("k1")
    assert (again.status_code, again.json()["released_at"]) == (200, release["created_at"])
    assert (await stock.get("/stock/A1"))["available"] == 3


async def test_a_release_key_that_stands_for_another_reservation_is_refused(stock: Caller) -> None:
    for key in ("k1", "k2"):
        await stock.reserve(key, {**ORDER, "sku": "B2"})
    await stock.release("r1", "k1")
    answer = await stock.release("r1", "k2")
    assert (answer.status_code, answer.json()["error"]) == (422, "key_reused")
    assert await stock.effects() == 3


async def test_nothing_is_released_that_was_not_reserved_and_the_key_may_be_used_again(stock: Caller) -> None:
    answer = await stock.release("r1")
    assert (answer.status_code, answer.json()["error"]) == (404, "no_reservation")
    assert await stock.effects() == 0
    await stock.reserve("k1")
    assert (await stock.release("r1")).status_code == 201


async def test_a_release_that_is_not_there_is_said_to_be_completely_absent(stock: Caller) -> None:
    await stock.reserve("k1")
    answer = await stock.look_up_release("k1")
    assert answer.status_code == 404
    assert (answer.json()["error"], answer.json()["complete"]) == ("no_release", True)


@pytest.mark.parametrize(
    ("headers", "body", "error", "named"),
    [
        ({}, {"reservation": "k1"}, "missing_key", "Idempotency-Key"),
        ({"Idempotency-Key": "r" * 256}, {"reservation": "k1"}, "invalid_request", "Idempotency-Key"),
        ({"Idempotency-Key": "r1"}, {}, "invalid_request", "reservation: "),
        ({"Idempotency-Key": "r1"}, {"reservation": ""}, "invalid_request", "reservation: "),
        ({"Idempotency-Key": "r1"}, {"reservation": "k1", "quantity": 1}, "invalid_request", "quantity"),
    ],
)
async def test_a_malformed_release_is_refused_by_field(
    stock: Caller, headers: dict[str, str], body: Json, error: str, named: str
) -> None:
    await stock.reserve("k1")
    answer = await stock.http.post("/releases", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert named in answer.json()["message"]
    assert await stock.effects() == 1


async def test_a_file_from_before_there_were_releases_is_opened_and_kept(database: Path) -> None:
    async with called(database) as stock:
        reserved = (await stock.reserve("k1")).json()
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript("DROP TABLE releases; ALTER TABLE effects DROP COLUMN reservation")
    for attempt in (201, 200):
        async with called(database) as stock:
            assert (await stock.look_up("k1")).json()["created_at"] == reserved["created_at"]
            assert (await stock.release("r1")).status_code == attempt
            effects = (await stock.get("/effects"))["effects"]
            assert [effect.get("reservation") for effect in effects] == [None, "k1"]


async def test_health_and_unknown_paths_are_answered_in_json(stock: Caller) -> None:
    assert await stock.get("/healthz") == {"status": "ok"}
    unknown, wrong = await stock.http.get("/stocks"), await stock.http.delete("/reservations")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]) == (405, "method_not_allowed")


# Faults


async def test_a_dropped_reply_is_lost_without_a_byte_and_the_reservation_stands(stock: Caller) -> None:
    await stock.arm("drop_reply_after_commit")
    with pytest.raises(httpx2.RemoteProtocolError, match="without sending a response"):
        await stock.reserve("k1")
    assert (await stock.look_up("k1")).status_code == 200
    assert await stock.effects() == 1


async def test_a_refusal_can_be_lost_as_well(stock: Caller) -> None:
    await stock.arm("drop_reply_after_commit")
    with pytest.raises(httpx2.RemoteProtocolError):
        await stock.reserve("k1", {**ORDER, "quantity": 4})
    assert await stock.effects() == 0


async def test_a_drop_before_the_commit_leaves_nothing(stock: Caller) -> None:
    await stock.arm("drop_before_commit")
    with pytest.raises(httpx2.RemoteProtocolError, match="without sending a response"):
        await stock.reserve("k1")
    assert (await stock.look_up("k1")).status_code == 404
    assert await stock.effects() == 0


async def test_a_late_commit_happens_although_the_client_has_gone(stock: Caller) -> None:
    await stock.arm("commit_after_timeout", seconds=1)
    with pytest.raises(httpx2.ReadTimeout):
        await stock.reserve("k1", timeout=0.05)
    gone = datetime.now(UTC)
    assert (await stock.look_up("k1")).status_code == 404

    async def found() -> bool:
        return (await stock.look_up("k1")).status_code == 200

    await until(found)
    (effect,) = (await stock.get("/effects"))["effects"]
    assert datetime.fromisoformat(effect["at"]) > gone


async def test_a_held_reply_is_committed_at_once_and_goes_when_faults_are_disarmed(stock: Caller) -> None:
    await stock.arm("hold_reply_after_commit")
    held = asyncio.create_task(stock.reserve("k1"))

    async def committed() -> bool:
        return await stock.effects(key="k1") == 1

    await until(committed)
    assert not held.done()
    await stock.disarm()
    assert (await held).status_code == 201


async def test_a_held_reply_goes_after_its_seconds(stock: Caller) -> None:
    await stock.arm("hold_reply_after_commit", seconds=0.2)
    started = asyncio.get_running_loop().time()
    assert (await stock.reserve("k1")).status_code == 201
    assert asyncio.get_running_loop().time() - started >= 0.2


async def test_a_bad_gateway_and_garbage_hide_a_reservation(stock: Caller) -> None:
    await stock.arm("bad_gateway_after_commit")
    await stock.arm("garbage_after_commit")
    gateway, garbage = [await stock.reserve(key, {**ORDER, "quantity": 1}) for key in ("k1", "k2")]
    assert (gateway.status_code, gateway.headers["content-type"]) == (502, "text/html; charset=utf-8")
    assert garbage.status_code == 200
    with pytest.raises(ValueError, match="utf-8"):
        garbage.json()
    assert await stock.effects() == 2


async def test_a_decline_and_a_rate_limit_commit_nothing(stock: Caller) -> None:
    await stock.arm("decline")
    await stock.arm("rate_limit", seconds=1.2)
    await stock.arm("rate_limit")
    declined, limited, by_default = [await stock.reserve("k1") for _ in range(3)]
    assert (declined.status_code, declined.json()["error"]) == (409, "declined")
    assert (limited.status_code, limited.json()["error"], limited.headers["Retry-After"]) == (429, "rate_limited", "2")
    assert by_default.headers["Retry-After"] == "1"
    assert await stock.effects() == 0


async def test_a_lookup_fails_lags_or_is_in_flux_and_then_tells_the_truth(stock: Caller) -> None:
    await stock.reserve("k1")
    for fault in ("lookup_fails", "lookup_lags", "lookup_in_flux"):
        await stock.arm(fault)
    failed, lagging, in_flux, truth = [await stock.look_up("k1") for _ in range(4)]
    assert (failed.status_code, failed.json()["error"]) == (503, "lookup_failed")
    assert (lagging.status_code, lagging.json()) == (404, (await stock.look_up("k2")).json())
    assert (in_flux.status_code, in_flux.json()) == (202, {"status": "processing"})
    assert truth.status_code == 200


async def test_faults_are_met_in_the_order_of_arming_once_per_times(stock: Caller) -> None:
    await stock.arm("decline", times=2)
    await stock.arm("rate_limit")
    assert [(await stock.reserve("k1")).status_code for _ in range(4)] == [409, 409, 429, 201]


async def test_what_is_armed_is_listed_and_can_be_disarmed(stock: Caller) -> None:
    await stock.arm("decline", times=2, match={"order": "O-1"})
    await stock.arm("lookup_fails")
    await stock.reserve("k1")
    left = {"of": "reservations", "times": 1, "match": {}}
    decline, lookup = {**left, "fault": "decline", "match": {"order": "O-1"}}, {**left, "fault": "lookup_fails"}
    assert await stock.get("/faults") == {"armed": [decline, lookup]}
    await stock.disarm()
    assert await stock.get("/faults") == {"armed": []}
    assert (await stock.reserve("k1")).status_code == 201


async def test_a_fault_waits_for_the_request_it_matches(stock: Caller) -> None:
    await stock.arm("decline", match={"order": "O-2", "line": 2})
    bodies = [{**ORDER, "sku": "B2", **other} for other in ({}, {"order": "O-2"}, {"order": "O-2", "line": 2})]
    assert [(await stock.reserve(f"k{n}", body)).status_code for n, body in enumerate(bodies)] == [201, 201, 409]


async def test_a_lookup_is_matched_by_the_record_or_by_what_was_sent(stock: Caller) -> None:
    await stock.reserve("k1")
    await stock.arm("decline")
    await stock.reserve("k2", {**ORDER, "order": "O-2"})
    for order in ("O-1", "O-2"):
        await stock.arm("lookup_in_flux", match={"order": order})
    assert [(await stock.look_up(key)).status_code for key in ("k3", "k2", "k1")] == [404, 202, 202]


async def test_a_replay_meets_faults_too(stock: Caller) -> None:
    await stock.reserve("k1")
    await stock.arm("decline")
    assert (await stock.reserve("k1")).status_code == 409
    assert (await stock.reserve("k1")).status_code == 200


async def test_a_refused_body_leaves_faults_armed(stock: Caller) -> None:
    await stock.arm("decline")
    assert (await stock.reserve("k1", {})).status_code == 400
    assert (await stock.reserve("k1")).status_code == 409


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"fault": "explode"}, ["fault: ", *FaultName]),
        ({}, ["fault: "]),
        ({"fault": "decline", "tiems": 2}, ["tiems", "fault", "times", "match", "seconds"]),
        ({"fault": "decline", "times": 0}, ["times: "]),
        ({"fault": "decline", "of": "orders"}, ["of: ", "reservations", "releases"]),
        ({"fault": "decline", "match": {"ordr": "O-1"}}, ["match.ordr", "order", "sku", "line", "quantity"]),
        ({"fault": "decline", "seconds": 1}, ["seconds: ", "decline"]),
        ({"fault": "commit_after_timeout"}, ["seconds: ", "commit_after_timeout"]),
        ({"fault": "commit_after_timeout", "seconds": -1}, ["seconds: "]),
    ],
)
async def test_a_fault_nobody_knows_is_refused_in_one_line(stock: Caller, body: Json, named: list[str]) -> None:
    answer = await stock.http.post("/faults", json=body)
    message = answer.json()["message"]
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_fault")
    assert "\n" not in message
    assert [name for name in named if name not in message] == []
    assert await stock.get("/faults") == {"armed": []}


# Faults of releases


@pytest.mark.parametrize(
    ("fault", "status", "effects"),
    [
        ("drop_reply_after_commit", None, 1),
        ("drop_before_commit", None, 0),
        ("bad_gateway_after_commit", 502, 1),
        ("garbage_after_commit", 200, 1),
        ("decline", 409, 0),
        ("rate_limit", 429, 0),
    ],
)
async def test_a_fault_can_be_meant_for_releases(stock: Caller, fault: str, status: int | None, effects: int) -> None:
    await stock.arm(fault, of="releases")
    assert (await stock.reserve("k1")).status_code == 201, "which is not what it is meant for"
    if status is None:
        with pytest.raises(httpx2.RemoteProtocolError, match="without sending a response"):
            await stock.release("r1")
    else:
        assert (await stock.release("r1")).status_code == status
    assert (await stock.look_up_release("r1")).status_code == (200 if effects else 404)
    assert await stock.effects(key="r1") == effects
    assert (await stock.release("r1")).status_code == (200 if effects else 201)


async def test_a_fault_is_meant_for_reservations_unless_it_says_otherwise(stock: Caller) -> None:
    await stock.reserve("k1")
    await stock.arm("decline")
    assert (await stock.release("r1")).status_code == 201
    assert (await stock.reserve("k2")).status_code == 409


async def test_a_late_release_happens_although_the_client_has_gone(stock: Caller) -> None:
    await stock.reserve("k1")
    await stock.arm("commit_after_timeout", of="releases", seconds=1)
    with pytest.raises(httpx2.ReadTimeout):
        await stock.release("r1", timeout=0.05)
    gone = datetime.now(UTC)

    async def found() -> bool:
        return (await stock.look_up_release("r1")).status_code == 200

    await until(found)
    (effect,) = (await stock.get("/effects", key="r1"))["effects"]
    assert datetime.fromisoformat(effect["at"]) > gone
    assert (await stock.get("/stock/A1"))["available"] == 3


async def test_a_held_release_is_committed_at_once_and_goes_when_faults_are_disarmed(stock: Caller) -> None:
    await stock.reserve("k1")
    await stock.arm("hold_reply_after_commit", of="releases")
    held = asyncio.create_task(stock.release("r1"))

    async def committed() -> bool:
        return await stock.effects(key="r1") == 1

    await until(committed)
    assert not held.done()
    await stock.disarm()
    assert (await held).status_code == 201


async def test_a_lookup_of_a_release_fails_lags_or_is_in_flux_and_then_tells_the_truth(stock: Caller) -> None:
    await stock.reserve("k1")
    await stock.release("r1")
    for fault in ("lookup_fails", "lookup_lags", "lookup_in_flux"):
        await stock.arm(fault, of="releases")
    assert (await stock.look_up("k1")).status_code == 200, "which is not what they are meant for"
    failed, lagging, in_flux, truth = [await stock.look_up_release("r1") for _ in range(4)]
    assert (failed.status_code, failed.json()["error"]) == (503, "lookup_failed")
    assert (lagging.status_code, lagging.json()) == (404, (await stock.look_up_release("r2")).json())
    assert (in_flux.status_code, in_flux.json()) == (202, {"status": "processing"})
    assert truth.status_code == 200


async def test_a_release_and_its_lookup_are_matched_by_what_was_reserved(stock: Caller) -> None:
    """A release names a reservation only; a test knows the order."""
    for number in (1, 2):
        await stock.reserve(f"k{number}", {"order": f"O-{number}", "sku": "B2", "quantity": 1})
    await stock.arm("decline", of="releases", match={"order": "O-2", "quantity": 1, "reservation": "k2"})
    assert [(await stock.release(f"r{number}", f"k{number}")).status_code for number in (1, 2)] == [201, 409]
    for order in ("O-1", "O-2"):
        await stock.arm("lookup_in_flux", of="releases", match={"order": order})
    assert [(await stock.look_up_release(key)).status_code for key in ("r3", "r2", "r1")] == [404, 202, 202]


# Other services


async def test_without_dedupe_each_send_is_an_effect_and_lookups_show_them_all(database: Path) -> None:
    async with called(database, dedupe=False) as stock:
        body = {**ORDER, "quantity": 1}
        first = await stock.reserve("k1", body)
        assert (await stock.look_up("k1")).json() == first.json()
        second = await stock.reserve("k1", {**body, "line": 2})
        assert (first.status_code, second.status_code) == (201, 201)
        several = await stock.look_up("k1")
        assert (several.status_code, several.json()["error"]) == (300, "several")
        assert several.json()["reservations"] == [first.json(), second.json()]
        assert await stock.get("/reservations", key="k1") == {
            "complete": True,
            "reservations": [first.json(), second.json()],
        }
        assert await stock.effects(key="k1") == 2


async def test_without_dedupe_a_reservation_is_released_once_all_the_same(database: Path) -> None:
    async with called(database, dedupe=False) as stock:
        await stock.reserve("k1")
        answers = [await stock.release(key) for key in ("r1", "r1", "r2")]
        assert [answer.status_code for answer in answers] == [201, 409, 409]
        assert {answer.json()["error"] for answer in answers[1:]} == {"already_released"}
        assert await stock.effects() == 2
        await stock.reserve("k2", {**ORDER, "line": 2})
        second = await stock.release("r1", "k2")
        several = await stock.look_up_release("r1")
        assert (several.status_code, several.json()["error"]) == (300, "several")
        assert several.json()["releases"] == [answers[0].json(), second.json()]


async def test_of_several_reservations_under_one_key_none_is_released(database: Path) -> None:
    """Which of them is meant, the key doesn't say."""
    async with called(database, dedupe=False) as stock:
        for _ in range(2):
            await stock.reserve("k1", {**ORDER, "quantity": 1})
        answer = await stock.release("r1")
        assert (answer.status_code, answer.json()["error"]) == (409, "several_reservations")
        assert await stock.effects() == 2


async def test_nothing_is_released_later_than_the_processing_limit(database: Path) -> None:
    async with called(database, processing_limit=0.1) as stock:
        await stock.reserve("k1")
        await stock.arm("commit_after_timeout", of="releases", seconds=0.2)
        answer = await stock.release("r1")
        assert (answer.status_code, answer.json()["error"]) == (504, "too_late")
        assert (await stock.get("/stock/A1"))["reserved"] == 2
        assert await stock.effects() == 1


async def test_nothing_commits_later_than_the_processing_limit(database: Path) -> None:
    async with called(database, processing_limit=0.1) as stock:
        await stock.arm("commit_after_timeout", seconds=0.2)
        answer = await stock.reserve("k1")
        assert (answer.status_code, answer.json()["error"]) == (504, "too_late")
        assert (await stock.get("/stock/A1"))["version"] == 1
        assert await stock.effects() == 0


async def test_a_late_commit_never_happens_once_the_service_has_ended(database: Path) -> None:
    before = asyncio.all_tasks()
    async with called(database) as stock:
        await stock.arm("commit_after_timeout", seconds=PATIENCE)
        with pytest.raises(httpx2.ReadTimeout):
            await stock.reserve("k1", timeout=0.05)
    assert [task for task in asyncio.all_tasks() - before if "RequestHandler" in repr(task.get_coro())] == []
    async with called(database) as stock:
        assert await stock.effects() == 0


# The process


@asynccontextmanager
async def process(database: Path, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, Caller]]:
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "settled.local.stock_service", "--database", str(database), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            caller = Caller(json.loads(await running.stdout.readline())["listening"])
        async with caller.http:
            yield running, caller
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def test_what_was_committed_survives_a_kill(database: Path) -> None:
    async with process(database, "--stock", "A1=3") as (running, stock):
        await stock.arm("hold_reply_after_commit", match={"idempotency_key": "k2"})
        first = await stock.reserve("k1", {**ORDER, "quantity": 1})
        held = asyncio.create_task(stock.reserve("k2", {**ORDER, "quantity": 1}))

        async def committed() -> bool:
            return await stock.effects() == 2

        await until(committed)
        running.kill()
        with pytest.raises(httpx2.TransportError):
            await held
    async with process(database, "--stock", "A1=99", "--stock", "B2=10") as (_, stock):
        a1, b2 = await stock.get("/stock/A1"), await stock.get("/stock/B2")
        assert (a1["on_hand"], a1["reserved"], a1["version"], b2["on_hand"]) == (3, 2, 3, 10)
        replay = await stock.reserve("k1", {**ORDER, "quantity": 1})
        assert (replay.status_code, replay.json()) == (200, first.json())
        assert (await stock.look_up("k2")).status_code == 200
        assert await stock.effects() == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_quickly_and_silently_even_with_a_held_reply(
    database: Path, number: signal.Signals
) -> None:
    async with process(database, "--stock", "A1=3") as (running, stock):
        await stock.arm("hold_reply_after_commit")
        held = asyncio.create_task(stock.reserve("k1"))

        async def committed() -> bool:
            return await stock.effects() == 1

        await until(committed)
        running.send_signal(number)
        async with asyncio.timeout(PATIENCE / 2):
            out, err = await running.communicate()
        assert (running.returncode, out, err) == (0, b"", b"")
        with pytest.raises(httpx2.TransportError):
            await held


async def test_options_of_the_process_reach_the_service(database: Path) -> None:
    options = ("--stock", "A1=3", "--no-dedupe", "--processing-limit", "0")
    async with process(database, *options) as (_, stock):
        assert (await stock.reserve("k1")).json()["error"] == "too_late"
    async with process(database, *options[:3]) as (_, stock):
        assert [(await stock.reserve("k1", {**ORDER, "quantity": 1})).status_code for _ in range(2)] == [201, 201]


async def refusal_to_start(*options: str) -> str:
    """What the process says instead of starting."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "settled.local.stock_service", *options), stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(PATIENCE):
        _, err = await running.communicate()
    assert running.returncode != 0
    assert b"Traceback" not in err
    return err.decode().splitlines()[-1]


async def test_a_process_that_cannot_start_says_why_in_one_line(database: Path, stock: Caller) -> None:
    assert "'A1' is not SKU=PIECES, like A1=3" in await refusal_to_start("--database", str(database), "--stock", "A1")
    assert "unable to open database file" in await refusal_to_start("--database", str(database.parent))
    assert "in use" in await refusal_to_start("--database", str(database), "--port", str(stock.http.base_url.port))
