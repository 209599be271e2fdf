"""A PostgreSQL database, through SQLAlchemy and psycopg, which are imported with this module."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

import psycopg
import sqlalchemy
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from convwright.errors import StoreError
from convwright.naming import printable
from convwright.store.schema import SCHEMA_VERSION, STEPS, TABLES, newer
from convwright.store_url import StoreUrl

_Result = TypeVar("_Result")

# Defaults for the URL: a server whose machine is gone is given up after a minute, instead of the system's quarter of an
# hour.
_PATIENCE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# An interrupted statement is repeated once after this pause: a restarted server needs a moment.
_PAUSE_S = 0.25
_ANOTHER = "name another database, by CONVWRIGHT_STORE, --store or `store`"
_MOST_NAMES = 5

# Tables and views in the schema where unqualified names are found, without those of extensions.
_NAMES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    AND NOT EXISTS (SELECT 1 FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e') ORDER BY 1"""
_VERSION_TABLE = "convwright_store"


@dataclass(frozen=True, slots=True)
class Answer:
    """All rows of a statement."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    rowcount: int = 0

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.rows[0] if self.rows else None

    def fetchall(self) -> list[Any]:
        return list(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)


class ServerConnection:
    """Runs statements written for SQLite."""

    def __init__(self, connection: sqlalchemy.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, values: tuple[Any, ...] = (), /) -> Answer:
        result = self._connection.exec_driver_sql(_translated(sql), tuple(map(_kept, values)))
        rows = [tuple(row) for row in result] if result.returns_rows else []
        return Answer(rows, result.rowcount)

    def executemany(self, sql: str, rows: Iterable[tuple[Any, ...]], /) -> Answer:
        values = [tuple(map(_kept, row)) for row in rows]
        return Answer([], self._connection.exec_driver_sql(_translated(sql), values).rowcount) if values else Answer()


class Server:
    """One database on a server, with one connection at a time. Missing tables are created."""

    def __init__(self, url: StoreUrl) -> None:
        self._url = url
        self._has_tables = False
        self._engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=self._connect, pool_size=1, max_overflow=0, pool_pre_ping=True,
            use_native_hstore=False,
        )  # fmt: skip

    def run(self, work: Callable[[ServerConnection], _Result], *, whole: bool) -> _Result:
        """Call ``work`` with a connection: as a ``whole`` in one transaction, or each statement by itself. It is
        repeated once if interrupted."""
        try:
            return self._attempt(work, whole)
        except (OperationalError, InterfaceError):
            time.sleep(_PAUSE_S)
        except DBAPIError as error:
            raise self._failed(error) from error
        try:
            return self._attempt(work, whole)
        except DBAPIError as error:
            raise self._failed(error) from error

    def disconnect(self) -> None:
        """Disconnect until the next use."""
        self._engine.dispose()

    def nbytes(self) -> int:
        """The size of the tables with their indexes."""
        names = ", ".join(f"'{table}'" for table in TABLES)
        sql = (
            "SELECT CAST(coalesce(sum(pg_total_relation_size(c.oid)), 0) AS BIGINT) FROM pg_class c "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND relname IN ({names})"
        )
        return int(self.run(lambda connection: connection.execute(sql).rows[0][0], whole=False))

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        """Hold an advisory lock on a separate connection, which ends with it."""
        try:
            connection = self._connect(autocommit=True)
        except psycopg.Error as error:
            raise self._failed(error) from error
        try:
            yield self._taken(connection, name)
        finally:
            connection.close()

    def _taken(self, connection: psycopg.Connection[tuple[Any, ...]], name: str) -> bool:
        try:
            row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_number(name),)).fetchone()
        except psycopg.Error as error:
            raise self._failed(error) from error
        return row is not None and bool(row[0])

    def _connect(self, *, autocommit: bool = False) -> psycopg.Connection[tuple[Any, ...]]:
        # psycopg parses the URL itself, so it knows queries such as ?sslmode=require.
        given = {name: value for name, value in _PATIENCE.items() if f"{name}=" not in self._url.secret}
        return psycopg.connect(self._url.secret, autocommit=autocommit, fallback_application_name="convwright", **given)

    def _attempt(self, work: Callable[[ServerConnection], _Result], whole: bool) -> _Result:
        if not self._has_tables:
            with self._engine.begin() as connection:
                self._make_tables(ServerConnection(connection))
            self._has_tables = True
        if whole:
            with self._engine.begin() as connection:
                return work(ServerConnection(connection))
        with self._engine.connect() as connection:
            return work(ServerConnection(connection.execution_options(isolation_level="AUTOCOMMIT")))

    def _make_tables(self, connection: ServerConnection) -> None:
        """Create all tables in one transaction. A process that comes at the same moment waits, and finds them."""
        if self._version(connection) == SCHEMA_VERSION:
            return
        connection.execute("SELECT pg_advisory_xact_lock(?)", (_number("schema"),))
        version = self._version(connection)
        for statement in (statement for step in STEPS[version:] for statement in step):
            connection.execute(statement)
        if version < SCHEMA_VERSION:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {_VERSION_TABLE} (version INTEGER NOT NULL)")
            connection.execute(f"DELETE FROM {_VERSION_TABLE}")
            connection.execute(f"INSERT INTO {_VERSION_TABLE} VALUES (?)", (SCHEMA_VERSION,))

    def _version(self, connection: ServerConnection) -> int:
        """The version of the tables; 0 if there are none. An error if they are another program's, or newer."""
        names = [str(name) for (name,) in connection.execute(_NAMES)]
        if not names:
            return 0
        if _VERSION_TABLE not in names:
            shown = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
            raise StoreError(
                f"{self._url} is another program's database (its tables are {printable(shown)}); {_ANOTHER}"
            )
        version = int(connection.execute(f"SELECT version FROM {_VERSION_TABLE}").rows[0][0])
        if version > SCHEMA_VERSION:
            raise StoreError(newer(str(self._url), version, _ANOTHER))
        return version

    def _failed(self, error: Exception) -> StoreError:
        """The error as one sentence, whatever the libraries say."""
        said = getattr(error, "orig", None) or error
        words = " ".join(str(said).split()) or type(said).__name__
        return StoreError(f"the store of findings at {self._url} failed: {printable(self._url.hidden_in(words))}")


_WORDS = {"%": "%%", "?": "%s", "REAL": "DOUBLE PRECISION", "INTEGER": "BIGINT", "WITHOUT ROWID": ""}


@lru_cache
def _translated(sql: str) -> str:
    """Replace placeholders by psycopg's, and types by PostgreSQL's, whose REAL has only 32 bits. No statement contains
    such words in a text of its own."""
    return re.sub(r"[%?]|\b(REAL|INTEGER|WITHOUT ROWID)\b", lambda word: _WORDS[word[0]], sql)


def _kept(value: Any) -> Any:
    """The value without NULs, which PostgreSQL's texts cannot hold."""
    return value.replace("\0", "\\x00") if isinstance(value, str) else value


def _number(name: str) -> int:
    """The number of an advisory lock of this name; other programs' locks have other numbers."""
    return int.from_bytes(sha256(f"convwright {name}".encode()).digest()[:8], signed=True)
