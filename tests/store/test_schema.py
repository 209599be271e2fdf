"""The file's tables: old ones are migrated whole or not at all, newer and foreign ones are left alone."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from convwright.errors import BadInput, StoreError
from convwright.store.schema import SCHEMA_VERSION
from convwright.store.store import Store
from store.observed import observation
from tuning.made import measurement

PROBLEM, DEVICE = "g1mb1ic8oc8ih9iw9oh7ow7kh3kw3", "H200"

# What version 1 wrote, word for word.
VERSION_1 = """
CREATE TABLE IF NOT EXISTS finding (
        problem TEXT NOT NULL, device TEXT NOT NULL, candidate TEXT NOT NULL, fingerprint TEXT NOT NULL,
        measurement TEXT, failure TEXT, created REAL NOT NULL,
        PRIMARY KEY (problem, device, candidate)
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS search (
        problem TEXT NOT NULL, device TEXT NOT NULL, scope TEXT NOT NULL,
        candidates TEXT NOT NULL, created REAL NOT NULL,
        PRIMARY KEY (problem, device, scope)
    ) WITHOUT ROWID;
PRAGMA user_version = 1;
"""
LOST = "no such table: finding"
TABLES = {
    1: {"finding", "search"},
    SCHEMA_VERSION: {"finding", "search", "trying", "used", "plan", "fact", "observation", "task", "worker"},
}

# What version 4 added, word for word.
VERSION_4 = """
CREATE TABLE IF NOT EXISTS trying (
            problem TEXT NOT NULL, device TEXT NOT NULL, candidate TEXT NOT NULL, token TEXT NOT NULL,
            fingerprint TEXT NOT NULL, host TEXT NOT NULL, boot TEXT, pid INTEGER NOT NULL, started TEXT,
            since REAL NOT NULL,
            PRIMARY KEY (problem, device, candidate, token)
        ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used (
            problem TEXT NOT NULL, device TEXT NOT NULL, last REAL NOT NULL,
            PRIMARY KEY (problem, device)
        ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plan (
            problem TEXT NOT NULL, device TEXT NOT NULL, candidate TEXT NOT NULL, fingerprint TEXT NOT NULL,
            body TEXT NOT NULL,
            PRIMARY KEY (problem, device, candidate)
        );
CREATE TABLE IF NOT EXISTS fact (
            device TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, created REAL NOT NULL,
            PRIMARY KEY (device, name)
        ) WITHOUT ROWID;
PRAGMA user_version = 4;
"""

# Opens the store and kills itself before the statement of the given number.
KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from convwright.store.store import Store
connect, left = sqlite3.connect, int(sys.argv[2])

def watched(*arguments, **options):
    connection = connect(*arguments, **options)
    connection.set_trace_callback(count)
    return connection

def count(statement):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1

sqlite3.connect = watched
Store.open(Path(sys.argv[1]))
print(left)
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store as version 1 left it: two findings and a search."""
    path = tmp_path / "findings.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(VERSION_1)
        rows = [
            (PROBLEM, DEVICE, "torch/default", "torch 2.13", json.dumps(measurement(12.5).to_json()), None, 1.7e9),
            (PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.19", None, "ran out of memory", 1.7e9),
        ]
        database.executemany("INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        database.execute("INSERT INTO search VALUES (?, ?, 'quick', '[\"torch/default\"]', 1.7e9)", (PROBLEM, DEVICE))
    return path


def version_and_tables(path: Path) -> tuple[int, set[str]]:
    with closing(sqlite3.connect(path)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return database.execute("PRAGMA user_version").fetchone()[0], {name for (name,) in names}


def assert_nothing_is_lost(path: Path) -> None:
    with Store.open(path) as store:
        assert store.note is None
        found = store.findings(PROBLEM, DEVICE)
        assert found["torch/default"].measurement == measurement(12.5)
        assert (found["cudnn/gemm"].failure, found["cudnn/gemm"].created) == ("ran out of memory", 1.7e9)
        assert store.search(PROBLEM, DEVICE, "quick") == ("torch/default",)
    assert version_and_tables(path) == (SCHEMA_VERSION, TABLES[SCHEMA_VERSION])


def test_version_1_is_migrated_and_keeps_its_findings(old: Path) -> None:
    assert version_and_tables(old) == (1, TABLES[1])
    assert_nothing_is_lost(old)
    with Store.open(old) as store, store.trying(PROBLEM, DEVICE, "cudnn/fft", "cudnn 9.19"):
        assert store.quarantined(PROBLEM, DEVICE) == {}
    assert_nothing_is_lost(old)


def test_version_4_is_migrated_keeps_all_and_takes_observations(old: Path) -> None:
    with closing(sqlite3.connect(old)) as database, database:
        database.executescript(VERSION_4)
        database.execute("INSERT INTO plan VALUES (?, ?, 'triton/direct', '1', 'a plan')", (PROBLEM, DEVICE))
        database.execute("INSERT INTO fact VALUES (?, 'host costs', '{}', 1.7e9)", (DEVICE,))
        database.execute("INSERT INTO used VALUES (?, ?, 1.7e9)", (PROBLEM, DEVICE))
    assert_nothing_is_lost(old)
    with Store.open(old) as store:
        assert store.kept_plan(PROBLEM, DEVICE, "triton/direct", "1") == "a plan"
        assert store.fact(DEVICE, "host costs") == "{}"
        assert store.observe([observation(1)]) == 1
    with Store.open(old) as store:
        assert list(store.observations()) == [observation(1)]


def test_a_process_of_version_1_that_still_runs_goes_on_writing(old: Path) -> None:
    with closing(sqlite3.connect(old, isolation_level=None)) as running:
        running.execute("SELECT * FROM finding").fetchall()
        assert_nothing_is_lost(old)
        row = (PROBLEM, DEVICE, "cudnn/fft", "cudnn 9.19", None, "late", 1.7e9)
        running.execute("INSERT OR REPLACE INTO finding VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    with Store.open(old) as store:
        assert store.findings(PROBLEM, DEVICE)["cudnn/fft"].failure == "late"


@pytest.mark.slow
def test_a_migration_killed_before_any_of_its_statements_is_whole_or_undone(old: Path) -> None:
    intact = old.read_bytes()
    versions = []
    for moment in range(100):
        for log in old.parent.glob("*.sqlite-*"):
            log.unlink()
        old.write_bytes(intact)
        done = subprocess.run([sys.executable, "-c", KILLED, str(old), str(moment)], capture_output=True, text=True)
        version, tables = version_and_tables(old)
        versions.append(version)
        assert tables == TABLES[version]
        assert_nothing_is_lost(old)
        if done.returncode == 0:
            break
        assert done.returncode == -9, done.stderr
    assert done.stdout == "0\n"  # every statement had its turn
    assert moment > 5
    assert versions == [1] * moment + [SCHEMA_VERSION]


def test_several_processes_migrate_once(old: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(old), "-1"]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert_nothing_is_lost(old)


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = newer(tmp_path / "findings.sqlite")
    with pytest.raises(StoreError, match="newer convwright"):
        Store.open(path)
    with closing(sqlite3.connect(path)) as left:
        assert left.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def newer(path: Path) -> Path:
    """A file of a version that nobody knows yet."""
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    return path


def test_who_is_told_works_on_in_memory(tmp_path: Path) -> None:
    path, told = newer(tmp_path / "findings.sqlite"), list[str]()
    content = path.read_bytes()
    with Store.open(path, tell=told.append) as store:
        store.record(PROBLEM, DEVICE, "torch/default", "1", measurement(5.0), None)
        assert not store.in_file
        assert set(store.findings(PROBLEM, DEVICE)) == {"torch/default"}
        assert told == [store.note]
    assert told[0].startswith(f"findings are kept in memory only, since {path} was written by a newer convwright")
    assert path.read_bytes() == content


def test_who_is_told_works_on_where_the_file_fails_later(tmp_path: Path) -> None:
    path, told = tmp_path / "findings.sqlite", list[str]()
    with Store.open(path, tell=told.append) as store:
        assert store.in_file
        with closing(sqlite3.connect(path)) as other:
            other.execute("DROP TABLE finding")
        store.record(PROBLEM, DEVICE, "torch/default", "1", measurement(5.0), None)
        assert set(store.findings(PROBLEM, DEVICE)) == {"torch/default"}
        assert told == [f"findings are kept in memory only, since the store of findings at {path} failed: {LOST}"]


def test_who_is_told_hears_of_a_corrupt_file(tmp_path: Path) -> None:
    path, told = tmp_path / "findings.sqlite", list[str]()
    path.write_bytes(b"SQLite format 3\x00" + b"and then nothing that it could read" * 100)
    with Store.open(path, tell=told.append) as store:
        assert store.in_file
        assert told == [store.note]
    assert told[0].startswith(f"{path} was corrupt and now lies at {path}.corrupt-")


def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path: Path) -> None:
    path, told, content = tmp_path / "thesis.txt", list[str](), b"a thesis, of which there is no other copy" * 100
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"thesis\.txt is no store of findings, but a file of another kind"):
        Store.open(path)
    with Store.open(path, tell=told.append) as store:
        assert not store.in_file
    assert [told[0].partition(" since ")[0], len(told)] == ["findings are kept in memory only,", 1]
    assert path.read_bytes() == content
    assert [other.name for other in tmp_path.iterdir()] == [path.name]


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "findings.sqlite")) as store:
        assert (store.path, store.in_file) == (tmp_path / "findings.sqlite", True)
    for bad in (3, "", b"x"):
        with pytest.raises(BadInput, match="a store's `path` must be a path, or None for one in memory, got "):
            Store.open(bad)  # type: ignore[arg-type]


def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE moz_places (id INTEGER)")
        other.execute("PRAGMA user_version = 78")
    content = path.read_bytes()
    with pytest.raises(StoreError, match=r"another program's database \(its tables are moz_places\)"):
        Store.open(path)
    assert path.read_bytes() == content
    assert [other.name for other in tmp_path.iterdir()] == [path.name]


FOREIGN = {
    "a table of our name": (
        "CREATE TABLE finding (id INTEGER, title TEXT); INSERT INTO finding VALUES (1, 'a title')",
        r"its tables are finding",
    ),
    "with a version": (
        "CREATE TABLE finding (id INTEGER, title TEXT); PRAGMA user_version = 2",
        r"its table finding has the columns id, title",
    ),
    "with a newer version": (
        "CREATE TABLE finding (id INTEGER, title TEXT); PRAGMA user_version = 99",
        r"its table finding has the columns id, title",
    ),
    "another table of ours": (
        f"{VERSION_1}; CREATE TABLE used (car TEXT); PRAGMA user_version = 3",
        r"its table used has the columns car",
    ),
    "our columns without a version": (
        f"{VERSION_1}; PRAGMA user_version = 0",
        r"its tables are finding, search",
    ),
    "a version and no table": ("PRAGMA user_version = 7", "it has no tables yet, but a version or an application's nu"),
    "an application's number": ("PRAGMA application_id = 9", "it has no tables yet, but a version or an application's"),
    "a view": ("CREATE VIEW finding AS SELECT 1 AS problem", "its tables are finding"),
}


@pytest.mark.parametrize("logged", [False, True], ids=["closed", "with a log"])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_database_is_named_and_stays_as_it_is(name: str, logged: bool, tmp_path: Path) -> None:
    """Also one of which a process that was killed has left all that it wrote in the log."""
    made, mark = FOREIGN[name]
    path, told = tmp_path / "other.sqlite", list[str]()
    with closing(sqlite3.connect(tmp_path / "writing.sqlite", isolation_level=None)) as other:
        other.execute(f"PRAGMA journal_mode = {'WAL' if logged else 'DELETE'}")
        other.executescript(made)
        for written in tmp_path.glob("writing.sqlite*"):
            if not written.name.endswith("-shm"):
                written.with_name(written.name.replace("writing", "other")).write_bytes(written.read_bytes())
    if logged:
        assert b"SQLite format 3" in path.read_bytes()
        assert path.with_name("other.sqlite-wal").stat().st_size > 0
    kept = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(StoreError) as raised:
        Store.open(path)
    assert str(raised.value).startswith(f"{path} is another program's database ({mark}")
    assert "\n" not in str(raised.value)
    with Store.open(path, tell=told.append) as store:
        store.record(PROBLEM, DEVICE, "torch/default", "1", measurement(5.0), None)
        assert not store.in_file
    assert told[0].startswith(f"findings are kept in memory only, since {path} is another program's database ({mark}")
    left = {file: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
    assert left == kept  # SQLite makes an index of a log beside it, in which nothing is kept


def test_a_foreign_database_that_cannot_be_written_to_is_named_too(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as other, other:
        other.executescript(FOREIGN["with a version"][0])
    path.chmod(0o400)
    with pytest.raises(StoreError, match="its table finding has the columns id, title"):
        Store.open(path)


def test_what_is_empty_becomes_a_store(tmp_path: Path) -> None:
    empty, bare = tmp_path / "empty.sqlite", tmp_path / "bare.sqlite"
    empty.touch()
    with closing(sqlite3.connect(bare)) as made:
        made.execute("PRAGMA journal_mode = WAL")  # so it lies between the first steps of making a store
    for path in (empty, bare):
        with Store.open(path) as store:
            assert (store.in_file, store.note) == (True, None)


def test_a_store_whose_log_holds_all_is_opened(tmp_path: Path) -> None:
    path, copy = tmp_path / "findings.sqlite", tmp_path / "copy.sqlite"
    with Store.open(path) as store:
        store.record(PROBLEM, DEVICE, "torch/default", "1", measurement(5.0), None)
        for written in tmp_path.glob("findings.sqlite*"):
            if not written.name.endswith("-shm"):
                written.with_name(written.name.replace("findings", "copy")).write_bytes(written.read_bytes())
    with Store.open(copy) as again:
        assert set(again.findings(PROBLEM, DEVICE)) == {"torch/default"}


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
def test_what_is_no_file_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    pipe, told = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    with pytest.raises(StoreError, match=r"pipe is no store of findings: it is no regular file, but a pipe"):
        Store.open(pipe)
    with Store.open(pipe, tell=told.append) as store:
        assert not store.in_file
    assert told[0].startswith("findings are kept in memory only, since ")
    assert pipe.is_fifo()
