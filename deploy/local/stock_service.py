"""The demo's stock service: a business service that isn't ours, over HTTP, with faults that can be switched on.

    python -m settled.local.stock_service --database PATH [--port 0] [--stock A1=3]… [--no-dedupe]
                                          [--processing-limit SECONDS]

It prints one line, `{"listening": "http://127.0.0.1:PORT"}`, once it answers. What is committed survives a kill;
SIGTERM and SIGINT end it at once: held replies are then lost, and late commits never happen. Bodies are JSON, durations
are in seconds, times ISO 8601 in UTC. A refusal is `{"error": NAME, "message": TEXT}`, and has changed nothing.

The business:

GET /stock/{sku} → 200 `{sku, on_hand, reserved, available, version, as_of}`; `version` grows with each change of the
    sku. 404 `unknown_sku`.
POST /reservations, header `Idempotency-Key` (up to 255 visible ASCII characters and spaces), body
    `{order, sku, quantity, line = 1}` → 201 `{reservation_id, idempotency_key, order, sku, line, quantity, version,
    created_at}`. Same key, same body: 200, that record, header `Idempotent-Replayed: true`. A refusal isn't kept: its
    key may be used again. 400 `missing_key`; 400 `invalid_request`, naming the field; 404 `unknown_sku`;
    409 `insufficient_stock`, with `available`; 422 `key_reused` (same key, other body); 504 `too_late`.
GET /reservations/{key} → 200, the record. 404 `no_reservation`, with `complete: true`: everything was looked at.
GET /reservations[?order=…][&key=…] → 200 `{complete: true, reservations: […]}`, oldest first.

--no-dedupe: each POST is a new reservation, whatever its key, which only stands on the record. GET /reservations/{key}
    answers 300 `several`, with `reservations`, where there is more than one.
--processing-limit: nothing is committed later than this after a request was received; 504 `too_late` instead. So what
    a lookup finds absent after that time can't land any more. Without the option nobody knows.

For tests:

GET /effects[?order=…][&key=…] → 200 `{count, effects: [{seq, at, kind: "reserved", key, order, sku, line, quantity}]}`:
    the service's own journal of what really happened.
GET /requests → 200 `{"POST /reservations": n, …, "by_key": {key: n}}`: requests to the business part since the process
    started, counted when received, whatever became of them; `by_key` counts the POSTs.
POST /faults `{fault, times = 1, seconds?, match?}` → 201; 400 `invalid_fault`, naming the field and what is known.
GET /faults → 200. DELETE /faults → 200: disarms all, and lets held replies go. All three answer `{armed: […]}`.
GET /healthz → 200.

A valid request meets the first armed fault that is meant for it and matches it, and spends it once of its `times`; a
replay is no exception. `match` compares fields: `order`, `sku`, `line`, `quantity`, `idempotency_key`. A lookup has the
fields that were last sent, or are stored, under its key. Faults, and the `seconds` they take:

    of POST /reservations
    drop_reply_after_commit      commits, then aborts the connection without a byte
    drop_before_commit           aborts the connection, commits nothing
    commit_after_timeout         waits, then commits, even if the client has gone; needs `seconds`, the wait
    hold_reply_after_commit      commits at once, answers at DELETE /faults, or after `seconds`
    bad_gateway_after_commit     commits, then 502 with HTML
    garbage_after_commit         commits, then 200 with bytes that are not JSON
    decline                      409 `declined`, commits nothing
    rate_limit                   429 `rate_limited`, commits nothing; `Retry-After` is `seconds`, or 1

    of GET /reservations/{key}
    lookup_fails                 503 `lookup_failed`
    lookup_lags                  404 `no_reservation`, with `complete: true`, although there is one
    lookup_in_flux               202 `{"status": "processing"}`
"""

import argparse
import asyncio
import json
import math
import re
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast

from aiohttp import web
from aiohttp.typedefs import Handler
from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from settled.local.stock_store import Refusal, Refused, Store, Strict, Wanted

RESERVE = "POST /reservations"
LOOKUP = "GET /reservations/{key}"
KEY = re.compile("[ -~]{1,255}")
PROCESSING = {"status": "processing"}

Matched = Literal["order", "sku", "line", "quantity", "idempotency_key"]
M = TypeVar("M", bound=Strict)


