"""The books of the stock service: the shelves, the reservations, and a journal of what really happened.

A reservation, its stock and its line in the journal commit in one transaction, or not at all. The transactions are
short and the file is local, so the service calls this store straight from its event loop: one at a time, in turn.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self, TypedDict, cast
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS stock (
    sku TEXT PRIMARY KEY,
    on_hand INTEGER NOT NULL CHECK (on_hand >= 0),
    reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved BETWEEN 0 AND on_hand),
    version INTEGER NOT NULL DEFAULT 1
);
CREATE TABLE IF NOT EXISTS reservations (
    reservation_id TEXT PRIMARY KEY,
    idempotency_key TEXT NOT NULL,  -- not unique: a service that doesn't dedupe has several
    "order" TEXT NOT NULL,
    sku TEXT NOT NULL REFERENCES stock,
    line INTEGER NOT NULL,
    quantity INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS effects (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    "key" TEXT NOT NULL,
    "order" TEXT NOT NULL,
    sku TEXT NOT NULL,
    line INTEGER NOT NULL,
    quantity INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS effects_never_change BEFORE UPDATE ON effects
    BEGIN SELECT RAISE(ABORT, 'effects are append-only'); END;
CREATE TRIGGER IF NOT EXISTS effects_never_go BEFORE DELETE ON effects
    BEGIN SELECT RAISE(ABORT, 'effects are append-only'); END;
"""


class Stock(TypedDict):
    """One sku. `available` is `on_hand - reserved`; `version` counts the changes; `as_of` is when it was read."""

    sku: str
    on_hand: int
    reserved: int
    available: int
    version: int
    as_of: str


class Reservation(TypedDict):
    """One reservation. `version` is the version that it gave its sku."""

    reservation_id: str
    idempotency_key: str
    order: str
    sku: str
    line: int
    quantity: int
    version: int
    created_at: str


class Effect(TypedDict):
    """One thing that really happened, in the order of `seq`."""

    seq: int
    at: str
    kind: str
    key: str
    order: str
    sku: str
    line: int
    quantity: int


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


class Wanted(Strict):
    """What a caller wants reserved. The bounds keep every number inside SQLite's integers."""

    order: str = Field(min_length=1, max_length=255)
    sku: str = Field(min_length=1, max_length=255)
    line: int = Field(default=1, ge=1, le=1_000_000)
    quantity: int = Field(gt=0, le=1_000_000_000)


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
    INSUFFICIENT_STOCK = "insufficient_stock", 409
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


class Store:
    """The SQLite file behind the service. Another process may have it open too."""

    def __init__(self, database: Path | str, stock: Mapping[str, int], *, dedupe: bool = True) -> None:
        """Open the file, or make it. `stock` seeds the skus it doesn't know; the others keep what they have."""
        self._dedupe = dedupe
        self._connection = sqlite3.connect(database, isolation_level=None)  # None: transactions are only ours
        self._connection.row_factory = sqlite3.Row
        self._connection.executescript(SCHEMA)
        seed = "INSERT INTO stock (sku, on_hand) VALUES (?, ?) ON CONFLICT DO NOTHING"
        with self._transaction():
            self._connection.executemany(seed, stock.items())

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def stock(self, sku: str) -> Stock:
        """One sku as it is now."""
        rows = self._connection.execute(
            "SELECT sku, on_hand, reserved, on_hand - reserved AS available, version, ? AS as_of"
            " FROM stock WHERE sku = ?",
            (now(), sku),
        ).fetchall()
        if not rows:
            raise Refused(Refusal.UNKNOWN_SKU, f"there is no sku {sku!r}")
        return cast(Stock, dict(rows[0]))

    def reserve(self, key: str, wanted: Wanted, deadline: float | None = None) -> tuple[Reservation, bool]:
        """Reserve: the record, and whether it's an earlier one. `deadline` is the monotonic time to commit by."""
        with self._transaction():
            if self._dedupe and (earlier := self.reservations(key=key)):
                return self._replay(earlier[0], wanted), True
            stock = self.stock(wanted.sku)
            if stock["available"] < wanted.quantity:
                message = f"only {stock['available']} of {wanted.sku!r} left"
                raise Refused(Refusal.INSUFFICIENT_STOCK, message, available=stock["available"])
            record = self._write(key, wanted, stock["version"] + 1)
            # Asked last, after any wait for the file's lock: from here on there is only the commit itself.
            if deadline is not None and time.monotonic() > deadline:
                raise Refused(Refusal.TOO_LATE, "received longer ago than the processing limit")
            return record, False

    def reservations(self, *, order: str | None = None, key: str | None = None) -> list[Reservation]:
        """The reservations of an order or a key, oldest first."""
        rows = self._connection.execute(
            'SELECT * FROM reservations WHERE (:order IS NULL OR "order" = :order)'
            " AND (:key IS NULL OR idempotency_key = :key) ORDER BY rowid",
            {"order": order, "key": key},
        )
        return [cast(Reservation, dict(row)) for row in rows]

    def effects(self, *, order: str | None = None, key: str | None = None) -> list[Effect]:
        """The journal, or what it says of an order or a key."""
        rows = self._connection.execute(
            'SELECT * FROM effects WHERE (:order IS NULL OR "order" = :order)'
            ' AND (:key IS NULL OR "key" = :key) ORDER BY seq',
            {"order": order, "key": key},
        )
        return [cast(Effect, dict(row)) for row in rows]

    def _replay(self, earlier: Reservation, wanted: Wanted) -> Reservation:
        if not wanted.model_dump().items() <= earlier.items():
            raise Refused(Refusal.KEY_REUSED, "this key stands for another request")
        return earlier

    def _write(self, key: str, wanted: Wanted, version: int) -> Reservation:
        record = Reservation(
            reservation_id=f"rsv_{uuid4().hex}",
            idempotency_key=key,
            order=wanted.order,
            sku=wanted.sku,
            line=wanted.line,
            quantity=wanted.quantity,
            version=version,
            created_at=now(),
        )
        self._connection.execute(
            "UPDATE stock SET reserved = reserved + :quantity, version = :version WHERE sku = :sku", record
        )
        self._connection.execute(
            "INSERT INTO reservations VALUES (:reservation_id, :idempotency_key, :order, :sku, :line, :quantity,"
            " :version, :created_at)",
            record,
        )
        self._connection.execute(
            'INSERT INTO effects (at, kind, "key", "order", sku, line, quantity)'
            " VALUES (:created_at, 'reserved', :idempotency_key, :order, :sku, :line, :quantity)",
            record,
        )
        return record

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")  # locks first, so that what is read can't change before the commit
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite has ended it itself after some errors, a full disk for one
                self._connection.execute("ROLLBACK")
            raise


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
