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
    created_at, released_at}`; `released_at` is null until it is released. Same key, same body: 200, that record,
    released or not, header `Idempotent-Replayed: true`. A refusal isn't kept: its key may be used again.
    400 `missing_key`; 400 `invalid_request`, naming the field; 404 `unknown_sku`; 409 `insufficient_stock`, with
    `available`; 422 `key_reused` (same key, other body); 504 `too_late`.
GET /reservations/{key} → 200, the record. 404 `no_reservation`, with `complete: true`: everything was looked at.
GET /reservations[?order=…][&key=…] → 200 `{complete: true, reservations: […]}`, oldest first.
POST /releases, header `Idempotency-Key`, body `{reservation: KEY}`, the key that the reservation was made under → 201
    `{release_id, idempotency_key, reservation, order, sku, line, quantity, version, created_at}`: its pieces are
    available again. It goes by its key as a reservation does. 400, 422 and 504 as there; 404 `no_reservation`;
    409 `already_released`, under another key.
GET /releases/{key} → 200, the record. 404 `no_release`, with `complete: true`.

--no-dedupe: each POST is a new reservation, whatever its key, which only stands on the record. GET /reservations/{key}
    answers 300 `several`, with `reservations`, where there is more than one (GET /releases/{key} likewise). They can't
    be released, since the key doesn't say which: 409 `several_reservations`. The second release of a reservation is
    refused under the key of the first, too: 409 `already_released`.
--processing-limit: nothing is committed later than this after a request was received; 504 `too_late` instead. So what
    a lookup finds absent after that time can't land any more. Without the option nobody knows.

For tests:

GET /effects[?order=…][&key=…] → 200 `{count, effects: [{seq, at, kind, key, order, sku, line, quantity}]}`: the
    service's own journal of what really happened. `kind` is "reserved", or "released" with the `reservation`, a key.
GET /requests → 200 `{"POST /reservations": n, …, "by_key": {key: n}}`: requests to the business part since the process
    started, counted when received, whatever became of them; `by_key` counts the POSTs.
POST /faults `{fault, of = "reservations", times = 1, seconds?, match?}` → 201; 400 `invalid_fault`, naming the field
    and what is known.
GET /faults → 200. DELETE /faults → 200: disarms all, and lets held replies go. All three answer `{armed: […]}`.
GET /healthz → 200.

What a fault does, and which there are, is described in `stock_faults`.
"""

import argparse
import asyncio
import json
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from settled.local.stock_faults import LOOKUP, SEND, Fault, Faults, absent, answer
from settled.local.stock_records import Records, Refusal, Refused, Strict, WantedRelease, WantedReservation
from settled.local.stock_requests import key_of, narrowed, parsed
from settled.local.stock_store import Store

RESERVE, RELEASE = (SEND.format(of=of) for of in (Records.RESERVATIONS, Records.RELEASES))
FACTS = ("order", "sku", "line", "quantity")
M = TypeVar("M", bound=Strict)


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
        self._faults = Faults()
        self._sent: dict[tuple[Records, str], dict[str, Any]] = {}  # what a lookup that finds no record is matched by
        self._sends: Counter[str] = Counter()
        self._business = {
            RESERVE: self._reserve,
            LOOKUP.format(of=Records.RESERVATIONS): self._look_up_reservation,
            "GET /reservations": self._list_reservations,
            RELEASE: self._release,
            LOOKUP.format(of=Records.RELEASES): self._look_up_release,
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
        if endpoint in (RESERVE, RELEASE) and (key := request.headers.get("Idempotency-Key")):
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
        key, wanted, deadline = await self._read(request, WantedReservation)
        self._sent[Records.RESERVATIONS, key] = {**wanted.model_dump(), "idempotency_key": key}
        return await self._write(Records.RESERVATIONS, key, request, lambda: self._store.reserve(key, wanted, deadline))

    async def _release(self, request: web.Request) -> web.Response:
        key, wanted, deadline = await self._read(request, WantedRelease)
        named: Sequence[Mapping[str, Any]] = self._store.reservations(key=wanted.reservation)[:1]
        facts = {name: record[name] for record in named for name in FACTS}
        self._sent[Records.RELEASES, key] = {**facts, **wanted.model_dump(), "idempotency_key": key}
        return await self._write(Records.RELEASES, key, request, lambda: self._store.release(key, wanted, deadline))

    async def _read(self, request: web.Request, model: type[M]) -> tuple[str, M, float | None]:
        """A POST's key and body, and the time to commit by."""
        limit = self._processing_limit
        deadline = None if limit is None else time.monotonic() + limit
        key = key_of(request.headers)
        return key, parsed(model, await request.read(), Refusal.INVALID_REQUEST), deadline

    async def _write(
        self, of: Records, key: str, request: web.Request, write: Callable[[], tuple[Mapping[str, Any], bool]]
    ) -> web.Response:
        """Write the record, or find it written, unless a fault has it otherwise."""

        def serve() -> web.Response:
            record, replayed = write()
            if replayed:
                return web.json_response(record, headers={"Idempotent-Replayed": "true"})
            return web.json_response(record, status=201)

        return await self._faults.meet(SEND.format(of=of), request, self._sent[of, key], serve)

    async def _look_up_reservation(self, request: web.Request) -> web.Response:
        return await self._look_up(
            Records.RESERVATIONS, request, self._store.reservations(key=request.match_info["key"])
        )

    async def _look_up_release(self, request: web.Request) -> web.Response:
        return await self._look_up(Records.RELEASES, request, self._store.releases(request.match_info["key"]))

    async def _look_up(self, of: Records, request: web.Request, found: Sequence[Mapping[str, Any]]) -> web.Response:
        def serve() -> web.Response:
            if len(found) > 1:
                raise Refused(Refusal.SEVERAL, f"{len(found)} {of} under this key", **{of: found})
            return web.json_response(found[0]) if found else absent(of)

        key = request.match_info["key"]
        fields = found[0] if found else self._sent.get((of, key), {"idempotency_key": key})
        return await self._faults.meet(LOOKUP.format(of=of), request, fields, serve)

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
        self._faults.arm(parsed(Fault, await request.read(), Refusal.INVALID_FAULT))
        return self._armed(201)

    async def _list_faults(self, _: web.Request) -> web.Response:
        return self._armed(200)

    async def _disarm(self, _: web.Request) -> web.Response:
        self._faults.disarm()
        return self._armed(200)

    def _armed(self, status: int) -> web.Response:
        return web.json_response({"armed": self._faults.listed()}, status=status)

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
