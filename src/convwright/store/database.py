"""What the store needs of a database. There are two: a file of SQLite, and one on a server of PostgreSQL.

Statements are written for both: values stand as ``?``, and a row takes another's place by ``ON CONFLICT``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

_Result = TypeVar("_Result")

# How each note begins that says why nothing is written to where it was to be.
NOT_KEPT = "findings are kept in memory only, since "


class Rows(Protocol):
    """What a statement answers; ``rowcount`` is how many rows it added, changed or removed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What runs statements inside of a transaction. Those of SQLite are such by themselves."""

    def execute(self, sql: str, values: tuple[Any, ...] = ..., /) -> Rows: ...

    def executemany(self, sql: str, rows: Iterable[tuple[Any, ...]], /) -> Rows: ...


class Database(Protocol):
    """Where a store keeps its rows. ``note`` says in words where that is not simply the place that was asked for."""

    @property
    def path(self) -> Path | None:
        """The file, where it is one."""
        ...

    @property
    def place(self) -> str | None:
        """The file or the URL without its password; None in memory."""
        ...

    @property
    def note(self) -> str | None: ...

    @property
    def is_shared(self) -> bool:
        """Whether other machines use it, too."""
        ...

    @property
    def reads_file(self) -> bool:
        """True where what is kept there is known, whether or not anything new is."""
        ...

    def open(self) -> bool:
        """Connect unless that is done; True where what is kept outlives the process."""
        ...

    def close(self) -> None:
        """Let go of it. A database that is used again is opened again."""
        ...

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, which is a transaction of its own."""
        ...

    def execute_anew(self, sql: str, values: tuple[Any, ...]) -> None:
        """Run one statement on a new connection, also where memory has taken the database's place."""
        ...

    def transaction(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run several statements, all or none of which count. ``work`` may be called twice."""
        ...

    def nbytes(self) -> int:
        """How large it is."""
        ...

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold the lock of this name, unless anybody else does: then it is False, and nobody waits."""
        ...
