"""The commands that a person types about the local stack, as the demo runs them and the screen shows them."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from settled.local.places import program
from settled.local.stack import Stack
from settled.workflows.contract.names import AGENT_TASK

DEFAULT_ADDRESS = "127.0.0.1:7233"
"""Where the `temporal` command looks by itself."""


def start_task(task: str, request: Mapping[str, Any]) -> list[list[str]]:
    """The words that start a task, in lines. Without the two policies a task that is there already would be joined, or
    run a second time, without a word."""
    return [
        ["temporal", "workflow", "start", "--type", AGENT_TASK, "--task-queue", "agents", "--workflow-id", task],
        ["--id-reuse-policy", "RejectDuplicate", "--fail-existing"],
        ["--input", json.dumps(request)],
    ]


def shown(lines: Sequence[Sequence[str]]) -> str:
    """A command as it is typed."""
    return " \\\n    ".join(shlex.join(words) for words in lines)


def to_try(stack: Stack, order: str) -> list[str]:
    """What to type next, in another terminal: settings first, then a task, looking at it, and a lost reply.

    Args:
        stack: where.
        order: one that nothing was reserved for yet.
    """
    task = f"order-{order}"
    request = {"goal": f"reserve 1 of B2 for order {order}", "agent": "stock-clerk"}
    fault = json.dumps({"fault": "drop_reply_after_commit"})
    named = ["--workflow-id", task]
    return [
        *_settings(stack),
        shown(start_task(task, request)),
        shown([["temporal", "workflow", "query", *named, "--type", "status"]]),
        shown([["temporal", "workflow", "result", *named]]),
        "settled operations",
        shown([["curl", "-s", f"{stack.stock}/effects"]]),
        shown([["curl", "-s", f"{stack.stock}/faults", "--data", fault]]) + "  # the next order's reply is lost",
    ]


def _settings(stack: Stack) -> list[str]:
    """What the commands below it go by."""
    exports = {"SETTLED_DATABASE_URL": stack.ledger}
    if stack.temporal != DEFAULT_ADDRESS:
        exports["TEMPORAL_ADDRESS"] = stack.temporal
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    here = program("temporal")
    if shutil.which("temporal") != here:
        lines.insert(0, f'export PATH={shlex.quote(str(Path(here).parent))}:"$PATH"')
    return lines
