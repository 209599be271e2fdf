"""The store's SQLite file: shared by threads, closed before a fork, replaced if corrupt."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from convwright.errors import StoreError
from convwright.store import file_lock
from convwright.store.before_fork import ForkGuard
from convwright.store.database import NOT_KEPT, Connection
from convwright.store.sqlite_file import Opened, connect, in_memory, in_place_of, is_corrupt, open_file, set_aside

_Result = TypeVar("_Result")
_files = ForkGuard()


class FileDatabase:
    """One SQLite database. ``note`` says why, if it is not the requested file.

    With ``tell``, which receives each note, nothing fails: an unusable file is replaced by a database in memory.
    """

    is_shared = False

    def __init__(self, path: Path | None, tell: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.note: str | None = None
        self._tell, self._told = tell, ""
        self._opened: Opened | None = None

    @property
    def place(self) -> str | None:
        """The file."""
        return None if self.path is None else str(self.path)

    def open(self) -> bool:
        """Open the file if necessary; True if rows are stored in a file."""
        with _files.turn:
            self._connection()
            in_file = self._opened is not None and not self._opened.in_memory
        self._tell_news()
        return in_file

    @property
    def reads_file(self) -> bool:
        """Whether the file's contents can be read, even if nothing new can be stored."""
        return self.open() or (self._opened is not None and self._opened.copied)

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with _files.turn:
            self._disconnect()

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction."""
        return self._run(lambda connection: connection.execute(sql, values).fetchall())

    def execute_anew(self, sql: str, values: tuple[Any, ...]) -> None:
        """Run one statement on a new connection to the file, even if memory has replaced it. If a full disk left no
        room for the log, SQLite may have cleared it when the last connection closed."""
        if self.path is None:
            return
        with _files.turn:
            self.let_go()
            try:
                with closing(open_file(self.path)) as connection:
                    connection.execute(sql, values)
            except sqlite3.DatabaseError as error:
                raise StoreError(f"the store of findings at {self.path} failed: {error}") from error

    def transaction(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run several statements, all or none."""

        def whole(connection: sqlite3.Connection) -> _Result:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                return work(connection)

        return self._run(whole)

    def nbytes(self) -> int:
        """The size of the file and of its log; 0 in memory."""
        if self.path is None or not self.reads_file:
            return 0
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold a lock, by a lock file beside the database."""
        return file_lock.held(self.path, name)

    def _run(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        with _files.turn:
            result = self._done(work)
        self._tell_news()
        return result

    def _done(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            return self._attempt(work)
        except sqlite3.DatabaseError as error:
            failed = StoreError(f"the store of findings at {self.path} failed: {error}")
            if self._tell is None or self._opened is None or self._opened.in_memory:
                raise failed from error
            instead = self._copied(error) or self._without(failed)  # SQLite can still read while the file is open
            self._disconnect()
            self._opened = instead
        return work(self._opened.connection)

    def _tell_news(self) -> None:
        """Report new notes; outside of the lock, since the receiver may do anything."""
        if self._tell is not None and self.note is not None and self.note != self._told:
            self._told = self.note
            self._tell(self.note)

    def _attempt(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        try:
            return work(self._connection())
        except sqlite3.DatabaseError as error:
            if not self._healed(error):
                raise
        return work(self._connection())

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            try:
                self._opened = connect(self.path)
            except StoreError as error:
                if self._tell is None:
                    raise
                self._opened = self._without(error)
            self.note = self._opened.note or self.note
            _files.add(self)
        return self._opened.connection

    def _without(self, error: StoreError) -> Opened:
        """A database in memory instead of the file."""
        self.note = f"{NOT_KEPT}{error}"
        return in_memory(self.note)

    def _copied(self, error: sqlite3.DatabaseError) -> Opened | None:
        """A database in memory with the file's contents, if these can be read."""
        copy = None
        if self.path is not None:
            with suppress(StoreError):
                copy = in_place_of(self.path, error)
        if copy is not None:
            self.note = copy.note
        return copy

    def _healed(self, error: sqlite3.DatabaseError) -> bool:
        """Whether the file was corrupt and was replaced by a new one; a foreign file raises an error later."""
        if self.path is None or not is_corrupt(error):
            return False
        self._disconnect()
        with suppress(OSError, StoreError):
            self.note = set_aside(self.path) or self.note
        return True

    def _disconnect(self) -> None:
        if self._opened is not None:
            self._opened.connection.close()
            self._opened = None

    def let_go(self) -> None:
        """Disconnect from a file before a fork. A database in memory stays."""
        if self._opened is not None and not self._opened.in_memory:
            self._disconnect()
