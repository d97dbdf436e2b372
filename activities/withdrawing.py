"""Giving up an operation that wasn't sent: its permit is void from here on. What was sent stays with the settlement."""

from __future__ import annotations

from temporalio.client import Client

from settled.activities import protocol
from settled.activities.journal import Operation, Subject
from settled.activities.stores import Stores, TaskRecord
from settled.activities.waking import somebody_waits
from settled.workflows.contract.operation import Intent

MOST_SHOWN = 500


def subject_of(intent: Intent, tool: str, record: TaskRecord, arguments: str = "", shown: bytes = b"") -> Subject:
    """What an operation's generation is about, from the intent that opens it.

    Args:
        intent: the intent.
        tool: who acts.
        record: of the task whose intent it is.
        arguments: the artifact with the arguments; none where it is opened only to be closed.
        shown: the arguments as JSON.
    """
    return Subject(
        tool=tool,
        tenant=record.tenant,
        principal=record.principal,
        fingerprint=intent.fingerprint,
        arguments=arguments,
        resources=intent.resources,
        shown=shown.decode()[:MOST_SHOWN],
    )


async def withdraw(stores: Stores, client: Client, intent: Intent, tool: str, task: str) -> Operation | None:
    """Void the intent's open permit, unless another task waits for the same operation. Returns how it stands now."""
    record = await stores.tasks.get(task)
    if record is None:
        return await stores.ledger.read(intent.key)
    others_wait = await somebody_waits(client, stores.ledger, intent.key, besides=task)
    ask = protocol.Claim(
        subject=subject_of(intent, tool, record),
        generation=intent.generation,
        permit=1,
        seconds=0.0,
        task=task,
    )
    amended = await stores.ledger.amend(
        intent.key, lambda operation, _now: protocol.withdraw(operation, ask, others_wait=others_wait)
    )
    return amended.operation
