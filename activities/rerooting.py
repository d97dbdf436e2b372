"""Going on in a new conversation: another model takes over what was said so far."""

from __future__ import annotations

from typing import Any

from settled.activities.roots import Root
from settled.activities.transcript import Role, Transcripts, make_node
from settled.workflows.contract.turn import Again

THOUGHTS = frozenset({"thinking", "redacted_thinking"})
"""Bound to the model that had them: another one refuses them, or drops them without a word."""


async def taken_over(transcripts: Transcripts, head: str) -> str:
    """The same conversation, for the next model of the chain; returns its head.

    A turn in which the provider has paused is left out: another model could not go on with it, only begin it anew.

    Args:
        transcripts: where it is.
        head: the node that the other model didn't answer. Its root names a model to fall back on.

    Raises:
        TranscriptError: the conversation is not whole.
    """
    chain = await transcripts.chain(head)
    root = Root.of(chain[0])
    node = root.model_copy(
        update={
            "parameters": {**root.parameters, "model": root.fallback[0]},
            "fallback": root.fallback[1:],
            "replaces": head,
            "why": Again.FALLBACK,
        }
    ).node()
    last = max(place for place, old in enumerate(chain) if old.role is not Role.ASSISTANT)
    nodes = [node]
    for old in chain[1 : last + 1]:
        content = _without_thoughts(old.content) if old.role is Role.ASSISTANT else old.content
        nodes.append(make_node(nodes[-1], old.role, content, old.mentions))
    await transcripts.add(*nodes)
    return nodes[-1].digest


def _without_thoughts(content: list[Any]) -> list[Any]:
    return [block for block in content if block.get("type") not in THOUGHTS]
