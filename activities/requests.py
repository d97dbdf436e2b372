"""A model request as it is composed, and how little has to be kept so that it can be composed again. Pure.

A request is its root's parameters and the messages of its chain. What else it holds (a raised token limit, say) is
kept beside its response, with the digest of the whole: so what is composed again is known to be what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from settled.activities.canonical import digest_of
from settled.activities.roots import Root
from settled.activities.transcript import Node
from settled.activities.view import view

ORDER = (
    *("max_tokens", "messages", "model", "cache_control", "container", "diagnostics", "inference_geo", "metadata"),
    *("output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "thinking", "tool_choice"),
    "tools",
)
"""The fields of a request in the order in which the SDK's client writes them, whatever order it is given them in."""


def composed(chain: Sequence[Node], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the request that ends with the chain.

    Args:
        chain: the conversation, root first.
        changes: what differs from the root's parameters.

    Raises:
        TranscriptError: a call has no result in the message that follows it.
    """
    return {**Root.of(chain[0]).parameters, **changes, "messages": view(chain)}


def changes_of(root: Root, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What a request's parameters differ in from its root's, the messages apart."""
    common = root.parameters
    return {
        name: value
        for name, value in parameters.items()
        if name != "messages" and (name not in common or common[name] != value)
    }


def body_of(parameters: Mapping[str, Any]) -> bytes:
    """The request's body, byte for byte as the client sends it: with the field that it adds, in its order of fields."""
    fields = {**parameters, "stream": True}
    ordered = {name: fields[name] for name in (*ORDER, *fields) if name in fields}
    text = json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def digest_of_request(parameters: Mapping[str, Any]) -> str:
    """Names the request by its body."""
    return digest_of(body_of(parameters))
