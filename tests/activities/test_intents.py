"""Which operation a call means: under which key, in which generation, and what it takes back."""

from dataclasses import replace
from datetime import timedelta

import pytest

from settled.activities.intents import Earlier, Meanings, Meant
from settled.activities.journal import Operation
from settled.activities.keys import Realm, key_forms, operation_key, remote_key, undoes_key_of
from settled.activities.registry import Registry
from settled.activities.toolkit import Answer, Arguments, Call, Scope, Supersedes, WriteTool, write
from settled.workflows.contract.operation import OperationState, Target
from tests.protocol.stories import subject, told

S = OperationState
CLOSED = [S.REJECTED, S.NOT_EXECUTED]
STANDING = [S.DISPATCHED, S.UNKNOWN, S.RESENDABLE, S.NEEDS_HUMAN, S.COMPLETED]
REALM = Realm(namespace="default", tenant="acme", root_task="task-a")


class Stock(Arguments):
    order: str
    sku: str
    why: str = ""


async def reserve(asked: Stock, call: Call) -> Answer:
    """Reserve stock."""
    raise NotImplementedError


async def release(asked: Stock, call: Call) -> Answer:
    """Release stock."""
    raise NotImplementedError


def said(key: tuple[str, ...], *older: Supersedes, undoes: str | None = None) -> dict[str, object]:
    promises = {"lookup": None, "dedupes": None, "lands_within": timedelta(seconds=1)}
    return {"key": key, "scope": Scope.BUSINESS, "supersedes": older, "undoes": undoes, **promises}


OLDER = Supersedes(key=("order",), scope=Scope.BUSINESS)
OLDEST = Supersedes(key=("order",), scope=Scope.TASK, tool="hold")
RESERVE: WriteTool = write(**said(("order", "sku"), OLDER, OLDEST))(reserve)  # type: ignore[arg-type]  # words by name
RELEASE: WriteTool = write(**said(("order", "sku"), undoes="reserve"))(release)  # type: ignore[arg-type]  # likewise
ASKED = Stock(order="1001", sku="A1")
TODAY, EARLIER, EARLIEST = (operation_key(form, ASKED, REALM) for form in key_forms(RESERVE))


class Books(dict[str, Operation]):
    """A ledger that says what the test says."""

    async def read(self, key: str) -> Operation | None:
        return self.get(key)

    @property
    def meanings(self) -> Meanings:
        registry = Registry({"reserve": RESERVE, "release": RELEASE})
        return Meanings(registry=registry, read=self.read, realm=REALM)

    async def means(self, tool: WriteTool = RESERVE, **before: int) -> Meant:
        return await self.meanings.of(tool, ASKED, Earlier(meant=before))

    async def undone_by_a_release(self, **before: int) -> Target:
        target = await self.meanings.target(RELEASE, ASKED, Earlier(meant=before))
        assert target is not None
        return target


def stands(state: OperationState, generation: int = 1) -> Operation:
    operation = told(state).now
    return Operation(**{**vars(operation), "generation": generation})


# --- What earlier calls of the response lead to ---


async def test_a_generation_that_earlier_calls_are_to_lead_to_is_marked_as_expected() -> None:
    """A reservation after a release: the ledger doesn't know yet whether there is anything to release."""
    earlier = Earlier(undone={TODAY: 1})
    meant = await Books().meanings.of(RESERVE, ASKED, earlier)
    assert (meant.generation, meant.expected) == (2, True)
    assert not (await Books().means()).expected
    assert not (await Books({TODAY: stands(S.UNDONE)}).means()).expected, "the ledger has it so"


# --- Earlier keys ---


async def test_where_nothing_is_the_key_of_today_is_meant() -> None:
    assert await Books().means() == Meant(key=TODAY, operation=None, generation=1)


def test_a_tool_has_a_key_for_each_form_that_of_today_first() -> None:
    keys = Books().meanings.keys(RESERVE, ASKED, None)
    assert keys == [TODAY, EARLIER, EARLIEST]
    assert len(set(keys)) == 3


def test_an_earlier_key_is_the_one_that_the_earlier_release_made_under_its_own_name() -> None:
    words = said(("order",)) | {"scope": Scope.TASK}
    hold: WriteTool = write(**words)(reserve)  # type: ignore[arg-type]  # words by name
    (form,) = key_forms(replace(hold, name="hold"))
    assert operation_key(form, ASKED, REALM) == EARLIEST


@pytest.mark.parametrize("key", [EARLIER, EARLIEST])
@pytest.mark.parametrize("state", STANDING)
async def test_what_stands_under_an_earlier_key_is_meant(key: str, state: OperationState) -> None:
    """What is open goes on under its own key; what is done has its stored result."""
    books = Books({key: stands(state)})
    assert await books.means() == Meant(key=key, operation=books[key], generation=1)


@pytest.mark.parametrize("state", [*CLOSED, S.UNDONE])
async def test_what_is_closed_under_an_earlier_key_is_begun_anew_under_todays(state: OperationState) -> None:
    assert await Books({EARLIER: stands(state)}).means() == Meant(key=TODAY, operation=None, generation=1)


