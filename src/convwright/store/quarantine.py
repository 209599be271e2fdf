"""Quarantine of candidates that crashed their process: recorded before they run, found by later processes."""

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

# A process that cannot be checked, such as one on another machine, counts as alive for this long: no trial takes
# longer.
UNHEARD_S = 3600.0

_COLUMNS = "problem, device, candidate, token, fingerprint, host, boot, pid, started, since"
_DELETE = "DELETE FROM trying WHERE problem = ? AND device = ? AND candidate = ? AND token = ?"


class Place(NamedTuple):
    """The subject of a quarantine: a candidate, for one problem on one device."""

    problem: str
    device: str
    candidate: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Valid only for the same ``fingerprint``. ``since`` is in seconds since 1970; ``why`` is a sentence."""

    fingerprint: str
    since: float
    why: str


class Entry(NamedTuple):
    """One row: the process that tries or tried a candidate."""

    place: Place
    token: str
    quarantined: Quarantined


class Mark(NamedTuple):
    """A mark written by ``enter`` for ``leave`` to remove; ``in_file`` if others can read it."""

    place: Place
    token: str
    in_file: bool


def enter(database: Database, place: Place, fingerprint: str) -> Mark:
    """Record that this process is about to run a candidate."""
    me, token = this_process(), secrets.token_hex(8)
    row = (*place, token, fingerprint, me.host, me.boot, me.pid, me.started, time.time())
    # After a lost connection this may run twice.
    places = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO trying ({_COLUMNS}) VALUES ({places}) ON CONFLICT DO NOTHING", row)
    return Mark(place, token, database.open())


def leave(database: Database, mark: Mark) -> None:
    """Record that the candidate has ended, successfully or not. If the file can no longer be written, an empty file
    beside it says so, which needs no room on a full disk. For a server this process remembers it, and ``tidy`` retries.
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
    """Quarantined candidates, oldest first; None means any."""
    sql = (
        f"SELECT {_COLUMNS} FROM trying WHERE problem = coalesce(?, problem) AND device = coalesce(?, device) "
        "AND candidate = coalesce(?, candidate) ORDER BY since"
    )
    found = _left_behind(database.execute(sql, (problem, device, candidate)), time.time())
    return [entry for entry in found if not _is_done(database, entry)]


def tidy(database: Database) -> None:
    """Remove marks that could not be removed before; the empty file last."""
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
    """Release entries from quarantine; returns the number of candidates."""
    gone = list(gone)

    def delete(connection: Connection) -> None:
        rows = [(*entry.place, entry.token) for entry in gone]
        connection.executemany(_DELETE, rows)
        # A search without them would claim that nothing is left to try.
        subjects = sorted({entry.place[:2] for entry in gone})
        connection.executemany("DELETE FROM search WHERE problem = ? AND device = ?", subjects)

    database.transaction(delete)
    return len({entry.place for entry in gone})


def _sign(path: Path, token: str) -> Path:
    """The empty file beside a store that says that the candidate of a remaining mark has ended."""
    return path.with_name(f"{path.name}-done-{token}")


def _say_done(path: Path | None, token: str, why: StoreError) -> None:
    if path is None:  # beside a server there is no file: others trust this mark while this process lives
        _done_here.add(token)
        return
    try:
        _sign(path, token).touch()
    except OSError:
        raise why from None


_done_here: set[str] = set()  # marks that could not be removed from a server


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
    """Why a candidate tried by ``writer`` is quarantined; None if the process may still be running it."""
    alive = writer.is_alive()
    if alive is False:
        return f"process {writer.pid} on {writer.host} ended in the middle of this candidate's first run"
    if alive is None and age_s > UNHEARD_S:
        hours = f"{age_s / 3600:.0f} h"
        return f"process {writer.pid} on {writer.host} began this candidate's first run {hours} ago and never finished"
    return None
