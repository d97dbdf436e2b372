"""What a person sees of the local stack: plain lines, with colours on a terminal. Failures go to standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from settled.local.facts import Fact
from settled.local.processes import Part
from settled.local.stack import Stack

COLOURS = {
    "proposal": "cyan",
    "dispatch": "blue",
    "unknown": "bold yellow",
    "lookup": "magenta",
    "answer": "cyan",
    "acceptance": "green",
    "status": "bold green",
    "failure": "bold red",
    "alarm": "bold red",
}


class Screen:
    """Standard output and standard error. Lines are never wrapped, so that they can be copied, and read by programs."""

    def __init__(self) -> None:
        self._out = Console(highlight=False, markup=False, soft_wrap=True)
        self._err = Console(highlight=False, markup=False, soft_wrap=True, stderr=True)

    def part(self, name: str, text: str) -> None:
        """A part of the stack is ready."""
        self._out.print(Text.assemble((f"  {name:<15}", "bold"), text))

    def fact(self, seconds: float, fact: Fact) -> None:
        """Something happened, so many seconds after the task's start."""
        about = (f"{fact.about:<12}", COLOURS.get(fact.about, "bold"))
        self._out.print(Text.assemble((f"{seconds:7.2f} s  ", "dim"), about, fact.text))

    def command(self, line: str) -> None:
        """A command as a person would type it."""
        self._out.print(Text(f"\n$ {line}\n", "bold"))

    def whereabouts(self, stack: Stack, commands: Sequence[str]) -> None:
        """Where the files are, and what to try."""
        self._out.print()
        self.part("ledger", stack.ledger)
        self.part("logs", str(stack.folder))
        self._out.print(Text("\nTry, in another terminal:\n"))
        self._out.print(Text("\n".join(f"  {line}" for line in "\n".join(commands).splitlines()) + "\n"))

    def last(self, line: str) -> None:
        """The line that programs read."""
        self._out.out(line, highlight=False)

    def hint(self, text: str) -> None:
        """Something about the running itself."""
        self._err.print(Text(text, "dim"))

    def failure(self, text: str, parts: Iterable[Part]) -> None:
        """What failed, and the last lines of the logs that may tell why."""
        self._err.print(Text(f"settled: {text}", "bold red"))
        for part in parts:
            if tail := part.tail():
                self._err.print(Text(f"--- the last lines of {part.log.name}:", "dim"))
                self._err.print(Text(tail))
