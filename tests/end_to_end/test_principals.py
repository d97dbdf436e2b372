"""Whose action it is: each send and each lookup of a generation goes out in the name of the one who opened it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.activities.registry import Registry
from settled.activities.toolkit import Absent, Answer, Arguments, Call, Found, Rejected, Scope, ShownTo, write
from settled.local.messages_script import tool_use
from settled.workflows.contract.ending import Status
from settled.workflows.contract.operation import Evidence, OperationState
from settled.workflows.contract.result import TaskResult
from tests.desk import CLERK, Desk, open_desk, result_of, status_of, until
from tests.end_to_end.test_writes import shown

GOAL = "pay order 7"
PAID = {"check": "operation", "tool": "pay", "arguments": {"order": "7"}}


class Pay(Arguments):
    """What `pay` is asked."""

    order: str


@dataclass
class Bank:
    """A service with an account for each principal: an idempotency key means something only within one."""

    fails: list[str] = field(default_factory=list)
    """What happens to the next payments."""
    away: bool = True
    """Whether it can't be asked."""
    effects: list[tuple[str, str]] = field(default_factory=list)
    """In whose name, and under which key."""

    async def find(self, asked: Pay, call: Call) -> Found | Absent:
        """Look into the account of the one in whose name it is asked."""
        if self.away:
            raise ConnectionResetError
        if (call.principal, call.idempotency_key) not in self.effects:
            return Absent()
        answer = Answer(data={"account": call.principal}, source="bank")
        return Found(key=call.idempotency_key, request={"order": asked.order}, answer=answer)

    async def pay(self, asked: Pay, call: Call) -> Answer:
        """Pay from that account."""
        fails = self.fails.pop(0) if self.fails else ""
        if fails == "before":
            raise ConnectionResetError
        if fails == "declined":
            raise Rejected(f"the account of {call.principal} is empty")
        self.effects.append((call.principal, call.idempotency_key))
        if fails == "after":
            raise ConnectionResetError
        return Answer(data={"account": call.principal}, source="bank")


Opened = Callable[..., AbstractAsyncContextManager[Desk]]


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def opened(temporal: Client, tmp_path: Path, bank: Bank) -> Opened:
    """Opens a desk whose clerk pays."""

    async def pay(asked: Pay, call: Call) -> Answer:
        """Pay an order. Writes."""
        return await bank.pay(asked, call)

    tool = write(
        key=("order",),
        scope=Scope.BUSINESS,
        lookup=bank.find,
        dedupes=None,
        lands_within=timedelta(seconds=1),
        resources=lambda asked: [f"order/{asked.order}"],
        timeout=timedelta(seconds=2),
    )(pay)

    @asynccontextmanager
    async def open_bank(shown_to: ShownTo = ShownTo.PRINCIPAL) -> AsyncIterator[Desk]:
        registry = Registry({"pay": replace(tool, shown_to=shown_to)})
        profiles = {"clerk": CLERK.model_copy(update={"tools": ("pay",)})}
        async with open_desk(temporal, tmp_path, registry=registry, profiles=profiles) as desk:
            yield desk

    return open_bank


def pays() -> dict[str, Any]:
    """A call of `pay`."""
    return tool_use("pay", {"order": "7"})


async def sent_for_anna_by_bert(desk: Desk, bank: Bank, second: str, **request: Any) -> TaskResult:
    """Anna's first send is lost, and her task is gone; the second permit is claimed by bert's task, which had joined.

    Returns:
        The result of bert's task.
    """
    bank.fails = ["before", second]
    desk.will_say(pays())
    anna = await desk.start({"goal": GOAL, "principal": "anna"})
    await until(lambda: is_unknown(desk))
    desk.will_say(pays())
    bert = await desk.start({"goal": GOAL, "principal": "bert", **request})
    await until(lambda: waits(desk, bert.id))
    await anna.terminate()
    bank.away = False
    desk.will_say("Done.")
    return await result_of(bert)


async def is_unknown(desk: Desk) -> bool:
    return [one.view.state for one in await desk.parts.stores.ledger.listed()] == [OperationState.UNKNOWN]


async def waits(desk: Desk, task: str) -> bool:
    return (await status_of(desk.client.get_workflow_handle(task))).status is Status.WAITING


@pytest.mark.long
@pytest.mark.parametrize("second", ["", "after"], ids=["answered", "reply lost"])
async def test_r63_what_anna_has_opened_is_sent_again_in_her_name_by_whoever_sends_it(
    opened: Opened, bank: Bank, second: str
) -> None:
    """R35, R63, R73: one effect, hers; found where it is looked for; and bert is told only that it was done."""
    async with opened() as desk:
        result = await sent_for_anna_by_bert(desk, bank, second)
        assert [who for who, _key in bank.effects] == ["anna"]
        (operation,) = result.operations
        assert (operation.state, operation.sends) == (OperationState.COMPLETED, 2)
        assert operation.evidence is (Evidence.LOOKUP if second else Evidence.ANSWER)
        told = shown(desk)[0]
        assert (told["status"], "anna" in str(told)) == ("completed", False)
        assert "another principal's name" in told["note"]
        desk.will_say(pays(), "Done.")
        await desk.run({"goal": GOAL, "principal": "anna"})
        assert shown(desk)[0]["data"] == {"account": "anna"}
        assert len(bank.effects) == 1


async def test_r35_who_has_sent_it_is_not_told_in_which_words_the_opener_was_declined(
    opened: Opened, bank: Bank
) -> None:
    async with opened() as desk:
        result = await sent_for_anna_by_bert(desk, bank, "declined")
        assert [one.state for one in result.operations] == [OperationState.NOT_EXECUTED]
        assert "anna" not in str(shown(desk)[0])
        assert bank.effects == []


async def test_r55_acceptance_finds_the_record_in_the_opener_s_name_where_bert_may_see_it(
    opened: Opened, bank: Bank
) -> None:
    async with opened(ShownTo.TENANT) as desk:
        result = await sent_for_anna_by_bert(desk, bank, "", acceptance=[PAID])
        assert result.status is Status.SUCCEEDED, result.findings
        assert shown(desk)[0]["data"] == {"account": "anna"}
        assert [who for who, _key in bank.effects] == ["anna"]
