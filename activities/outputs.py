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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST_SHOWN = 30_000
"""Characters of a result that the model sees; the whole stays as an artifact."""
MOST_LINE = 2_000
"""Characters of a line. A longer one is wrapped, and each piece counts as a line: there is always one to page by."""
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


def lines_of(text: str) -> list[str]:
    """The lines of an output as they are numbered; pieces of a long one count as lines.

    A character is never cut: these are characters and no halves of them, once the text is `clean`.
    """
    return [piece for line in text.removesuffix("\n").split("\n") for piece in _pieces(line)]


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
    lines = lines_of(text)
    room = max(0, most - len(head) - ROOM_FOR_MARKS) // 2
    first = page(lines, 1, room)
    rest = lines[first.last :]
    count = _fitting(reversed(list(enumerate(rest, first.last + 1))), room)
    last = Page(first=len(lines) - count + 1, lines=tuple(rest[len(rest) - count :]))
    shown = [head, _mark(text, lines, first, last, pages=pages), str(first)]
    if last.first > first.last + 1:
        shown.append(f"[… lines {first.last + 1}-{last.first - 1} are left out here …]")
    return Shown(text="\n".join([*shown, str(last)] if count else shown), whole=text)


def page(lines: Sequence[str], first: int, most: int = MOST_PAGE, last: int | None = None) -> Page:
    """The lines from that one on, as many as fit; one at least.

    Args:
        lines: all lines of the output.
        first: the number of the first one wanted, from 1; there must be such a line.
        most: characters that may be shown.
        last: the number of the last one wanted; none: to the end.
    """
    wanted = lines[first - 1 : last]
    count = max(1, _fitting(enumerate(wanted, first), most))
    return Page(first=first, lines=tuple(wanted[:count]))


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


def size_of(text: str, lines: Sequence[str]) -> str:
    """How large the output is, in words."""
    wrapped = any(len(line) > MOST_LINE for line in text.split("\n"))
    how = f" (one of more than {MOST_LINE} characters is wrapped, and each piece counts as a line)" if wrapped else ""
    return f"{len(text)} characters in {len(lines)} {'line' if len(lines) == 1 else 'lines'}{how}"


def _mark(text: str, lines: Sequence[str], first: Page, last: Page, *, pages: bool) -> str:
    name = reference(text)
    shown = f"{first.first}-{first.last}" + (f" and {last.first}-{last.last}" if last.lines else "")
    kept = f'{READ_OUTPUT} shows others, of output "{name}"' if pages else f'The whole is kept as output "{name}"'
    return f"{MARK}{size_of(text, lines)}. Lines {shown} are shown. {kept}.]"


def _pieces(line: str) -> list[str]:
    return [line[start : start + MOST_LINE] for start in range(0, len(line), MOST_LINE)] or [""]


def _numbered(number: int, line: str) -> str:
    return f"{number}\t{line}"


def _fitting(lines: Iterator[tuple[int, str]], most: int) -> int:
    """How many of the numbered lines fit, one after the other."""
    count = used = 0
    for number, line in lines:
        used += len(_numbered(number, line)) + 1
        if used > most:
            break
        count += 1
    return count
