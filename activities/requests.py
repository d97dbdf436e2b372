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
    """The request's body: its parameters, as JSON, with the field that the client adds."""
    text = json.dumps({**parameters, "stream": True}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def digest_of_request(parameters: Mapping[str, Any]) -> str:
    """Names the request by its body."""
    return digest_of(body_of(parameters))
