"""R90: `settled transcript`: the whole transcript of a task, and the exact view of each of its model requests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import update
from temporalio.client import Client

from settled.activities import schema
from settled.activities.agents import AgentProfile
from settled.activities.database import Database
from settled.activities.migrating import migrate
from settled.activities.rerooting import taken_over
from settled.activities.responses import Purpose, Responses, Stored
from settled.activities.roots import Root
from settled.activities.stores import Stores, TaskRecord
from settled.activities.transcript import Role, make_node
from settled.local.messages_script import HttpError, Reply, text, thinking, tool_use
from settled.workflows.contract.turn import Again
from tests.desk import CLERK, Desk, look_up, open_desk, reserve
from tests.worker.command import Said, settled, settled_process

PAIR = CLERK.model_copy(update={"fallback": ("claude-second",)})
NASTY = "red \x1b[31m\u009b31m and \u202eback"


def url_of(desk: Desk) -> str:
    """The address of the desk's store."""
    return desk.parts.stores.database.url


async def told(desk: Desk, *words: str) -> Any:
    """What the command says with --json."""
    said = await settled(url_of(desk), "transcript", *words, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


async def shown(desk: Desk, *words: str) -> Said:
    """What the command says to people."""
    said = await settled(url_of(desk), "transcript", *words)
    assert said.code == 0, said.err
    return said


async def test_r90_a_task_is_read_back_with_each_call_beside_its_result(desk: Desk) -> None:
    """Requests are numbered, with model, request id, stop reason and usage; what the executor added is told as such."""
    desk.will_say(Reply.of(text("Let me see."), look_up(), reserve()), "Reserved.")
    await desk.run({"goal": "reserve 2 of A1 for order 1001", "principal": "eve"}, "plain")
    lines = (await shown(desk, "plain")).lines
    for line in (
        "task            plain",
        "agent           stock-clerk, for eve of default",
        "conversation 1  claude-scripted",
        "system          You are the stock clerk.",
        "tools           lookup_stock, reserve_stock, read_output",
        "goal            reserve 2 of A1 for order 1001",
        "says            Let me see.",
        "says            Reserved.",
    ):
        assert line in lines, line
    calls = [place for place, line in enumerate(lines) if line.startswith("calls")]
    assert [lines[place].split()[1] for place in calls] == ["lookup_stock", "reserve_stock"]
    assert all(lines[place + 1].startswith('result          {"status": "completed"') for place in calls)
    assert [line.split()[1] for line in lines if line.startswith("request ")] == ["1", "2"]
    whole = await told(desk, "plain")
    first, second = whole["requests"]
    assert (first["model"], first["stop_reason"], second["stop_reason"]) == ("claude-scripted", "tool_use", "end_turn")
    assert first["request_id"].startswith("req_")
    assert first["usage"]["output_tokens"] > 0
    assert [call["results"][0]["tool_use_id"] for call in first["calls"]] == [call["id"] for call in first["calls"]]
    assert [message["role"] for message in second["sent"]] == ["user"]
    assert whole["after"] == []


async def test_r90_the_exact_view_of_a_request_is_what_the_server_was_sent(desk: Desk) -> None:
    """Byte for byte, the raised token limit too; and the response as it came."""
    cut = Reply.of(text("Let me"), stop_reason="max_tokens")
    desk.will_say(Reply.of(thinking(""), look_up()), cut, Reply.of("A1: 3. \N{SNOWMAN}"))
    await desk.run("how many A1 are there?", "exact")
    read_back: dict[str, Any] = {}
    for number, sent in enumerate(desk.model.requests, 1):
        read_back = await told(desk, "exact", "--turn", str(number))
        assert read_back["exact"]
        assert json.dumps(read_back["request"]) == json.dumps(sent), "in the same order, too"
    assert [request["max_tokens"] for request in desk.model.requests] == [1000, 1000, 2000]
    assert read_back["response"]["content"] == [text("A1: 3. \N{SNOWMAN}")]
    people = (await shown(desk, "exact", "--turn", "3")).lines
    assert json.loads(people[1]) == read_back["request"]
    assert json.loads(people[4]) == read_back["response"]
    assert 'with            {"max_tokens": 2000}' in (await shown(desk, "exact")).lines


async def test_r90_responses_that_were_left_out_are_told_with_the_reason(temporal: Client, tmp_path: Path) -> None:
    """R95: refused, whereupon another model goes on in a conversation of its own; cut off; malformed."""
    async with open_desk(temporal, tmp_path, profiles={"pair": PAIR}) as desk:
        desk.will_say(
            Reply.of(text("No."), stop_reason="refusal"),
            Reply.of(look_up("B2"), stop_reason="max_tokens"),
            Reply.of(text("I call it."), stop_reason="tool_use"),
            "A1: 3.",
        )
        desk.may_ask_again(1)  # after what was malformed
        await desk.run("how many A1 are there?", "left-out")
        assert desk.model.refusals == []
        whole = await told(desk, "left-out")
        fates = [request["fate"].rsplit(" ", 1)[-1] for request in whole["requests"]]
        assert fates == ["refused", "limit", "call", "kept"]
        assert [request["kept"] for request in whole["requests"]] == [False, False, False, True]
        assert [request["model"] for request in whole["requests"]] == ["claude-scripted"] + ["claude-second"] * 3
        conversations = [(one["replaces"], one["why"], one["carried"]) for one in whole["conversations"]]
        assert conversations == [(None, None, 0), (1, "fallback", 1)]
        # The goal is told once, though the second conversation repeats it.
        assert [len(request["sent"]) for request in whole["requests"]] == [1, 0, 0, 0]
        lines = (await shown(desk, "left-out")).lines
        assert "conversation 2  claude-second, goes on from conversation 1 (fallback), with 1 message of it" in lines
        assert sum("LEFT OUT" in line for line in lines) == 3
        assert "result          none: it was not run" in lines
        assert (await told(desk, "left-out", "--turn", "4"))["exact"]


async def test_r90_a_summary_a_takeover_and_a_reset_are_told(url: str) -> None:
    """On each of the stores, with thoughts that another model is not given, and a result that was given twice."""
    await _asked(url)
    said = await settled(url, "transcript", "tale", "--json")
    whole = json.loads(said.out)
    assert [request["fate"].split(":")[0].split(" ")[0] for request in whole["requests"]] == [
        "kept",
        "left",
        "kept",
        "a",
        "kept",
    ]
    assert "an earlier message" in whole["requests"][1]["fate"]
    assert [(one["number"], one["replaces"], one["why"], one["carried"]) for one in whole["conversations"]] == [
        (1, None, None, 0),
        (2, 1, "fallback", 2),  # the third message was sent by no request before
        (3, 2, "compacted", 0),
    ]
    assert len(whole["requests"][0]["calls"][0]["results"]) == 2
    lines = (await settled(url, "transcript", "tale")).lines
    assert "thinks          mine alone" in lines
    assert "executor        For your information" in lines
    assert sum(line == "goal            tell a tale" for line in lines) == 1
    assert "executor        So far: a tale." in lines
    assert sum(line.startswith("request ") for line in lines) == 5
    assert [line for line in lines if "A SUMMARY OF" in line]
    assert lines[-1] == "says            The end."


async def _asked(url: str) -> None:
    """A task's transcript, written as the activities write it."""
    database = Database(url)
    await migrate(database)
    stores = Stores.over(database)
    given: dict[str, Any] = {"request_digest": "d", "request": {"goal": "tell a tale"}, "tools": (), "acceptance": ()}
    given |= {"task": "tale", "agent": "a", "tenant": "t", "principal": "p", "root_task": "tale"}
    await stores.tasks.open(TaskRecord(**given))

    async def say(asked: str, *content: dict[str, Any], **more: Any) -> str:
        message = {"content": list(content), "stop_reason": "end_turn"}
        stored = Stored(asked=asked, message=message, request_id="", task="tale", model="m", **more)
        put = await Responses(database).put("run", uuid4().hex, stored)
        node = make_node(await stores.transcripts.node(asked), Role.ASSISTANT, list(content))
        await stores.transcripts.add(node)
        assert put.node == node.digest
        return node.digest

    async def add(parent: str | None, role: Role, content: Any) -> str:
        node = make_node(await stores.transcripts.node(parent) if parent else None, role, content)
        await stores.transcripts.add(node)
        return node.digest

    first = Root(parameters={"model": "m", "max_tokens": 9}, fallback=("n",))
    await stores.transcripts.add(first.node())
    goal = await add(first.node().digest, Role.USER, [text("tell a tale")])
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    answered = await say(goal, thinking("mine alone"), call)
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "seen"}
    once = await add(answered, Role.USER, [result])
    await say(once, text("It was night."))
    again = await add(answered, Role.USER, [result, text("For your information")])
    over = await taken_over(stores.transcripts, again)
    mid = await say(over, text("It was day."))
    asked = await add(mid, Role.USER, [text("Sum up.")])
    await say(asked, text("A tale."), purpose=Purpose.SUMMARY)
    second = Root(parameters={"model": "n", "max_tokens": 9}, replaces=mid, why=Again.COMPACTED)
    await stores.transcripts.add(second.node())
    on = await add(second.node().digest, Role.USER, [text("So far: a tale.")])
    await stores.tasks.stands_at("tale", await say(on, text("The end.")))
    await database.close()


