"""`settled operations`, its filters, and `settled operations show`: one operation with its whole journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from settled.activities import protocol
from settled.activities.database import Database
from settled.activities.journal import Entry, Subject
from settled.activities.keys import remote_key
from settled.activities.ledger import Ledger
from settled.activities.ledger_rows import WaitsFor
from settled.activities.migrating import migrate
from settled.workflows.states import Event
from tests.worker.command import settled

SHIPPED, RESERVED, REFUNDED = "a1" * 32, "a2" * 32, "b3" * 32
NASTY = '{"note":"\u009b31m\u202e","order":"2001"}'
FOUND = [{"number": 1}, {"number": 2}]


class Filled:
    """A ledger with three operations: one that needs a person, one that is out, one with an alarm."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    async def claim(
        self, key: str, tool: str, task: str, shown: str = "{}", resources: tuple[str, ...] | None = None
    ) -> protocol.Claim:
        about = Subject(
            tool=tool,
            tenant="acme",
            principal="eve",
            fingerprint="f",
            arguments="a",
            resources=("A1", key) if resources is None else resources,
            shown=shown,
        )
        ask = protocol.Claim(subject=about, generation=1, permit=1, seconds=5.0, task=task)
        await self.ledger.claim(key, ask)
        return ask

    async def add(self, key: str, event: Event, task: str = "", **body: Any) -> None:
        entry = Entry(event=event, generation=1, permit=1, task=task, body=body)
        await self.ledger.amend(key, lambda _operation, _now: entry)

    async def fill(self) -> None:
        await self.claim(REFUNDED, "refund", "task-3")
        failure = {"kind": "timeout", "phase": "after_send", "text": "no answer\x1b[2J in time"}
        await self.add(REFUNDED, Event.UNCLEAR, "task-3", failure=failure)
        await self.add(REFUNDED, Event.HANDED_TO_PERSON, note="there is no lookup")
        await self.add(REFUNDED, Event.RESOLVED_NOT_EXECUTED, who="bob", because="looked it up", update="u1")
        await self.add(REFUNDED, Event.SUCCEEDED, "task-3", result="c" * 64, alarm="it was settled as not done")
        await self.claim(SHIPPED, "ship", "task-1", NASTY)
        await self.ledger.join(SHIPPED, "task-2", WaitsFor.RESULT)
        await self.claim(RESERVED, "reserve", "task-2")  # it waits for the resource that the first one holds
        await self.add(SHIPPED, Event.UNCLEAR, "task-1", failure=failure)
        await self.add(SHIPPED, Event.HANDED_TO_PERSON, note="the lookup found several records", records=FOUND)


@pytest.fixture
async def url(url: str) -> str:
    """A filled ledger, on each of the stores."""
    database = Database(url)
    await migrate(database)
    await Filled(Ledger(database)).fill()
    await database.close()
    return url


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ((), {SHIPPED, REFUNDED}),
        (("--state", "needs_human"), {SHIPPED}),
        (("--state", "needs_human", "--state", "completed"), {SHIPPED, REFUNDED}),
        (("--tool", "refund"), {REFUNDED}),
        (("--task", "task-2"), {SHIPPED}),
        (("--key", "A1a"), {SHIPPED}),
        (("--alarms",), {REFUNDED}),
        (("--alarms", "--tool", "ship"), set()),
        (("--limit", "1"), {SHIPPED}),
    ],
    ids=lambda value: " ".join(sorted(value)),
)
async def test_the_list_is_narrowed_by_what_is_asked_for(url: str, words: tuple[str, ...], keys: set[str]) -> None:
    said = await settled(url, "operations", *words, "--json")
    assert {json.loads(line)["key"] for line in said.lines} == keys


async def test_the_list_tells_alarms(url: str) -> None:
    said = await settled(url, "operations", "--alarms")
    assert dict(zip(*(line.split()[:9] for line in said.lines), strict=True))["alarms"] == "1"


async def test_options_of_the_list_before_a_command_of_its_own_are_refused_instead_of_passed_over(url: str) -> None:
    said = await settled(url, "operations", "--state", "completed", "show", "a1")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "its own come after it" in said.err


