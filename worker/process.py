"""The worker process: connects, serves, answers health probes, and drains on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from aiohttp import web
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from settled.activities.profiles import load_profiles
from settled.activities.registry import discover
from settled.activities.sweeping import Sweep
from settled.worker.settings import Settings, unknown_variables
from settled.worker.wiring import make_worker, parts
from settled.workflows.converter import data_converter
from settled.workflows.errors import ConfigurationError

log = logging.getLogger("settled.worker")

NAMESPACE_TIMEOUT = timedelta(seconds=10)
DEFAULT_ADDRESS = "127.0.0.1:7233"
PROVIDER_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


async def connect() -> Client:
    """A client, configured by Temporal's own variables and profiles.

    Raises:
        ConfigurationError: no server at the address, no such namespace, or the configuration can't be read.
    """
    try:
        config = ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(f"TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE: {error}") from error
    address = config.setdefault("target_host", DEFAULT_ADDRESS)
    try:
        client = await Client.connect(**config, data_converter=data_converter)
    except (RuntimeError, RPCError) as error:
        secured = config.get("tls") or config.get("api_key")
        also = ", and see whether TEMPORAL_TLS and TEMPORAL_API_KEY are right for it" if secured else ""
        raise ConfigurationError(
            f"TEMPORAL_ADDRESS: no Temporal server answers at {address}; start one, or name another address{also}"
        ) from error
    await _see_namespace(client, address)
    return client


async def _see_namespace(client: Client, address: str) -> None:
    """Without its namespace the worker would come up, and fail with its first poll."""
    name = client.namespace
    request = DescribeNamespaceRequest(namespace=name)
    try:
        await client.workflow_service.describe_namespace(request, timeout=NAMESPACE_TIMEOUT)
    except RPCError as error:
        if not name or error.status is RPCStatusCode.NOT_FOUND:
            text = f"the server at {address} has no namespace {name!r}; create it, or name another"
        else:
            said = " ".join(error.message.split())
            text = f"the server at {address} doesn't show namespace {name!r} ({said}); see to TEMPORAL_API_KEY too"
        raise ConfigurationError(f"TEMPORAL_NAMESPACE: {text}") from error


def _warn(settings: Settings) -> None:
    """Say what is no fault, but is most likely not meant."""
    if unknown := unknown_variables():
        log.warning("%s: there is no such setting; passed over", ", ".join(unknown))
    if settings.model_url is None and not any(os.environ.get(name) for name in PROVIDER_KEYS):
        log.warning(
            "%s is not set; model requests will fail unless the SDK finds credentials elsewhere", PROVIDER_KEYS[0]
        )


def _check_keys(settings: Settings) -> None:
    """See that the provider's key can be sent at all. What it is doesn't show up anywhere.

    Raises:
        ConfigurationError: it can't.
    """
    for name in PROVIDER_KEYS if settings.model_url is None else ():
        key = os.environ.get(name, "")
        if any(character.isspace() or not character.isprintable() for character in key):
            raise ConfigurationError(f"{name}: holds white space or a line break, maybe at its end; write it without")


async def run_worker(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then let running activities end.

    Raises:
        ConfigurationError: a setting, a tool or a profile doesn't fit, or Temporal can't be reached.
    """
    _warn(settings)
    _check_keys(settings)
    registry = discover()
    profiles = load_profiles(settings.agents, registry)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    client = await connect()
    async with parts(settings, registry, profiles) as made_of:
        # The SDK takes seconds to import: begin now, in a thread, so that the first request doesn't wait for it.
        warming = asyncio.create_task(made_of.provider.warm_up())
        worker = make_worker(client, made_of)
        sweep = Sweep(client, made_of.stores, registry, settings.task_queue)
        async with health(settings, client, worker), sweeping(sweep, settings.sweep_seconds):
            log.info("serving task queue %s with agents %s", settings.task_queue, ", ".join(sorted(profiles)))
            await _serve(worker, stop)
        await warming


async def _serve(worker: Worker, stop: asyncio.Event) -> None:
    """Run the worker until it is told to stop, or fails by itself."""
    running = asyncio.create_task(worker.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not running.done():
        log.info("draining: running activities may end")
        await worker.shutdown()
    await running


@asynccontextmanager
async def sweeping(sweep: Sweep, seconds: float) -> AsyncIterator[None]:
    """Sweep again and again, as long as the context lasts. What fails now may succeed the next time."""

    async def sweep_on() -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await sweep.step(seconds)
            # The store or Temporal is away, most likely; that must not end the worker.
            except Exception as error:
                log.warning("the sweep failed, and goes on: %r", error)

    running = asyncio.create_task(sweep_on()) if seconds else None
    try:
        yield
    finally:
        if running is not None:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@asynccontextmanager
async def health(settings: Settings, client: Client, worker: Worker) -> AsyncIterator[None]:
    """Serve /healthz (the process is alive) and /readyz (it serves tasks, and Temporal answers)."""
    if not settings.health_port:
        yield
        return

    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def readyz(_request: web.Request) -> web.Response:
        try:
            connected = await asyncio.wait_for(client.service_client.check_health(), 2)
        except (RPCError, TimeoutError):
            connected = False
        ready = worker.is_running and connected
        return web.json_response({"running": worker.is_running, "connected": connected}, status=200 if ready else 503)

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.health_host, settings.health_port).start()
        yield
    except OSError as error:
        raise ConfigurationError(
            f"SETTLED_HEALTH_PORT: can't listen on {settings.health_port} ({error.strerror}); another one, or 0"
        ) from error
    finally:
        await runner.cleanup()
