"""Close database connections before a process forks, while nobody uses one."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class LetsGo(Protocol):
    """A database with a connection that must not be carried over a fork."""

    def let_go(self) -> None:
        """Disconnect until the next use. Nothing runs on the connection meanwhile."""
        ...


class ForkGuard:
    """A lock held while databases of one kind are used; a fork waits for it.

    SQLite forbids carrying a connection over a fork, even to close it: parent and child would rely on each other's
    locks. On one socket to a server, parent and child would read each other's answers.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._in_use: weakref.WeakSet[LetsGo] = weakref.WeakSet()
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self.turn.release, after_in_child=self.turn.release
            )

    def add(self, database: LetsGo) -> None:
        self._in_use.add(database)

    def _before_fork(self) -> None:
        self.turn.acquire()
        for database in list(self._in_use):
            database.let_go()