async def test_an_operation_is_shown_with_its_whole_journal_a_line_for_each_row(url: str) -> None:
    """R46: what it waits for, what it holds, who has joined, and what each row says."""
    said = await settled(url, "operations", "show", SHIPPED[:5])
    assert said.code == 0
    head, journal = said.out.split("\n\n")
    for line in (
        SHIPPED,
        "needs_human, by no_answer; generation 1, 1 sent",
        f"waits for        a person: settled operations resolve {SHIPPED[:12]} --completed|--not-executed",
        f"holds            A1, {SHIPPED}",
        f"idempotency key  {remote_key(SHIPPED, 1)}",
        f"settlement       settlement-{SHIPPED}",
        "task             task-1 has joined\n",
        "task             task-2 has joined, waits for its result",
    ):
        assert line in head, line
    names, *rows = journal.splitlines()
    assert names.split()[:7] == ["row", "time", "gen", "permit", "event", "state", "task"]
    assert [row.split()[:1] + row.split()[2:7] for row in rows] == [
        ["1", "1", "1", "claimed", "dispatched", "task-1"],
        ["2", "1", "1", "unclear", "unknown", "task-1"],
        ["3", "1", "1", "handed_to_person", "needs_human", "-"],
    ]
    assert '"order":"2001"' in rows[0]
    assert "for eve of acme; may send until " in rows[0]
    assert "timeout (after_send): no answer" in rows[1]
    assert 'several records; found [{"number": 1}, {"number": 2}]' in rows[2]


async def test_what_a_person_said_and_an_alarm_are_told(url: str) -> None:
    said = await settled(url, "operations", "show", REFUNDED)
    assert "alarms           1: there may be a second effect" in said.out
    assert "waits for        nothing" in said.out
    assert "holds            nothing" in said.out
    assert "bob says: looked it up" in said.out
    assert "ALARM: it was settled as not done; result cccccccccccc" in said.out


async def test_nothing_that_is_shown_steers_the_terminal(url: str) -> None:
    for words in (("show", SHIPPED), ("show", REFUNDED), ("show", "\x1b[31m"), ()):
        said = await settled(url, "operations", *words)
        assert all(line.isprintable() for line in (said.out + said.err).splitlines())


async def test_a_permit_that_is_good_for_ever_can_be_shown(url: str) -> None:
    """The service remembers a key for ever, so a resend is safe as long as anybody likes."""
    database = Database(url)
    ledger = Ledger(database)
    filled = Filled(ledger)
    await filled.claim("c4" * 32, "refund", "task-6", resources=())
    await filled.add("c4" * 32, Event.UNCLEAR, "task-6")
    resend = Entry(event=Event.ABSENT_RESEND, generation=1, permit=2, body={"until": 8.64e13})
    await ledger.amend("c4" * 32, lambda _operation, _now: resend)
    await database.close()
    said = await settled(url, "operations", "show", "c4")
    assert (said.code, "the permit is good until the end of time" in said.out) == (0, True)
    assert (await settled(url, "operations", "show", "c4", "--json")).code == 0


async def test_as_json_all_of_it_is_there(url: str) -> None:
    said = await settled(url, "operations", "show", SHIPPED, "--json")
    told = json.loads(said.out)
    assert (told["key"], told["state"], told["holds"]) == (SHIPPED, "needs_human", ["A1", SHIPPED])
    assert [row["event"] for row in told["journal"]] == ["claimed", "unclear", "handed_to_person"]
    assert told["journal"][2]["body"]["records"] == FOUND
    assert told["subject"]["shown"] == NASTY
    assert {task["task"]: task["waits_for"] for task in told["tasks"]} == {"task-1": "nothing", "task-2": "result"}


@pytest.mark.parametrize(
    "named", [SHIPPED, SHIPPED.upper(), "a1", f"settlement-{SHIPPED}", f"{SHIPPED[:30]}-1", f" {SHIPPED[:12]} "]
)
async def test_an_operation_is_named_by_any_name_that_people_meet(url: str, named: str) -> None:
    """Its key, a beginning, its settlement, and the idempotency key that the service saw."""
    said = await settled(url, "operations", "show", named, "--json")
    assert json.loads(said.out)["key"] == SHIPPED