@pytest.mark.parametrize("state", CLOSED)
async def test_what_stands_under_an_earlier_key_comes_before_what_is_closed_under_todays(
    state: OperationState,
) -> None:
    books = Books({TODAY: stands(state), EARLIER: stands(S.COMPLETED)})
    assert (await books.means()).key == EARLIER


async def test_what_stands_under_todays_key_comes_first() -> None:
    books = Books({TODAY: stands(S.UNKNOWN), EARLIER: stands(S.COMPLETED)})
    assert (await books.means()).key == TODAY


async def test_what_is_closed_everywhere_is_meant_under_todays_key_with_its_generations() -> None:
    books = Books({TODAY: stands(S.REJECTED, 3), EARLIER: stands(S.UNDONE)})
    assert await books.means() == Meant(key=TODAY, operation=books[TODAY], generation=4)


# --- What a call takes back ---


async def test_a_tool_that_undoes_nothing_takes_nothing_back() -> None:
    assert await Books().meanings.target(RESERVE, ASKED, Earlier()) is None


@pytest.mark.parametrize("state", STANDING)
async def test_an_undo_takes_back_the_generation_that_stands_or_is_out(state: OperationState) -> None:
    assert await Books({TODAY: stands(state, 2)}).undone_by_a_release() == Target(key=TODAY, generation=2)


@pytest.mark.parametrize("state", CLOSED)
async def test_where_nothing_stands_an_undo_means_the_next_generation_to_come(state: OperationState) -> None:
    """Of which nothing is done so far: its claim is refused, unless it is done by then."""
    assert await Books({TODAY: stands(state, 2)}).undone_by_a_release() == Target(key=TODAY, generation=3)
    assert await Books().undone_by_a_release() == Target(key=TODAY, generation=1)


async def test_what_is_undone_already_is_meant_again_so_that_its_undo_is_found() -> None:
    """The same proposal, made twice, is the same operation: the second one gets the stored result."""
    assert await Books({TODAY: stands(S.UNDONE, 2)}).undone_by_a_release() == Target(key=TODAY, generation=2)


async def test_an_undo_in_the_same_response_takes_back_what_was_proposed_before_it() -> None:
    """After an undo: the call before it means the second generation, which the ledger doesn't have yet."""
    books = Books({TODAY: stands(S.UNDONE)})
    assert await books.undone_by_a_release(**{TODAY: 2}) == Target(key=TODAY, generation=2)


async def test_an_undo_finds_its_target_under_an_earlier_key() -> None:
    assert await Books({EARLIEST: stands(S.COMPLETED)}).undone_by_a_release() == Target(key=EARLIEST, generation=1)


async def test_what_is_taken_back_is_a_part_of_an_undos_key() -> None:
    first = await Books({TODAY: stands(S.COMPLETED)}).means(RELEASE)
    second = await Books({TODAY: stands(S.COMPLETED, 2)}).means(RELEASE)
    earlier = await Books({EARLIER: stands(S.COMPLETED)}).means(RELEASE)
    assert len({first.key, second.key, earlier.key}) == 3
    assert first.undoes == Target(key=TODAY, generation=1)


async def test_reserve_release_reserve_release_means_four_operations_generations_and_keys_for_the_service() -> None:
    books, meant, sent = Books(), list[tuple[str, int]](), list[str]()
    for tool in (RESERVE, RELEASE, RESERVE, RELEASE):
        one = await books.means(tool)
        before = one.operation.generation if one.operation else 0
        meant.append((one.key, before + 1))
        sent.append(remote_key(one.key, before + 1))
        books[one.key] = stands(S.COMPLETED, before + 1)
        if one.undoes is not None:
            books[one.undoes.key] = stands(S.UNDONE, one.undoes.generation)
    reserved, released, reserved_again, released_again = meant
    assert (reserved, reserved_again) == ((TODAY, 1), (TODAY, 2))
    assert (released[1], released_again[1], released[0] == released_again[0]) == (1, 1, False)
    assert len(set(sent)) == 4


async def test_a_release_that_is_proposed_twice_is_one_operation() -> None:
    books = Books({TODAY: stands(S.COMPLETED)})
    first = await books.means(RELEASE)
    books[TODAY], books[first.key] = stands(S.UNDONE), stands(S.COMPLETED)
    assert (await books.means(RELEASE)).key == first.key


async def test_why_it_is_wanted_is_no_part_of_what_is_meant() -> None:
    other = Stock(order="1001", sku="A1", why="the customer has called")
    books = Books({TODAY: stands(S.COMPLETED)})
    assert await books.meanings.of(RELEASE, other, Earlier()) == await books.means(RELEASE)


def test_the_service_is_told_with_which_key_what_is_undone_was_sent() -> None:
    assert undoes_key_of(subject(undoes_key=TODAY, undoes_generation=2)) == remote_key(TODAY, 2)
    assert undoes_key_of(subject()) == ""


async def test_what_an_earlier_call_of_the_response_takes_back_is_done_anew() -> None:
    """Release, then reserve, in one response: the reservation that is proposed is a new one."""
    books = Books({TODAY: stands(S.COMPLETED)})
    earlier = Earlier(undone={TODAY: 1})
    meant = await books.meanings.of(RESERVE, ASKED, earlier)
    assert (meant.key, meant.generation) == (TODAY, 2)
