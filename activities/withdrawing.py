"""Giving up an operation that wasn't sent: its permit is void from here on. What was sent stays with the settlement."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.client import Client

from settled.activities import protocol
from settled.activities.journal import Operation
from settled.activities.preparing import prepare, subject_of
from settled.activities.registry import Registry
from settled.activities.stores import Stores, TaskRecord
from settled.activities.waking import somebody_waits
from settled.workflows.contract.operation import Order
from settled.workflows.errors import InvalidCall, TaskLost


@dataclass(frozen=True, kw_only=True)
class Withdrawn:
    """What became of an operation that a task gave up."""

    operation: Operation | None
    """As it stands now."""
    left: bool = False
    """Whether it is left to another task that wants the same, and may still be sent for that one."""


async def withdraw(stores: Stores, registry: Registry, client: Client, order: Order, task: str) -> Withdrawn:
    """Void the order's permit, unless another task waits for the same operation. What the ledger lost is unknown."""
    key = order.intent.key
    record = await stores.tasks.get(task)
    if record is None:
        return Withdrawn(operation=await stores.ledger.read(key))
    others_wait = await somebody_waits(client, stores.ledger, key, besides=task)
    amended = await stores.ledger.withdraw(key, await _ask(stores, registry, order, record), others_wait=others_wait)
    left = others_wait and protocol.opens(amended.operation, order.intent.generation)
    if left:
        await stores.ledger.leave(key, task)
    return Withdrawn(operation=amended.operation, left=left)


async def _ask(stores: Stores, registry: Registry, order: Order, record: TaskRecord) -> protocol.Claim:
    """What the ledger is told: all of it, since a lookup needs the arguments where the ledger has lost something."""
    try:
        return (await prepare(stores, registry, order, record.task)).claim
    except (InvalidCall, TaskLost):
        return protocol.Claim(
            subject=subject_of(order.intent, order.tool, record),
            generation=order.intent.generation,
            permit=order.permit,
            seconds=order.seconds,
            task=record.task,
            known=order.known,
            expected=order.intent.expected,
        )
