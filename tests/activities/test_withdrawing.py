"""Giving up what was not sent: where another task waits for the same, and where the ledger has lost its past."""

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from settled.activities.calls import proposed_calls
from settled.activities.database import Database
from settled.activities.epochs import Epochs
from settled.activities.journal import Operation
from settled.activities.keys import fingerprint, key_forms, operation_key
from settled.activities.ledger import Amended, Decide, Ledger
from settled.activities.ledger_rows import WaitsFor
from settled.activities.migrating import migrate
from settled.activities.registry import Registry
from settled.activities.settle import SettlementActivities
from settled.activities.settling import Patience
from settled.activities.stores import Stores, TaskRecord
from settled.activities.transcript import Role, make_node
from settled.activities.withdrawing import Withdrawn, withdraw
from settled.workflows.contract.operation import Intent, OperationState, Order, Question
from settled.workflows.states import Event
from tests.activities.test_sweeping import TOOL, Reserve
from tests.protocol.books import note, report
from tests.protocol.stories import order as claim_of

S, E = OperationState, Event
ASKED = Reserve(sku="A1")
REGISTRY = Registry({"reserve": TOOL})


@pytest.fixture
async def stores(sqlite_url: str) -> AsyncIterator[Stores]:
    database = Database(sqlite_url)
    await migrate(database)
    yield Stores.over(database)
    await database.close()


@pytest.fixture
def task() -> str:
    """The task that gives up."""
    return f"giving-up-{uuid4().hex}"


@pytest.fixture
async def order(stores: Stores, task: str) -> Order:
    """Its order, with the call in a transcript, and a record of the task."""
    record = TaskRecord(
        task=task, request_digest="0" * 64, request={}, agent="clerk", tenant="acme", principal="ann",
        root_task=task, tools=("reserve",), acceptance=(),
    )  # fmt: skip
    await stores.tasks.open(record)
    root = make_node(None, Role.ROOT, {"system": "You are the clerk."})
    call = {"type": "tool_use", "id": "toolu_1", "name": "reserve", "input": {"sku": "A1"}}
    head = make_node(root, Role.ASSISTANT, [call])
    for node in (root, head):
        await stores.transcripts.add(node)
    assert [one.name for one in proposed_calls(head.content)] == ["reserve"]
    namespace = ActivityEnvironment.default_info().namespace
    key = operation_key(key_forms(TOOL)[0], ASKED, record.realm(namespace))
    intent = Intent(key=key, generation=1, fingerprint=fingerprint(ASKED))
    return Order(head=head.digest, slot=0, tool="reserve", intent=intent, permit=1, seconds=10.0)


async def give_up(stores: Stores, client: Client, order: Order, task: str, registry: Registry = REGISTRY) -> Withdrawn:
    result: Withdrawn = await ActivityEnvironment(client=client).run(withdraw, stores, registry, client, order, task)
    return result


@pytest.fixture
async def other(temporal: Client, stores: Stores, order: Order) -> AsyncIterator[str]:
    """Another task, which is running, and waits for the same operation."""
    name = f"waiting-{uuid4().hex}"
    handle = await temporal.start_workflow("AgentTask", id=name, task_queue=uuid4().hex)
    await stores.ledger.join(order.intent.key, name, WaitsFor.RESULT)
    yield name
    await handle.terminate()


def state_of(withdrawn: Withdrawn) -> OperationState:
    assert isinstance(withdrawn.operation, Operation)
    return withdrawn.operation.state


async def test_what_was_not_sent_and_nobody_else_wants_is_closed(
    stores: Stores, temporal: Client, order: Order, task: str
) -> None:
    withdrawn = await give_up(stores, temporal, order, task)
    assert (state_of(withdrawn), withdrawn.left) == (S.NOT_EXECUTED, False)
    assert [row.event for row in await stores.ledger.journal(order.intent.key)] == [E.WITHDRAWN]


async def test_what_another_task_waits_for_is_left_to_it(
    stores: Stores, temporal: Client, order: Order, task: str, other: str
) -> None:
    await stores.ledger.wait(order.intent.key, task, WaitsFor.RESULT)
    withdrawn = await give_up(stores, temporal, order, task)
    assert (withdrawn.operation, withdrawn.left) == (None, True)
    assert [one.task for one in await stores.ledger.waiters(order.intent.key)] == [other], "and is its own no more"


async def test_who_waits_alone_is_nobody_else(stores: Stores, temporal: Client, order: Order, task: str) -> None:
    await stores.ledger.join(order.intent.key, task, WaitsFor.RESULT)
    assert state_of(await give_up(stores, temporal, order, task)) is S.NOT_EXECUTED


