"""Observations as rows: added, read by pages, counted. Rows never change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

from convwright import strict_json
from convwright.core.observation import Observation
from convwright.naming import printable
from convwright.store.database import Connection, Database

# Rows read at a time: the body of each is some kilobytes.
_PAGE = 256
_KEY_LETTERS = 32


class ObservationRow(NamedTuple):
    """A row of the table of observations. ``body`` is strict JSON, ``key`` its hash."""

    key: str
    problem: str
    kind: str
    device: str
    candidate: str
    fingerprint: str
    outcome: str
    time_us: float | None
    low_us: float | None
    high_us: float | None
    workspace_bytes: int | None
    mode: str
    arithmetic: str | None
    max_workspace_bytes: int | None
    deterministic: int
    budget_us: float | None
    created: float
    body: str


_ADD = f"INSERT INTO observation VALUES ({', '.join('?' * len(ObservationRow._fields))}) ON CONFLICT DO NOTHING"


def row_of(observation: Observation, record: Mapping[str, Any] | None = None) -> ObservationRow:
    """The row of an observation. ``record`` is the JSON that it was read from, if any: it keeps the spelling of
    numbers."""
    if observation.reason is not None:
        # A library's error text may contain control sequences for a terminal.
        observation = replace(observation, reason=printable(observation.reason, lines=True))
    body = strict_json.dumps(record or observation.to_json(), compact=True, sort_keys=True)
    candidate, measured, policy = observation.candidate, observation.measurement, observation.policy
    time = None if measured is None else measured.device_us
    return ObservationRow(
        key=sha256(body.encode()).hexdigest()[:_KEY_LETTERS],
        problem=candidate.problem.key,
        kind=candidate.problem.kind,
        device=observation.device,
        candidate=candidate.id,
        fingerprint=observation.fingerprint,
        outcome=str(observation.outcome),
        time_us=None if time is None else time.value,
        low_us=None if time is None else time.low,
        high_us=None if time is None else time.high,
        workspace_bytes=None if measured is None else measured.workspace_bytes,
        mode=observation.mode,
        arithmetic=None if policy.arithmetic is None else ",".join(sorted(policy.arithmetic)),
        max_workspace_bytes=policy.max_workspace_bytes,
        deterministic=int(policy.deterministic),
        budget_us=observation.budget_us,
        created=observation.created,
        body=body,
    )


def append(connection: Connection, rows: Iterable[ObservationRow]) -> int:
    """Add rows that are new; returns how many. Rows are sorted by key, so that two processes adding the same ones
    cannot deadlock."""
    ordered = sorted(rows, key=lambda row: row.key)
    return connection.executemany(_ADD, ordered).rowcount if ordered else 0


def bodies(
    database: Database, device: str | None, kind: str | None, mode: str | None, after: float | None
) -> Iterator[str]:
    """Bodies, oldest first. Pages are separate transactions, so others may add rows meanwhile."""
    equal = {"device": device, "kind": kind, "mode": mode}
    asked = {name: value for name, value in equal.items() if value is not None}
    where = "".join(f"{name} = ? AND " for name in asked)
    sql = f"SELECT created, key, body FROM observation WHERE {where}{{}} ORDER BY created, key LIMIT {_PAGE}"
    begin, values = sql.format("created > ?"), (*asked.values(), float("-inf") if after is None else after)
    page = database.execute(begin, values)
    while page:
        yield from (body for _, _, body in page)
        *last, _ = page[-1]
        page = database.execute(sql.format("(created, key) > (?, ?)"), (*asked.values(), *last))


def read(body: str) -> Observation | None:
    """The observation in a body; None if this version cannot read it."""
    try:
        return Observation.from_json(strict_json.loads(body))
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError, RecursionError):
        return None


def counts(connection: Connection) -> list[tuple[str, int, float, float]]:
    """For each device: the number of observations, and the times of the first and the last."""
    sql = "SELECT device, count(*), min(created), max(created) FROM observation GROUP BY device"
    return [(str(device), int(count), oldest, newest) for device, count, oldest, newest in connection.execute(sql)]
