"""A tool that makes its keys in another way than before: what was done under the old ones is not done again."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from settled.activities import protocol
from settled.activities.database import Database
from settled.activities.declared_keys import DeclaredKeys
from settled.activities.journal import Operation
from settled.activities.keys import Realm, key_forms, operation_key, superseded_by
from settled.activities.ledger import Ledger
from settled.activities.protocol import Around, Blocked, Claim, Refused
from settled.activities.registry import Registry
from settled.activities.stores import Stores
from settled.activities.toolkit import Absent, Answer, Arguments, Call, Scope, Supersedes, WriteTool, write
from settled.worker.wiring import check_keys
from settled.workflows.contract.operation import OperationState, Target
from settled.workflows.errors import ConfigurationError, OutdatedWorker
from settled.workflows.states import Event
from tests.protocol.books import OTHER, holds, reach, report
from tests.protocol.stories import KEY, Story, order, subject, told

S, E = OperationState, Event
KEYS = (KEY, OTHER)


def claim_under(at: str) -> Claim:
    """A claim of one action under one of its two keys, as a dispatch prepares it."""
    both = tuple(f"key/{one}" for one in sorted(KEYS))
    (other,) = set(KEYS) - {at}
    return replace(order(about=subject(resources=both)), namesakes=(other,))


# --- The decision ---


def in_the_way(other: Operation, operation: Operation | None = None, permit: int = 1) -> object:
    return protocol.obstacle(operation, replace(claim_under(KEY), permit=permit), Around(namesakes=(other,)))


def test_what_was_done_under_another_key_is_not_done_again() -> None:
    obstacle = in_the_way(told(S.COMPLETED).now)
    assert isinstance(obstacle, Refused)
    assert "propose it again" in obstacle.text, "which then means the stored one"


@pytest.mark.parametrize("state", [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN])
def test_what_is_open_under_another_key_is_waited_for(state: OperationState) -> None:
    assert in_the_way(replace(told(state).now, key=OTHER)) == Blocked(OTHER)


@pytest.mark.parametrize("state", [S.REJECTED, S.NOT_EXECUTED, S.UNDONE])
def test_what_is_closed_under_another_key_is_in_nobodys_way(state: OperationState) -> None:
    assert in_the_way(told(state).now) is None


def test_a_resend_is_held_up_by_what_was_done_under_another_key_too() -> None:
    """Its first dispatch left no trace, so that nobody has looked at the other key before."""
    story = Story()
    story.miss(0.0)
    story.look(1.0, Absent())
    assert isinstance(in_the_way(told(S.COMPLETED).now, story.operation, permit=2), Refused)


# --- In the ledger ---


async def test_a_claim_under_a_second_key_of_an_action_that_was_done_leaves_nothing(books: Ledger) -> None:
    await reach(books, S.COMPLETED, OTHER)
    amended = await books.claim(KEY, claim_under(KEY))
    assert (amended.entry, bool(amended.refused)) == (None, True)
    assert await books.journal(KEY) == []


@pytest.mark.parametrize("state", [S.DISPATCHED, S.NEEDS_HUMAN])
async def test_a_claim_under_a_second_key_waits_for_the_first(books: Ledger, state: OperationState) -> None:
    """That one may be from before the deploy, and hold nothing that both would need."""
    await reach(books, state, OTHER)
    assert (await books.claim(KEY, claim_under(KEY))).blocked_by == OTHER
    assert [one.task for one in await books.waiters(OTHER)] == ["task-a"]


async def test_of_two_claims_of_one_action_under_two_keys_at_once_one_is_granted(
    database: Database, second: Database
) -> None:
    mine, theirs = Ledger(database), Ledger(second)
    both = await asyncio.gather(mine.claim(KEY, claim_under(KEY)), theirs.claim(OTHER, claim_under(OTHER)))
    granted = [amended.operation for amended in both if amended.entry is not None]
    assert len(granted) == 1
    assert granted[0] is not None
    assert {amended.blocked_by for amended in both if amended.entry is None} == {granted[0].key}
    assert set((await holds(database)).values()) == {granted[0].key}


async def test_the_claim_that_lost_is_refused_once_the_other_one_was_done(books: Ledger) -> None:
    await books.claim(KEY, claim_under(KEY))
    assert (await books.claim(OTHER, claim_under(OTHER))).blocked_by == KEY
    await report(books, E.SUCCEEDED)
    assert "propose it again" in (await books.claim(OTHER, claim_under(OTHER))).refused


# --- Which way holds now ---


async def test_a_claim_by_the_way_that_holds_now_is_granted(books: Ledger, database: Database) -> None:
    await DeclaredKeys(database).note({"reserve": "order, sku"})
    assert (await books.claim(KEY, replace(order(), declaration="order, sku"))).entry is not None


async def test_a_claim_of_a_tool_that_was_never_noted_is_granted(books: Ledger) -> None:
    assert (await books.claim(KEY, replace(order(), declaration="order, sku"))).entry is not None


async def test_a_worker_of_an_older_release_claims_nothing_from_then_on(books: Ledger, database: Database) -> None:
    declared = DeclaredKeys(database)
    await declared.note({"reserve": "order"})
    old = replace(order(), declaration="order")
    await books.claim(KEY, old)
    await declared.replace("reserve", "order", "order, sku")
    with pytest.raises(OutdatedWorker, match="its workers have to send this"):
        await books.claim(OTHER, replace(old, subject=subject(resources=())))
    assert await books.journal(OTHER) == []
    await report(books, E.SUCCEEDED)
    operation = await books.read(KEY)
    assert operation is not None
    assert operation.state is S.COMPLETED, "what it had claimed before is reported all the same"


async def test_only_the_declaration_that_was_meant_is_replaced(database: Database) -> None:
    """Of two deploys at once, the slower one must not undo what the faster one has noted."""
    declared = DeclaredKeys(database)
    await declared.note({"reserve": "third"})
    await declared.replace("reserve", "first", "second")
    assert await declared.all() == {"reserve": "third"}


# --- At worker start ---


class Reserve(Arguments):
    order: str
    sku: str
    line: int = 1


async def reserve(asked: Reserve, call: Call) -> Answer:
    """Reserve stock."""
    raise NotImplementedError


def tool(key: tuple[str, ...], *older: Supersedes, scope: Scope = Scope.BUSINESS, name: str = "reserve") -> WriteTool:
    """The tool in one of its releases."""
    said = {"lookup": None, "dedupes": None, "lands_within": timedelta(seconds=1)}
    return replace(write(key=key, scope=scope, supersedes=older, **said)(reserve), name=name)  # type: ignore[arg-type]


FIRST = tool(("order",))
WIDER = tool(("order", "sku"))
WIDER_KNOWS = tool(("order", "sku"), Supersedes(key=("order",), scope=Scope.BUSINESS))
RENAMED = tool(("order",), name="hold")
RENAMED_KNOWS = tool(("order",), Supersedes(key=("order",), scope=Scope.BUSINESS, tool="reserve"), name="hold")


def declaration(made: WriteTool) -> str:
    return key_forms(made)[0].declaration


async def start(database: Database, *tools: WriteTool) -> dict[str, str]:
    """A worker with these tools starts; returns what the ledger has noted then."""
    await check_keys(Stores.over(database), Registry({one.name: one for one in tools}))
    return await DeclaredKeys(database).all()


async def test_a_worker_whose_tool_has_changed_its_key_does_not_start(database: Database) -> None:
    before = await start(database, FIRST)
    with pytest.raises(ConfigurationError, match=r"tool reserve: its keys have changed.*supersedes"):
        await start(database, WIDER)
    with pytest.raises(ConfigurationError, match="tool reserve"):
        await start(database, tool(("order",), scope=Scope.TASK))
    assert await DeclaredKeys(database).all() == before


async def test_a_worker_that_says_what_its_keys_were_starts_and_notes_what_they_are(database: Database) -> None:
    await start(database, FIRST)
    assert await start(database, WIDER_KNOWS) == {"reserve": declaration(WIDER)}


async def test_after_that_a_worker_of_the_older_release_does_not_start_and_the_newer_one_does(
    database: Database,
) -> None:
    await start(database, FIRST)
    await start(database, WIDER_KNOWS)
    with pytest.raises(ConfigurationError, match="tool reserve"):
        await start(database, FIRST)
    assert await start(database, WIDER_KNOWS) == await start(database, WIDER) == {"reserve": declaration(WIDER)}


async def test_a_worker_with_one_faulty_tool_of_two_changes_nothing(database: Database) -> None:
    before = await start(database, FIRST, tool(("order",), name="pay"))
    with pytest.raises(ConfigurationError, match="tool pay"):
        await start(database, WIDER_KNOWS, tool(("sku",), name="pay"))
    assert await DeclaredKeys(database).all() == before


async def test_a_tool_of_another_name_takes_the_place_of_the_old_one_whose_workers_send_no_more(
    database: Database, books: Ledger
) -> None:
    await start(database, FIRST)
    noted = await start(database, RENAMED_KNOWS)
    assert noted == {"hold": declaration(RENAMED), "reserve": superseded_by("hold")}
    with pytest.raises(OutdatedWorker):
        await books.claim(KEY, replace(order(), declaration=declaration(FIRST)))
    with pytest.raises(ConfigurationError, match="tool reserve"):
        await start(database, FIRST)
    assert await start(database, RENAMED_KNOWS) == noted


class ReserveByNumber(Arguments):
    order: int
    sku: str
    line: int = 1


def another_type(*older: Supersedes) -> WriteTool:
    """The order's number is a number now."""
    return replace(tool(("order",), *older), arguments=ReserveByNumber)