def refuse(refusal: Refusal, message: str, **details: Any) -> web.Response:
    """A refusal as a response."""
    return answer(Refused(refusal, message, **details))


def answer(refused: Refused) -> web.Response:
    """What the store, or the way there, refused."""
    return web.json_response(refused.body, status=refused.refusal.status)


def drop(request: web.Request, _: "Fault") -> web.Response:
    """Abort the connection; the response then goes nowhere."""
    if request.transport is not None:  # None: the client went first
        request.transport.abort()
    return web.Response()


def bad_gateway(*_: object) -> web.Response:
    """What a proxy says when it lost the service behind it."""
    return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")


def rate_limited(_: web.Request, fault: "Fault") -> web.Response:
    """A limiter in front of the service."""
    response = refuse(Refusal.RATE_LIMITED, "too many requests")
    seconds = 1 if fault.seconds is None else fault.seconds
    response.headers["Retry-After"] = str(math.ceil(seconds))  # the header takes whole seconds
    return response


def absent(*_: object) -> web.Response:
    """Nothing there, and everything was looked at."""
    return refuse(Refusal.NO_RESERVATION, "there is no reservation under this key", complete=True)


class Takes(Enum):
    """What a fault does with `seconds`."""

    NOTHING = auto()
    A_WAIT = auto()  # before the request is served
    A_HOLD = auto()  # before it is answered
    A_NUMBER = auto()  # to tell the client


@dataclass(frozen=True)
class Play:
    """How a fault goes. `served`: the request is done (or refused) as ever. `reply`: said in place of the truth."""

    meets: str
    served: bool
    reply: Callable[[web.Request, "Fault"], web.Response] | None = None
    takes: Takes = Takes.NOTHING


class FaultName(StrEnum):
    """The faults, as the table above tells them."""

    play: Play

    def __new__(cls, name: str, play: Play) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.play = play
        return member

    DROP_REPLY_AFTER_COMMIT = "drop_reply_after_commit", Play(RESERVE, True, drop)
    DROP_BEFORE_COMMIT = "drop_before_commit", Play(RESERVE, False, drop)
    COMMIT_AFTER_TIMEOUT = "commit_after_timeout", Play(RESERVE, True, takes=Takes.A_WAIT)
    HOLD_REPLY_AFTER_COMMIT = "hold_reply_after_commit", Play(RESERVE, True, takes=Takes.A_HOLD)
    BAD_GATEWAY_AFTER_COMMIT = "bad_gateway_after_commit", Play(RESERVE, True, bad_gateway)
    GARBAGE_AFTER_COMMIT = "garbage_after_commit", Play(RESERVE, True, lambda *_: web.Response(body=b'{"order": \xff'))
    DECLINE = "decline", Play(RESERVE, False, lambda *_: refuse(Refusal.DECLINED, "we would rather not"))
    RATE_LIMIT = "rate_limit", Play(RESERVE, False, rate_limited, Takes.A_NUMBER)
    LOOKUP_FAILS = "lookup_fails", Play(LOOKUP, False, lambda *_: refuse(Refusal.LOOKUP_FAILED, "can't look just now"))
    LOOKUP_LAGS = "lookup_lags", Play(LOOKUP, False, absent)
    LOOKUP_IN_FLUX = "lookup_in_flux", Play(LOOKUP, False, lambda *_: web.json_response(PROCESSING, status=202))


class Fault(Strict):
    """An armed fault; `times` counts down. `seconds` comes last, since it's checked against `fault`."""

    fault: FaultName
    times: int = Field(default=1, ge=1)
    match: dict[Matched, str | int] = Field(default_factory=dict)
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False, validate_default=True)

    @field_validator("seconds")
    @classmethod
    def suits_the_fault(cls, seconds: float | None, info: ValidationInfo) -> float | None:
        """A missing duration, or one that nobody would read, is a test's mistake."""
        fault: FaultName | None = info.data.get("fault")  # None: it was refused itself
        if fault and seconds is None and fault.play.takes is Takes.A_WAIT:
            raise PydanticCustomError("seconds", "{fault} needs it", {"fault": fault.value})
        if fault and seconds is not None and fault.play.takes is Takes.NOTHING:
            raise PydanticCustomError("seconds", "{fault} doesn't take it", {"fault": fault.value})
        return seconds


