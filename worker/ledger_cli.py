"""`settled ledger`: how the whole ledger stands, and what people say of it: it was restored, it is trusted again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from settled.worker.options import AsJson, Who, person
from settled.worker.printing import WRONG_USE_EXIT, moment, say, say_table, stamp, stop

if TYPE_CHECKING:
    from settled.activities.epochs import Opened
    from settled.activities.protocol import Epoch
    from settled.worker.ledger_standing import LedgerStanding, OpenEpoch

app = typer.Typer(no_args_is_help=True, help="Look at the ledger as a whole, and say that it was restored.")

MOST_BECAUSE = 2_000
MEANING = (
    "While it is open, the first claim of each action is looked up at its service before anything is sent;",
    "an action whose tool has no lookup needs a person. Workers may run: each claim sees the epoch.",
)


@app.command()
def restored(
    because: Annotated[str, typer.Option(help="What has happened; stands in the records for good.")] = "",
    who: Who = "",
) -> None:
    """Say that the ledger was restored from an older copy: from now on, no row in it doesn't mean "never sent".

    This opens an epoch. Run it after the restore, and before workers use the copy.
    """
    if not because.strip():
        stop("say with --because what has happened", WRONG_USE_EXIT)
    if len(because) > MOST_BECAUSE:
        stop(f"--because: at most {MOST_BECAUSE:,} characters", WRONG_USE_EXIT)
    name = person(who)
    opened = asyncio.run(_open(name, because.strip()))
    say(f"Epoch {opened.epoch.number} is open: {_past(opened.epoch.since)}")
    if opened.before is not None:
        say(f"Epoch {opened.before.number} was open already, since {moment(opened.before.opened_at)}: both count.")
    for line in MEANING:
        say(line)
    say("Once no task from before the restore can act any more: settled ledger trusted")


@app.command()
def trusted(who: Who = "") -> None:
    """Say that what a restored ledger has lost doesn't matter any more: closes the epoch."""
    closed = asyncio.run(_close(person(who)))
    if closed is None:
        say("No epoch is open: the ledger is trusted already.")
        return
    say(f"Epoch {closed.number} is closed: an action without a row was never sent, and is sent without a lookup.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """Say how the ledger stands: its database, its operations by state, its alarms, and whether an epoch is open."""
    standing = asyncio.run(_standing())
    if as_json:
        typer.echo(json.dumps(_for_programs(standing)))
        return
    say_table(_told(standing))


async def _open(who: str, because: str) -> Opened:
    from settled.activities.epochs import Epochs
    from settled.activities.migrating import migrate
    from settled.worker.ledger_at import existing_database

    async with existing_database(writing=True) as database:
        # The copy may be of an earlier release, which had no epochs.
        await migrate(database)
        return await Epochs(database).open(who, because)


async def _close(who: str) -> Epoch | None:
    from settled.activities.epochs import Epochs
    from settled.worker.ledger_at import existing_database

    async with existing_database(writing=True) as database:
        return await Epochs(database).close(who)


async def _standing() -> LedgerStanding:
    from settled.worker.ledger_at import existing_database
    from settled.worker.ledger_standing import standing_of

    async with existing_database() as database:
        return await standing_of(database)


def _past(since: float) -> str:
    if not since:
        return "the ledger has no row; whatever was done before, it doesn't know."
    return f"the ledger's last row is of {moment(since)}; what was done after that, it doesn't know."


def _said(epoch: OpenEpoch | None) -> str:
    return f": {epoch.opened_by} says: {epoch.because}" if epoch else ""


def _told(standing: LedgerStanding) -> Iterator[tuple[str, str]]:
    newest = "this release's" if standing.revision == standing.newest else f"this release's is {standing.newest}"
    counts = ", ".join(f"{number} {state}" for state, number in standing.counts.items())
    yield "database", f"{standing.kind}: {standing.place}"
    yield "revision", f"{standing.revision} ({newest})"
    yield "operations", f"{sum(standing.counts.values())}{': ' if counts else ''}{counts}"
    yield "alarms", f"{standing.alarms}: settled operations --alarms" if standing.alarms else "none"
    if standing.epoch is None:
        yield "epoch", "none is open: the ledger has its whole past"
        return
    epoch = standing.epoch
    yield "epoch", f"{epoch.number} is open since {moment(epoch.opened_at)}{_said(epoch)}"
    yield "", _past(epoch.since)
    yield from (("", line) for line in MEANING)


def _for_programs(standing: LedgerStanding) -> dict[str, object]:
    told = asdict(standing)
    if standing.epoch is not None:
        times = {name: stamp(getattr(standing.epoch, name)) for name in ("since", "opened_at")}
        told["epoch"] = told["epoch"] | times
    return told