@pytest.mark.parametrize("named", ["ff", "zz", "", "-1", "a_", "%", "a1" * 33])
async def test_a_name_of_no_operation_is_one_line(url: str, named: str) -> None:
    said = await settled(url, "operations", "show", "--", named)
    assert (said.code, said.out, len(said.err.splitlines())) == (1, "", 1)
    assert f"no operation whose key begins with {named!r}" in said.err


async def test_a_beginning_of_several_keys_lists_them(url: str) -> None:
    other = "a1" * 31 + "ff"
    database = Database(url)
    about = Subject(tool="ship", tenant="t", principal="p", fingerprint="f", arguments="a", resources=())
    ask = protocol.Claim(subject=about, generation=1, permit=1, seconds=5.0, task="task-4")
    await Ledger(database).claim(other, ask)
    await database.close()
    for words in (("show", "a1"), ("resolve", "a1", "--completed", "--because", "seen")):
        said = await settled(url, "operations", *words)
        assert (said.code, len(said.err.splitlines())) == (2, 1)
        assert SHIPPED in said.err
        assert other in said.err


async def test_a_claim_that_waits_for_a_resource_says_who_holds_it(url: str) -> None:
    """Its generation is closed, and the next one waits in line."""
    database = Database(url)
    ledger = Ledger(database)
    about = Subject(tool="refund", tenant="t", principal="p", fingerprint="f", arguments="a", resources=("B9",))
    ask = protocol.Claim(subject=about, generation=1, permit=1, seconds=5.0, task="task-5")
    await ledger.amend(RESERVED, lambda operation, now: protocol.withdraw(operation, ask, now, others_wait=False))
    held = Subject(tool="ship", tenant="t", principal="p", fingerprint="f", arguments="a", resources=("A1", RESERVED))
    again = protocol.Claim(subject=held, generation=2, permit=1, seconds=5.0, task="task-5")
    assert (await ledger.claim(RESERVED, again)).blocked_by == SHIPPED
    await database.close()
    said = await settled(url, "operations", "show", RESERVED)
    assert f"for task task-5; held by operation {SHIPPED[:12]}" in said.out
    assert "waits for        A1, since " in said.out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--because", "seen"), "say one of --completed, --not-executed and --undone"),
        (("--completed", "--not-executed", "--because", "seen"), "say one of --completed, --not-executed and --undone"),
        (("--completed",), "--because: say how you know"),
        (("--completed", "--because", "  "), "--because: say how you know"),
        (("--completed", "--because", "x" * 2_001), "--because: at most 2,000 characters"),
        (("--completed", "--because", "seen", "--who", "x" * 201), "--who: at most 200 characters"),
    ],
)
async def test_a_word_that_is_none_is_one_line_and_exit_code_2(url: str, words: tuple[str, ...], line: str) -> None:
    said = await settled(url, "operations", "resolve", SHIPPED, *words)
    assert (said.code, said.out, said.err) == (2, "", f"settled: {line}\n")


async def test_a_word_on_what_needs_none_is_refused_without_a_server(url: str) -> None:
    """Who said the first word is told."""
    address = {"TEMPORAL_ADDRESS": "127.0.0.1:9"}
    said = await settled(url, "operations", "resolve", REFUNDED, "--completed", "--because", "seen", **address)
    assert (said.code, said.err) == (1, f"settled: operation {REFUNDED[:12]} is completed already\n")
    said = await settled(url, "operations", "resolve", "ff", "--completed", "--because", "seen", **address)
    assert (said.code, len(said.err.splitlines())) == (1, 1)


async def test_without_a_server_a_word_is_refused_with_the_address(url: str) -> None:
    word = ("resolve", SHIPPED, "--completed", "--because", "seen")
    said = await settled(url, "operations", *word, TEMPORAL_ADDRESS="127.0.0.1:9")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "TEMPORAL_ADDRESS: no Temporal server answers at 127.0.0.1:9" in said.err


@pytest.mark.parametrize("command", [("operations",), ("operations", "show", "a1"), ("ledger", "status")])
async def test_a_database_that_is_none_of_ours_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    """And no file is made where there was none."""
    missing = f"sqlite+aiosqlite:///{tmp_path / 'none.db'}"
    said = await settled(missing, *command)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "empty.db").touch()
    said = await settled(f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}", *command)
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "SETTLED_DATABASE_URL: " in said.err
