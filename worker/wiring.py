"""Putting a worker together: stores, tools, profiles and activities on one side, Temporal on the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Interceptor, Worker

from settled.activities.agents import AgentProfile
from settled.activities.asking import Asking
from settled.activities.closing import ClosingActivities
from settled.activities.database import Database
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.dispatch import WriteActivities
from settled.activities.heartbeats import SENT_SECONDS
from settled.activities.keys import key_forms, superseded_by
from settled.activities.migrating import migrate
from settled.activities.model import ModelActivities
from settled.activities.model_provider import Provider
from settled.activities.opening import OpeningActivities
from settled.activities.prices import Prices, faults_of_profiles, load_prices
from settled.activities.reads import ReadActivities
from settled.activities.registry import Registry
from settled.activities.resolving import ResolvingActivities
from settled.activities.settle import SettlementActivities
from settled.activities.stores import Stores
from settled.worker.settings import Settings
from settled.workflows.agent_task import AgentTask
from settled.workflows.errors import ConfigurationError
from settled.workflows.settlement import Settlement

WORKFLOWS = [AgentTask, Settlement]
"""Every workflow: what a worker serves, and what a replay needs."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a worker is made of, besides its connection to Temporal."""

    settings: Settings
    stores: Stores
    registry: Registry
    profiles: Mapping[str, AgentProfile]
    provider: Provider
    prices: Prices

    def activities(self) -> Sequence[Callable[..., Any]]:
        """Every activity."""
        opening = OpeningActivities(
            self.stores,
            self.registry,
            self.profiles,
            default_agent(self.settings, self.profiles),
            self.settings.conduct,
            self.prices,
        )
        asking = Asking(database=self.stores.database, provider=self.provider, prices=self.prices)
        model = ModelActivities(self.stores, self.registry, asking)
        writes = WriteActivities(self.stores, self.registry)
        reads = ReadActivities(self.stores, self.registry)
        closing = ClosingActivities(self.stores, self.registry)
        settlement = SettlementActivities(self.stores, self.registry, self.settings.patience)
        resolving = ResolvingActivities(self.stores)
        return [
            opening.open_task,
            model.request_model,
            reads.run_read,
            writes.dispatch,
            writes.reconcile,
            closing.review,
            closing.close_task,
            settlement.settle,
            resolving.resolve,
        ]


@asynccontextmanager
async def parts(settings: Settings, registry: Registry, profiles: Mapping[str, AgentProfile]) -> AsyncIterator[Parts]:
    """The parts of a worker, with the database at this release's form.

    Raises:
        ConfigurationError: a setting, a tool or a profile doesn't fit.
    """
    default_agent(settings, profiles)
    prices = load_prices(settings.prices)
    if faults := faults_of_profiles(profiles, prices):
        raise ConfigurationError("\n".join(faults))
    database = Database(settings.database_url)
    provider = Provider(settings.model_url)
    try:
        await migrate(database)
        stores = Stores.over(database)
        await check_keys(stores, registry)
        yield Parts(
            settings=settings, stores=stores, registry=registry, profiles=profiles, provider=provider, prices=prices
        )
    finally:
        await provider.close()
        await database.close()


async def check_keys(stores: Stores, registry: Registry) -> None:
    """See that no tool makes its keys in another way than when its operations were made, unless it knows of both.

    Raises:
        ConfigurationError: one does: what was done under the old keys would be forgotten.
    """
    declared = DeclaredKeys(stores.database)
    forms = {tool.name: key_forms(tool) for tool in registry.writes}
    await declared.note({name: newest.declaration for name, (newest, *_) in forms.items()})
    for newest, *_ in forms.values():
        await declared.replace(newest.tool, newest.untyped, newest.declaration)  # noted by a release that noted less
    standing, faults = await declared.all(), []
    for name, (newest, *older) in forms.items():
        if standing[name] not in {form.declaration for form in (newest, *older)}:
            faults.append(
                f"tool {name}: its keys have changed (key, scope, a key field's type, or undoes), so that what was "
                f"done under the old ones would be done again; say what they were with supersedes=(Supersedes(…),). "
                f"The ledger has {standing[name]}"
            )
    if faults:
        raise ConfigurationError("\n".join(faults))
    for name, (newest, *older) in forms.items():
        for form in older:
            # A worker that still makes the keys in the old way, perhaps under an old name, must not send any more.
            now = newest.declaration if form.tool == name else superseded_by(name)
            await declared.replace(form.tool, form.declaration, now)


def default_agent(settings: Settings, profiles: Mapping[str, AgentProfile]) -> str:
    """The profile of a task that names none.

    Raises:
        ConfigurationError: it isn't there, or it isn't clear which one it is.
    """
    if settings.default_agent in profiles:
        return settings.default_agent
    if not settings.default_agent and len(profiles) == 1:
        return next(iter(profiles))
    known = ", ".join(sorted(profiles))
    raise ConfigurationError(f"SETTLED_DEFAULT_AGENT: name one of the profiles in SETTLED_AGENTS: {known}")


def make_worker(client: Client, made_of: Parts, interceptors: Sequence[Interceptor] = ()) -> Worker:
    """A worker that serves tasks and settlements on the settings' task queue."""
    return Worker(
        client,
        task_queue=made_of.settings.task_queue,
        workflows=WORKFLOWS,
        activities=made_of.activities(),
        graceful_shutdown_timeout=timedelta(seconds=made_of.settings.drain_seconds),
        # Without that, the SDK keeps most of them back: for eight tenths of the time in which one must come.
        max_heartbeat_throttle_interval=timedelta(seconds=SENT_SECONDS),
        default_heartbeat_throttle_interval=timedelta(seconds=SENT_SECONDS),
        interceptors=interceptors,
    )
