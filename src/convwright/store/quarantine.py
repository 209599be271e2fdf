"""Candidates that took their process with them: written down before they run, found by whoever comes after."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from convwright.errors import StoreError
from convwright.process import Process, this_process
from convwright.store.database import Connection, Database

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


class Mark(NamedTuple):
    """What ``enter`` has written, for ``leave`` to take away; ``in_file`` where others can read it."""

    place: Place
    token: str
    in_file: bool


def enter(database: Database, place: Place, fingerprint: str) -> Mark:
    """Write that this process is about to run a candidate."""
    me, token = this_process(), secrets.token_hex(8)
    row = (*place, token, fingerprint, me.host, me.boot, me.pid, me.started, time.time())
    # What is tried once more, since a connection was lost, may have come to pass the first time.
    places = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO trying ({_COLUMNS}) VALUES ({places}) ON CONFLICT DO NOTHING", row)
    return Mark(place, token, database.open())


def leave(database: Database, mark: Mark) -> None:
    """Write that the candidate is done, well or badly. Where the file can no longer be written to, an empty file beside
    it says so: that takes no room on a full disk. Of a server's mark this process takes note, and ``tidy`` tries again.
    """
    values = (*mark.place, mark.token)
    with suppress(StoreError):
        database.execute(_DELETE, values)
        if database.open() or not mark.in_file:
            return
    try:
        database.execute_anew(_DELETE, values)
    except StoreError as error:
        _say_done(database.path, mark.token, error)


def entries(
    database: Database, problem: str | None = None, device: str | None = None, candidate: str | None = None
) -> list[Entry]:
    """What is quarantined, oldest first; None means any."""
    sql = (
        f"SELECT {_COLUMNS} FROM trying WHERE problem = coalesce(?, problem) AND device = coalesce(?, device) "
        "AND candidate = coalesce(?, candidate) ORDER BY since"
    )
    found = _left_behind(database.execute(sql, (problem, device, candidate)), time.time())
    return [entry for entry in found if not _is_done(database, entry)]


def tidy(database: Database) -> None:
    """Take away what could not be taken away when its candidate was done; the sign last."""
    with suppress(StoreError, OSError):
        for token in sorted(_done_here):
            delete = partial(_taken_away, token=token)
            if database.transaction(delete):
                _done_here.discard(token)
        found = _left_behind(database.execute(f"SELECT {_COLUMNS} FROM trying"), time.time())
        for entry in found:
            if _is_done(database, entry):
                database.execute(_DELETE, (*entry.place, entry.token))
                if database.open() and database.path is not None:
                    _sign(database.path, entry.token).unlink(missing_ok=True)


def _taken_away(connection: Connection, *, token: str) -> bool:
    return connection.execute("DELETE FROM trying WHERE token = ?", (token,)).rowcount > 0


def forget(database: Database, gone: Iterable[Entry]) -> int:
    """Take entries out of quarantine; how many candidates that were."""
    gone = list(gone)

    def delete(connection: Connection) -> None:
        rows = [(*entry.place, entry.token) for entry in gone]
        connection.executemany(_DELETE, rows)
        # A search that was done without them would say that nothing need be tried.
        subjects = sorted({entry.place[:2] for entry in gone})
        connection.executemany("DELETE FROM search WHERE problem = ? AND device = ?", subjects)

    database.transaction(delete)
    return len({entry.place for entry in gone})


def _sign(path: Path, token: str) -> Path:
    """The file beside a store that says of a mark which could not be taken away that its candidate is done."""
    return path.with_name(f"{path.name}-done-{token}")


def _say_done(path: Path | None, token: str, why: StoreError) -> None:
    if path is None:  # no place beside a server: other processes believe this mark as long as this one lives
        _done_here.add(token)
        return
    try:
        _sign(path, token).touch()
    except OSError:
        raise why from None


_done_here: set[str] = set()  # marks that could not be taken away from a server


def _is_done(database: Database, entry: Entry) -> bool:
    if database.path is None:
        return entry.token in _done_here
    return _sign(database.path, entry.token).exists()


def _left_behind(rows: Iterable[tuple[Any, ...]], now: float) -> list[Entry]:
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