async def test_r95_a_model_that_never_answered_is_a_conversation_without_requests(
    temporal: Client, tmp_path: Path
) -> None:
    async with open_desk(temporal, tmp_path, profiles={"pair": PAIR}) as desk:
        desk.will_say(HttpError(529), HttpError(529), "A1: 3.")
        desk.may_ask_again(1)
        await desk.run("how many A1 are there?", "overloaded")
        whole = await told(desk, "overloaded")
        assert [(one["parameters"]["model"], one["why"]) for one in whole["conversations"]] == [
            ("claude-scripted", None),
            ("claude-second", "fallback"),
        ]
        assert [(request["conversation"], request["model"]) for request in whole["requests"]] == [(2, "claude-second")]
        assert (await shown(desk, "overloaded")).out.count("goal  ") == 1


async def test_r90_results_that_no_request_has_sent_stand_at_the_end(temporal: Client, tmp_path: Path) -> None:
    """R29: the task ends at its limit; each call has its result all the same, and after a cut of the run too."""
    limited = AgentProfile.model_validate(CLERK.model_dump() | {"limits": {"turns": 1}})
    async with open_desk(temporal, tmp_path, profiles={"limited": limited}, cut_events=50) as desk:
        desk.will_say(look_up(), "never said")
        await desk.run("how many A1 are there?", "ended")
        whole = await told(desk, "ended")
        assert len(whole["requests"]) == 1
        (results,) = whole["after"]
        assert results["content"] == whole["requests"][0]["calls"][0]["results"]
        assert '"status": "completed"' in (await shown(desk, "ended")).out


