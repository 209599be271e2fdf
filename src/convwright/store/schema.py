"""The store's tables, their version, and the statements that insert or replace a row."""

from __future__ import annotations

# Step n turns a database of version n into version n + 1; an empty one has version 0. PostgreSQL gets the same
# statements, translated.
STEPS = (
    (
        """CREATE TABLE IF NOT EXISTS finding (
            problem TEXT NOT NULL, device TEXT NOT NULL, candidate TEXT NOT NULL, fingerprint TEXT NOT NULL,
            measurement TEXT, failure TEXT, created REAL NOT NULL,
            PRIMARY KEY (problem, device, candidate)
        ) WITHOUT ROWID""",
        """CREATE TABLE IF NOT EXISTS search (
            problem TEXT NOT NULL, device TEXT NOT NULL, scope TEXT NOT NULL,
            candidates TEXT NOT NULL, created REAL NOT NULL,
            PRIMARY KEY (problem, device, scope)
        ) WITHOUT ROWID""",
    ),
    (
        # Two processes may try one candidate at the same time, hence the token. A table of its own for the time of the
        # last use: a process of version 1 that is still running goes on writing rows of `finding` as it knows them.
        """CREATE TABLE IF NOT EXISTS trying (
            problem TEXT NOT NULL, device TEXT NOT NULL, candidate TEXT NOT NULL, token TEXT NOT NULL,
            fingerprint TEXT NOT NULL, host TEXT NOT NULL, boot TEXT, pid INTEGER NOT NULL, started TEXT,
            since REAL NOT NULL,
            PRIMARY KEY (problem, device, candidate, token)
        ) WITHOUT ROWID""",
        """CREATE TABLE IF NOT EXISTS used (
            problem TEXT NOT NULL, device TEXT NOT NULL, last REAL NOT NULL,
            PRIMARY KEY (problem, device)
        ) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE IF NOT EXISTS plan (
            problem TEXT NOT NULL, device TEXT NOT NULL, candidate TEXT NOT NULL, fingerprint TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (problem, device, candidate)
        )""",
    ),
    (
        """CREATE TABLE IF NOT EXISTS fact (
            device TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, created REAL NOT NULL,
            PRIMARY KEY (device, name)
        ) WITHOUT ROWID""",
    ),
    (
        # Observations are added, never changed: the key is a hash of the body, and what is there is not added again.
        """CREATE TABLE IF NOT EXISTS observation (
            key TEXT PRIMARY KEY, problem TEXT NOT NULL, kind TEXT NOT NULL, device TEXT NOT NULL,
            candidate TEXT NOT NULL, fingerprint TEXT NOT NULL, outcome TEXT NOT NULL,
            time_us REAL, low_us REAL, high_us REAL, workspace_bytes INTEGER,
            mode TEXT NOT NULL, arithmetic TEXT, max_workspace_bytes INTEGER, deterministic INTEGER NOT NULL,
            budget_us REAL, created REAL NOT NULL, body TEXT NOT NULL
        )""",
        # A search asks for the newest findings of its device, of which a shared store has those of many.
        "CREATE INDEX IF NOT EXISTS finding_of_device ON finding (device, created)",
        "CREATE INDEX IF NOT EXISTS observation_created ON observation (created, key)",
        "CREATE INDEX IF NOT EXISTS observation_of_device ON observation (device, created, key)",
        # A worker's heartbeat has a table of its own: it is written every few seconds.
        """CREATE TABLE IF NOT EXISTS task (
            campaign TEXT NOT NULL, name TEXT NOT NULL, place INTEGER NOT NULL, body TEXT NOT NULL,
            state TEXT NOT NULL, worker TEXT, token TEXT, claims INTEGER NOT NULL, since REAL,
            PRIMARY KEY (campaign, name)
        ) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS task_in_state ON task (campaign, state, place, name)",
        """CREATE TABLE IF NOT EXISTS worker (
            campaign TEXT NOT NULL, name TEXT NOT NULL, beat REAL NOT NULL,
            PRIMARY KEY (campaign, name)
        ) WITHOUT ROWID""",
    ),
)
SCHEMA_VERSION = len(STEPS)

TABLES = ("search", "finding", "used", "trying", "plan", "fact", "observation", "task", "worker")


def newer(place: str, version: int, otherwise: str) -> str:
    """The error for a database made by a newer convwright."""
    return (
        f"{place} was written by a newer convwright (schema {version}, this one knows {SCHEMA_VERSION}); "
        f"upgrade convwright, or {otherwise}"
    )


def upsert(table: str, keys: tuple[str, ...], others: tuple[str, ...]) -> str:
    """The statement that inserts a row, or replaces the one with the same ``keys``, which are the first columns.

    >>> upsert("used", ("problem", "device"), ("last",))
    'INSERT INTO used VALUES (?, ?, ?) ON CONFLICT (problem, device) DO UPDATE SET last = excluded.last'
    """
    places = ", ".join("?" * (len(keys) + len(others)))
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    return f"INSERT INTO {table} VALUES ({places}) ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"


_CANDIDATE = ("problem", "device", "candidate")
PUT_FINDING = upsert("finding", _CANDIDATE, ("fingerprint", "measurement", "failure", "created"))
PUT_SEARCH = upsert("search", ("problem", "device", "scope"), ("candidates", "created"))
PUT_PLAN = upsert("plan", _CANDIDATE, ("fingerprint", "body"))
PUT_FACT = upsert("fact", ("device", "name"), ("body", "created"))
PUT_USED = upsert("used", ("problem", "device"), ("last",))
