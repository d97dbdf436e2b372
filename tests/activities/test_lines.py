"""Lines are found by their places, and are the same as if the whole output were split."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from settled.activities.lines import MOST_LINE, Lines
from settled.activities.outputs import ROOM_FOR_MARKS, laid_out, page, reference
from settled.activities.presenting import answered, completed
from settled.activities.toolkit import Answer

HEAD = "head"
SOME = st.text("ab\n\U0001f600", max_size=30)
LENGTHS = st.sampled_from([MOST_LINE - 1, MOST_LINE, MOST_LINE + 1, 2 * MOST_LINE, 2 * MOST_LINE + 1, 7_000])
OUTPUTS = st.lists(SOME | LENGTHS.map(lambda count: "y" * count) | st.just("\n"), max_size=12).map("".join)


def split(text: str) -> list[str]:
    """All lines of an output, plainly."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        found += [line[start : start + MOST_LINE] for start in range(0, len(line), MOST_LINE)] or [""]
    return found


def fitting(numbered: list[str], most: int) -> list[str]:
    """As many of them as have room, one after the other."""
    return [line for count, line in enumerate(numbered, 1) if sum(len(one) + 1 for one in numbered[:count]) <= most]


def cut(text: str, most: int) -> str:
    """What is shown of an output that is too long, plainly."""
    numbered = [f"{number}\t{line}" for number, line in enumerate(split(text), 1)]
    room = max(0, most - len(HEAD) - ROOM_FOR_MARKS) // 2
    first = fitting(numbered, room) or numbered[:1]
    rest = numbered[len(first) :]
    last = fitting(rest[::-1], room)[::-1]
    wrapped = any(len(line) > MOST_LINE for line in text.split("\n"))
    wraps = f" (one of more than {MOST_LINE} characters is wrapped, and each piece counts as a line)" if wrapped else ""
    shown = f"1-{len(first)}" + (f" and {len(numbered) - len(last) + 1}-{len(numbered)}" if last else "")
    mark = (
        f"[This output has {len(text)} characters in {len(numbered)} line{'s' if len(numbered) > 1 else ''}{wraps}. "
        f'Lines {shown} are shown. read_output shows others, of output "{reference(text)}".]'
    )
    left = (len(first) + 1, len(numbered) - len(last))
    out = [f"[… lines {left[0]}-{left[1]} are left out here …]"] if left[0] <= left[1] else []
    return "\n".join([HEAD, mark, *first, *out, *last])


@settings(deadline=None)
@given(OUTPUTS)
@example("")
@example("\n")
@example("\n\n")
@example("y" * MOST_LINE + "\n")
def test_the_lines_from_any_one_on_and_from_the_last_one_back_are_those_of_the_split_output(text: str) -> None:
    lines, expected = Lines.of(text), list(enumerate(split(text), 1))
    assert lines.count == len(expected)
    assert lines.wrapped == any(len(line) > MOST_LINE for line in text.split("\n"))
    assert list(lines.backward()) == expected[::-1]
    for number in range(1, lines.count + 1):
        assert list(lines.onward(number)) == expected[number - 1 :]


@settings(deadline=None)
@given(OUTPUTS, st.integers(0, 12_000))
def test_a_cut_is_what_it_is_when_the_whole_output_is_split(text: str, most: int) -> None:
    shown = laid_out(HEAD, text, most=most)
    assert shown.text == (cut(text, most) if shown.whole is not None else f"{HEAD}\n{text}")


@settings(deadline=None)
@given(OUTPUTS, st.integers(0, 6_000), st.data())
def test_a_page_is_what_it_is_when_the_whole_output_is_split(text: str, most: int, data: st.DataObject) -> None:
    expected = split(text)
    first = data.draw(st.integers(1, len(expected)))
    last = data.draw(st.none() | st.integers(first, len(expected) + 3))
    wanted = [f"{number}\t{line}" for number, line in enumerate(expected, 1)][first - 1 : last]
    assert str(page(Lines.of(text), first, most, last)) == "\n".join(fitting(wanted, most) or wanted[:1])


@pytest.mark.parametrize(
    "made",
    [
        lambda: list(range(1_000_000)),
        lambda: [{"t": number, "v": 1} for number in range(100_000)],
        lambda: "\n" * 4_000_000,
        lambda: "x" * 8_000_000,
        lambda: ("x" * 4_001 + "\n") * 2_000,
    ],
    ids=["numbers", "rows", "newlines", "one line", "wrapped lines"],
)
def test_megabytes_are_laid_out_in_a_moment_and_a_page_of_them_in_less(made: Callable[[], Any]) -> None:
    """Millions of lines, of which a few are shown."""
    answer, begun = Answer(data=made(), source="log"), time.process_time()
    whole = completed(answered(answer)).whole
    laid_out_at = time.process_time()
    assert whole is not None
    lines = Lines.of(whole)
    page(lines, lines.count // 2)
    assert laid_out_at - begun < 2.0
    assert time.process_time() - laid_out_at < 0.5
