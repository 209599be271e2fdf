"""A store's database on a server: used by one thread at a time, let go of before a fork, and what serves without it."""

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
    """One database of PostgreSQL. With ``tell``, which hears the ``note``, nothing fails: where the server cannot be
    used, a database in memory takes its place for good."""

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
        """Connect, and make the tables where there are none; True where the server is used."""
        self._run(lambda connection: None, whole=False)
        return self._instead is None

    @property
    def reads_file(self) -> bool:
        """True where what the server holds is known."""
        return self.open()

    def close(self) -> None:
        """Let go of the connection. A database that is used again connects again."""
        with _servers.turn:
            self.let_go()

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, which is a transaction of its own."""
        return self._run(lambda connection: connection.execute(sql, values).fetchall(), whole=False)

    def execute_anew(self, sql: str, values: tuple[Any, ...]) -> None:
        """Run one statement on the server, even if memory has taken its place."""
        with _servers.turn:
            self.let_go()
            self._connected().run(lambda connection: connection.execute(sql, values), whole=False)

    def transaction(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run several statements, all or none of which count."""
        return self._run(work, whole=True)

    def nbytes(self) -> int:
        """The size of the tables; 0 where the server is not used."""
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
        """Disconnect. For the moment before a fork."""
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
            self._tell(note)  # outside of the lock, since whoever hears of it may do anything
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
