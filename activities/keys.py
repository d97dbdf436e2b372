"""The business idempotency key, the fingerprint of a request, and the key that the service sees.

Run id, activity id, attempt, call id and time are never a part of a key: they change when an action runs again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from settled.activities.canonical import canonical
from settled.activities.input_models import kinds_of
from settled.activities.journal import Subject
from settled.activities.toolkit import Scope, Unsaid, WriteTool
from settled.workflows.contract.operation import Target

KEY_VERSION = 1
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,1000}")


@dataclass(frozen=True, kw_only=True)
class KeyForm:
    """A way in which a tool makes, or made, its keys."""

    tool: str
    scope: Scope
    fields: tuple[str, ...]
    """The arguments that make up the key, in the order in which they stand in it."""
    kinds: tuple[str, ...]
    """What each of them is: text and a number that read alike give different keys."""
    undoes: str = ""
    """The tool whose action it takes back, which is a part of the key then."""

    @property
    def declaration(self) -> str:
        """The form as text: two that differ give different keys for the same action."""
        fields = [[name, kind] for name, kind in zip(self.fields, self.kinds, strict=True)]
        return canonical([KEY_VERSION, self.tool, self.scope, fields, self.undoes]).decode()

    @property
    def untyped(self) -> str:
        """The same as a ledger has it that was made before types and undone tools were noted."""
        return canonical([KEY_VERSION, self.tool, self.scope, list(self.fields)]).decode()


@dataclass(frozen=True, kw_only=True)
class Realm:
    """Where keys are made: what stands in each of them besides the tool's own fields."""

    namespace: str
    """The Temporal namespace."""
    tenant: str
    """The task's tenant."""
    root_task: str
    """The workflow id of the root task, which stands for the scope where it is `task`."""


def key_forms(tool: WriteTool) -> list[KeyForm]:
    """The tool's way of making keys, and the earlier ones that it supersedes, newest first."""
    assert not isinstance(tool.key, Unsaid), "the registry refuses a write that doesn't say"
    assert not isinstance(tool.scope, Unsaid), "the registry refuses a write that doesn't say"
    assert tool.arguments is not None, "the registry refuses a tool without an input model"
    arguments = tool.arguments.model_fields

    def form(name: str, scope: Scope, key: tuple[str, ...], undoes: str | None, types: Mapping[str, type]) -> KeyForm:
        fields = tuple(sorted(key))
        kinds = tuple(kinds_of(types.get(field) or arguments[field].annotation) for field in fields)
        return KeyForm(tool=name, scope=scope, fields=fields, kinds=kinds, undoes=undoes or "")

    now = form(tool.name, tool.scope, tool.key, tool.undoes, {})
    return [now] + [
        form(
            older.tool or tool.name,
            older.scope,
            older.key,
            tool.undoes if isinstance(older.undoes, Unsaid) else older.undoes,
            older.types,
        )
        for older in tool.supersedes
    ]


def operation_key(form: KeyForm, arguments: BaseModel, realm: Realm, undoes: Target | None = None) -> str:
    """The business idempotency key: sha256 of version, namespace, tenant, scope, tool and the declared key fields.

    Args:
        form: the tool, the scope and the fields.
        arguments: the validated arguments.
        realm: where.
        undoes: what the action takes back, which is a part of the key: what was done again can be undone again.
    """
    scope = f"task:{realm.root_task}" if form.scope is Scope.TASK else "business"
    fields = [
        [name, _as_it_was(getattr(arguments, name), kind)] for name, kind in zip(form.fields, form.kinds, strict=True)
    ]
    parts = [KEY_VERSION, realm.namespace, realm.tenant, scope, form.tool, fields]
    if undoes is not None and form.undoes:
        parts.append([undoes.key, undoes.generation])
    return hashlib.sha256(canonical(parts)).hexdigest()


def _as_it_was(value: Any, kind: str) -> Any:
    """The value in the type that the field had: a number that was text once, or text that was a number."""
    if kind == "str" and isinstance(value, int):
        return str(value)
    if kind == "int" and isinstance(value, str) and WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return value


def fingerprint(arguments: BaseModel) -> str:
    """Digest of the validated arguments without defaults: one left out and its default spelled out are equal."""
    return hashlib.sha256(canonical(arguments.model_dump(mode="python", exclude_defaults=True))).hexdigest()


def superseded_by(tool: str) -> str:
    """The declaration that stands in the place of a tool's own, once it has another name."""
    return f"superseded by {tool}"


def undoes_key_of(subject: Subject) -> str:
    """The idempotency key with which what the operation takes back was sent; empty if it takes nothing back."""
    return remote_key(subject.undoes_key, subject.undoes_generation) if subject.undoes_key else ""


def remote_key(key: str, generation: int) -> str:
    """The idempotency key that the service sees: one for each generation, at most 36 characters as some demand."""
    return f"{key[:30]}-{generation}"
