"""The business idempotency key, the fingerprint of a request, and the key that the service sees.

Run id, activity id, attempt, call id and time are never a part of a key: they change when an action runs again.
"""

from __future__ import annotations

import hashlib

from pydantic import BaseModel

from settled.activities.canonical import canonical
from settled.activities.toolkit import Scope, Unsaid, WriteTool

KEY_VERSION = 1


def operation_key(tool: WriteTool, arguments: BaseModel, *, namespace: str, tenant: str, root_task: str) -> str:
    """The business idempotency key: sha256 of version, namespace, tenant, scope, tool and the declared key fields.

    Args:
        tool: whose declaration names the key fields and the scope.
        arguments: the validated arguments.
        namespace: the Temporal namespace.
        tenant: the task's tenant.
        root_task: the workflow id of the root task, which stands for the scope where it is `task`.
    """
    scope = f"task:{root_task}" if tool.scope is Scope.TASK else "business"
    fields = [[name, getattr(arguments, name)] for name in key_fields(tool)]
    return hashlib.sha256(canonical([KEY_VERSION, namespace, tenant, scope, tool.name, fields])).hexdigest()


def key_fields(tool: WriteTool) -> list[str]:
    """The arguments that make up the key, in the order in which they stand in it."""
    assert not isinstance(tool.key, Unsaid), "the registry refuses a write that doesn't say"
    return sorted(tool.key)


def key_declaration(tool: WriteTool) -> str:
    """What makes up the tool's keys, as text: two declarations that differ give different keys for the same action."""
    return canonical([KEY_VERSION, tool.name, tool.scope, key_fields(tool)]).decode()


def fingerprint(arguments: BaseModel) -> str:
    """Digest of the validated arguments without defaults: one left out and its default spelled out are equal."""
    return hashlib.sha256(canonical(arguments.model_dump(mode="python", exclude_defaults=True))).hexdigest()


def remote_key(key: str, generation: int) -> str:
    """The idempotency key that the service sees: one for each generation, at most 36 characters as some demand."""
    return f"{key[:30]}-{generation}"
