"""The few words in which SQLite and PostgreSQL differ."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from convwright.store.database import Connection


@dataclass(frozen=True, slots=True)
class Dialect:
    """``now`` is the database's clock, in seconds since 1970; ``skip_locked`` ends a SELECT whose rows are then held
    until the transaction ends, without those that others hold."""

    now: str
    skip_locked: str


# A transaction of SQLite that writes is the only one, so no row need be held.
SQLITE = Dialect("(julianday('now') - 2440587.5) * 86400.0", "")
POSTGRESQL = Dialect("CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)", " FOR UPDATE SKIP LOCKED")


def dialect_of(connection: Connection) -> Dialect:
    """That of what is connected: memory may have taken a server's place."""
    return SQLITE if isinstance(connection, sqlite3.Connection) else POSTGRESQL
