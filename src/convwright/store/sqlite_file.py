"""Open the store's SQLite file, and handle files that cannot be used."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from convwright.errors import StoreError
from convwright.naming import printable
from convwright.settings import default_store
from convwright.store.database import NOT_KEPT
from convwright.store.schema import SCHEMA_VERSION, STEPS, newer
from convwright.writable import is_writable

if sys.platform != "win32":
    import fcntl

BUSY_TIMEOUT_S = 30.0
IRREGULAR = "no regular file, but a pipe or a device"
_ANOTHER = "name another path, by CONVWRIGHT_STORE, --store or `store`"

# The first bytes of every SQLite file.
_MAGIC = b"SQLite format 3\x00"
# While another process replaces a corrupt file, a file that is read without a lock may seem foreign, and opening may
# fail. Both are tried again after these pauses.
_PAUSES_S = (0.02, 0.1)


class Opened(NamedTuple):
    """A database with all its tables. ``note`` says why, if it is not the requested file. ``copied`` means that it is
    in memory and started with the file's contents."""

    connection: sqlite3.Connection
    in_memory: bool
    note: str | None = None
    copied: bool = False


def connect(path: Path | None) -> Opened:
    """Open the database at ``path``.

    Without a path, or with one that cannot be used, this is a database in memory, with the file's contents if they can
    be read. A corrupt file is renamed. A folder is an error. So is a file of a newer version, of another program or of
    another kind, which stays unchanged.
    """
    if path is None:
        return in_memory(None)
    if os.path.isdir(path):
        raise StoreError(folder_sentence(path))
    if is_irregular(path):
        raise StoreError(f"{path} is no store of findings: it is {IRREGULAR}; {_ANOTHER}")
    try:
        _make_folder(path)
        return _open_or_replace(path)
    except (OSError, sqlite3.DatabaseError) as error:
        fallback = in_place_of(path, error)
        cause = f"{path} cannot be used: {_cause(path, error)}"
        return fallback or in_memory(f"{NOT_KEPT}{cause}; {_ANOTHER}")


def _make_folder(path: Path) -> None:
    """Make the last folder of a path. A longer path that does not exist is more likely a typing error, except for the
    default place."""
    path.parent.mkdir(parents=path == default_store(), exist_ok=True)


def in_place_of(path: Path, error: Exception) -> Opened | None:
    """The contents of a file that cannot be written, in memory; None if it cannot be read or is damaged."""
    copy = _copy(path)
    if copy is None:
        return None
    note = f"new {NOT_KEPT}{path} cannot be written to: {_cause(path, error)}"
    return Opened(copy, in_memory=True, note=note, copied=True)


def _cause(path: Path, error: Exception) -> str:
    """What is wrong with a file's place, if that can be found out; else the error's text."""
    folder = path.parent
    if os.path.isfile(folder):
        return f"{folder} is not a folder"
    if isinstance(error, OSError):
        said = error.strerror or str(error)
        if not os.path.exists(folder.parent):
            said = f"{folder.parent} does not exist"
        return said if os.path.isdir(folder) else f"its folder {folder} cannot be made: {said}"
    if os.path.exists(path) and not is_writable(path):
        return "permission denied"
    return str(error) if is_writable(folder) else "permission denied in its folder"


def is_corrupt(error: sqlite3.Error) -> bool:
    """Whether the file is damaged, or not a database at all."""
    return _primary_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_of_another_kind(path: Path) -> bool:
    """Whether a file starts unlike any SQLite file, even a truncated or zeroed one."""
    with path.open("rb") as file:
        beginning = file.read(len(_MAGIC))
    return any(beginning) and not _MAGIC.startswith(beginning)


def folder_sentence(path: Path) -> str:
    """Why a folder is no store, and what to name instead."""
    return f"a store is a file, and {path} is a folder: name a file in it, such as {path / 'findings.sqlite'}"


