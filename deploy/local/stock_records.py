"""What the stock service reads and writes: its records, what a caller may want, and every "no" it says."""

from enum import StrEnum
from typing import Any, NotRequired, Self, TypedDict

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


class Stock(TypedDict):
    """One sku. `available` is `on_hand - reserved`; `version` counts the changes; `as_of` is when it was read."""

    sku: str
    on_hand: int
    reserved: int
    available: int
    version: int
    as_of: str


class Reservation(TypedDict):
    """One reservation. `version` is the version that it gave its sku; `released_at` is None while it stands."""

    reservation_id: str
    idempotency_key: str
    order: str
    sku: str
    line: int
    quantity: int
    version: int
    created_at: str
    released_at: str | None


class Release(TypedDict):
    """The end of one reservation. `reservation` is the reservation's key, `version` the one that it gave its sku."""

    release_id: str
    idempotency_key: str
    reservation: str
    order: str
    sku: str
    line: int
    quantity: int
    version: int
    created_at: str


class Effect(TypedDict):
    """One thing that really happened, in the order of `seq`; that a reservation was released names its key as well."""

    seq: int
    at: str
    kind: str
    key: str
    order: str
    sku: str
    line: int
    quantity: int
    reservation: NotRequired[str]


class Strict(BaseModel):
    """Input that is taken as it was sent (no text for a number), and that refuses a field nobody reads."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def knows_every_field(cls, data: Any) -> Any:
        """Unlike pydantic's own `extra="forbid"`, name the fields there are."""
        if isinstance(data, dict) and (unknown := ", ".join(sorted(data.keys() - cls.model_fields.keys()))):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError("unknown_field", "no field {unknown}, only {known}", locals())
        return data


class WantedReservation(Strict):
    """What a caller wants reserved. The bounds keep every number inside SQLite's integers."""

    order: str = Field(min_length=1, max_length=255)
    sku: str = Field(min_length=1, max_length=255)
    line: int = Field(default=1, ge=1, le=1_000_000)
    quantity: int = Field(gt=0, le=1_000_000_000)


class WantedRelease(Strict):
    """What a caller wants released: the reservation, by the key that it was made under."""

    reservation: str = Field(min_length=1, max_length=255)


class Records(StrEnum):
    """What a caller can have the service write, and look up by its key."""

    RESERVATIONS = "reservations"
    RELEASES = "releases"


class Refusal(StrEnum):
    """Every "no" of the service: its name, which stands in `error`, and its HTTP status."""

    status: int

    def __new__(cls, name: str, status: int) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.status = status
        return member

    SEVERAL = "several", 300
    MISSING_KEY = "missing_key", 400
    INVALID_REQUEST = "invalid_request", 400
    INVALID_FAULT = "invalid_fault", 400
    UNKNOWN_SKU = "unknown_sku", 404
    NO_RESERVATION = "no_reservation", 404
    NO_RELEASE = "no_release", 404
    INSUFFICIENT_STOCK = "insufficient_stock", 409
    ALREADY_RELEASED = "already_released", 409
    SEVERAL_RESERVATIONS = "several_reservations", 409
    DECLINED = "declined", 409
    KEY_REUSED = "key_reused", 422
    RATE_LIMITED = "rate_limited", 429
    LOOKUP_FAILED = "lookup_failed", 503
    TOO_LATE = "too_late", 504


class Refused(Exception):
    """A refusal, and what the caller may read about it. Nothing was changed."""

    def __init__(self, refusal: Refusal, message: str, **details: Any) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.body = {"error": refusal, "message": message, **details}
