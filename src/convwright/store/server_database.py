"""The store's database on a server: used by one thread at a time, closed before a fork, replaced by memory if
needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from convwright.errors import StoreError, first_line
from convwright.store.before_fork import ForkGuard
from convwright.store.database import NOT_KEPT, Connection
from convwright.store.file_database import FileDatabase
from convwright.store_url import StoreUrl

if TYPE_CHECKING:
    from convwright.store.postgresql import Server

_Result = TypeVar("_Result")
_servers = ForkGuard()


class ServerDatabase:
    """One PostgreSQL database. With ``tell``, which receives the ``note``, nothing fails: a server that cannot be used
    is replaced by a database in memory for good."""

    path: Path | None = None
    is_shared = True

    def __init__(self, url: StoreUrl, tell: Callable[[str], None] | None = None) -> None:
        self._url, self._tell = url, tell
        self._server: Server | None = None
        self._instead: FileDatabase | None = None
        self.note: str | None = None

    @property
    def place(self) -> str | None:
        """The URL without its password."""
        return str(self._url)

    def open(self) -> bool:
        """Connect, and create missing tables; True if the server is used."""
        self._run(lambda connection: None, whole=False)
        return self._instead is None

    @property
    def reads_file(self) -> bool:
        """Whether the server's contents can be read."""
        return self.open()

    def close(self) -> None:
        """Disconnect. The next use connects again."""
        with _servers.turn:
            self.let_go()

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction."""
        return self._run(lambda connection: connection.execute(sql, values).fetchall(), whole=False)

    def execute_anew(self, sql: str, values: tuple[Any, ...]) -> None:
        """Run one statement on the server, even if memory has replaced it."""
        with _servers.turn:
            self.let_go()
            self._connected().run(lambda connection: connection.execute(sql, values), whole=False)

    def transaction(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run several statements, all or none."""
        return self._run(work, whole=True)

    def nbytes(self) -> int:
        """The size of the tables; 0 if the server is not used."""
        if not self.open():
            return 0
        with _servers.turn:
            return self._connected().nbytes()

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold an advisory lock on the server."""
        if self._instead is not None:
            return self._instead.lock(name)
        with _servers.turn:
            return self._connected().lock(name)

    def let_go(self) -> None:
        """Disconnect before a fork."""
        if self._server is not None:
            self._server.disconnect()

    def _run(self, work: Callable[[Connection], _Result], *, whole: bool) -> _Result:
        if self._instead is None:
            try:
                with _servers.turn:
                    return self._connected().run(work, whole=whole)
            except StoreError as error:
                if self._tell is None:
                    raise
                self._instead, note = FileDatabase(None), f"{NOT_KEPT}{error}"
            self.note = note
            self._tell(note)  # outside of the lock, since the receiver may do anything
        return self._instead.transaction(work)

    def _connected(self) -> Server:
        if self._server is None:
            if self._url.objection is not None:
                raise StoreError(f"the store at {self._url} cannot be used: {self._url.objection}")
            try:
                from convwright.store.postgresql import Server
            except ImportError as error:
                raise StoreError(
                    f"a store on a server needs SQLAlchemy and psycopg ({first_line(error)}): "
                    "pip install 'convwright[shared]'"
                ) from error
            self._server = Server(self._url)
            _servers.add(self)
        return self._server
