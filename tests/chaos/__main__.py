"""`make chaos`: a storm, and its last line.

python -m tests.chaos [--seed N] [--operations N] [--store sqlite|postgres] [--no-dedupe] [--naive]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from tests.chaos.oracle import Ended, Fault, Judgement
from tests.chaos.plan import Plan
from tests.chaos.storm import Storm, opened

INTERRUPTED = 130
IN_MEMORY = Path("/dev/shm")
"""Where databases are fast. What a storm kills are processes: their files survive that in memory, too."""


def say(line: str) -> None:
    """Tell who watches."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def run(plan: Plan, store: str, folder: Path, *, naive: bool) -> bool:
    """The storm and its judgement; whether all is well.

    Raises:
        CancelledError: somebody pressed Ctrl-C; everything is stopped.
    """
    storming = asyncio.current_task()
    assert storming is not None, "a coroutine runs in a task"
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, storming.cancel)
    async with AsyncExitStack() as stack:
        storm = await opened(stack, plan, store, folder, say, naive=naive)
        await storm.blow()
        verdict = await storm.judged()
        for line in [*verdict.lines, *await summary(storm, verdict.ended)]:
            say(line)
    if naive:
        say(last_line_of_naive(plan, verdict.judgement, storm))
        return True
    say(f"chaos: {verdict.judgement.counts} seed={plan.seed}")
    return not verdict.judgement.findings


async def summary(storm: Storm, ended: list[Ended]) -> list[str]:
    """What was done to whom, and how the tasks ended."""
    parts = {
        "tasks": Counter(task.how for task in ended),
        "network": storm.proxy.met,
        "workers": storm.crew.done,
        "operator": storm.operator.done,
    }
    if storm.books is not None:
        parts["journals"] = await storm.books.events()
    lines = [
        f"{name}: " + ", ".join(f"{what} {number}" for what, number in sorted(said.items()))
        for name, said in parts.items()
    ]
    lines += [f"{task.id} {task.how}: {task.why}" for task in ended if task.why]
    return [*lines, f"server: killed {storm.server.kills} times; model: {storm.provider.faults} failures"]


def last_line_of_naive(plan: Plan, judgement: Judgement, storm: Storm) -> str:
    """The last line of a naive storm: there is no ledger to hold its effects against."""
    operations = len({action for task in storm.tasks.plans.values() for action in task.actions})
    found = " ".join(f"{fault}={judgement.count(fault)}" for fault in (Fault.DUPLICATE, Fault.LOST))
    return f"naive: operations={operations} effects={judgement.effects} {found} seed={plan.seed}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="chaos", description="A storm over the product.")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--no-dedupe", dest="dedupes", action="store_false", help="the service ignores keys")
    parser.add_argument("--naive", action="store_true", help="over a plain workflow and a plain activity instead")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1_000_000)
    plan = Plan(seed=seed, operations=asked.operations, tasks_at_once=48, workers=4, dedupes=asked.dedupes)
    say(f"seed={seed} operations={asked.operations} store={'none' if asked.naive else asked.store}")
    folder, well = Path(tempfile.mkdtemp(prefix="settled-chaos-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)), False
    try:
        well = asyncio.run(run(plan, asked.store, folder, naive=asked.naive))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("interrupted; everything is stopped")
        well = True
        return INTERRUPTED
    finally:
        if well:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            sys.stderr.write(f"chaos: databases and logs are kept in {folder}\n")
    return 0 if well else 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the SDK's native threads can crash an interpreter that takes its time to exit; all is done