TEXT_BEFORE = Supersedes(key=("order",), scope=Scope.BUSINESS, types={"order": str})
NUMBER_BEFORE = Supersedes(key=("order",), scope=Scope.BUSINESS, types={"order": int})
NO_UNDO_BEFORE = Supersedes(key=("order",), scope=Scope.BUSINESS, undoes=None)


async def test_r75c_a_worker_whose_key_field_has_another_type_does_not_start_unless_it_says_so(
    database: Database,
) -> None:
    """The order 7 and the order "7" have two keys: both would be reserved for."""
    await start(database, FIRST)
    with pytest.raises(ConfigurationError, match="a key field's type"):
        await start(database, another_type())
    assert await start(database, another_type(TEXT_BEFORE)) == {"reserve": declaration(another_type())}


async def test_r75c_a_worker_whose_tool_takes_something_back_now_does_not_start_unless_it_says_so(
    database: Database,
) -> None:
    """What is taken back is a part of the key: what was done without it would be done again."""
    undoing = replace(tool(("order",), name="void"), undoes="reserve")
    await start(database, FIRST, tool(("order",), name="void"))
    with pytest.raises(ConfigurationError, match=r"tool void: .* or undoes"):
        await start(database, FIRST, undoing)
    noted = await start(database, FIRST, replace(undoing, supersedes=(NO_UNDO_BEFORE,)))
    assert noted["void"] == declaration(undoing)


