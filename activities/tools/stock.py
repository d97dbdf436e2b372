"""The stock family: how much of an article there is, reserving it for an order, and releasing what was reserved.

The service is an HTTP API that honours an idempotency key for ever and never commits later than its processing limit
after it received a request. It can be asked by key what became of a request.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
from pydantic import Field, HttpUrl, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from settled.activities.toolkit import (
    FOREVER,
    Absent,
    Answer,
    Arguments,
    Call,
    Found,
    InFlux,
    NotFound,
    RateLimited,
    Rejected,
    Scope,
    read,
    write,
)
from settled.workflows.errors import ConfigurationError

SOURCE = "stock service"
Sku = Annotated[str, Field(min_length=1, max_length=64, description="The article's number, for example A1.")]
Order = Annotated[str, Field(min_length=1, max_length=64, description="The order's number.")]


class StockSettings(BaseSettings):
    """Where the stock service is."""

    model_config = SettingsConfigDict(env_prefix="STOCK_")

    url: HttpUrl = HttpUrl("http://127.0.0.1:8085")
    """`STOCK_URL`: the service's address."""
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """`STOCK_TIMEOUT_SECONDS`: the time budget of one attempt."""
    lands_within_seconds: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    """`STOCK_LANDS_WITHIN_SECONDS`: the service's own promise: it commits nothing later than this after a deadline."""


def load_settings() -> StockSettings:
    """The settings from the environment.

    Raises:
        ConfigurationError: a variable doesn't fit; a line for each.
    """
    try:
        return StockSettings()
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [f"STOCK_{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}" for fault in faults]
        raise ConfigurationError("\n".join(lines)) from None


SETTINGS = load_settings()


class LookupStock(Arguments):
    """What `lookup_stock` is asked."""

    sku: Sku


class ReserveStock(Arguments):
    """What `reserve_stock` is asked."""

    order: Order
    sku: Sku
    quantity: Annotated[int, Field(gt=0, le=1_000_000, description="How many pieces.")]
    line: Annotated[
        int, Field(gt=0, le=1_000_000, description="The order's line; a deliberate second reservation has its own.")
    ] = 1


class ReleaseStock(Arguments):
    """What `release_stock` is asked."""

    order: Order
    sku: Sku
    line: Annotated[int, Field(gt=0, le=1_000_000, description="The order's line, as it was reserved.")] = 1


@read(timeout=timedelta(seconds=SETTINGS.timeout_seconds), resources=lambda asked: [f"stock/{asked.sku}"])
async def lookup_stock(asked: LookupStock, call: Call) -> Answer:
    """Look up how much of an article is in stock. Read-only: it reserves nothing.

    Takes the article's number (sku). Answers with the pieces on hand, reserved, and available to sell, as of the time
    and version that the answer states. The numbers may change at any time after that.
    """
    response = await call.http.get(_url("stock", asked.sku))
    body = _body(response)
    if response.status_code == httpx2.codes.NOT_FOUND:
        raise NotFound(f"there is no article {asked.sku!r}")
    _refuse(response, body)
    data = {name: body[name] for name in ("sku", "on_hand", "reserved", "available")}
    return Answer(data=data, source=SOURCE, version=f"version {body['version']}, as of {body['as_of']}")


async def find_reservation(asked: ReserveStock, call: Call) -> Found | Absent | InFlux:
    """Ask the service by key what became of a reservation."""
    body = await _found("reservations", call)
    if not isinstance(body, dict):
        return body
    request = {name: body[name] for name in ("order", "sku", "quantity", "line")}
    stands = body["released_at"] is None
    return Found(key=body["idempotency_key"], request=request, answer=_reservation(body), stands=stands)


async def find_release(asked: ReleaseStock, call: Call) -> Found | Absent | InFlux:
    """Ask the service by key what became of a release."""
    body = await _found("releases", call)
    if not isinstance(body, dict):
        return body
    request = {name: body[name] for name in ("order", "sku", "line")}
    if body["reservation"] != call.undoes_key:
        request["reservation"] = body["reservation"]  # no argument of ours: so it is another request, as a person reads
    return Found(key=body["idempotency_key"], request=request, answer=_release(body))


