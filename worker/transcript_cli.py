"""`settled transcript TASK`: what was sent to the model and what it answered, request after request."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated

import typer

from settled.worker.options import AsJson
from settled.worker.printing import WRONG_USE_EXIT, escaped, say, stop

if TYPE_CHECKING:
    from settled.activities.database import Database
    from settled.worker.transcript_story import Exchange, Story

MOST_DIGITS = 9
Task = Annotated[str, typer.Argument(metavar="TASK", help="The task's workflow id.")]
Number = Annotated[
    str | None, typer.Option("--turn", metavar="N", help="Only the N-th model request, as it was sent and answered.")
]


def transcript(task: Task, turn: Number = None, as_json: AsJson = False) -> None:
    """Show a task's transcript, over all its conversations; or one model request, exactly as it was sent."""
    asyncio.run(_show(task, turn, as_json=as_json))


async def _show(task: str, turn: str | None, *, as_json: bool) -> None:
    from settled.worker.ledger_at import existing_database
    from settled.worker.transcript_lines import as_json as whole
    from settled.worker.transcript_lines import lines_of
    from settled.worker.transcript_story import story_of

    async with existing_database() as database:
        story = await story_of(database, task)
        if story is None:
            stop(
                f"the store has no task {task!r}; name a workflow id, as in "
                "`temporal workflow list --query 'WorkflowType=\"AgentTask\"'`; one that was refused has no transcript"
            )
        if turn is not None:
            await _show_request(database, _numbered(story, turn), len(story.exchanges), as_json=as_json)
        elif as_json:
            typer.echo(json.dumps(whole(story)))
        else:
            for line in lines_of(story):
                typer.echo(line)


def _numbered(story: Story, turn: str) -> Exchange:
    """The request that is meant. Read here and not by the option, which would answer with its whole usage."""
    count = len(story.exchanges)
    if count == 0:
        stop(f"--turn: task {story.record.task!r} has no answered model request so far", WRONG_USE_EXIT)
    number = int(turn) if turn.isdecimal() and len(turn) <= MOST_DIGITS else 0
    if not 1 <= number <= count:
        wanted = "--turn 1" if count == 1 else f"--turn 1 to {count}"
        stop(f"--turn: there is no model request {turn} of this task; say {wanted}", WRONG_USE_EXIT)
    return story.exchanges[number - 1]


async def _show_request(database: Database, exchange: Exchange, count: int, *, as_json: bool) -> None:
    from settled.activities.canonical import digest_of
    from settled.activities.requests import body_of, composed
    from settled.activities.transcript import Transcripts, encoded
    from settled.worker.transcript_lines import about, headline
    from settled.workflows.errors import TranscriptError

    stored = exchange.stored
    try:
        body = body_of(composed(await Transcripts(database).chain(stored.asked), stored.changes))
    except TranscriptError as error:
        stop(f"the request can't be composed again: {error}")
    exact = digest_of(body) == stored.sent
    request, response = escaped(body), escaped(encoded(stored.message))
    if as_json:
        known = json.dumps(about(exchange) | {"exact": exact})
        typer.echo(f'{known[:-1]}, "request": {request}, "response": {response}}}')
        return
    say(f"request {exchange.number} of {count}: {headline(exchange)}")
    if not exact:
        say("NOT what was sent byte for byte: this release composes requests in another way than the one that sent it.")
    typer.echo(request)
    say()
    say("response, as received:")
    typer.echo(response)