def is_irregular(path: Path) -> bool:
    """Whether a path is neither a file nor a folder: opening a pipe may wait forever."""
    try:
        mode = os.stat(path).st_mode  # once: another process may rename the file at any moment
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def set_aside(path: Path) -> str | None:
    """Rename a corrupt file and its log; returns a note, or None if another process has done it already."""
    with _alone_in(path.parent):
        if not path.exists() or _is_sound(path):
            return None
        if is_of_another_kind(path):
            raise StoreError(f"{path} is no store of findings, but a file of another kind; {_ANOTHER}")
        target = path.with_name(f"{path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        for suffix in ("-wal", "-shm"):
            log = path.with_name(path.name + suffix)
            if log.exists():
                log.rename(target.with_name(target.name + suffix))
        path.rename(target)
    return f"{path} was corrupt and now lies at {target}"


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let only one process rename a corrupt file: a late one would rename the new file."""
    if sys.platform == "win32":
        yield  # Windows cannot rename a file that another process has open; a late process gets a store in memory
        return
    # Lock the folder, not the file: closing a handle to the file would drop SQLite's own locks on it.
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _open_or_replace(path: Path) -> Opened:
    for pause_s in (*_PAUSES_S, None):
        try:
            return Opened(open_file(path), in_memory=False)
        except (FileNotFoundError, sqlite3.DatabaseError) as error:
            if isinstance(error, sqlite3.Error) and is_corrupt(error):
                break
            if pause_s is None or not _may_pass(error):
                raise
            time.sleep(pause_s)
    note = set_aside(path)
    return Opened(open_file(path), in_memory=False, note=note)


def _may_pass(error: Exception) -> bool:
    """Whether another process may have renamed the file while it was opened."""
    return isinstance(error, FileNotFoundError) or (
        isinstance(error, sqlite3.Error) and _primary_code(error) == sqlite3.SQLITE_IOERR
    )


def in_memory(note: str | None) -> Opened:
    """A database that ends with the process."""
    connection = _empty()
    _migrate(connection)
    return Opened(connection, in_memory=True, note=note)


def _empty() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _copy(path: Path) -> sqlite3.Connection | None:
    """A file's contents in memory, if it can be read and is intact."""
    with ExitStack() as unless_whole:
        copy = unless_whole.enter_context(closing(_empty()))
        with suppress(OSError, sqlite3.DatabaseError), closing(_open_to_read(path)) as file:
            _check_ours(file, path)
            file.backup(copy)
            _migrate(copy)
            if _is_whole(copy):
                unless_whole.pop_all()
                return copy
    return None


def _open_to_read(path: Path, promise: str = "") -> sqlite3.Connection:
    """Open read-only. SQLite must be able to write beside a file with a log, unless ``promise`` says it is unused."""
    connection = _connected_to_read(path, promise)
    try:
        _tables(connection)
    except sqlite3.DatabaseError:
        connection.close()
        if promise:
            raise
        return _open_to_read(path, "&immutable=1")
    return connection


def _connected_to_read(path: Path, promise: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{promise}", uri=True, isolation_level=None)


def _is_whole(connection: sqlite3.Connection) -> bool:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    with closing(in_memory(None).connection) as fresh:
        return verdict == "ok" and _tables(fresh) <= _tables(connection)


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def open_file(path: Path) -> sqlite3.Connection:
    """The database in a file, with all its tables; an error if it cannot be written or is not ours."""
    _look(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        _check_ours(connection, path)  # the file may have appeared only now
        _switch_to_wal(connection)
        # Safe if a process is killed. A power cut can lose the newest findings, but never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _look(path: Path) -> None:
    """Refuse a foreign file before anything is written to it or beside it: opening a database may move its log into it.
    A file that cannot be read is left to the code that opens it."""
    for pause_s in _PAUSES_S:
        try:
            _look_once(path)
            return
        except StoreError:
            time.sleep(pause_s)
    _look_once(path)


def _look_once(path: Path) -> None:
    if not path.is_file() or not path.stat().st_size:
        return
    with suppress(sqlite3.DatabaseError), closing(_connected_to_read(path, "&immutable=1")) as connection:
        if _check_ours(connection, path):
            return
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:  # it may hold everything
        with suppress(sqlite3.DatabaseError), closing(_connected_to_read(path, "")) as connection:
            _check_ours(connection, path)


def _check_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """True for a store, False for an empty database; an error if it belongs to another program or a newer
    convwright."""
    connection.execute("BEGIN")  # all that is read is of one moment, while another process may make the tables
    try:
        return _is_ours(connection, path)
    finally:
        connection.execute("ROLLBACK")


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    names, version = _names(connection), _version(connection)
    if not names and not version and not connection.execute("PRAGMA application_id").fetchone()[0]:
        return False
    mark = _foreign_mark(connection, names, version)
    if mark is not None:
        raise StoreError(f"{path} is another program's database ({mark}); {_ANOTHER}")
    if version > SCHEMA_VERSION:
        raise StoreError(newer(str(path), version, _ANOTHER))
    return True


def _foreign_mark(connection: sqlite3.Connection, names: set[str], version: int) -> str | None:
    """What shows that a database is not ours, or None. Ours has a version as soon as it has a table."""
    if not names:
        return "it has no tables yet, but a version or an application's number"
    if "finding" not in names or version < 1:
        return f"its tables are {printable(', '.join(sorted(names)))}"
    for table, columns in _columns_of_version(min(version, SCHEMA_VERSION)).items():
        found = _columns(connection, table)
        as_ours = columns == found or (version > SCHEMA_VERSION and {*columns} <= {*found})
        if table in names and not as_ours:
            return f"its table {table} has the columns {printable(', '.join(found))}"
    return None


@lru_cache
def _columns_of_version(version: int) -> dict[str, tuple[str, ...]]:
    """The columns of each table, by name."""
    with closing(_empty()) as connection:
        for statement in (statement for step in STEPS[:version] for statement in step):
            connection.execute(statement)
        return {table: _columns(connection, table) for table in sorted(_tables(connection))}


def _columns(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    return tuple(name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,)))


def _names(connection: sqlite3.Connection) -> set[str]:
    """Tables and views."""
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, so that readers and one writer can work at once. Some file systems do not allow
    it."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself if two processes switch at the same moment.
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection) -> None:
    """Create missing tables in one transaction: a killed process leaves either the old version or the new."""
    connection.execute("BEGIN IMMEDIATE")
    version = _version(connection)
    for statement in (statement for step in STEPS[version:] for statement in step):
        connection.execute(statement)
    if version < SCHEMA_VERSION:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("DELETE FROM finding WHERE 0")  # lets a read-only file fail here, not at the first finding
    connection.execute("COMMIT")


def _is_sound(path: Path) -> bool:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)
    try:
        return bool(connection.execute("PRAGMA quick_check").fetchone()[0] == "ok")
    except sqlite3.DatabaseError as error:
        return not is_corrupt(error)
    finally:
        connection.close()


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
