"""The tasks of a campaign, which workers on many machines claim a few at a time, and the lock of a GPU.

A worker's heartbeats show that it still works on its claims. A claim without heartbeats may be taken by another worker.
All times are from the database's clock, since machines' clocks differ.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from convwright.core.observation import Observation
from convwright.errors import BadInput, StoreError
from convwright.naming import check_not_below_0, is_whole
from convwright.store import observations as rows_of_observations
from convwright.store.database import Connection
from convwright.store.dialect import dialect_of
from convwright.store.schema import upsert
from convwright.store.store import Store

_OPEN, _CLAIMED, _CRASHED = "open", "claimed", "crashed"
FINAL = ("done", "failed", _CRASHED, "hung")
# After this many further workers have died of a task, it is not tried again.
_MOST_AGAIN = 3

_ADD = (
    f"INSERT INTO task (campaign, name, place, body, state, claims) VALUES (?, ?, ?, ?, '{_OPEN}', 0) "
    "ON CONFLICT (campaign, name) DO NOTHING"
)
# A claim's own time counts too, since its worker may not have sent a heartbeat yet.
_STALE = (
    f"(state = '{_CLAIMED}' AND since < ? AND NOT EXISTS (SELECT 1 FROM worker w "
    "WHERE w.campaign = task.campaign AND w.name = task.worker AND w.beat >= ?))"
)
_GIVE_UP = f"UPDATE task SET state = '{_CRASHED}' WHERE campaign = ? AND claims > {_MOST_AGAIN} AND {_STALE}"
_SELECT = "SELECT name, body FROM task WHERE campaign = ? AND {} ORDER BY place, name"
_TO_CLAIM = _SELECT.format(f"state = '{_OPEN}'") + " LIMIT ?"
_TO_CLAIM_AGAIN = _SELECT.format(_STALE) + " LIMIT ?"
_CLAIM = (
    f"UPDATE task SET state = '{_CLAIMED}', worker = ?, token = ?, since = ?, claims = claims + 1 "
    "WHERE campaign = ? AND name = ?"
)
_FINISH = f"UPDATE task SET state = ? WHERE campaign = ? AND name = ? AND worker = ? AND state = '{_CLAIMED}'"
_RELEASE = (
    f"UPDATE task SET state = '{_OPEN}', claims = claims - 1 WHERE campaign = ? AND worker = ? AND state = '{_CLAIMED}'"
)
_BEAT = upsert("worker", ("campaign", "name"), ("beat",))


class Claims:
    """The tasks of one campaign in a store. A task has a name and a body, both text.

    >>> with Store.open(None) as store:
    ...     claims = Claims(store, "resnets")
    ...     claims.add({"first": "{}", "second": "{}"})
    ...     claims.claim("worker 1", 1, stale_after_s=60.0)
    ...     claims.finish("first", "worker 1")
    ...     claims.counts()
    2
    [('first', '{}')]
    True
    {'open': 1, 'claimed': 0, 'done': 1, 'failed': 0, 'crashed': 0, 'hung': 0}
    """

    def __init__(self, store: Store, campaign: str) -> None:
        self._store, self._campaign = store, campaign

    def add(self, tasks: Mapping[str, str]) -> int:
        """Add tasks, to be claimed in this order; returns how many were new. Existing tasks stay as they are."""

        def insert(connection: Connection) -> int:
            sql = "SELECT coalesce(max(place), -1) FROM task WHERE campaign = ?"
            (last,) = connection.execute(sql, (self._campaign,)).fetchone()
            places = {name: place for place, name in enumerate(tasks, start=last + 1)}
            # Sorted by name, so that two processes adding the same tasks cannot deadlock.
            rows = [(self._campaign, name, places[name], tasks[name]) for name in sorted(tasks)]
            return connection.executemany(_ADD, rows).rowcount

        return self._store.transaction(insert) if tasks else 0

    def claim(self, worker: str, most: int, stale_after_s: float) -> list[tuple[str, str]]:
        """Take up to ``most`` tasks: open ones, and those of workers without a heartbeat for ``stale_after_s``.

        After three takeovers a task becomes "crashed". A claim also counts as a heartbeat of ``worker``.
        """
        if not (is_whole(most) and most >= 1):
            raise BadInput(f"`most` must be a whole number of at least 1, got {most!r}")
        check_not_below_0("`stale_after_s`", stale_after_s)
        token, begun = secrets.token_hex(8), list[float]()

        def take(connection: Connection) -> list[tuple[str, str]]:
            if begun:  # the connection was lost, perhaps after the claim
                known = connection.execute(_SELECT.format("token = ?"), (self._campaign, token)).fetchall()
                if known:
                    return _pairs(known)
            now, held = self._beat(connection, worker), dialect_of(connection).skip_locked
            begun.append(now)
            stale = (self._campaign, now - stale_after_s, now - stale_after_s)
            connection.execute(_GIVE_UP, stale)
            found = connection.execute(_TO_CLAIM + held, (self._campaign, most)).fetchall()
            if len(found) < most:
                found += connection.execute(_TO_CLAIM_AGAIN + held, (*stale, most - len(found))).fetchall()
            connection.executemany(_CLAIM, [(worker, token, now, self._campaign, name) for name, _ in found])
            return _pairs(found)

        return self._store.transaction(take)

    def beat(self, worker: str) -> None:
        """Record that ``worker`` still works on its claims."""
        self._store.transaction(lambda connection: self._beat(connection, worker))

    def release(self, worker: str) -> int:
        """Return the unfinished claims of ``worker``, as if it had never claimed them; returns how many."""
        return self._store.transaction(
            lambda connection: connection.execute(_RELEASE, (self._campaign, worker)).rowcount
        )

    def finish(self, name: str, worker: str, state: str = "done", observations: Iterable[Observation] = ()) -> bool:
        """Record how a task ended, "done", "failed", "crashed" or "hung", and add its ``observations``, both or
        neither. Returns False, and adds nothing, if another worker has the claim by now."""
        if state not in FINAL:
            raise BadInput(f"a task's `state` must be one of {', '.join(FINAL)}, got {state!r}")
        rows = [rows_of_observations.row_of(observation) for observation in observations]

        def end(connection: Connection) -> bool:
            if connection.execute(_FINISH, (state, self._campaign, name, worker)).rowcount != 1:
                sql = "SELECT worker, state FROM task WHERE campaign = ? AND name = ?"
                known = connection.execute(sql, (self._campaign, name)).fetchone()
                if known is None:
                    raise BadInput(f"the campaign {self._campaign!r} has no task {name!r}")
                if tuple(known) != (worker, state):  # equal if it was finished and the answer was lost
                    return False
            rows_of_observations.append(connection, rows)
            return True

        return self._store.transaction(end)

    def counts(self) -> dict[str, int]:
        """The number of tasks in each state."""
        sql = "SELECT state, count(*) FROM task WHERE campaign = ? GROUP BY state"
        found = self._store.transaction(lambda connection: connection.execute(sql, (self._campaign,)).fetchall())
        return dict.fromkeys((_OPEN, _CLAIMED, *FINAL), 0) | {state: int(count) for state, count in found}

    def _beat(self, connection: Connection, worker: str) -> float:
        (now,) = connection.execute(f"SELECT {dialect_of(connection).now}").fetchone()
        connection.execute(_BEAT, (self._campaign, worker, now))
        return float(now)


def _pairs(rows: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, body) for name, body in rows]


def device_if_free(store: Store, gpu_uuid: str) -> AbstractContextManager[bool]:
    """Lock a GPU among all who share the store; False if another process holds it. The lock ends with its process."""
    return store.lock(f"device {gpu_uuid}")


@contextmanager
def device_lock(store: Store, gpu_uuid: str) -> Iterator[None]:
    """The same, with an error if another process holds the GPU."""
    with device_if_free(store, gpu_uuid) as is_held:
        if not is_held:
            raise StoreError(
                f"another process that uses the store {store.place or 'in memory'} measures on the device {gpu_uuid}: "
                "wait until it has ended, or choose another device"
            )
        yield
