"""Asking the model: what a request is, how its response is got, and what to do where there is none.

The response is stored as received under (run id, activity id) before anything is made of it: a retry after a lost
completion finds it again, instead of buying a second, different one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from temporalio import activity

from settled.activities.database import Database, patiently
from settled.activities.heartbeats import heartbeats
from settled.activities.model_errors import MOST_REQUEST_ID, Remedy, RequestFailed, Trouble, classify
from settled.activities.model_provider import MOST_TOKENS, Provider, Received
from settled.activities.no_response import (
    OVERLOADS,
    OVERLOADS_BEFORE_FALLBACK,
    TOO_LONG,
    overloads,
    without_response,
)
from settled.activities.prices import Prices
from settled.activities.progress import ModelProgress
from settled.activities.publishing import publishing
from settled.activities.requests import changes_of, digest_of_request
from settled.activities.responses import Purpose, Responses, Stored
from settled.activities.roots import Root
from settled.activities.stop_table import Means
from settled.activities.transcript import Node
from settled.activities.view import last_said
from settled.workflows.contract.turn import Ask, Compact, End, Resend, Usage

STORE_RETRY_SECONDS = 240.0
"""How long the store may be away before an attempt of the request fails."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A model request that is about to be made."""

    chain: Sequence[Node]
    """The conversation, root first."""
    root: Root
    """What its conversation shares."""
    parameters: dict[str, Any]
    """As it is sent."""
    purpose: Purpose = Purpose.TURN
    """What it is made for."""
    tries: int = 1
    """Requests that were made for the same, this one included."""
    stream: bool = False
    """Whether its response is published while it arrives."""
    allowed: int | None = None
    """Tokens that its response may have, where the model has refused more."""
    cut_short: str = ""
    """The activity that was cut short, maybe while it made this very request."""

    @property
    def asked(self) -> str:
        """The node that it ends with."""
        return self.chain[-1].digest

    def means(self, ask: Ask, content: Sequence[Any] = ()) -> Means:
        """What is left to go on with, whatever it comes to.

        Args:
            ask: what the model was to be asked.
            content: of the response, if there is one.
        """
        max_tokens = int(self.parameters["max_tokens"])
        most = self.root.max_tokens_most or max_tokens
        return Means(
            repeats=ask.repeats,
            max_tokens=max_tokens,
            max_tokens_most=min(most, self.allowed or most),
            fallback=bool(self.root.fallback),
            kept=ask.max_tokens,
            said=last_said(self.chain, content),
            thinking=thinking_of(self.parameters),
        )


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How the running activity asks the model."""

    database: Database
    """Where responses are stored."""
    provider: Provider
    """Who answers."""
    prices: Prices
    """What it costs."""

    async def response(self, request: Request) -> Stored:
        """The response that was bought already, or a new one; once it is bought, the store is given time to take it.

        Raises:
            RequestFailed: there is none.
        """
        info, responses = activity.info(), Responses(self.database)
        run, asker = str(info.workflow_run_id), info.activity_id
        stored = await given_time(lambda: _bought_before(responses, run, asker, request))
        if stored is not None:
            return stored
        progress = ModelProgress(request.root.model, activity.info().attempt)
        async with heartbeats(progress.details), publishing(progress, wanted=request.stream):
            bought = _bought_by(request, await self._send(request, progress))
            # Before the last piece is published, which takes a while: a worker that is killed meanwhile loses nothing.
            return await given_time(lambda: responses.put(run, asker, bought))

    async def _send(self, request: Request, progress: ModelProgress) -> Received:
        deadline = activity.info().start_to_close_timeout
        # A total deadline of our own: pings keep a stream alive for ever, and Temporal's timeout doesn't stop the code.
        seconds = deadline.total_seconds() * 0.9 if deadline else None
        try:
            async with asyncio.timeout(seconds):
                return await self.provider.send(request.parameters, progress.watch)
        # The SDK, its HTTP library and the stream raise many kinds; one function knows them all.
        except Exception as error:
            raise RequestFailed(classify(error)) from error

    async def without_response(self, trouble: Trouble, request: Request, means: Means) -> Resend | Compact | End:
        """What the loop is to do without a response.

        Raises:
            ApplicationError: the request is to be tried again, or given up.
        """
        model, info = request.root.model, activity.info()
        if trouble.remedy is Remedy.LOWER:
            allowed = trouble.allowed or (await self.provider.limits(model)).max_tokens
            trouble = replace(trouble, allowed=allowed)
            if allowed and allowed < means.max_tokens:
                self.provider.learn(model, allowed)
        in_a_row = overloads(trouble, info.heartbeat_details)
        most = info.retry_policy.maximum_attempts if info.retry_policy else 0
        enough = in_a_row >= OVERLOADS_BEFORE_FALLBACK or info.attempt == most
        command = without_response(trouble, means, tried_enough=enough)
        if command is None:
            activity.heartbeat({OVERLOADS: in_a_row, TOO_LONG: request.tries - 1})  # the next attempt is told so
            # What led to it stays here: the HTTP library quotes what it can't send, the provider's key among it.
            raise trouble.failure(info.attempt) from None
        return command

    def usage(self, stored: Stored, request: Request) -> Usage:
        """What the response has cost."""
        root = request.root
        return self.prices.priced(counted(stored.message), stored.message.get("model"), root.model, frozen=root.prices)


def _bought_by(request: Request, received: Received) -> Stored:
    """The response as it is stored."""
    return Stored(
        asked=request.asked,
        message=received.message,
        request_id=received.request_id[:MOST_REQUEST_ID],
        task=str(activity.info().workflow_id),
        model=request.root.model,
        purpose=request.purpose,
        changes=changes_of(request.root, request.parameters),
        sent=digest_of_request(request.parameters),
        tries=request.tries,
    )


async def _bought_before(responses: Responses, run: str, asker: str, request: Request) -> Stored | None:
    """The response that an earlier attempt has bought; or the activity that was cut short, if it asked the same."""
    own = await responses.get(run, asker)
    if own is not None or not request.cut_short:
        return own
    before = await responses.get(run, request.cut_short)
    is_same = before is not None and before.sent == digest_of_request(request.parameters)
    return replace(before, taken_over=True) if before is not None and is_same else None


def thinking_of(parameters: Mapping[str, Any]) -> int:
    """Tokens of a response that the model may think, as far as a request says."""
    return int(parameters.get("thinking", {}).get("budget_tokens", 0))


async def given_time(action: Callable[[], Awaitable[T]]) -> T:
    """Do it, and give the store time: its outage is no fault of the model's, and must not use up the model's attempts.

    Raises:
        Exception: what the action raised last.
    """
    async with heartbeats():
        return await patiently(action, STORE_RETRY_SECONDS)


def counted(message: Mapping[str, Any]) -> Usage:
    """The tokens of a response, as the provider counted them; unpriced where it doesn't say them all."""
    said = message.get("usage")

    def number(name: str, unsaid: int | None = None) -> int | None:
        value: Any = said.get(name) if isinstance(said, dict) else None
        value = unsaid if value is None else value
        is_count = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
        return int(value) if is_count else None  # anything else is nonsense, and can't be reckoned with

    counts = {
        "input_tokens": number("input_tokens"),
        "output_tokens": number("output_tokens"),
        "cache_read_tokens": number("cache_read_input_tokens", 0),
        "cache_write_tokens": number("cache_creation_input_tokens", 0),
    }
    known = Usage.model_validate({name: count or 0 for name, count in counts.items()})
    return known.model_copy(update={"unpriced": int(None in counts.values())})
