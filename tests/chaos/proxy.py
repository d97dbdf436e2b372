"""The fault proxy between the workers and the stock service.

It never breaks the service's own promise: what it holds back it delivers soon enough, or never, and a lookup that lags
behind does so for a moment only. What the tool declares (`lands_within`) is longer than a worker's longest freeze, the
longest hold and the service's processing limit together.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, Self

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

HOLD_SECONDS = (1.6, 2.4)
"""How long a request is held: longer than its sender waits for the answer."""
LATEST_SECONDS = 2.8
"""What could not be delivered so long after it came in is not delivered at all."""
LAG_SECONDS = 3.0
"""How long after a request came in a lookup may still miss what came of it."""


class Fault(StrEnum):
    """What can happen on the way."""

    DROP_BEFORE_SEND = "drop_before_send"
    DROP_AFTER_COMMIT = "drop_after_commit"
    BAD_GATEWAY_BEFORE = "bad_gateway_before"
    BAD_GATEWAY_AFTER = "bad_gateway_after"
    GARBAGE_AFTER = "garbage_after"
    TOO_LATE = "too_late"
    TWICE = "twice"
    RATE_LIMITED = "rate_limited"
    SLOW = "slow"
    LOOKUP_FAILS = "lookup_fails"
    LOOKUP_GARBAGE = "lookup_garbage"
    LOOKUP_IN_FLUX = "lookup_in_flux"
    LOOKUP_LAGS = "lookup_lags"
    READ_FAILS = "read_fails"


OF_WRITES = {
    Fault.DROP_BEFORE_SEND: 4,
    Fault.DROP_AFTER_COMMIT: 6,
    Fault.BAD_GATEWAY_BEFORE: 2,
    Fault.BAD_GATEWAY_AFTER: 3,
    Fault.GARBAGE_AFTER: 3,
    Fault.TOO_LATE: 4,
    Fault.TWICE: 6,
    Fault.RATE_LIMITED: 2,
    Fault.SLOW: 25,
}
"""Of a hundred writes, how many meet each."""
OF_LOOKUPS = {Fault.LOOKUP_FAILS: 12, Fault.LOOKUP_GARBAGE: 4, Fault.LOOKUP_IN_FLUX: 4, Fault.LOOKUP_LAGS: 50}
"""Of a hundred lookups; a lag is only drawn for a record that has just been committed."""
OF_READS = {Fault.READ_FAILS: 10}


@dataclass(frozen=True)
class Answer:
    """What the service said."""

    status: int
    body: bytes
    kind: str

    def response(self) -> web.Response:
        """The same, to the client."""
        return web.Response(status=self.status, body=self.body, content_type=self.kind)


class Proxy:
    """The proxy at `url`, for as long as the context lasts."""

    url: str

    def __init__(self, service: str, random: Random, *, may_repeat: bool) -> None:
        self._service = service
        # What a network delivers twice, a service that doesn't dedupe does twice: nobody could help that.
        self._of_writes = {fault: often for fault, often in OF_WRITES.items() if may_repeat or fault is not Fault.TWICE}
        self._random = random
        self._committed: dict[str, float] = {}
        """When the request came in that the service has done, by key."""
        self._working: set[asyncio.Task[Any]] = set()
        self.quiet = False
        """Whether everything is passed on as it is."""
        self.met: Counter[str] = Counter()
        """How often each fault happened."""

    async def __aenter__(self) -> Self:
        self._session = ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=20))
        app = web.Application()
        app.add_routes(
            [
                web.post("/reservations", self._reserve),
                web.get("/reservations/{key}", self._look_up),
                web.get("/stock/{sku}", self._read),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=512).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._runner.cleanup()
        await self._session.close()

    @property
    def commits(self) -> int:
        """How many requests the service is known to have done."""
        return len(self._committed)

    @property
    def faults(self) -> int:
        """How many faults happened in all."""
        return self.met.total()

    def _draw(self, weights: dict[Fault, int]) -> Fault | None:
        drawn = self._random.uniform(0, 100)
        for fault, weight in weights.items():
            drawn -= weight
            if drawn < 0:
                return None if self.quiet else fault
        return None

    def _note(self, fault: Fault) -> None:
        self.met[fault] += 1

    async def _reserve(self, request: web.Request) -> web.StreamResponse:
        came = time.monotonic()
        key = request.headers.get("Idempotency-Key", "")
        try:
            body = await request.read()
        except ConnectionResetError:
            return _abort(request)  # its worker was killed while it sent
        fault = self._draw(self._of_writes)
        if fault is not None:
            self._note(fault)
        match fault:
            case Fault.DROP_BEFORE_SEND:
                return _abort(request)
            case Fault.BAD_GATEWAY_BEFORE:
                return _bad_gateway()
            case Fault.RATE_LIMITED:
                refusal = {"error": "rate_limited", "message": "too many requests"}
                return web.json_response(refusal, status=429, headers={"Retry-After": "1"})
            case Fault.SLOW:
                await asyncio.sleep(self._random.uniform(0.05, 0.9))
            case Fault.TOO_LATE:
                await asyncio.sleep(self._random.uniform(*HOLD_SECONDS))
            case Fault.TWICE:
                self._deliver_again(key, body, came)
        answer = await self._deliver(key, body, came)
        if answer is None or fault is Fault.DROP_AFTER_COMMIT:
            return _abort(request)
        if fault is Fault.SLOW and self._random.random() < 0.5:
            await asyncio.sleep(self._random.uniform(0.05, 0.5))
        if fault is Fault.BAD_GATEWAY_AFTER:
            return _bad_gateway()
        if fault is Fault.GARBAGE_AFTER:
            return self._garbage()
        return answer.response()

    def _deliver_again(self, key: str, body: bytes, came: float) -> None:
        """The second delivery comes at the same time, or a little later."""

        async def later() -> None:
            await asyncio.sleep(self._random.choice((0.0, self._random.uniform(0.0, HOLD_SECONDS[1]))))
            await self._deliver(key, body, came)

        task = asyncio.create_task(later())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _deliver(self, key: str, body: bytes, came: float) -> Answer | None:
        """Hand a request to the service, unless it is too late for that; None if there is no answer."""
        if time.monotonic() - came > LATEST_SECONDS:
            return None
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        try:
            async with self._session.post(f"{self._service}/reservations", data=body, headers=headers) as response:
                answer = Answer(response.status, await response.read(), response.content_type)
        except (ClientError, TimeoutError):
            return None
        if answer.status in (200, 201):
            self._committed.setdefault(key, came)
        return answer

    async def _look_up(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"]
        fresh = time.monotonic() - self._committed.get(key, float("-inf")) < LAG_SECONDS
        fault = self._draw(OF_LOOKUPS)
        if fault is Fault.LOOKUP_LAGS and not fresh:
            fault = None
        if fault is not None:
            self._note(fault)
        match fault:
            case Fault.LOOKUP_FAILS:
                return web.json_response({"error": "lookup_failed", "message": "can't look just now"}, status=503)
            case Fault.LOOKUP_GARBAGE:
                return self._garbage()
            case Fault.LOOKUP_IN_FLUX:
                return web.json_response({"status": "processing"}, status=202)
            case Fault.LOOKUP_LAGS:
                absent = {"error": "no_reservation", "message": "there is none under this key", "complete": True}
                return web.json_response(absent, status=404)
        return await self._pass(request)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        fault = self._draw(OF_READS)
        if fault is not None:
            self._note(fault)
            return web.json_response({"error": "lookup_failed", "message": "can't look just now"}, status=503)
        return await self._pass(request)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        try:
            async with self._session.get(f"{self._service}{request.rel_url}") as response:
                return Answer(response.status, await response.read(), response.content_type).response()
        except (ClientError, TimeoutError):
            return _abort(request)

    def _garbage(self) -> web.Response:
        said = self._random.choice((b'{"order": \xff', b"[]", b"", b'{"ok": true}', b"null", b"<html>It works!</html>"))
        return web.Response(body=said, content_type="application/json")


def _abort(request: web.Request) -> web.Response:
    """End the connection without a byte; the response then goes nowhere."""
    if request.transport is not None:  # None: the client went first
        request.transport.abort()
    return web.Response()


def _bad_gateway() -> web.Response:
    return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")
