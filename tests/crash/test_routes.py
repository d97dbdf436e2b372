"""Every way in which Temporal can run a write's activity twice, or without supervision, by its number.

`maximum_attempts=1` is no at-most-once. These are the routes that are known, each with the tests that are named after
it (`test_route_3_…`); each asserts one effect at the service, and a truthful journal and result.

| number | route | where |
|---|---|---|
| 1 | a retry policy with more attempts, and any failure | `test_routes_operator` |
| 2 | pause, failure, unpause | `test_routes_operator` |
| 3 | pause, failure, activity reset | `test_routes_operator` |
| 4 | more attempts by `update-options`, and a failure, a timeout or a kill | `test_routes_operator` |
| 5 | workflow reset, in each of its forms | `test_routes_reset` |
| 6 | local activities | `test_routes`: we have none |
| 7 | an attempt that goes on beside another one | `test_routes_runs`, `test_freeze`, `test_late_commit` |
| 8 | a closed workflow id that is started again | `test_routes_runs` |
| 9 | our activities called directly, or by another workflow | `test_routes_direct` |
| 10 | workflow retries, cron, schedules, a parent that runs its child again | `test_routes_runs` |
| 11 | Temporal's database lost, or restored from a copy of its past | `test_routes_server` |
| 12 | clients inside the tool that try again | `test_routes`, and `activities/test_tool_http` |
| 13 | completion from outside | `test_routes`: we have none; by an operator: `test_routes_forged` |
| 14 | paused workflows | `test_routes`: refused by default; where allowed: `test_routes_server` |

What can't be produced here: a failover between clusters (11), where events that one cluster had are lost and driven
again from an older point, is a restore from a copy to us; retried Nexus operations (10), since we have none; and a load
balancer that replays a request (12), which no client can see, and which is what the idempotency key is for.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import httpx2
import pytest

from settled.activities.tool_http import tool_client
from tests.crash.operator import run_temporal
from tests.crash.outcomes import RESERVED, a_write_that_is_out, assert_reserved_once, disarm
from tests.desk import Desk, result_of

HERE = Path(__file__).parent
ROOMS = [HERE.parents[1] / room for room in ("workflows", "activities", "worker")]
TABLE = dict(re.findall(r"^\| (\d+) \|.*\| (.*) \|$", __doc__ or "", re.MULTILINE))
NOT_OURS = {
    6: ("start_local_activity", "execute_local_activity"),
    10: ("start_child_workflow", "execute_child_workflow", "create_nexus_client", "nexusrpc"),
    13: ("raise_complete_async", "get_async_activity_handle"),
}
"""What our code would have to say to open a route."""


def files_by_number() -> dict[int, set[str]]:
    """The files that hold tests of each route."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in HERE.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            name = getattr(node, "name", "")
            if match := re.match(r"test_routes?_(\d+)_(?:and_(\d+)_)?", name):
                for number in filter(None, match.groups()):
                    found[int(number)].add(path.stem)
    return found


def test_each_route_has_its_tests_where_the_table_says() -> None:
    """A reader finds each route by its number, and no route without a test."""
    assert sorted(map(int, TABLE)) == list(range(1, 15))
    for number, files in files_by_number().items():
        assert files <= set(re.findall(r"`(test_\w+)`", TABLE[str(number)])), f"route {number}"
    assert files_by_number().keys() == set(range(1, 15))


@pytest.mark.parametrize("number", NOT_OURS)
def test_routes_6_and_13_the_source_opens_none(number: int) -> None:
    """No local activity, no child and no Nexus operation, no completion from outside."""
    sources = {path: path.read_text() for room in ROOMS for path in room.rglob("*.py")}
    assert len(sources) > 20
    assert not [path.name for path, source in sources.items() for word in NOT_OURS[number] if word in source]


@pytest.mark.parametrize("fault", ["drop_before_commit", "drop_reply_after_commit"])
async def test_route_12_a_request_whose_connection_breaks_is_sent_once(desk: Desk, fault: str) -> None:
    """R75: the client that tools are given tries nothing again, on a new connection or on one that was used before."""
    await desk.arm(fault)
    async with tool_client(5.0) as http:
        assert (await http.get(f"{desk.stock.url}/stock/A1")).is_success
        with pytest.raises(httpx2.TransportError):
            await http.post(f"{desk.stock.url}/reservations", json=RESERVED, headers={"Idempotency-Key": "k"})
    assert (await desk.requests())["POST /reservations"] == 1


async def test_route_14_pausing_a_workflow_is_refused_unless_the_server_allows_it(patient_desk: Desk) -> None:
    """R63: and the task goes on."""
    desk = patient_desk
    handle = await a_write_that_is_out(desk)
    code, said = await run_temporal(desk, "workflow", "pause", "--workflow-id", handle.id)
    assert code == 1
    assert "pause is not enabled" in said
    await disarm(desk)
    await assert_reserved_once(desk, await result_of(handle), "claimed", "succeeded")
