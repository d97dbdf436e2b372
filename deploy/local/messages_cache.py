"""The prompt cache of the scripted Messages server: which part of a request was read before.

As the API does it for a `cache_control` at the top of a request: all of the request is kept, and the next one that
begins with it, byte for byte and under the same model, tools and system, reads that from the cache. Unlike the API's,
this cache forgets nothing after five minutes, and keeps short requests too (real models keep none below some hundred or
thousand tokens).
"""

import hashlib
import json
from collections.abc import Iterator

from settled.local.messages_rules import Body, canonical


def input_tokens(body: Body) -> int:
    """An estimate, a token for four characters, of what the model reads; so it does not depend on the limits asked."""
    return max(1, len(canonical([body.get("system"), body.get("tools"), body["messages"]])) // 4)


class PromptCache:
    """What was read before, by the digest of its bytes."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}

    def read(self, body: Body) -> dict[str, int]:
        """Read a request: how many of its tokens are new, cached from now on, and read from the cache."""
        tokens = input_tokens(body)
        if body.get("cache_control") is None:
            return {"input_tokens": tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        beginnings = list(_beginnings(body))
        cached = next((self._tokens[known] for known in reversed(beginnings) if known in self._tokens), 0)
        self._tokens[beginnings[-1]] = tokens
        return {"input_tokens": 0, "cache_creation_input_tokens": tokens - cached, "cache_read_input_tokens": cached}


def _beginnings(body: Body) -> Iterator[str]:
    """A digest of each beginning of the request that ends with a message, the shortest first."""
    digest = hashlib.sha256(json.dumps([body.get(name) for name in ("model", "tools", "system")]).encode())
    for message in body["messages"]:
        digest.update(json.dumps(message).encode())
        yield digest.hexdigest()