async def test_r90_a_long_output_is_shortened_for_people_and_whole_for_programs(desk: Desk) -> None:
    words = "line\n" * 5_000
    desk.will_say(words)
    await desk.run("talk", "long")
    said = await shown(desk, "long")
    assert f"[… {len(words):,} characters in all; --json has them]" in said.out
    assert len(said.lines) < 40
    assert (await told(desk, "long"))["requests"][0]["content"] == [text(words)]


async def test_nothing_that_is_shown_steers_the_terminal(desk: Desk) -> None:
    """The words of a model, a tool's input and a goal come from anybody."""
    desk.will_say(Reply.of(text(NASTY), tool_use("lookup_stock", {"sku": NASTY})), NASTY)
    await desk.run(NASTY, "nasty")
    for words in (("nasty",), ("nasty", "--json"), ("nasty", "--turn", "1"), ("nasty", "--turn", "1", "--json")):
        said = await settled(url_of(desk), "transcript", *words)
        assert all(line.isprintable() for line in said.lines), words
    exact = await told(desk, "nasty", "--turn", "2")
    assert exact["request"]["messages"] == desk.model.requests[1]["messages"]


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
async def test_what_the_terminal_can_not_show_is_escaped(desk: Desk, encoding: str) -> None:
    """In words it reads as JSON would have it, and what is JSON stays the same JSON."""
    odd = "snow \N{SNOWMAN}, a face \N{GRINNING FACE} and a\N{NO-BREAK SPACE}gap"
    desk.will_say(odd)
    await desk.run(odd, "odd")
    environment = {"SETTLED_DATABASE_URL": url_of(desk), "PYTHONIOENCODING": encoding}
    said = await settled_process("transcript", "odd", **environment)
    assert (said.code, said.err) == (0, "")
    assert ("\\u2603" in said.out) is (encoding != "utf-8")
    lines = (await settled_process("transcript", "odd", "--turn", "1", **environment)).lines
    assert json.loads(lines[1])["messages"] == desk.model.requests[0]["messages"]
    assert json.loads(lines[4])["content"] == [text(odd)]


