"""The demo as a person runs it: a real process, from nothing, that leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from settled.activities.journal import Row
from settled.local.clerk import clerk
from settled.local.demo import differences
from settled.local.facts import of_row, printable
from settled.local.messages_server import MessagesServer
from settled.workflows.contract.operation import OperationState
from settled.workflows.states import Event
from tests.local.running import PROCESSES, Local, running_local

pytestmark = pytest.mark.skipif(not PROCESSES.exists(), reason="what is left is looked for in /proc")

STORY = ["task", "opened", "proposal", "dispatch", "unknown", "lookup", "result"]
STORY += ["answer", "acceptance", "spent", "status"]
LINE = re.compile(r" *(?P<seconds>\d+\.\d\d) s  (?P<about>\w+) +(?P<text>\S.*)")
GOOD: dict[str, Any] = {
    "status": "succeeded",
    "end_reason": "completed",
    "operations": [{"key": "k", "state": "completed", "sends": 1, "evidence": "lookup"}],
    "service_effects": 1,
}


def told(output: list[str]) -> list[tuple[float, str, str]]:
    """The narrated facts: seconds, word, text."""
    matches = [match for line in output if (match := LINE.fullmatch(line))]
    return [(float(match["seconds"]), match["about"], match["text"]) for match in matches]


def assert_gone(local: Local) -> None:
    assert local.left() == []
    assert list(local.temporary.iterdir()) == []


@pytest.mark.long
async def test_the_demo_settles_a_lost_reply_and_leaves_nothing(tmp_path: Path) -> None:
    async with running_local(tmp_path, "--demo") as local:
        output = await local.output()
        assert await local.exit_code() == 0, local.said()
        assert_gone(local)

    last = json.loads(output[-1])
    (operation,) = last["operations"]
    key = operation["key"]
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert operation == {"key": key, "state": "completed", "sends": 1, "evidence": "lookup"}
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/namespaces/default/workflows/order-1001", last["web_ui"])
    assert last | {"operations": 0, "web_ui": 0} == GOOD | {"operations": 0, "web_ui": 0}
    assert list(last) == ["status", "end_reason", "operations", "service_effects", "web_ui"]

    facts = told(output)
    assert [about for _, about, _ in facts if about in STORY] == STORY
    assert [seconds for seconds, _, _ in facts] == sorted(seconds for seconds, _, _ in facts)
    assert [text for _, about, text in facts if about == "status"] == ["succeeded (completed)"]
    (spent,) = [text for _, about, text in facts if about == "spent"]
    assert re.fullmatch(r"2 requests · [\d,]+ tokens read \([1-9]\d % cached\), \d+ written · \$0\.00\d\d", spent)
    assert any("at the prices of the real model" in line for line in output), "it costs nothing, and says so"
    assert any(key[:12] in text for _, about, text in facts if about == "dispatch")
    assert not any("\x1b" in line for line in output)
    assert local.said() == ""


@pytest.mark.long
async def test_with_a_key_the_same_demo_asks_the_provider(tmp_path: Path) -> None:
    """The provider is played by a server of ours, found the way the SDK finds any."""
    async with MessagesServer(clerk) as provider:
        variables = {"ANTHROPIC_API_KEY": "a-key", "ANTHROPIC_BASE_URL": provider.url}
        async with running_local(tmp_path, "--demo", **variables) as local:
            output = await local.output()
            assert await local.exit_code() == 0, local.said()
            assert_gone(local)
        assert provider.count == 2
        assert provider.refusals == []
    assert json.loads(output[-1])["status"] == "succeeded"
    assert not any("scripted" in line for line in output)


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, "stock service"), (signal.SIGTERM, "proposal")],
    ids=["starting", "under way"],
)
async def test_a_demo_that_is_cut_short_leaves_nothing(tmp_path: Path, number: signal.Signals, moment: str) -> None:
    async with running_local(tmp_path, "--demo") as local:
        await local.until(moment)
        assert len(local.left()) > 1
        local.process.send_signal(number)
        await local.output()
        assert await local.exit_code() == 128 + number
        assert_gone(local)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, []),
        ({"status": "failed"}, ["status is failed, not succeeded"]),
        ({"end_reason": "max_turns"}, ["end_reason is max_turns, not completed"]),
        ({"service_effects": 2}, ["service_effects is 2, not 1"]),
        ({"operations": []}, ["there are 0 operations, not 1"]),
    ],
)
def test_what_the_demo_promises_is_compared(wrong: dict[str, Any], said: list[str]) -> None:
    assert differences(GOOD | wrong) == said


@pytest.mark.parametrize(
    ("name", "value", "right"), [("state", "unknown", "completed"), ("sends", 2, 1), ("evidence", "answer", "lookup")]
)
def test_the_demos_operation_is_compared(name: str, value: object, right: object) -> None:
    operation = GOOD["operations"][0] | {name: value}
    assert differences(GOOD | {"operations": [operation]}) == [f"the operation's {name} is {value}, not {right}"]


@pytest.mark.parametrize("event", Event)
def test_every_row_of_a_journal_has_a_line(event: Event) -> None:
    row = Row(seq=1, at=0.0, generation=1, permit=7, event=event, state=OperationState.UNKNOWN, body={})
    about, text = of_row("k" * 64, row)
    assert about.isidentifier()
    assert text
    assert not set("{}\n") & set(text)


def test_what_is_told_does_nothing_to_a_terminal() -> None:
    assert (
        printable("red: \x1b[31m, a bell: \a, a line\nbreak, ümlaut") == "red:  [31m, a bell:  , a line break, ümlaut"
    )
