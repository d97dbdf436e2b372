"""The books of the stock service: the shelves, the reservations, their releases, and a journal of what really happened.

A reservation or a release, its stock and its line in the journal commit in one transaction, or not at all. The
transactions are short and the file is local, so the service calls this store straight from its event loop: one at a
time, in turn.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar, cast
from uuid import uuid4

from settled.local.stock_records import (
    Effect,
    Refusal,
    Refused,
    Release,
    Reservation,
    Stock,
    Strict,
    WantedRelease,
    WantedReservation,
)

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
CREATE TABLE IF NOT EXISTS releases (
    release_id TEXT PRIMARY KEY,
    idempotency_key TEXT NOT NULL,
    reservation_id TEXT NOT NULL UNIQUE REFERENCES reservations,  -- unique: released once, whatever asks
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
    quantity INTEGER NOT NULL,
    reservation TEXT  -- of a release: the key of what is released
);
CREATE TRIGGER IF NOT EXISTS effects_never_change BEFORE UPDATE ON effects
    BEGIN SELECT RAISE(ABORT, 'effects are append-only'); END;
CREATE TRIGGER IF NOT EXISTS effects_never_go BEFORE DELETE ON effects
    BEGIN SELECT RAISE(ABORT, 'effects are append-only'); END;
"""

RESERVATIONS = """
SELECT *, (SELECT created_at FROM releases WHERE releases.reservation_id = reservations.reservation_id) AS released_at
FROM reservations WHERE (:order IS NULL OR "order" = :order) AND (:key IS NULL OR idempotency_key = :key)
ORDER BY rowid
"""
RELEASES = """
SELECT release_id, releases.idempotency_key, reservations.idempotency_key AS reservation, "order", sku, line, quantity,
    releases.version, releases.created_at
FROM releases JOIN reservations USING (reservation_id) WHERE releases.idempotency_key = ? ORDER BY releases.rowid
"""
EFFECTS = """
SELECT * FROM effects WHERE (:order IS NULL OR "order" = :order) AND (:key IS NULL OR "key" = :key) ORDER BY seq
"""

R = TypeVar("R", Reservation, Release)


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
            self._widen_an_older_journal()
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

    def reserve(self, key: str, wanted: WantedReservation, deadline: float | None = None) -> tuple[Reservation, bool]:
        """Reserve: the record, and whether it's an earlier one. `deadline` is the monotonic time to commit by."""
        with self._transaction():
            if self._dedupe and (earlier := self.reservations(key=key)):
                return _replayed(earlier[0], wanted), True
            stock = self.stock(wanted.sku)
            if stock["available"] < wanted.quantity:
                message = f"only {stock['available']} of {wanted.sku!r} left"
                raise Refused(Refusal.INSUFFICIENT_STOCK, message, available=stock["available"])
            record = self._write_reservation(key, wanted, stock["version"] + 1)
            _refuse_after(deadline)
            return record, False

    def release(self, key: str, wanted: WantedRelease, deadline: float | None = None) -> tuple[Release, bool]:
        """Release a reservation: the record, and whether it's an earlier one. `deadline` as for `reserve`."""
        with self._transaction():
            if self._dedupe and (earlier := self.releases(key)):
                return _replayed(earlier[0], wanted), True
            reservation = self._standing(wanted.reservation)
            record = self._write_release(key, reservation, self.stock(reservation["sku"])["version"] + 1)
            _refuse_after(deadline)
            return record, False

    def reservations(self, *, order: str | None = None, key: str | None = None) -> list[Reservation]:
        """The reservations of an order or a key, oldest first."""
        rows = self._connection.execute(RESERVATIONS, {"order": order, "key": key})
        return [cast(Reservation, dict(row)) for row in rows]

    def releases(self, key: str) -> list[Release]:
        """The releases under a key, oldest first."""
        return [cast(Release, dict(row)) for row in self._connection.execute(RELEASES, (key,))]

    def effects(self, *, order: str | None = None, key: str | None = None) -> list[Effect]:
        """The journal, or what it says of an order or a key."""
        rows = self._connection.execute(EFFECTS, {"order": order, "key": key})
        told = ({name: value for name, value in dict(row).items() if value is not None} for row in rows)
        return [cast(Effect, effect) for effect in told]

    def _standing(self, key: str) -> Reservation:
        """The reservation under a key, so long as it may be released."""
        found = self.reservations(key=key)
        if not found:
            raise Refused(Refusal.NO_RESERVATION, "there is no reservation under this key")
        if len(found) > 1:
            raise Refused(Refusal.SEVERAL_RESERVATIONS, f"{len(found)} reservations under this key")
        if found[0]["released_at"]:
            raise Refused(Refusal.ALREADY_RELEASED, f"it was released at {found[0]['released_at']}")
        return found[0]

    def _write_reservation(self, key: str, wanted: WantedReservation, version: int) -> Reservation:
        record = Reservation(
            reservation_id=f"rsv_{uuid4().hex}",
            idempotency_key=key,
            order=wanted.order,
            sku=wanted.sku,
            line=wanted.line,
            quantity=wanted.quantity,
            version=version,
            created_at=now(),
            released_at=None,
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

    def _write_release(self, key: str, reservation: Reservation, version: int) -> Release:
        record = Release(
            release_id=f"rls_{uuid4().hex}",
            idempotency_key=key,
            reservation=reservation["idempotency_key"],
            order=reservation["order"],
            sku=reservation["sku"],
            line=reservation["line"],
            quantity=reservation["quantity"],
            version=version,
            created_at=now(),
        )
        self._connection.execute(
            "UPDATE stock SET reserved = reserved - :quantity, version = :version WHERE sku = :sku", record
        )
        self._connection.execute(
            "INSERT INTO releases VALUES (:release_id, :idempotency_key, :reservation_id, :version, :created_at)",
            {**record, "reservation_id": reservation["reservation_id"]},
        )
        self._connection.execute(
            'INSERT INTO effects (at, kind, "key", "order", sku, line, quantity, reservation)'
            " VALUES (:created_at, 'released', :idempotency_key, :order, :sku, :line, :quantity, :reservation)",
            record,
        )
        return record

    def _widen_an_older_journal(self) -> None:
        """A file from before there were releases has a journal that can't name what was released."""
        if "reservation" not in {row["name"] for row in self._connection.execute("PRAGMA table_info(effects)")}:
            self._connection.execute("ALTER TABLE effects ADD COLUMN reservation TEXT")

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


def _replayed(earlier: R, wanted: Strict) -> R:
    """The earlier record under a key, if it is of the same request."""
    if not wanted.model_dump().items() <= earlier.items():
        raise Refused(Refusal.KEY_REUSED, "this key stands for another request")
    return earlier


def _refuse_after(deadline: float | None) -> None:
    """Asked last, after any wait for the file's lock: from here on there is only the commit itself."""
    if deadline is not None and time.monotonic() > deadline:
        raise Refused(Refusal.TOO_LATE, "received longer ago than the processing limit")


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
