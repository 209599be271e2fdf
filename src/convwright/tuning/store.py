"""Findings, kept across processes. Findings and not choices: a choice is made at reading, under the caller's policy."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from convwright.core.finding import Measurement
from convwright.errors import StoreError
from convwright.tuning.schema import Opened, connect, is_corrupt, set_aside


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store knows of one candidate. ``created`` is in seconds since 1970."""

    fingerprint: str
    measurement: Measurement | None
    failure: str | None
    created: float


class Store:
    """Findings by problem, device and candidate, in one SQLite file that many processes share.

    ``note`` says in words where the store is not simply the file that was asked for.

    >>> with Store.open(None) as store:
    ...     store.record("ic8ih9oc8kh3", "H200", "cudnn/gemm", "cudnn 9.19", None, "ran out of memory")
    ...     store.findings("ic8ih9oc8kh3", "H200")["cudnn/gemm"].failure
    'ran out of memory'
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.note: str | None = None
        self._opened: Opened | None = None

    @classmethod
    def open(cls, path: Path | None) -> Self:
        """The store at ``path``; its folder is made. None, or a place that cannot be written to, means in memory."""
        store = cls(path)
        with _one_at_a_time:
            store._database()
        return store

    def record(
        self,
        problem_key: str,
        device_key: str,
        candidate_id: str,
        fingerprint: str,
        measurement: Measurement | None,
        failure: str | None,
    ) -> None:
        """Keep what was found out about one candidate, in place of what was known of it before."""
        body = None if measurement is None else json.dumps(measurement.to_json())
        self._execute(
            "INSERT OR REPLACE INTO finding VALUES (?, ?, ?, ?, ?, ?, ?)",
            (problem_key, device_key, candidate_id, fingerprint, body, failure, time.time()),
        )

    def findings(self, problem_key: str, device_key: str) -> dict[str, Stored]:
        """All that is known of a problem on a device, by candidate id, whether its fingerprint still counts or not."""
        rows = self._execute(
            "SELECT candidate, fingerprint, measurement, failure, created FROM finding "
            "WHERE problem = ? AND device = ?",
            (problem_key, device_key),
        )
        return {candidate: _stored(*columns) for candidate, *columns in rows}

    def record_search(self, problem_key: str, device_key: str, scope: str, candidate_ids: Iterable[str]) -> None:
        """Keep that, within ``scope``, these candidates were tried to the end, so that nobody need search again."""
        self._execute(
            "INSERT OR REPLACE INTO search VALUES (?, ?, ?, ?, ?)",
            (problem_key, device_key, scope, json.dumps(list(candidate_ids)), time.time()),
        )

    def search(self, problem_key: str, device_key: str, scope: str) -> tuple[str, ...] | None:
        """What a finished search within ``scope`` has tried, in its order; None where there was no such search."""
        rows = self._execute(
            "SELECT candidates FROM search WHERE problem = ? AND device = ? AND scope = ?",
            (problem_key, device_key, scope),
        )
        return tuple(json.loads(rows[0][0])) if rows else None

    def clear(self) -> None:
        """Forget everything."""
        self._execute("DELETE FROM search")
        self._execute("DELETE FROM finding")

    def close(self) -> None:
        """Let go of the file. A store that is used again opens it again."""
        with _one_at_a_time:
            self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _execute(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, which is a transaction of its own."""
        with _one_at_a_time:
            try:
                return self._attempt(sql, values)
            except sqlite3.DatabaseError as error:
                raise StoreError(f"the store of findings at {self.path} failed: {error}") from error

    def _attempt(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._database().execute(sql, values).fetchall()
        except sqlite3.DatabaseError as error:
            if not self._healed(error):
                raise
        return self._database().execute(sql, values).fetchall()

    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = connect(self.path)
            self.note = self._opened.note or self.note
            _stores_in_use.add(self)
        return self._opened.connection

    def _healed(self, error: sqlite3.DatabaseError) -> bool:
        """True where the file turned out to be corrupt and has made way for a new one."""
        if self.path is None or not is_corrupt(error):
            return False
        self._disconnect()
        with suppress(OSError):
            self.note = set_aside(self.path) or self.note
        return True

    def _disconnect(self) -> None:
        if self._opened is not None:
            self._opened.connection.close()
            self._opened = None

    def _let_go_of_file(self) -> None:
        if self._opened is not None and not self._opened.in_memory:
            self._disconnect()


def _stored(fingerprint: str, measurement: str | None, failure: str | None, created: float) -> Stored:
    body = None if measurement is None else Measurement.from_json(json.loads(measurement))
    return Stored(fingerprint, body, failure, created)


# SQLite forbids to carry a connection over a fork, even to close it: parent and child would believe in each other's
# locks. So every file is let go of before a fork, while no statement runs, and opened again when next needed.
_one_at_a_time = threading.Lock()
_stores_in_use: weakref.WeakSet[Store] = weakref.WeakSet()


def _before_fork() -> None:
    _one_at_a_time.acquire()
    for store in list(_stores_in_use):
        store._let_go_of_file()


os.register_at_fork(before=_before_fork, after_in_parent=_one_at_a_time.release, after_in_child=_one_at_a_time.release)
