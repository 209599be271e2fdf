"""Stores in a file and on a server, for tests that run on both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from store.postgresql_server import PostgresqlServer, programs


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    """One that runs for all tests of a process."""
    found = programs()
    missing = [name for name in ("sqlalchemy", "psycopg") if find_spec(name) is None]
    if found is None or missing:
        what = f"{' and '.join(missing)}" if missing else "PostgreSQL (apt-get install postgresql)"
        absent = f"{what} is not installed, which tests of shared stores need"
        if os.environ.get("CI"):
            pytest.fail(absent)
        pytest.skip(absent)
    made = PostgresqlServer(found)
    yield made
    made.close()


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made that is not there yet."""
    if request.param == "file":
        return str(tmp_path / "findings.sqlite")
    made: PostgresqlServer = request.getfixturevalue("server")
    return made.url()
