"""From an order to a claim: the tool, the arguments as the model proposed them, and what the ledger is to be told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pydantic import BaseModel
from temporalio import activity

from settled.activities.admission import resources_of
from settled.activities.artifacts import JSON
from settled.activities.intents import Meanings
from settled.activities.journal import Subject
from settled.activities.keys import fingerprint, key_forms
from settled.activities.protocol import Claim
from settled.activities.recall import recall
from settled.activities.registry import Registry
from settled.activities.stores import Stores, TaskRecord
from settled.activities.toolkit import ShownTo, WriteTool
from settled.workflows.contract.operation import Intent, Order
from settled.workflows.errors import InvalidCall, TaskLost, TranscriptError

MOST_SHOWN = 500
KEY_RESOURCE = "key/"
"""How a resource begins that stands for an action under one of its keys."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An order, made ready: the tool, the arguments, and what the claim says."""

    order: Order
    task: str
    tool: WriteTool
    arguments: BaseModel
    claim: Claim


async def prepare(stores: Stores, registry: Registry, order: Order, task: str) -> Prepared:
    """Everything that the claim needs, from the transcript and the tool's declaration.

    Raises:
        InvalidCall: the call can't be run by this worker as it was admitted.
        TaskLost: the ledger doesn't know the task, or has lost its conversation.
    """
    record = await stores.tasks.get(task)
    if record is None:
        raise TaskLost(f"the ledger doesn't know task {task}; was it restored from an older copy?")
    try:
        tool, arguments = await recall(stores.transcripts, registry, order.head, order.slot, order.tool)
    except TranscriptError as error:
        raise TaskLost(f"the ledger has lost the conversation of task {task}: {error}") from error
    if not isinstance(tool, WriteTool):
        raise InvalidCall(f"{order.tool} is no write on this worker")
    try:
        same, shown = fingerprint(arguments) == order.intent.fingerprint, arguments.model_dump_json().encode()
    # A type that the registry let through, but that has no JSON form after all.
    except Exception as error:
        raise InvalidCall(f"the arguments of {order.tool} can't be stored: {error}") from error
    if not same:
        raise InvalidCall(f"{order.tool} reads its arguments in another way than when the call was admitted")
    realm = record.realm(activity.info().namespace)
    meanings = Meanings(registry=registry, read=stores.ledger.read, realm=realm)
    keys = meanings.keys(tool, arguments, order.intent.undoes)
    if order.intent.key not in keys or not meanings.may_undo(tool, arguments, order.intent.undoes):
        # Whoever may start workflows may make an order; what it sends must be what its key stands for.
        raise InvalidCall(f"the order's key is not that of the action that {order.tool} would carry out")
    subject = subject_of(order.intent, tool.name, record, await stores.artifacts.put(shown, JSON), shown)
    touched = {*subject.resources, *resources_of(tool, arguments, record.tenant)}
    if order.intent.undoes is not None:
        # Two ways of taking back the same thing must not both be under way.
        touched.add(f"undo/{order.intent.undoes.key}")
    if len(keys) > 1:
        # Two claims of one action under two of its keys must meet somewhere.
        touched |= {f"{KEY_RESOURCE}{key}" for key in keys}
    subject = replace(subject, resources=tuple(sorted(touched)))
    claim = Claim(
        subject=subject,
        generation=order.intent.generation,
        permit=order.permit,
        seconds=order.seconds,
        task=task,
        known=order.known,
        expected=order.intent.expected,
        declaration=key_forms(tool)[0].declaration,
        namesakes=tuple(key for key in keys if key != order.intent.key),
        own_store=tool.transactional,
        shared=tool.undoes is not None and registry.write(tool.undoes).shown_to is ShownTo.TENANT,
    )
    return Prepared(order=order, task=task, tool=tool, arguments=arguments, claim=claim)


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
        undoes_key=intent.undoes.key if intent.undoes else "",
        undoes_generation=intent.undoes.generation if intent.undoes else 0,
    )
