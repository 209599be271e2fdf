"""Candidates that took their process with them: written down before they run, found by whoever comes after."""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from convwright.tuning.keeping.database import Database
from convwright.tuning.process import Process, this_process

# What cannot be asked whether it lives, such as a process on another machine, is given this long: no trial takes it.
UNHEARD_S = 3600.0

_COLUMNS = "problem, device, candidate, token, fingerprint, host, boot, pid, started, since"
_DELETE = "DELETE FROM trying WHERE problem = ? AND device = ? AND candidate = ? AND token = ?"


class Place(NamedTuple):
    """What is quarantined: a candidate, for one problem on one device."""

    problem: str
    device: str
    candidate: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Holds for the same ``fingerprint`` only. ``since`` is in seconds since 1970; ``why`` is in words."""

    fingerprint: str
    since: float
    why: str


class Entry(NamedTuple):
    """One row: who tries or tried what."""

    place: Place
    token: str
    quarantined: Quarantined


def enter(database: Database, place: Place, fingerprint: str) -> str:
    """Write that this process is about to run a candidate. The token is for ``leave``."""
    me, token = this_process(), secrets.token_hex(8)
    row = (*place, token, fingerprint, me.host, me.boot, me.pid, me.started, time.time())
    database.execute(f"INSERT INTO trying ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    return token


def leave(database: Database, place: Place, token: str) -> None:
    """Write that the candidate is done, well or badly."""
    database.execute(_DELETE, (*place, token))


def entries(
    database: Database, problem: str | None = None, device: str | None = None, candidate: str | None = None
) -> list[Entry]:
    """What is quarantined, oldest first; None means any."""
    sql = (
        f"SELECT {_COLUMNS} FROM trying WHERE problem = coalesce(?, problem) AND device = coalesce(?, device) "
        "AND candidate = coalesce(?, candidate) ORDER BY since"
    )
    return _crashed(database.execute(sql, (problem, device, candidate)), time.time())


def forget(database: Database, gone: Iterable[Entry]) -> int:
    """Take entries out of quarantine; how many candidates that were."""
    gone = list(gone)

    def delete(connection: sqlite3.Connection) -> None:
        rows = [(*entry.place, entry.token) for entry in gone]
        connection.executemany(_DELETE, rows)
        # A search that was done without them would say that nothing need be tried.
        subjects = sorted({entry.place[:2] for entry in gone})
        connection.executemany("DELETE FROM search WHERE problem = ? AND device = ?", subjects)

    database.transaction(delete)
    return len({entry.place for entry in gone})


def _crashed(rows: Iterable[tuple[Any, ...]], now: float) -> list[Entry]:
    found = []
    for problem, device, candidate, token, fingerprint, host, boot, pid, started, since in rows:
        why = _why(Process(host, boot, pid, started), now - since)
        if why is not None:
            found.append(Entry(Place(problem, device, candidate), token, Quarantined(fingerprint, since, why)))
    return found


def _why(writer: Process, age_s: float) -> str | None:
    """Why a candidate that ``writer`` began to try is quarantined, or None where it may still be at it."""
    alive = writer.is_alive()
    if alive is False:
        return f"process {writer.pid} on {writer.host} ended in the middle of this candidate's first run"
    if alive is None and age_s > UNHEARD_S:
        hours = f"{age_s / 3600:.0f} h"
        return f"process {writer.pid} on {writer.host} began this candidate's first run {hours} ago and never finished"
    return None