async def test_r75c_a_ledger_that_noted_fewer_things_of_a_key_is_taken_over(database: Database) -> None:
    """An earlier release noted neither types nor what is undone; its keys are the same."""
    await DeclaredKeys(database).note({"reserve": '[1,"reserve","business",["order"]]'})
    assert await start(database, FIRST) == {"reserve": declaration(FIRST)}


@pytest.mark.parametrize("value", ["--5", "1.0", "", "\u0665", "9" * 5_000])
def test_r75c_a_value_that_was_no_number_then_has_the_key_of_its_text(value: str) -> None:
    form = key_forms(replace(tool(("order",)), supersedes=(NUMBER_BEFORE,)))[1]
    realm = Realm(namespace="default", tenant="acme", root_task="task-a")
    then = key_forms(tool(("order",)))[0]
    assert operation_key(form, Reserve(order=value, sku="A1"), realm) == operation_key(
        then, Reserve(order=value, sku="A1"), realm
    )


def test_r75c_the_key_of_an_earlier_type_and_of_a_time_without_undo_is_made_as_it_was_then() -> None:
    realm = Realm(namespace="default", tenant="acme", root_task="task-a")
    (then,) = key_forms(FIRST)
    was = operation_key(then, Reserve(order="7", sku="A1"), realm)
    _, earlier = key_forms(another_type(TEXT_BEFORE))
    assert operation_key(earlier, ReserveByNumber(order=7, sku="A1"), realm) == was
    _, earlier = key_forms(replace(tool(("order",), NO_UNDO_BEFORE), undoes="pay"))
    assert operation_key(earlier, Reserve(order="7", sku="A1"), realm, Target(key=KEY, generation=1)) == was


async def test_the_order_in_which_the_key_fields_are_named_is_no_change(database: Database) -> None:
    await start(database, WIDER)
    assert await start(database, tool(("sku", "order"))) == {"reserve": declaration(WIDER)}


async def test_a_new_tool_is_noted_beside_the_others(database: Database) -> None:
    await start(database, FIRST)
    assert set(await start(database, FIRST, RENAMED)) == {"reserve", "hold"}
