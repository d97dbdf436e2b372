"""R75c: a deploy that changes how a tool makes its keys forgets nothing that was done."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from settled.activities.registry import Registry, discover
from settled.activities.toolkit import Scope, Supersedes, WriteTool
from settled.workflows.contract.operation import OperationState
from settled.workflows.errors import ConfigurationError
from tests.desk import Desk, hurried, open_desk, reserve, result_of, until
from tests.end_to_end.test_writes import GOAL, shown

BEFORE = Supersedes(key=("line", "order", "sku"), scope=Scope.BUSINESS)


def tools(**changes: Any) -> Registry:
    """The shipped tools, with changes to the writes."""
    return hurried(discover(), seconds=2.0, lands_within=timedelta(seconds=1), **changes)


def changed(**changes: Any) -> Registry:
    """The reservation's key leaves out the line, in a later release."""
    made = dict(tools().tools)
    reserving = made["reserve_stock"]
    assert isinstance(reserving, WriteTool)
    made["reserve_stock"] = WriteTool(**vars(reserving) | {"key": ("order", "sku")} | changes)
    return Registry({name: made[name] for name in ("lookup_stock", "reserve_stock")})


async def test_r75c_what_was_done_under_the_old_key_is_not_done_again(temporal: Client, tmp_path: Path) -> None:
    """The same action, proposed to the next release: its stored result, as of the old key."""
    async with open_desk(temporal, tmp_path, registry=tools()) as desk:
        desk.will_say(reserve(), "Done.")
        before = (await desk.run(GOAL)).operations[0]
    async with open_desk(temporal, tmp_path, registry=changed(supersedes=(BEFORE,))) as desk:
        desk.will_say(reserve(), reserve(1, sku="B2"), "Done.")
        result = await desk.run(GOAL, "later")
        assert shown(desk, 1)[0]["status"] == "completed"
        assert "repeated" in shown(desk, 1)[0]
        assert result.operations[0].key == before.key
        assert result.tally.completed == 2
        assert len(await desk.effects(order="1001")) == 2


async def test_r75c_an_operation_that_was_open_under_the_old_key_goes_on_under_it(
    temporal: Client, tmp_path: Path
) -> None:
    """Its reply was lost before the deploy; afterwards it is found, for a task that proposes it anew."""
    async with open_desk(temporal, tmp_path, registry=tools()) as desk:
        await desk.arm("drop_reply_after_commit")
        await desk.arm("lookup_fails", times=1000)
        desk.will_say(reserve())
        handle = await desk.start(GOAL, "before")
        await until(lambda: _is_unknown(desk))
        await handle.terminate()  # or it would start a settlement anew, where nobody serves it any more
    async with open_desk(temporal, tmp_path, registry=changed(supersedes=(BEFORE,))) as desk:
        desk.will_say(reserve(), "Done.")
        result = await result_of(await desk.start(GOAL, "after"))
        assert [one.state for one in result.operations] == [OperationState.COMPLETED]
        assert len(await desk.effects()) == 1


async def _is_unknown(desk: Desk) -> bool:
    return [one.view.state for one in await desk.parts.stores.ledger.listed()] == [OperationState.UNKNOWN]


async def test_r75c_a_worker_that_does_not_know_the_old_key_refuses_to_start(temporal: Client, tmp_path: Path) -> None:
    """And one line says what to declare."""
    async with open_desk(temporal, tmp_path, registry=tools(), working=False):
        pass
    with pytest.raises(ConfigurationError, match=r"tool reserve_stock: .* say what they were with supersedes="):
        async with open_desk(temporal, tmp_path, registry=changed(), working=False):
            pass


async def test_r75c_a_worker_of_the_old_release_sends_nothing_once_the_new_one_has_started(
    temporal: Client, tmp_path: Path
) -> None:
    """Both serve during a deploy; two keys for one action would be two effects. The order waits for the new one."""
    async with open_desk(temporal, tmp_path, registry=tools()) as old:
        async with open_desk(temporal, tmp_path, registry=changed(supersedes=(BEFORE,)), working=False):
            pass
        old.will_say(reserve())
        handle = await old.start(GOAL)
        await until(lambda: _is_about_to_send(handle))
        assert (await old.requests())["POST /reservations"] == 0
        await handle.terminate()


async def _is_about_to_send(handle: Any) -> bool:
    report = await handle.query("status")
    return any("about to be sent" in line for line in report["waits_for"])