async def test_a_task_that_is_gone_waits_for_nothing(stores: Stores, temporal: Client, order: Order, task: str) -> None:
    await stores.ledger.join(order.intent.key, f"gone-{uuid4().hex}", WaitsFor.RESULT)
    assert state_of(await give_up(stores, temporal, order, task)) is S.NOT_EXECUTED


async def test_who_only_waits_for_its_resource_does_not_want_it(
    stores: Stores, temporal: Client, order: Order, task: str, other: str
) -> None:
    await stores.ledger.wait(order.intent.key, other, WaitsFor.RESOURCE)
    assert state_of(await give_up(stores, temporal, order, task)) is S.NOT_EXECUTED


async def test_a_permit_that_another_task_waits_to_spend_stays_open(
    stores: Stores, temporal: Client, order: Order, task: str, other: str
) -> None:
    key = order.intent.key
    subject = replace(claim_of().subject, fingerprint=order.intent.fingerprint)
    await stores.ledger.claim(key, claim_of(about=subject, task=other))
    await report(stores.ledger, E.UNCLEAR, at=key, task=other)
    await note(stores.ledger, E.ABSENT_RESEND, at=key, permit=2, until=None)
    await stores.ledger.join(key, other, WaitsFor.RESULT)
    withdrawn = await give_up(stores, temporal, order, task)
    assert (state_of(withdrawn), withdrawn.left) == (S.RESENDABLE, False)


class Overtaken(Ledger):
    """A ledger in which a task asks again as soon as its permit is void, before the settlement goes on."""

    task = ""

    async def amend(self, key: str, decide: Decide) -> Amended:
        amended = await super().amend(key, decide)
        if amended.entry is not None and amended.entry.event is E.WITHDRAWN:
            await self.join(key, self.task, WaitsFor.RESULT)
        return amended


async def test_who_asks_again_once_a_permit_is_void_is_told_what_becomes_of_it(
    stores: Stores, temporal: Client, order: Order, other: str
) -> None:
    key, ledger = order.intent.key, Overtaken(stores.database)
    ledger.task = other
    await ledger.claim(key, claim_of(task=other))
    await report(ledger, E.UNCLEAR, at=key, task=other)
    await note(ledger, E.ABSENT_RESEND, at=key, permit=2, until=None)
    await ledger.leave(key, other)
    settlement = SettlementActivities(replace(stores, ledger=ledger), REGISTRY, Patience())
    await ActivityEnvironment(client=temporal).run(settlement.settle, Question(key=key))
    operation, (waiter,) = await ledger.read(key), await ledger.waiters(key)
    assert operation is not None
    assert (operation.state, waiter.task, waiter.woken_seq) == (S.NEEDS_HUMAN, other, operation.seq)


@pytest.mark.parametrize("seen", [{"known": True}, {"permit": 2}], ids=["known", "a later permit"])
async def test_what_the_ledger_has_lost_is_looked_up_with_the_arguments_that_were_sent(
    stores: Stores, temporal: Client, order: Order, task: str, seen: dict[str, object]
) -> None:
    withdrawn = await give_up(stores, temporal, order.model_copy(update=seen), task)
    operation = withdrawn.operation
    assert operation is not None
    assert (operation.state, len(operation.out)) == (S.UNKNOWN, 1)
    assert await stores.artifacts.get(operation.subject.arguments) == ASKED.model_dump_json().encode()


async def test_in_an_epoch_what_was_not_sent_by_this_task_is_looked_up_too(
    stores: Stores, temporal: Client, order: Order, task: str
) -> None:
    """Another one may have sent it in the lost time; to close the generation would open the way for a second send."""
    await Epochs(stores.database).open("ann", "restored")
    withdrawn = await give_up(stores, temporal, order, task)
    assert state_of(withdrawn) is S.UNKNOWN
    assert [row.event for row in await stores.ledger.journal(order.intent.key)] == [E.MISSED]


async def test_a_worker_without_the_tool_can_give_up_as_well(
    stores: Stores, temporal: Client, order: Order, task: str
) -> None:
    assert state_of(await give_up(stores, temporal, order, task, Registry({}))) is S.NOT_EXECUTED


async def test_a_task_that_the_ledger_does_not_know_changes_nothing(
    stores: Stores, temporal: Client, order: Order
) -> None:
    assert await give_up(stores, temporal, order, "never-opened") == Withdrawn(operation=None)
    assert await stores.ledger.journal(order.intent.key) == []
