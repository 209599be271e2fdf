"""What lets go of its connections before a process forks, while nobody uses one."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class LetsGo(Protocol):
    """A database with a connection that must not be carried over a fork."""

    def let_go(self) -> None:
        """Disconnect, until the database is used again. Nothing runs on the connection meanwhile."""
        ...


class ForkGuard:
    """A lock under which databases of one kind are used, and which a fork waits for.

    SQLite forbids to carry a connection over a fork, even to close it: parent and child would believe in each other's
    locks. On one socket to a server parent and child would read each other's answers.
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
