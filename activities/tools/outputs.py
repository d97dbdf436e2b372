"""The outputs family: paging through an output that was too long to be shown whole.

`open_task` offers it to every task that has any other tool, as any of them may be cut. It reads nothing but what the
task's own calls have answered, so it needs nobody's permission.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from settled.activities.apart import apart
from settled.activities.lines import Lines
from settled.activities.outputs import page, size_of
from settled.activities.toolkit import Answer, Arguments, Call, NotFound, Rejected, read

SOURCE = "the executor's store"
Line = Annotated[int, Field(ge=1)]


class ReadOutput(Arguments):
    """What `read_output` is asked."""

    output: Annotated[str, Field(description="The output's name, from the mark that says that it was cut.")]
    first: Annotated[Line, Field(description="The number of the first line to show.")] = 1
    last: Annotated[Line | None, Field(description="The number of the last line to show; left out: to the end.")] = None


@read(resources=lambda asked: [f"output/{asked.output}"])
async def read_output(asked: ReadOutput, call: Call) -> Answer:
    """Read more of a result that was too long to be shown whole. Read-only: it runs nothing again.

    Takes the name that stands in the mark of the cut, and the numbers of the lines. Answers with as many of them as
    fit, and says which. An output never changes, whatever its tool would answer now.
    """
    if call.outputs is None:
        raise NotFound("no task's outputs are here to be read")
    try:
        text = await call.outputs.read(asked.output)
    except LookupError as error:
        raise NotFound(str(error.args[0])) from error
    return Answer(data=await apart(lambda: _shown(text, asked), text), source=SOURCE)


def _shown(text: str, asked: ReadOutput) -> str:
    lines = Lines.of(text)
    if asked.first > lines.count:
        raise Rejected(f"first: output {asked.output} has {lines.count} lines; {asked.first} is behind its end")
    if asked.last is not None and asked.last < asked.first:
        raise Rejected(f"last: line {asked.last} comes before line {asked.first}; give the lower number first")
    shown = page(lines, asked.first, last=asked.last)
    more = f"; for more, ask with first={shown.last + 1}" if shown.last < lines.count else ", which is the end"
    mark = f"[Output {asked.output} has {size_of(lines)}. Lines {shown.first}-{shown.last} are shown{more}.]"
    return f"{mark}\n{shown}"
