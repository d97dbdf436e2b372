"""The root of a conversation: what each of its requests shares byte for byte, and what else holds for all of it.

A conversation that can't go on as it is (another model takes over, or it was summed up) goes on in a new one, whose
root names the head that it replaces: so the transcript of a task can be read from its end back to its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from settled.activities.agents import AgentProfile
from settled.activities.prices import Price
from settled.activities.registry import Registry, tool_schema
from settled.activities.transcript import Node, Role, make_node
from settled.workflows.contract.turn import Again
from settled.workflows.contract.values import Digest, Value

OURS = "settled"
"""The field of a root's content that is not sent."""
RAISED = 4
"""How many times its token limit a response may have after a cut, unless the profile says otherwise."""


class Root(Value):
    """What a conversation's root holds."""

    parameters: dict[str, Any]
    """The request's, without messages: model, system, tools, token limit and the rest."""
    fallback: tuple[str, ...] = ()
    """The models that may take over from here on, in order."""
    max_tokens_most: int | None = None
    """Tokens that a response may have where it was cut before."""
    context_tokens: int | None = None
    """Tokens that the conversation may have; none: as the provider says of the model."""
    prices: dict[str, Price] = Field(default_factory=dict)
    """What the task's models cost when it began, as in a table of prices; empty: as the worker's table says."""
    replaces: Digest | None = None
    """The head that this conversation goes on from."""
    why: Again | None = None
    """Why it does."""
    sums_up: bool = False
    """Whether it is the request for a summary of what it replaces."""

    @property
    def model(self) -> str:
        """The model that is asked."""
        return str(self.parameters["model"])

    def own(self, head: str) -> str:
        """Where the task itself stands, given a head over this root: a request for a summary is no part of it."""
        return self.replaces if self.sums_up and self.replaces else head

    @classmethod
    def of(cls, node: Node) -> Root:
        """The root of a chain, by its first node."""
        content: dict[str, Any] = node.content
        ours = content.pop(OURS, {})
        return cls(parameters=content, **ours)

    def node(self) -> Node:
        """The node that holds it."""
        ours = self.model_dump(mode="json", exclude={"parameters"}, exclude_defaults=True)
        return make_node(None, Role.ROOT, {**self.parameters, OURS: ours})


def root_of(
    profile: AgentProfile, registry: Registry, tools: Sequence[str], prices: Mapping[str, Price] | None = None
) -> Root:
    """The root of a task's first conversation."""
    parameters: dict[str, Any] = {
        "model": profile.model,
        "max_tokens": profile.max_tokens,
        "system": profile.system,
        "cache_control": {"type": "ephemeral"},
    }
    if tools:
        parameters["tools"] = [tool_schema(registry.tools[name]) for name in tools]
    if profile.effort is not None:
        parameters["output_config"] = {"effort": str(profile.effort)}
    if profile.thinking is not None:
        parameters["thinking"] = profile.thinking.parameter()
    return Root(
        parameters=parameters,
        fallback=profile.fallback,
        max_tokens_most=profile.max_tokens_most or RAISED * profile.max_tokens,
        context_tokens=profile.context_tokens,
        prices=dict(prices or {}),
    )
