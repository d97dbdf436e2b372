"""A Messages API on loopback that answers from a script and refuses what the API refuses.

The demo runs on it when there is no API key, and tests of agents run on it, with the provider's own client:

    async with MessagesServer([Reply.of(tool_use("lookup", {"sku": "A1"})), Reply.of("There are 3.")]) as server:
        client = AsyncAnthropic(base_url=server.url, api_key="local", max_retries=0,
                                http_client=DefaultAsyncHttpxClient(trust_env=False))
        ...
        assert server.refusals == [] and server.count == 2

    python -m settled.local.messages_server [--port 0] [--script FILE.json | clerk] [--no-strict-prefix]

It prints one line, `{"listening": "http://127.0.0.1:PORT"}`, once it answers; SIGTERM and SIGINT end it at once.

POST /v1/messages → a message, or its events if `stream` is true. POST /v1/messages/count_tokens. GET /v1/models[/ID].
GET /requests → `{"count": n, "received": n, "refusals": [TEXT]}`. GET /healthz.

Scripts are described in `messages_script`, what is refused in `messages_rules` and `messages_memory`. Errors have the
API's form; two are our own, `script_exhausted` and `script_error`. They are 400s, because a client gives up on a 400 at
once. The server keeps every request that it accepts: it is made for tests and demos, not to run for months.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Handler

from settled.local.clerk import clerk
from settled.local.messages_cache import PromptCache, input_tokens
from settled.local.messages_memory import Conversations, conversation
from settled.local.messages_rules import PREFILL, first_fault
from settled.local.messages_script import (
    CutStream,
    HttpError,
    Reply,
    Responder,
    Script,
    ScriptError,
    Stall,
    Step,
    StreamError,
    load_script,
    new_id,
)
from settled.local.messages_wire import REQUEST_ID, SENDERS, send_http_error

MOST_BYTES = 32 * 1024 * 1024
MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
PAUSES = ("pause_turn", "compaction")
MODEL_LIMITS = {"max_input_tokens": 200_000, "max_tokens": 64_000}


class Refused(Exception):
    """A request gets an error of ours, not of the script's."""

    def __init__(self, status: int, message: str, type: str | None = None) -> None:
        super().__init__(message)
        self.error = HttpError(status, type, message)


