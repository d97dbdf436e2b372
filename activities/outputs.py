"""A long output as the model sees it: its beginning and its end, by numbered lines, and what is left out. Pure.

    {"status": "completed", "source": "log service"}
    [This output has 5242880 characters in 2622 lines … Lines 1-7 and 2616-2622 are shown. …]
    1       the first line
    …
    [… lines 8-2615 are left out here …]
    2616    …

The whole stays as an artifact. The tool `read_output` pages through it by the same line numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from settled.activities.lines import MOST_LINE, Lines

MOST_SHOWN = 30_000
"""Characters of a result that the model sees; the whole stays as an artifact."""
MOST_PAGE = 20_000
"""Characters of a page: below what a result may have, so that a page is never cut itself."""
ROOM_FOR_MARKS = 1_000
MARK = "[This output has "
NO_MARK = "[All of the output follows. It begins with words like those of a cut, which are its own.]"
"""Stands between the head and an output that isn't cut but looks so: the line below the head is ours alone."""
READ_OUTPUT = "read_output"
"""The tool that pages through an output."""
REFERENCE = 12
"""Characters of an artifact's digest that name it to the model."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A result as the model sees it."""

    text: str
    whole: str | None = None
    """The whole output, where the text shows only a part of it."""


@dataclass(frozen=True, kw_only=True)
class KeptOutput:
    """An output that was cut for a task."""

    digest: str
    """The artifact with the whole."""
    tool: str
    """The tool that it came from."""
    lines: int
    """How many lines it has, as they are numbered."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Lines of an output that are shown together."""

    first: int
    """The number of the first one, from 1."""
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        """The number of the last one."""
        return self.first + len(self.lines) - 1

    def __str__(self) -> str:
        return "\n".join(_numbered(number, line) for number, line in enumerate(self.lines, self.first))


def reference(text: str) -> str:
    """The name by which the model asks for more of the output; the beginning of its artifact's digest."""
    return hashlib.sha256(text.encode()).hexdigest()[:REFERENCE]


def laid_out(head: str, text: str, *, most: int = MOST_SHOWN, pages: bool = True) -> Shown:
    """An output below a line that says what it is; cut where it is too long.

    Args:
        head: the line.
        text: the output, clean.
        most: characters that may be shown.
        pages: whether the model can page through the rest.
    """
    uncut = f"{head}\n{NO_MARK}\n{text}" if text.startswith(MARK) else f"{head}\n{text}"
    if len(uncut) <= most:
        return Shown(text=uncut)
    lines = Lines.of(text)
    room = max(0, most - len(head) - ROOM_FOR_MARKS) // 2
    first = page(lines, 1, room)
    ending = _fitting(islice(lines.backward(), lines.count - first.last), room)
    last = Page(first=lines.count - len(ending) + 1, lines=tuple(reversed(ending)))
    shown = [head, _mark(lines, first, last, pages=pages), str(first)]
    if last.first > first.last + 1:
        shown.append(f"[… lines {first.last + 1}-{last.first - 1} are left out here …]")
    return Shown(text="\n".join([*shown, str(last)] if ending else shown), whole=text)


def page(lines: Lines, first: int, most: int = MOST_PAGE, last: int | None = None) -> Page:
    """The lines from that one on, as many as fit; one at least.

    Args:
        lines: all lines of the output.
        first: the number of the first one wanted, from 1; there must be such a line.
        most: characters that may be shown.
        last: the number of the last one wanted; none: to the end.
    """
    wanted = islice(lines.onward(first), None if last is None else last - first + 1)
    return Page(first=first, lines=tuple(_fitting(wanted, most, at_least=1)))


def is_cut(shown: str) -> bool:
    """Whether what the model sees is the cut form of an output: no output that isn't cut has the mark in that place."""
    return any(line.startswith(MARK) for line in shown.split("\n", maxsplit=2)[1:2])


def shortened(text: str, most: int) -> str:
    """The text in so many characters at the most, cut in its middle, and saying so where there is room for that."""
    if len(text) <= most:
        return text
    mark = f" [… of {len(text)} characters, the middle is left out …] "
    half = (most - len(mark)) // 2
    return f"{text[:half]}{mark}{text[-half:]}" if half > 0 else text[:most]


def size_of(lines: Lines) -> str:
    """How large the output is, in words."""
    wraps = f" (one of more than {MOST_LINE} characters is wrapped, and each piece counts as a line)"
    unit = "line" if lines.count == 1 else "lines"
    return f"{len(lines.text)} characters in {lines.count} {unit}{wraps if lines.wrapped else ''}"


def _mark(lines: Lines, first: Page, last: Page, *, pages: bool) -> str:
    name = reference(lines.text)
    shown = f"{first.first}-{first.last}" + (f" and {last.first}-{last.last}" if last.lines else "")
    kept = f'{READ_OUTPUT} shows others, of output "{name}"' if pages else f'The whole is kept as output "{name}"'
    return f"{MARK}{size_of(lines)}. Lines {shown} are shown. {kept}.]"


def _numbered(number: int, line: str) -> str:
    return f"{number}\t{line}"


def _fitting(numbered: Iterable[tuple[int, str]], most: int, *, at_least: int = 0) -> list[str]:
    """The lines that fit, one after the other, in so many characters."""
    fitting, used = list[str](), 0
    for number, line in numbered:
        used += len(_numbered(number, line)) + 1
        if used > most and len(fitting) >= at_least:
            break
        fitting.append(line)
    return fitting
