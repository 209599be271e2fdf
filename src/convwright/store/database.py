"""The interface of the store's database, with two implementations: an SQLite file, and a PostgreSQL server.

Statements work on both. They mark each value with ``?``, and replace a row by ``ON CONFLICT``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")

# The beginning of each note that says why nothing is stored in the requested place.
NOT_KEPT = "findings are kept in memory only, since "


class Rows(Protocol):
    """The result of a statement; ``rowcount`` counts rows added, changed or removed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Runs statements inside a transaction. A SQLite connection has this interface by itself."""

    def execute(self, sql: str, values: tuple[Any, ...] = ..., /) -> Rows: ...

    def executemany(self, sql: str, rows: Iterable[tuple[Any, ...]], /) -> Rows: ...


class Database(Protocol):
    """Where a store keeps its rows. ``note`` says why, if that is not the requested place."""

    @property
    def path(self) -> Path | None:
        """The file, if it is one."""
        ...

    @property
    def place(self) -> str | None:
        """The file, or the URL without its password; None in memory."""
        ...

    @property
    def note(self) -> str | None: ...

    @property
    def is_shared(self) -> bool:
        """Whether other machines use it, too."""
        ...

    @property
    def reads_file(self) -> bool:
        """Whether the existing contents can be read, even if nothing new can be stored."""
        ...

    def open(self) -> bool:
        """Connect if necessary; True if stored rows outlive the process."""
        ...

    def close(self) -> None:
        """Disconnect. The next use connects again."""
        ...

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction."""
        ...

    def execute_anew(self, sql: str, values: tuple[Any, ...]) -> None:
        """Run one statement on a new connection to the requested database, even if memory has replaced it."""
        ...

    def transaction(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run several statements, all or none. ``work`` may be called twice."""
        ...

    def nbytes(self) -> int:
        """Its size in bytes."""
        ...

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold the lock of this name; False at once if anybody else holds it."""
        ...
