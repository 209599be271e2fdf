"""The store of findings. It keeps findings, not choices: a choice is made at reading, under the caller's policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO, TypeVar

from convwright import strict_json
from convwright.core.finding import Measurement
from convwright.core.observation import Observation
from convwright.errors import BadInput, StoreError
from convwright.naming import check_not_below_0
from convwright.process import this_process
from convwright.settings import store_place
from convwright.store import observations, quarantine, upkeep
from convwright.store.database import Connection, Database
from convwright.store.file_database import FileDatabase
from convwright.store.measurement_text import measurement_text
from convwright.store.quarantine import Place, Quarantined
from convwright.store.schema import PUT_FACT, PUT_FINDING, PUT_PLAN, PUT_SEARCH, PUT_USED, SCHEMA_VERSION, TABLES
from convwright.store.server_database import ServerDatabase
from convwright.store.stored import Stored, is_readable, stored_of
from convwright.store.streams import reading, writing
from convwright.store.transfer import from_lines, to_lines
from convwright.store.upkeep import KnownProblem, Merged, Summary
from convwright.store_url import SCHEMES, StoreUrl

_Result = TypeVar("_Result")

# The time of the last use is written at most this often, since reading alone should not cause writes.
_USED_EVERY_S = 86_400.0

_OF_SUBJECT = "WHERE problem = ? AND device = ?"


class Store:
    """Findings by problem, device and candidate, and observations, in one SQLite file for many processes, or in a
    PostgreSQL database for many machines.

    >>> with Store.open(None) as store:
    ...     store.record("ic8ih9oc8kh3", "H200", "cudnn/gemm", "cudnn 9.19", None, "ran out of memory")
    ...     store.findings("ic8ih9oc8kh3", "H200")["cudnn/gemm"].failure
    'ran out of memory'
    """

    def __init__(self, path: Path | StoreUrl | str | None, tell: Callable[[str], None] | None = None) -> None:
        if path is not None and not (isinstance(path, Path | StoreUrl | str) and str(path)):
            raise BadInput(f"a store's `path` must be a path, or None for one in memory, got {path!r}")
        if isinstance(path, Path) and str(path).startswith(tuple(f"{scheme}:/" for scheme in SCHEMES)):
            raise BadInput("a store's URL must be given as text, since a path loses a slash of it")
        place = store_place("a store", path) if isinstance(path, str) else path
        self._database: Database = (
            ServerDatabase(place, tell) if isinstance(place, StoreUrl) else FileDatabase(place, tell)
        )
        self._untold: str | None = None
        self.recorded = 0  # findings that this process has stored
        self.skipped = 0  # observations that could not be read

    @classmethod
    def open(cls, path: Path | StoreUrl | str | None, *, tell: Callable[[str], None] | None = None) -> Self:
        """The store at ``path``. Its folder is created if the folder above exists. None means in memory, and so does a
        place that cannot be written, with the contents of its file if they can be read. A URL such as
        postgresql://user@host/database is a database on a server, in which tables are created.

        A folder, a file of a newer convwright or of another program, and a server that cannot be used are errors. With
        ``tell`` these are no errors: findings are then kept in memory, also after a later failure of the file or
        server, and ``tell`` is called with the reason.
        """
        store = cls(path, tell)
        store._database.open()
        return store

    @property
    def path(self) -> Path | None:
        """The requested file; None in memory and on a server."""
        return self._database.path

    @property
    def place(self) -> str | None:
        """The requested file, or the URL without its password; None in memory."""
        return self._database.place

    @property
    def note(self) -> str | None:
        """Why the store is not the requested one, or could not keep everything; None if all is well."""
        return self._database.note or self._untold

    @property
    def in_file(self) -> bool:
        """True if findings are kept in the file or on the server; False if they end with the process."""
        return self._database.open()

    @property
    def reads_file(self) -> bool:
        """Whether the contents of the file or server can be read, even if nothing new can be stored."""
        return self._database.reads_file

    @property
    def unkept(self) -> str | None:
        """Why findings end with the process, as a sentence; None if they are kept."""
        return None if self.in_file else self.note or "findings are kept in memory only"

    def record(
        self,
        problem_key: str,
        device_key: str,
        candidate_id: str,
        fingerprint: str,
        measurement: Measurement | None,
        failure: str | None,
    ) -> None:
        """Store the finding for one candidate, replacing the previous one."""
        body = None if measurement is None else measurement_text(measurement)
        place = (problem_key, device_key, candidate_id)

        def write(connection: Connection) -> None:
            # A search rests on its findings: if one is replaced by another version's, the search must be repeated under
            # the old version as well.
            connection.execute(
                f"DELETE FROM search {_OF_SUBJECT} AND EXISTS "
                f"(SELECT 1 FROM finding {_OF_SUBJECT} AND candidate = ? AND fingerprint <> ?)",
                (problem_key, device_key, *place, fingerprint),
            )
            connection.execute(
                PUT_FINDING,
                (*place, fingerprint, body, failure, time.time()),
            )

        self._database.transaction(write)
        self.recorded += 1

    def observe(self, made: Iterable[Observation]) -> int:
        """Add observations, all or none; returns how many were new. Existing ones are not added again."""
        rows = [observations.row_of(observation) for observation in made]
        return self._database.transaction(lambda connection: observations.append(connection, rows)) if rows else 0

    def observations(
        self, device: str | None = None, kind: str | None = None, mode: str | None = None, after: float | None = None
    ) -> Iterator[Observation]:
        """Observations of a device (by key), a kind of problems and a mode, made ``after`` a time in seconds since
        1970, oldest first. None means any.

        They are read on demand, even while others add some. What this version cannot read is left out and counted in
        ``skipped``.
        """
        for body in observations.bodies(self._database, device, kind, mode, after):
            known = observations.read(body)
            if known is not None:
                yield known
            else:
                self.skipped += 1

    def observed(self, device: str) -> int:
        """The number of observations of a device."""
        ((count,),) = self._database.execute("SELECT count(*) FROM observation WHERE device = ?", (device,))
        return int(count)

    def knows(self, device_key: str) -> bool:
        """Whether there is any finding for a device."""
        return bool(self._database.execute("SELECT 1 FROM finding WHERE device = ? LIMIT 1", (device_key,)))

    def latest(self, device_key: str, most: int, *, condition: str) -> list[tuple[str, Measurement]]:
        """The newest measurements of a device with this condition, by candidate id, of all problems and versions."""
        rows = self._database.execute(
            "SELECT candidate, fingerprint, measurement, failure, created FROM finding "
            "WHERE device = ? AND measurement LIKE ? ORDER BY created DESC LIMIT ?",
            (device_key, f'%"{condition}"%', most),
        )
        stored = [(candidate, stored_of(*columns)) for candidate, *columns in rows]
        return [(id_, each.measurement) for id_, each in stored if each is not None and each.measurement is not None]

    def findings(self, problem_key: str, device_key: str) -> dict[str, Stored]:
        """All findings for a problem on a device, by candidate id, whether their fingerprint still counts or not."""
        entries = self.entries(problem_key, device_key)
        return {candidate: stored for candidate, stored in entries.items() if stored is not None}

    def entries(self, problem_key: str, device_key: str) -> dict[str, Stored | None]:
        """The same with None for unreadable ones, which stay until a search ends or the store is pruned."""
        rows = self._database.execute(
            f"SELECT candidate, fingerprint, measurement, failure, created FROM finding {_OF_SUBJECT}",
            (problem_key, device_key),
        )
        if rows:
            self._note_use(problem_key, device_key)
        return {candidate: stored_of(*columns) for candidate, *columns in rows}

    def state(self, problem_key: str, device_key: str) -> str:
        """A digest of the findings for a problem and of its candidates in quarantine: it changes with each of them."""
        subject = problem_key, device_key
        rows = self._database.execute(f"SELECT * FROM finding {_OF_SUBJECT} ORDER BY candidate", subject)
        if rows:
            self._note_use(*subject)
        bad = sorted((id_, each.fingerprint) for id_, each in self.quarantined(*subject).items())
        return sha256(repr([*map(tuple, rows), bad]).encode()).hexdigest()[:32]

    def forget(self, problem_key: str, device_key: str, candidate_ids: Iterable[str]) -> None:
        """Delete findings, and the searches that rest on them."""
        subject = (problem_key, device_key)
        places = [(*subject, candidate) for candidate in candidate_ids]

        def delete(connection: Connection) -> None:
            connection.executemany(f"DELETE FROM finding {_OF_SUBJECT} AND candidate = ?", places)
            connection.execute(f"DELETE FROM search {_OF_SUBJECT}", subject)

        self._database.transaction(delete)

    def record_search(self, problem_key: str, device_key: str, scope: str, candidate_ids: Iterable[str]) -> None:
        """Record that these candidates were tried completely within ``scope``, so that no search need be repeated."""
        quarantine.tidy(self._database)
        self._database.execute(
            PUT_SEARCH,
            (problem_key, device_key, scope, strict_json.dumps(list(candidate_ids)), time.time()),
        )

    def search(self, problem_key: str, device_key: str, scope: str) -> tuple[str, ...] | None:
        """The candidates of a finished search within ``scope``, in order; None if there was none. It does not count if
        one of the ``entries`` is unreadable."""
        rows = self._database.execute(
            f"SELECT candidates FROM search {_OF_SUBJECT} AND scope = ?", (problem_key, device_key, scope)
        )
        try:
            return tuple(strict_json.loads(rows[0][0])) if rows else None
        except ValueError:  # a damaged row counts as missing
            return None

    def keep_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str, body: str) -> None:
        """Store a candidate's built plan as text from its backend. It is not exported."""
        subject = (problem_key, device_key)

        def write(connection: Connection) -> None:
            row = (*subject, candidate_id, fingerprint, body)
            connection.execute(PUT_PLAN, row)
            connection.execute(PUT_USED, (*subject, time.time()))

        with self._tolerantly():
            self._database.transaction(write)

    def kept_plan(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str) -> str | None:
        """The plan stored under the same fingerprint, if any."""
        rows = self._database.execute(
            f"SELECT body FROM plan {_OF_SUBJECT} AND candidate = ? AND fingerprint = ?",
            (problem_key, device_key, candidate_id, fingerprint),
        )
        if rows:
            self._note_use(problem_key, device_key)
        return str(rows[0][0]) if rows else None

    def record_fact(self, device_key: str, name: str, body: str) -> None:
        """Store a fact about a device in this machine, such as its host costs. It is not exported."""
        with self._tolerantly():
            self._database.execute(PUT_FACT, (device_key, self._of_machine(name), body, time.time()))

    def fact(self, device_key: str, name: str, *, younger_than_s: float = inf) -> str | None:
        """The fact stored under this name, unless it is older."""
        rows = self._database.execute(
            "SELECT body, created FROM fact WHERE device = ? AND name = ?", (device_key, self._of_machine(name))
        )
        return str(rows[0][0]) if rows and 0 <= time.time() - rows[0][1] < younger_than_s else None

    @contextmanager
    def trying(self, problem_key: str, device_key: str, candidate_id: str, fingerprint: str) -> Iterator[None]:
        """Guard a candidate's first run: if it ends the process, it is quarantined for all later ones.

        An exception is no crash. A store that cannot be written says so in its ``note`` and lets the body run.
        """
        place = Place(problem_key, device_key, candidate_id)
        mark = None
        with self._tolerantly():
            mark = quarantine.enter(self._database, place, fingerprint)
        try:
            yield
        finally:
            if mark is not None:
                with self._tolerantly():
                    quarantine.leave(self._database, mark)

    def quarantined(self, problem_key: str, device_key: str) -> dict[str, Quarantined]:
        """Candidates whose first run ended their process, by id. Valid only for the same fingerprint."""
        found = quarantine.entries(self._database, problem_key, device_key)
        return {entry.place.candidate: entry.quarantined for entry in found}

    def quarantine(self) -> dict[Place, Quarantined]:
        """Everything in quarantine, for all problems and devices, oldest first."""
        return {entry.place: entry.quarantined for entry in quarantine.entries(self._database)}

    def release(
        self, problem_key: str | None = None, device_key: str | None = None, candidate_id: str | None = None
    ) -> int:
        """Release candidates from quarantine; returns how many. None means any problem, device or candidate."""
        quarantine.tidy(self._database)
        found = quarantine.entries(self._database, problem_key, device_key, candidate_id)
        return quarantine.forget(self._database, found)

    def export(self, target: Path | str | TextIO) -> int:
        """Write all findings, searches and observations as lines of JSON; returns how many, without the first line."""
        if isinstance(target, Path | str) and self.path is not None and _is_same_file(Path(target), self.path):
            raise BadInput(f"{target} is the store itself, which an export would overwrite: choose another file")
        rows = self._database.transaction(upkeep.everything)
        count = -1
        with writing(target) as file:
            for line in to_lines(rows, observations.bodies(self._database, None, None, None, None)):
                file.write(f"{line}\n")
                count += 1
        return count

    def load(self, source: Path | str | TextIO) -> Merged:
        """Import what ``export`` wrote. Newer findings win. If a line is bad, nothing is imported."""
        with reading(source) as (lines, name):
            rows = from_lines(lines, name)
        return self._database.transaction(lambda connection: upkeep.merge(connection, rows))

    def prune(
        self, older_than_s: float | None = None, *, keep_fingerprints: Mapping[str, Collection[str]] | None = None
    ) -> int:
        """Delete findings that nobody has made or used for this long, whose fingerprint does not count, or that are
        unreadable; returns how many. Their plans are deleted too, and so are plans without findings in the same cases.

        ``keep_fingerprints`` lists by device key the fingerprints that count; findings for other devices stay.
        Quarantines stay, however old.
        """
        if older_than_s is not None:
            check_not_below_0("`older_than_s`", older_than_s)
        quarantine.tidy(self._database)
        return self._database.transaction(
            lambda connection: upkeep.prune(connection, older_than_s, keep_fingerprints, is_readable)
        )

    def prune_observations(self, older_than_s: float) -> int:
        """Delete observations older than this; returns how many."""
        check_not_below_0("`older_than_s`", older_than_s)
        cutoff = time.time() - older_than_s

        def delete(connection: Connection) -> int:
            return connection.execute("DELETE FROM observation WHERE created < ?", (cutoff,)).rowcount

        return self._database.transaction(delete)

    def summary(self) -> Summary:
        """A summary of the contents."""
        devices = self._database.transaction(upkeep.devices)
        ((searches,),) = self._database.execute("SELECT count(*) FROM search")
        place, nbytes = (self.place, self._database.nbytes()) if self.reads_file else (None, 0)
        return Summary(place, SCHEMA_VERSION, nbytes, self.note, devices, searches, len(self.quarantine()))

    def problems(self, problem_key: str | None = None) -> tuple[KnownProblem, ...]:
        """The problems with findings, or this one, by device; sorted by key."""
        return self._database.transaction(lambda connection: upkeep.problems(connection, problem_key))

    def clear(self) -> None:
        """Forget everything."""

        def delete(connection: Connection) -> None:
            for table in TABLES:
                connection.execute(f"DELETE FROM {table}")

        self._database.transaction(delete)

    def transaction(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run several statements on the database, all or none. ``work`` may be called twice."""
        return self._database.transaction(work)

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold the lock of this name among all who use the store; False if anybody else holds it."""
        return self._database.lock(name)

    def close(self) -> None:
        """Close the file or the connection. The next use opens it again."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _of_machine(self, name: str) -> str:
        """A name of this machine's own: machines with the same kind of GPU differ in other ways."""
        return f"{name}, on {this_process().host}" if self._database.is_shared else name

    def _note_use(self, problem_key: str, device_key: str) -> None:
        subject, now = (problem_key, device_key), time.time()
        last = self._database.execute(f"SELECT last FROM used {_OF_SUBJECT}", subject)
        if not last or now - last[0][0] > _USED_EVERY_S:
            with self._tolerantly():
                self._database.execute(PUT_USED, (*subject, now))

    @contextmanager
    def _tolerantly(self) -> Iterator[None]:
        """Ignore store errors: keeping records must not stop the work."""
        try:
            yield
        except StoreError as error:
            self._untold = str(error)


def _is_same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
