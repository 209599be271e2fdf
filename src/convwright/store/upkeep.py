"""Maintenance of a store: summaries, pruning, and importing another store's findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from convwright.store import observations
from convwright.store.database import Connection
from convwright.store.schema import PUT_FINDING, PUT_SEARCH
from convwright.store.transfer import FindingRow, Rows, SearchRow

# A problem and a device.
Subject = tuple[str, str]

_SEEN = (
    "SELECT f.problem, f.device, f.candidate, f.fingerprint, f.measurement, f.created, coalesce(u.last, 0) "
    "FROM finding f LEFT JOIN used u ON u.problem = f.problem AND u.device = f.device"
)
# Another process may have stored something newer meanwhile.
_NEWER_FINDING = f"{PUT_FINDING} WHERE excluded.created > finding.created"
_NEWER_SEARCH = f"{PUT_SEARCH} WHERE excluded.created > search.created"
_WITHOUT_FINDING = (
    "NOT EXISTS (SELECT 1 FROM finding f "
    "WHERE f.problem = plan.problem AND f.device = plan.device AND f.candidate = plan.candidate)"
)


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """A summary for one device. Times are in seconds since 1970: of findings if there are any, else of observations."""

    device: str
    problems: int
    findings: int
    failures: int
    oldest: float
    newest: float
    observations: int = 0


@dataclass(frozen=True, slots=True)
class KnownProblem:
    """A summary for a problem on a device. ``newest`` is in seconds since 1970."""

    problem: str
    device: str
    findings: int
    failures: int
    newest: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The contents of a store. ``place`` is its file, or its URL without the password, None in memory. ``nbytes``
    includes a file's log."""

    place: str | None
    schema: int
    nbytes: int
    note: str | None
    devices: tuple[DeviceSummary, ...]
    searches: int
    quarantined: int


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of an import. ``older`` counts lines about which something at least as new was known."""

    findings: int
    searches: int
    older: int
    observations: int = 0


def devices(connection: Connection) -> tuple[DeviceSummary, ...]:
    """A summary for each device."""
    rows = connection.execute(
        "SELECT device, count(DISTINCT problem), count(*), count(failure), min(created), max(created) "
        "FROM finding GROUP BY device"
    )
    known = {device: DeviceSummary(device, *rest) for device, *rest in rows}
    for device, count, oldest, newest in observations.counts(connection):
        summary = known.get(device) or DeviceSummary(device, 0, 0, 0, oldest, newest)
        known[device] = replace(summary, observations=count)
    return tuple(known[device] for device in sorted(known))


def problems(connection: Connection, problem_key: str | None) -> tuple[KnownProblem, ...]:
    """A summary for each problem and device, or for one problem."""
    rows = connection.execute(
        "SELECT problem, device, count(*), count(failure), max(created) FROM finding "
        "WHERE problem = coalesce(?, problem) GROUP BY problem, device ORDER BY problem, device",
        (problem_key,),
    )
    return tuple(KnownProblem(*row) for row in rows)


def everything(connection: Connection) -> Rows:
    """All findings and searches, sorted by key. Observations may be many, so they are read separately."""
    findings = connection.execute("SELECT * FROM finding ORDER BY problem, device, candidate")
    searches = connection.execute("SELECT * FROM search ORDER BY problem, device, scope")
    return Rows([FindingRow(*row) for row in findings], [SearchRow(*row) for row in searches], [])


def merge(connection: Connection, rows: Rows) -> Merged:
    """Import findings and searches; of two about the same subject the newer stays."""
    taken, contested = 0, set[Subject]()
    for row in rows.findings:
        where = (row.problem, row.device, row.candidate)
        known = connection.execute(
            "SELECT fingerprint, created FROM finding WHERE problem = ? AND device = ? AND candidate = ?", where
        ).fetchone()
        if known is not None and known[0] != row.fingerprint:
            contested.add((row.problem, row.device))
        if known is None or row.created > known[1]:
            taken += connection.execute(_NEWER_FINDING, row).rowcount
    # A search says that nothing need be tried again. That is wrong if one of its findings was not kept.
    _drop_searches(connection, contested)
    fresh = [row for row in rows.searches if (row.problem, row.device) not in contested]
    searches = sum(connection.execute(_NEWER_SEARCH, row).rowcount for row in fresh)
    new = observations.append(connection, rows.observations)
    given = len(rows.findings) + len(fresh) + len(rows.observations)
    return Merged(taken, searches, given - taken - searches - new, new)


def prune(
    connection: Connection,
    older_than_s: float | None,
    keep_fingerprints: Mapping[str, Collection[str]] | None,
    is_readable: Callable[[str | None], bool],
) -> int:
    """Delete findings, and the searches that rest on them; returns the number of findings. ``is_readable`` checks a
    measurement's text."""
    cutoff = float("-inf") if older_than_s is None else time.time() - older_than_s
    keep = keep_fingerprints or {}
    doomed = [
        (row[0], row[1], row[2])
        for *row, created, last in connection.execute(_SEEN)
        if max(created, last) < cutoff or row[3] not in keep.get(row[1], (row[3],)) or not is_readable(row[4])
    ]
    for table in ("finding", "plan"):
        connection.executemany(f"DELETE FROM {table} WHERE problem = ? AND device = ? AND candidate = ?", doomed)
    _drop_stale_plans(connection, keep)
    if older_than_s is not None:
        _drop_old_plans(connection, cutoff)
    _drop_searches(connection, {(problem, device) for problem, device, _ in doomed})
    connection.execute(
        "DELETE FROM search WHERE created < ? AND NOT EXISTS "
        "(SELECT 1 FROM finding f WHERE f.problem = search.problem AND f.device = search.device)",
        (cutoff,),
    )
    connection.execute(
        "DELETE FROM used WHERE NOT EXISTS "
        "(SELECT 1 FROM finding f WHERE f.problem = used.problem AND f.device = used.device) AND NOT EXISTS "
        "(SELECT 1 FROM plan p WHERE p.problem = used.problem AND p.device = used.device)"
    )
    return len(doomed)


def _drop_stale_plans(connection: Connection, keep: Mapping[str, Collection[str]]) -> None:
    """Delete plans of other versions, also of candidates without findings, such as those inside rewrites."""
    for device, counting in keep.items():
        kept = connection.execute("SELECT problem, candidate, fingerprint FROM plan WHERE device = ?", (device,))
        stale = [(problem, device, candidate) for problem, candidate, made_by in kept if made_by not in counting]
        connection.executemany("DELETE FROM plan WHERE problem = ? AND device = ? AND candidate = ?", stale)


def _drop_old_plans(connection: Connection, cutoff: float) -> None:
    """Delete plans of candidates without findings that nobody has used since ``cutoff``. Earlier versions did not
    record when a plan was stored; such a plan gets the time of the first pruning."""
    connection.execute(
        f"INSERT INTO used SELECT DISTINCT problem, device, CAST(? AS REAL) FROM plan WHERE {_WITHOUT_FINDING} "
        "ON CONFLICT DO NOTHING",
        (time.time(),),
    )
    connection.execute(
        f"DELETE FROM plan WHERE {_WITHOUT_FINDING} AND "
        "(SELECT u.last FROM used u WHERE u.problem = plan.problem AND u.device = plan.device) < ?",
        (cutoff,),
    )


def _drop_searches(connection: Connection, subjects: Iterable[Subject]) -> None:
    connection.executemany("DELETE FROM search WHERE problem = ? AND device = ?", sorted(subjects))
