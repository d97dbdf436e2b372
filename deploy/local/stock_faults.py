"""The faults of the demo's stock service: what can be armed, and what a request that meets one goes through.

A valid request meets the first armed fault that is meant for it and matches it, and spends it once of its `times`; a
replay is no exception. `of` says which requests are meant: those of `reservations`, which is the default, or of
`releases`. `match` compares fields: `order`, `sku`, `line`, `quantity`, `idempotency_key`, and for a release also
`reservation`; what a release doesn't say itself is taken from the reservation that it names. A lookup has the fields
that were last sent, or are stored, under its key. Faults, and the `seconds` they take:

    of POST /reservations or /releases
    drop_reply_after_commit      commits, then aborts the connection without a byte
    drop_before_commit           aborts the connection, commits nothing
    commit_after_timeout         waits, then commits, even if the client has gone; needs `seconds`, the wait
    hold_reply_after_commit      commits at once, answers at DELETE /faults, or after `seconds`
    bad_gateway_after_commit     commits, then 502 with HTML
    garbage_after_commit         commits, then 200 with bytes that are not JSON
    decline                      409 `declined`, commits nothing
    rate_limit                   429 `rate_limited`, commits nothing; `Retry-After` is `seconds`, or 1

    of GET /reservations/{key} or /releases/{key}
    lookup_fails                 503 `lookup_failed`
    lookup_lags                  404 `no_reservation` (`no_release`), with `complete: true`, although there is one
    lookup_in_flux               202 `{"status": "processing"}`
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any, Literal, Self

from aiohttp import web
from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from settled.local.stock_records import Records, Refusal, Refused, Strict

SEND = "POST /{of}"
LOOKUP = "GET /{of}/{{key}}"
PROCESSING = {"status": "processing"}

Matched = Literal["order", "sku", "line", "quantity", "idempotency_key", "reservation"]


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


def absent(of: Records) -> web.Response:
    """Nothing there, and everything was looked at."""
    refusal = Refusal.NO_RESERVATION if of is Records.RESERVATIONS else Refusal.NO_RELEASE
    return refuse(refusal, f"there is no {of.removesuffix('s')} under this key", complete=True)


class Takes(Enum):
    """What a fault does with `seconds`."""

    NOTHING = auto()
    A_WAIT = auto()  # before the request is served
    A_HOLD = auto()  # before it is answered
    A_NUMBER = auto()  # to tell the client


@dataclass(frozen=True)
class Play:
    """How a fault goes: on a `SEND` or a `LOOKUP`. `served`: it is done (or refused) as ever. `reply`: said instead."""

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

    DROP_REPLY_AFTER_COMMIT = "drop_reply_after_commit", Play(SEND, True, drop)
    DROP_BEFORE_COMMIT = "drop_before_commit", Play(SEND, False, drop)
    COMMIT_AFTER_TIMEOUT = "commit_after_timeout", Play(SEND, True, takes=Takes.A_WAIT)
    HOLD_REPLY_AFTER_COMMIT = "hold_reply_after_commit", Play(SEND, True, takes=Takes.A_HOLD)
    BAD_GATEWAY_AFTER_COMMIT = "bad_gateway_after_commit", Play(SEND, True, bad_gateway)
    GARBAGE_AFTER_COMMIT = "garbage_after_commit", Play(SEND, True, lambda *_: web.Response(body=b'{"order": \xff'))
    DECLINE = "decline", Play(SEND, False, lambda *_: refuse(Refusal.DECLINED, "we would rather not"))
    RATE_LIMIT = "rate_limit", Play(SEND, False, rate_limited, Takes.A_NUMBER)
    LOOKUP_FAILS = "lookup_fails", Play(LOOKUP, False, lambda *_: refuse(Refusal.LOOKUP_FAILED, "can't look just now"))
    LOOKUP_LAGS = "lookup_lags", Play(LOOKUP, False, lambda _, fault: absent(fault.of))
    LOOKUP_IN_FLUX = "lookup_in_flux", Play(LOOKUP, False, lambda *_: web.json_response(PROCESSING, status=202))


class Fault(Strict):
    """An armed fault; `times` counts down. `seconds` comes last, since it's checked against `fault`."""

    fault: FaultName
    of: Records = Records.RESERVATIONS
    times: int = Field(default=1, ge=1)
    match: dict[Matched, str | int] = Field(default_factory=dict)
    seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False, validate_default=True)

    @property
    def endpoint(self) -> str:
        """The requests that it is meant for."""
        return self.fault.play.meets.format(of=self.of)

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


class Faults:
    """The armed faults, in the order of their arming."""

    def __init__(self) -> None:
        self._armed: list[Fault] = []
        self._disarmed = asyncio.Event()

    def arm(self, fault: Fault) -> None:
        """Have a request meet the fault."""
        self._armed.append(fault)

    def disarm(self) -> None:
        """Forget them all, and let held replies go."""
        self._armed.clear()
        self._disarmed.set()
        self._disarmed = asyncio.Event()  # those held until now go; a later hold waits for the next time

    def listed(self) -> list[dict[str, Any]]:
        """What is armed, as it was asked for, with the times that are left."""
        return [fault.model_dump(mode="json", exclude_none=True) for fault in self._armed]

    async def meet(
        self, endpoint: str, request: web.Request, fields: Mapping[str, Any], serve: Callable[[], web.Response]
    ) -> web.Response:
        """Serve the request, or let it meet the next fault armed for it."""
        fault = self._next(endpoint, fields)
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

    def _next(self, endpoint: str, fields: Mapping[str, Any]) -> Fault | None:
        for fault in self._armed:
            if fault.endpoint == endpoint and fault.match.items() <= fields.items():
                fault.times -= 1
                if not fault.times:
                    self._armed.remove(fault)
                return fault
        return None
