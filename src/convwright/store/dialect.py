"""The differences between SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from convwright.store.database import Connection


@dataclass(frozen=True, slots=True)
class Dialect:
    """``now`` is the database's clock, in seconds since 1970. ``skip_locked`` ends a SELECT that locks its rows until
    the transaction ends and skips rows locked by others."""

    now: str
    skip_locked: str


# In SQLite only one transaction can write at a time, so no row lock is needed.
SQLITE = Dialect("(julianday('now') - 2440587.5) * 86400.0", "")
POSTGRESQL = Dialect("CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)", " FOR UPDATE SKIP LOCKED")


def dialect_of(connection: Connection) -> Dialect:
    """The dialect of the connected database; memory may have replaced a server."""
    return SQLITE if isinstance(connection, sqlite3.Connection) else POSTGRESQL
