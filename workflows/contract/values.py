"""What every value of the contract has in common: it is frozen, and it can be read by an older and a newer release.

Values stand in recorded histories, so a release reads what another one wrote (a deploy, and its rollback): new fields
have defaults, fields it doesn't know are ignored, enum members it doesn't know are kept as they are.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, StringConstraints


class Value(BaseModel):
    """A frozen value; the text under a field is its documentation."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class OpenEnum(StrEnum):
    """A closed set of names in this release; a name from another release is kept instead of refused.

    Code that branches on a member needs a branch for "a name that I don't know", and that branch must be the safe one.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = unknown._value_ = value
        return unknown

    @property
    def known(self) -> bool:
        """Whether this release has a member of that name."""
        return self._value_ in type(self)._value2member_map_


Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A sha256 in lower-case hexadecimal, naming a transcript node, an artifact, a fingerprint or an operation."""