async def test_what_this_release_composes_otherwise_is_not_passed_off_as_what_was_sent(desk: Desk) -> None:
    desk.will_say("Done.")
    await desk.run("go", "changed")
    async with desk.parts.stores.database.write() as connection:
        await connection.execute(update(schema.responses).values(changes='{"max_tokens": 7}'))
    assert not (await told(desk, "changed", "--turn", "1"))["exact"]
    assert "NOT what was sent byte for byte" in (await shown(desk, "changed", "--turn", "1")).out


async def test_a_task_or_a_turn_that_is_none_is_one_line_with_the_mend(desk: Desk) -> None:
    desk.will_say("Done.")
    await desk.run("go", "one")
    for words, code, mend in (
        (("none",), 1, "there"),
        (("one", "--turn", "0"), 2, "say --turn 1"),
        (("one", "--turn", "2"), 2, "say --turn 1"),
        (("one", "--turn", "-1"), 2, "say --turn 1"),
        (("one", "--turn", "last"), 2, "say --turn 1"),
        (("one", "--turn", ""), 2, "say --turn 1"),
        (("one", "--turn", "9" * 5_000), 2, "say --turn 1"),
        (("",), 1, "temporal workflow list"),
        (("none\x1b[31m",), 1, "temporal workflow list"),
    ):
        said = await settled(url_of(desk), "transcript", *words)
        assert (said.code, said.out, len(said.err.splitlines())) == (code, "", 1), words
        assert mend in said.err or "store has no task 'none'" in said.err, said.err


async def test_a_task_that_has_asked_nothing_shows_its_goal(desk: Desk) -> None:
    """The provider is not there: the task is open, and its transcript is the goal."""
    desk.will_say(HttpError(400))
    await desk.run("go nowhere", "silent")
    said = await shown(desk, "silent")
    assert "goal            go nowhere" in said.lines
    refused = await settled(url_of(desk), "transcript", "silent", "--turn", "1")
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "no answered model request" in refused.err


@pytest.mark.parametrize("turn", [(), ("--turn", "1")])
async def test_the_command_imports_no_sdk(desk: Desk, turn: tuple[str, ...]) -> None:
    """The provider's takes seconds to import."""
    desk.will_say("Done.")
    await desk.run("go", "light")
    program = (
        "import sys; from settled.worker.cli import app; "
        f"app({['transcript', 'light', *turn]!r}, standalone_mode=False); "
        "print('anthropic' in sys.modules, 'temporalio.worker' in sys.modules)"
    )
    said = await settled_process("-c", program, program=sys.executable, SETTLED_DATABASE_URL=url_of(desk))
    assert (said.code, said.lines[-1]) == (0, "False False"), said.err