class MessagesServer:
    """The server, for the time of an `async with`.

    Args:
        script: what is answered, in order or by a function; it is not copied, so a list can grow while the server runs.
        port: 0 takes a free one.
        strict_prefix: whether a request must go on, unchanged, from what was said before.
        models: the only models there are; by default every name is one.
        limits: laid over `MODEL_LIMITS`; a request of more than `max_input_tokens` is refused as too long.
        keep: how many of the accepted requests are kept, the newest ones; all of them by default.
    """

    def __init__(
        self,
        script: Script | Sequence[Step] | Responder,
        *,
        port: int = 0,
        strict_prefix: bool = True,
        models: Sequence[str] | None = None,
        limits: Mapping[str, int] | None = None,
        keep: int | None = None,
    ) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        """The bodies of the accepted requests to `/v1/messages`, in order."""
        self.count = 0
        """Accepted requests to `/v1/messages`: well-formed and admitted, whatever the script then did with them."""
        self.received = 0
        """Requests to `/v1/messages`, the refused ones too."""
        self.refusals: list[str] = []
        """The messages of all 400s that are not in the script; a test of an agent asserts that there are none."""
        self.aborted = 0
        """Accepted requests whose client went away before it had everything."""
        self._script = Script(script) if isinstance(script, Sequence) else script
        self._played = Counter[str]()
        self._port = port
        self._models = models
        self._limits = {**MODEL_LIMITS, **(limits or {})}
        self._keep = keep
        self._conversations = Conversations(strict=strict_prefix)
        self._cache = PromptCache()
        self._changed = asyncio.Event()

    async def until(self, predicate: Callable[[Self], bool], timeout: float = 10.0) -> None:
        """Wait until something is true of the server, like `lambda server: server.count == 2`.

        Raises:
            TimeoutError: it was not so within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while not predicate(self):
                await self._changed.wait()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MOST_BYTES, middlewares=[self._answer_errors])
        app.on_response_prepare.append(_add_request_id)
        app.add_routes(
            [
                web.post("/v1/messages", self._create),
                web.post("/v1/messages/count_tokens", self._count_tokens),
                web.get("/v1/models", self._list_models),
                web.get("/v1/models/{model}", self._show_model),
                web.get("/requests", self._show_requests),
                web.get("/healthz", self._say_healthy),
            ]
        )
        # A handler is cancelled when its client goes away; one that is held doesn't keep the server from ending.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @web.middleware
    async def _answer_errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        request[REQUEST_ID] = new_id("req")
        try:
            return await handler(request)
        except Refused as refused:
            error = refused.error
        except web.HTTPException as raised:
            error = HttpError(raised.status, message=f"{request.method} {request.path}: {raised.reason}")
        if error.status == 400:
            self.refusals.append(error.message)
        self._note_change()
        return await send_http_error(request, {}, error)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        self.received += 1
        body = await self._read(request)
        tokens, most = input_tokens(body), self._limits["max_input_tokens"]
        if tokens > most:
            raise Refused(400, f"prompt is too long: {tokens} tokens > {most} maximum")
        if fault := self._conversations.admit(body):
            raise Refused(400, fault)
        self.count += 1
        self.requests.append(body)
        if self._keep is not None:
            del self.requests[: -self._keep or None]
        self._note_change()
        try:
            step = await self._next(body)
            if type(step) not in SENDERS:
                raise Refused(400, f"the script answered {step!r}, which is not a step", "script_error")
            step = self._counted(step, body)
            await asyncio.sleep(step.delay)
            if step.hold:
                await step.hold.wait()
            reply = step.completes()
            if reply is not None:
                paused = reply.stop_reason in PAUSES
                self._conversations.answered(body, reply.blocks(), paused=paused)
            if reply is None or reply.stop_reason == "refusal":
                self._conversations.left(body)
            return await SENDERS[type(step)](request, body, step)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            self._note_change()
            raise

    async def _read(self, request: web.Request, *, counting: bool = False) -> dict[str, Any]:
        try:
            body = json.loads(await request.read())
        except ValueError as error:
            raise Refused(400, f"the request body is not valid JSON: {error}") from error
        fault = first_fault(body, counting=counting)
        if fault and not (fault == PREFILL and self._conversations.paused(body)):
            raise Refused(400, fault)
        self._look_up(body["model"])
        checked: dict[str, Any] = body
        return checked

    def _look_up(self, model: str) -> None:
        if self._models is not None and model not in self._models:
            raise Refused(404, f"model: {model}")

    async def _next(self, body: dict[str, Any]) -> Step:
        if isinstance(self._script, Script):
            key = conversation(body) if self._script.per_conversation else ""
            self._played[key] += 1
            if self._played[key] > len(self._script.steps):
                said = f"the script has {len(self._script.steps)} steps, and this is request {self._played[key]}"
                raise Refused(400, said, "script_exhausted")
            return self._script.steps[self._played[key] - 1]
        try:
            made = self._script(body)
            return await made if isawaitable(made) else made
        except Exception as error:
            raise Refused(400, f"the script raised {error!r}", "script_error") from error

    def _counted(self, step: Step, body: dict[str, Any]) -> Step:
        """The step with what is read in its reply's usage, where the script doesn't say otherwise."""
        match step:
            case Reply():
                return replace(step, usage={**self._cache.read(body), **step.usage})
            case StreamError(reply=reply) | CutStream(reply=reply) | Stall(reply=reply):
                return replace(step, reply=replace(reply, usage={**self._cache.read(body), **reply.usage}))
            case _:
                return step  # an error instead of a reply: nothing was read

    async def _count_tokens(self, request: web.Request) -> web.Response:
        body = await self._read(request, counting=True)
        return web.json_response({"input_tokens": input_tokens(body)})

    async def _list_models(self, _: web.Request) -> web.Response:
        shown = [self._model(name) for name in (MODELS if self._models is None else self._models)]
        ends = {"first_id": shown[0]["id"], "last_id": shown[-1]["id"]} if shown else {}
        return web.json_response({"data": shown, "has_more": False, "first_id": None, "last_id": None, **ends})

    async def _show_model(self, request: web.Request) -> web.Response:
        self._look_up(request.match_info["model"])
        return web.json_response(self._model(request.match_info["model"]))

    def _model(self, name: str) -> dict[str, Any]:
        shown = {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
        return {**shown, "lifecycle": "active", **self._limits}

    async def _show_requests(self, _: web.Request) -> web.Response:
        return web.json_response({"count": self.count, "received": self.received, "refusals": self.refusals})

    async def _say_healthy(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["request-id"] = request[REQUEST_ID]


# --- The process ------------------------------------------------------------------------------------------------------


async def serve_until_stopped(options: argparse.Namespace) -> None:
    """Serve, say so, and stop at the first signal."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    script = clerk if options.script == "clerk" else load_script(options.script)
    async with MessagesServer(script, port=options.port, strict_prefix=options.strict_prefix) as server:
        sys.stdout.write(json.dumps({"listening": server.url}) + "\n")
        sys.stdout.flush()
        await stopped.wait()


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(prog="messages_server", description="A Messages API that answers from a script.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", default="clerk", help="a JSON file, or `clerk`, the rule-based stock clerk")
    parser.add_argument("--no-strict-prefix", dest="strict_prefix", action="store_false", help="let history be edited")
    try:
        asyncio.run(serve_until_stopped(parser.parse_args()))
    except (OSError, ScriptError) as error:
        sys.exit(f"messages server: {error}")


if __name__ == "__main__":
    main()
