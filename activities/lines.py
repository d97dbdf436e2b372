"""The lines of an output as they are numbered. Pure.

They are found by their places in the text: an output of megabytes may have millions of lines, and a page shows a few.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

MOST_LINE = 2_000
"""Characters of a line. A longer one is wrapped, and each piece counts as a line: there is always one to page by."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """All lines of an output, numbered from 1; pieces of a long one count as lines.

    A character is never cut: these are characters and no halves of them, once the text is `clean`.
    """

    text: str
    """The output."""
    end: int
    """Where its last line ends: a newline at the very end begins no other one."""
    count: int
    """How many there are; one at least."""
    wrapped: bool
    """Whether a line is so long that it was wrapped."""
    numbers: tuple[int, ...]
    """Numbers of some lines, one about every `MOST_LINE` characters. No line that is wrapped lies in between."""
    places: tuple[int, ...]
    """Where each of these begins in the text."""

    @classmethod
    def of(cls, text: str) -> Lines:
        """The lines of the text. It is walked through in steps, each as far as a line may be long."""
        end = len(text) - text.endswith("\n")
        numbers, places = list[int](), list[int]()
        number, at, wrapped = 1, 0, False
        while at <= end:
            numbers.append(number)
            places.append(at)
            close = text.rfind("\n", at, min(at + MOST_LINE + 1, end))
            if close >= 0:
                number += text.count("\n", at, close + 1)
            else:
                close = _close(text, at, end)
                number += max(1, -(-(close - at) // MOST_LINE))
                wrapped = wrapped or close - at > MOST_LINE
            at = close + 1
        return cls(text=text, end=end, count=number - 1, wrapped=wrapped, numbers=tuple(numbers), places=tuple(places))

    def onward(self, number: int) -> Iterator[tuple[int, str]]:
        """That line and all behind it, each with its number. There must be such a line."""
        at = self._place(number)
        while True:
            close = self.text.find("\n", at, min(at + MOST_LINE + 1, self.end))
            stop = close if close >= 0 else min(at + MOST_LINE, self.end)
            yield number, self.text[at:stop]
            if stop == self.end:
                return
            number, at = number + 1, stop if close < 0 else stop + 1

    def backward(self) -> Iterator[tuple[int, str]]:
        """All of them from the last one on, each with its number."""
        number, close = self.count, self.end
        while close >= 0:
            start = self.text.rfind("\n", 0, close) + 1
            for at in reversed(range(start, max(close, start + 1), MOST_LINE)):
                yield number, self.text[at : min(at + MOST_LINE, close)]
                number -= 1
            close = start - 1

    def _place(self, number: int) -> int:
        """Where the line begins in the text."""
        index = bisect_right(self.numbers, number) - 1
        at, more = self.places[index], number - self.numbers[index]
        if _close(self.text, at, self.end) - at > MOST_LINE:
            return at + more * MOST_LINE
        for _ in range(more):
            at = _close(self.text, at, self.end) + 1
        return at


def _close(text: str, at: int, end: int) -> int:
    """Where the line ends that begins there."""
    close = text.find("\n", at, end)
    return end if close < 0 else close
