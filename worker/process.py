"""The worker process: connects, serves, answers health probes, and drains on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError
from temporalio.worker import Worker

from settled.activities.agents import load_profiles
from settled.activities.registry import discover
from settled.worker.settings import Settings
from settled.worker.wiring import make_worker, parts
from settled.workflows.converter import data_converter
from settled.workflows.errors import ConfigurationError

log = logging.getLogger("settled.worker")

DEFAULT_ADDRESS = "127.0.0.1:7233"


async def connect() -> Client:
    """A client, configured by Temporal's own variables and profiles.

    Raises:
        ConfigurationError: there is no server at the address, or the configuration can't be read.
    """
    try:
        config = ClientConfig.load_client_connect_config()
    except (RuntimeError, ValueError) as error:
        raise ConfigurationError(f"TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE: {error}") from error
    address = config.setdefault("target_host", DEFAULT_ADDRESS)
    try:
        return await Client.connect(**config, data_converter=data_converter)
    except (RuntimeError, RPCError) as error:
        raise ConfigurationError(
            f"TEMPORAL_ADDRESS: no Temporal server answers at {address}; start one, or name another address"
        ) from error


async def run_worker(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, then let running activities end.

    Raises:
        ConfigurationError: a setting, a tool or a profile doesn't fit, or Temporal can't be reached.
    """
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
        async with health(settings, client, worker):
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