def parsed(model: type[M], body: bytes, refusal: Refusal) -> M:
    """A body as a model, or a refusal of one line that names each wrong field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in error.errors())
        raise Refused(refusal, "; ".join(faults)) from error


def narrowed(query: Mapping[str, str]) -> dict[str, str]:
    """The filters of a list. An unknown one is refused: ignored, it would list too much."""
    if unknown := query.keys() - {"order", "key"}:
        raise Refused(Refusal.INVALID_REQUEST, f"no filter {', '.join(sorted(unknown))}, only order, key")
    return dict(query)


class StockService:
    """The service at `url`, for as long as the context lasts. `processing_limit` is in seconds."""

    url: str

    def __init__(
        self,
        database: Path | str,
        stock: Mapping[str, int],
        *,
        port: int = 0,
        dedupe: bool = True,
        processing_limit: float | None = None,
    ) -> None:
        self._store = Store(database, stock, dedupe=dedupe)
        self._port = port
        self._processing_limit = processing_limit
        self._armed: list[Fault] = []
        self._disarmed = asyncio.Event()
        self._sent: dict[str, dict[str, Any]] = {}  # by key: what a lookup that finds no record is matched by
        self._sends: Counter[str] = Counter()
        self._business = {
            RESERVE: self._reserve,
            LOOKUP: self._look_up,
            "GET /reservations": self._list_reservations,
            "GET /stock/{sku}": self._read_stock,
        }
        self._received = dict.fromkeys(self._business, 0)
        self._working: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        except OSError:
            await self.__aexit__()
            raise
        host, port = self._runner.addresses[0]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        self._store.close()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._receive])
        endpoints = self._business | {
            "GET /effects": self._list_effects,
            "GET /requests": self._count_requests,
            "POST /faults": self._arm,
            "GET /faults": self._list_faults,
            "DELETE /faults": self._disarm,
            "GET /healthz": self._say_healthy,
        }
        for endpoint, handler in endpoints.items():
            method, path = endpoint.split()
            application.router.add_route(method, path.replace("}", ":.+}"), handler)  # a key may hold any character
        application.on_shutdown.append(self._stop_working)
        return application

    @web.middleware
    async def _receive(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count the request, and answer it in JSON whatever becomes of it."""
        resource = request.match_info.route.resource
        endpoint = f"{request.method} {resource.canonical}" if resource else ""
        if endpoint in self._received:
            self._received[endpoint] += 1
        if endpoint == RESERVE and (key := request.headers.get("Idempotency-Key")):
            self._sends[key] += 1
        task = cast(asyncio.Task[Any], asyncio.current_task())
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        try:
            return await handler(request)
        except Refused as refused:
            return answer(refused)
        except ConnectionError:  # the client went before it had sent its whole body; nobody reads this
            return web.Response()
        except web.HTTPException as error:  # aiohttp's own: no such path or method, too large a body
            body = {"error": error.reason.lower().replace(" ", "_"), "message": f"{request.method} {request.path}"}
            return web.json_response(body, status=error.status)

    async def _stop_working(self, _: web.Application) -> None:
        """End what waits. aiohttp would do so only where the client is still there, which a late commit can outlive."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _reserve(self, request: web.Request) -> web.Response:
        limit = self._processing_limit
        deadline = None if limit is None else time.monotonic() + limit
        key = request.headers.get("Idempotency-Key", "")
        if not key:
            raise Refused(Refusal.MISSING_KEY, "the header Idempotency-Key is required")
        if not KEY.fullmatch(key):
            raise Refused(Refusal.INVALID_REQUEST, "Idempotency-Key: up to 255 visible ASCII characters and spaces")
        wanted = parsed(Wanted, await request.read(), Refusal.INVALID_REQUEST)
        self._sent[key] = {**wanted.model_dump(), "idempotency_key": key}

        def serve() -> web.Response:
            record, replayed = self._store.reserve(key, wanted, deadline)
            if replayed:
                return web.json_response(record, headers={"Idempotent-Replayed": "true"})
            return web.json_response(record, status=201)

        return await self._meet(RESERVE, request, self._sent[key], serve)

    async def _look_up(self, request: web.Request) -> web.Response:
        key = request.match_info["key"]
        found = self._store.reservations(key=key)

        def serve() -> web.Response:
            if len(found) > 1:
                raise Refused(Refusal.SEVERAL, f"{len(found)} reservations under this key", reservations=found)
            return web.json_response(found[0]) if found else absent()

        fields = found[0] if found else self._sent.get(key, {"idempotency_key": key})
        return await self._meet(LOOKUP, request, fields, serve)

    async def _meet(
        self, endpoint: str, request: web.Request, fields: Mapping[str, Any], serve: Callable[[], web.Response]
    ) -> web.Response:
        """Serve the request, or let it meet the next fault armed for it."""
        fault = self._next_fault(endpoint, fields)
        if fault is None:
            return serve()
        play = fault.fault.play
        if play.takes is Takes.A_WAIT:
            await asyncio.sleep(fault.seconds or 0)
        truth = web.Response()
        if play.served:
            try:
                truth = serve()
            except Refused as refused:  # a refusal's reply can be lost as well
                truth = answer(refused)
        if play.takes is Takes.A_HOLD:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._disarmed.wait(), fault.seconds)
        return play.reply(request, fault) if play.reply else truth

    def _next_fault(self, endpoint: str, fields: Mapping[str, Any]) -> Fault | None:
        for fault in self._armed:
            if fault.fault.play.meets == endpoint and fault.match.items() <= fields.items():
                fault.times -= 1
                if not fault.times:
                    self._armed.remove(fault)
                return fault
        return None

    async def _read_stock(self, request: web.Request) -> web.Response:
        return web.json_response(self._store.stock(request.match_info["sku"]))

    async def _list_reservations(self, request: web.Request) -> web.Response:
        reservations = self._store.reservations(**narrowed(request.query))
        return web.json_response({"complete": True, "reservations": reservations})

    async def _list_effects(self, request: web.Request) -> web.Response:
        effects = self._store.effects(**narrowed(request.query))
        return web.json_response({"count": len(effects), "effects": effects})

    async def _count_requests(self, _: web.Request) -> web.Response:
        return web.json_response({**self._received, "by_key": self._sends})

    async def _arm(self, request: web.Request) -> web.Response:
        self._armed.append(parsed(Fault, await request.read(), Refusal.INVALID_FAULT))
        return self._faults(201)

    async def _list_faults(self, _: web.Request) -> web.Response:
        return self._faults(200)

    async def _disarm(self, _: web.Request) -> web.Response:
        self._armed.clear()
        self._disarmed.set()
        self._disarmed = asyncio.Event()  # those held until now go; a later hold waits for the next time
        return self._faults(200)

    def _faults(self, status: int) -> web.Response:
        armed = [fault.model_dump(mode="json", exclude_none=True) for fault in self._armed]
        return web.json_response({"armed": armed}, status=status)

    async def _say_healthy(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})


def seed(text: str) -> tuple[str, int]:
    """`A1=3` as a sku and the pieces on hand."""
    sku, _, on_hand = text.rpartition("=")
    if not sku or not on_hand.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not SKU=PIECES, like A1=3")
    return sku, int(on_hand)


async def serve_until_stopped(options: argparse.Namespace) -> None:
    """Serve, say so, and stop at the first signal."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with StockService(
        options.database,
        dict(options.stock),
        port=options.port,
        dedupe=options.dedupe,
        processing_limit=options.processing_limit,
    ) as service:
        print(json.dumps({"listening": service.url}), flush=True)
        await stopped.wait()


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(prog="stock_service", description="The demo's stock service.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--database", type=Path, required=True, help="SQLite file, made if it isn't there")
    parser.add_argument("--stock", type=seed, action="append", default=[], help="SKU=PIECES, for a sku it doesn't know")
    parser.add_argument("--no-dedupe", dest="dedupe", action="store_false", help="every POST is a new reservation")
    parser.add_argument("--processing-limit", type=float, metavar="SECONDS", help="commit nothing later than this")
    try:
        asyncio.run(serve_until_stopped(parser.parse_args()))
    except (OSError, sqlite3.Error) as error:
        sys.exit(f"stock service: {error}")


if __name__ == "__main__":
    main()