@write(
    key=("order", "sku", "line"),
    scope=Scope.BUSINESS,
    lookup=find_reservation,
    dedupes=FOREVER,
    lands_within=timedelta(seconds=SETTINGS.lands_within_seconds),
    resources=lambda asked: [f"stock/{asked.sku}"],
    timeout=timedelta(seconds=SETTINGS.timeout_seconds),
)
async def reserve_stock(asked: ReserveStock, call: Call) -> Answer:
    """Reserve pieces of an article for an order. Writes: the pieces are taken out of what is available.

    Takes the order's number, the article's number (sku), the quantity, and the order's line (1 unless the order has
    several of the same article). The same order, article and line is the same reservation, however often it is asked
    for. Declined if there is not enough; the answer then says how much is available.
    """
    response = await call.http.post(
        _url("reservations"),
        json={"order": asked.order, "sku": asked.sku, "quantity": asked.quantity, "line": asked.line},
        headers={"Idempotency-Key": call.idempotency_key},
    )
    body = _body(response)
    _refuse(response, body)
    return _reservation(body)


@write(
    key=("order", "sku", "line"),
    scope=Scope.BUSINESS,
    lookup=find_release,
    dedupes=FOREVER,
    lands_within=timedelta(seconds=SETTINGS.lands_within_seconds),
    resources=lambda asked: [f"stock/{asked.sku}"],
    timeout=timedelta(seconds=SETTINGS.timeout_seconds),
    undoes="reserve_stock",
)
async def release_stock(asked: ReleaseStock, call: Call) -> Answer:
    """Release what is reserved of an article for an order. Writes: all of that reservation's pieces become available.

    Takes the order's number, the article's number (sku), and the order's line (1 unless the order has several of the
    same article), as they were reserved. To change a quantity, release, then reserve again. Declined if there is no
    such reservation, or if it was released already.
    """
    response = await call.http.post(
        _url("releases"),
        json={"reservation": call.undoes_key},
        headers={"Idempotency-Key": call.idempotency_key},
    )
    body = _body(response)
    _refuse(response, body)
    return _release(body)


def _reservation(body: dict[str, Any]) -> Answer:
    return _record(body, ("reservation_id", "order", "sku", "quantity", "line"))


def _release(body: dict[str, Any]) -> Answer:
    return _record(body, ("release_id", "order", "sku", "quantity", "line"))


def _record(body: dict[str, Any], names: tuple[str, ...]) -> Answer:
    return Answer(
        data={name: body[name] for name in names},
        source=SOURCE,
        version=f"version {body['version']}, as of {body['created_at']}",
    )


async def _found(records: str, call: Call) -> dict[str, Any] | Absent | InFlux:
    """The record under the call's key, if the service has it."""
    response = await call.http.get(_url(records, call.idempotency_key))
    if response.status_code == httpx2.codes.ACCEPTED:
        return InFlux("the service is still working on it")
    body = _body(response)
    if response.status_code == httpx2.codes.NOT_FOUND and body.get("complete") is True:
        return Absent()
    response.raise_for_status()
    return body


def _url(*parts: str) -> str:
    return "/".join([str(SETTINGS.url).rstrip("/"), *(quote(part, safe="") for part in parts)])


def _body(response: httpx2.Response) -> dict[str, Any]:
    """The answer's JSON object. An answer that is none says nothing, whatever its status."""
    body = response.json()
    if not isinstance(body, dict):
        raise TypeError("the service's answer is not a JSON object")
    return body


DECLINES = {
    "insufficient_stock": Rejected,
    "already_released": Rejected,
    "several_reservations": Rejected,
    "declined": Rejected,
    "no_reservation": NotFound,
    "unknown_sku": NotFound,
    "invalid_request": Rejected,
    "key_reused": Rejected,
}
"""The service's documented refusals before execution; any other failure may have had an effect."""


def _refuse(response: httpx2.Response, body: dict[str, Any]) -> None:
    """Raise what the service's refusal means; anything that isn't a documented refusal is unclear.

    Raises:
        Rejected: it declined, for a reason of business.
        NotFound: the article, or what is to be released, doesn't exist.
        RateLimited: it asks to wait.
        HTTPStatusError: any other failure.
    """
    if response.is_success:
        return
    message = str(body.get("message") or body.get("error"))
    if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
        raise RateLimited(message, after=float(response.headers.get("retry-after", 1)))
    refusal = DECLINES.get(str(body.get("error"))) if response.is_client_error else None
    if refusal is not None:
        raise refusal(f"{message} ({body['available']} available)" if "available" in body else message)
    response.raise_for_status()
