"""The store under several processes at once, killed writers, corrupt files, newer schemas and read-only places."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from convwright.core.finding import Interval, KindError, Measurement
from convwright.errors import BadInput, StoreError
from convwright.settings import default_store
from convwright.store.store import Store
from unprivileged import read_only

PROBLEM, DEVICE = "g1mb1ic8oc8ih9iw9oh7ow7kh3kw3", "H200"
MEASUREMENT = Measurement(
    device_us=Interval(12.5, 12.4, 12.6),
    prepare_us=Interval(3.0, 2.5, 3.5),
    errors=(KindError("normal", 1e-7, 0.5), KindError("one infinity", float("inf"), 0.0)),
    workspace_bytes=4096,
    samples=31,
    conditions=(("clock_mhz", "1980"), ("cache", "network")),
)

WRITER = """
import sys
from pathlib import Path
from convwright.store.store import Store
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
with Store.open(path) as store:
    for i in range(count):
        store.record("problem", "device", f"{name}/{i}", "1", None, "x" * 200)
        if i == 10:
            print("ten", flush=True)
"""

# Records once, and again when no file may grow.
FULL = """
import resource, sys
from pathlib import Path
from convwright.store.store import Store
told = []
with Store.open(Path(sys.argv[1]), tell=told.append) as store:
    store.record("problem", "device", "soon", "1", None, "failed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    store.record("problem", "device", "late", "1", None, "failed")
    print(*told)
    print(sorted(store.findings("problem", "device")))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "findings.sqlite"


def writers_at_once(path: Path, processes: int, count: int) -> list[subprocess.Popen[str]]:
    """Processes that all open the store and write to it at the same moment."""
    commands = [[sys.executable, "-c", WRITER, str(path), f"writer-{i}", str(count)] for i in range(processes)]
    writers = [
        subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for command in commands
    ]
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return writers


def finish(writers: list[subprocess.Popen[str]]) -> None:
    for process in writers:
        process.communicate()
    assert [process.returncode for process in writers] == [0] * len(writers)


def record(store: Store, candidate: str = "torch/default") -> None:
    store.record(PROBLEM, DEVICE, candidate, "torch 2.13", MEASUREMENT, None)


@pytest.mark.parametrize("name", ["none", "None", "NONE"])
def test_none_is_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open(name) as store:
        assert store.path is None
        store.record(PROBLEM, DEVICE, "a", "1", None, "it failed")
    assert not any(tmp_path.iterdir())


def test_what_no_file_can_be_called_is_refused() -> None:
    with pytest.raises(BadInput, match="which no file can be called"):
        Store.open("a\0b")


def test_findings_come_back_in_another_store(path: Path) -> None:
    with Store.open(path) as store:
        assert store.note is None
        record(store)
        store.record(PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.19", None, "trying")
        store.record(PROBLEM, "A100", "cudnn/fft", "cudnn 9.19", None, "trying")
    with Store.open(path) as store:
        found = store.findings(PROBLEM, DEVICE)
    assert set(found) == {"torch/default", "cudnn/gemm"}
    assert found["torch/default"].measurement == MEASUREMENT
    assert found["torch/default"].fingerprint == "torch 2.13"
    assert found["torch/default"].created > 1.7e9
    assert (found["cudnn/gemm"].measurement, found["cudnn/gemm"].failure) == (None, "trying")


def test_a_later_finding_replaces_an_earlier_one() -> None:
    with Store.open(None) as store:
        store.record(PROBLEM, DEVICE, "torch/default", "old", None, "trying")
        record(store)
        stored = store.findings(PROBLEM, DEVICE)["torch/default"]
    assert (stored.fingerprint, stored.failure, stored.measurement) == ("torch 2.13", None, MEASUREMENT)


def test_a_search_is_known_within_its_scope_only(path: Path) -> None:
    with Store.open(path) as store:
        store.record_search(PROBLEM, DEVICE, "fp32 quick", ["b", "a"])
        store.record_search(PROBLEM, DEVICE, "fp32 full", [])
    with Store.open(path) as store:
        assert store.search(PROBLEM, DEVICE, "fp32 quick") == ("b", "a")
        assert store.search(PROBLEM, DEVICE, "fp32 full") == ()
        assert store.search(PROBLEM, DEVICE, "tf32 quick") is None
        store.clear()
        assert store.search(PROBLEM, DEVICE, "fp32 quick") is None
        assert store.findings(PROBLEM, DEVICE) == {}


def test_what_is_forgotten_is_gone_with_the_searches_that_rest_on_it(path: Path) -> None:
    with Store.open(path) as store:
        for candidate in ("torch/default", "cudnn/gemm"):
            record(store, candidate)
        for device in (DEVICE, "A100"):
            store.record_search(PROBLEM, device, "quick", ["torch/default"])
        store.forget(PROBLEM, DEVICE, ["cudnn/gemm"])
    with Store.open(path) as store:
        assert set(store.findings(PROBLEM, DEVICE)) == {"torch/default"}
        assert store.search(PROBLEM, DEVICE, "quick") is None
        assert store.search(PROBLEM, "A100", "quick") == ("torch/default",)


def test_a_search_does_not_outlive_what_it_rests_on(path: Path) -> None:
    """Under the old versions it would say that nothing need be tried, while nothing is known any more."""
    with Store.open(path) as store:
        record(store)
        for device in (DEVICE, "A100"):
            store.record_search(PROBLEM, device, "quick", ["torch/default (torch 2.13)"])
        record(store)
        assert store.search(PROBLEM, DEVICE, "quick") is not None
        store.record(PROBLEM, DEVICE, "torch/default", "torch 2.14", MEASUREMENT, None)
        assert store.search(PROBLEM, DEVICE, "quick") is None
        assert store.search(PROBLEM, "A100", "quick") is not None


def damaged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE finding SET measurement = '{\"time\": 1}' WHERE candidate = 'a'")


def content(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as other:
        tables = ("finding", "search", "trying", "plan")
        return [row for table in tables for row in other.execute(f"SELECT * FROM {table}")]


def test_bounds_that_are_words_are_read(path: Path) -> None:
    """Rows from other tools may hold the words that strict JSON has for infinities."""
    wide = replace(MEASUREMENT, device_us=Interval(12.5, 12.0, inf), prepare_us=Interval(3.0, -inf, inf))
    with Store.open(path) as store:
        store.record(PROBLEM, DEVICE, "a", "1", wide, None)
    with closing(sqlite3.connect(path)) as other, other:
        for number, word in (("-Infinity", '"-inf"'), (": Infinity", ': "inf"')):
            other.execute("UPDATE finding SET measurement = replace(measurement, ?, ?)", (number, word))
        ((text,),) = other.execute("SELECT measurement FROM finding")
    assert text.count('"inf"') == 3
    assert text.count('"-inf"') == 1
    with Store.open(path) as store:
        got = store.findings(PROBLEM, DEVICE)["a"].measurement
    assert got is not None
    assert (got.device_us, got.prepare_us) == (wide.device_us, wide.prepare_us)


def test_reading_deletes_nothing_not_even_what_cannot_be_read(path: Path) -> None:
    with Store.open(path) as store:
        for candidate in ("a", "b"):
            record(store, candidate)
        store.record_search(PROBLEM, DEVICE, "quick", ["a", "b"])
    damaged(path)
    before = content(path)
    with Store.open(path) as store:
        assert set(store.findings(PROBLEM, DEVICE)) == {"b"}
        assert store.entries(PROBLEM, DEVICE)["a"] is None
        for read in (store.summary, store.problems, store.quarantine):
            read()
        store.search(PROBLEM, DEVICE, "quick")
        store.kept_plan(PROBLEM, DEVICE, "a", "torch 2.13")
    assert content(path) == before


def test_pruning_removes_what_cannot_be_read_with_its_searches(path: Path) -> None:
    with Store.open(path) as store:
        for candidate in ("a", "b"):
            record(store, candidate)
        store.record_search(PROBLEM, DEVICE, "quick", ["a", "b"])
        damaged(path)
        assert store.prune() == 1
        assert set(store.entries(PROBLEM, DEVICE)) == {"b"}
        assert store.search(PROBLEM, DEVICE, "quick") is None


def test_eight_processes_lose_nothing(path: Path) -> None:
    finish(writers_at_once(path, 8, 1000))
    with Store.open(path) as store:
        assert store.note is None
        expected = {f"writer-{i}/{j}" for i in range(8) for j in range(1000)}
        assert set(store.findings("problem", "device")) == expected


@pytest.mark.parametrize("moment_us", [0, 137, 1_013, 5_101, 20_011])
def test_a_killed_writer_leaves_a_readable_store(path: Path, moment_us: int) -> None:
    (process,) = writers_at_once(path, 1, 1_000_000)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(moment_us / 1e6)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with Store.open(path) as store:
        kept = {int(name.partition("/")[2]) for name in store.findings("problem", "device")}
        assert len(kept) > 10
        assert kept == set(range(len(kept)))
        record(store)
        assert (store.note, len(store.findings(PROBLEM, DEVICE))) == (None, 1)


def test_threads_share_a_store(path: Path) -> None:
    with Store.open(path) as store:
        threads = [threading.Thread(target=record, args=(store, f"torch/{i}")) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.findings(PROBLEM, DEVICE)) == 16


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_outlives_its_parents_store(path: Path) -> None:
    store = Store.open(path)
    record(store, "parent")
    reader, closed = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)
        record(store, "child")
        os._exit(0)
    record(store, "parent again")
    store.close()
    os.write(closed, b"!")
    assert os.waitpid(child, 0)[1] == 0
    with Store.open(path) as store:
        assert set(store.findings(PROBLEM, DEVICE)) == {"parent", "parent again", "child"}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_what_was_in_memory() -> None:
    with Store.open(None) as store:
        record(store, "parent")
        child = os.fork()
        if child == 0:
            record(store, "child")
            os._exit(len(store.findings(PROBLEM, DEVICE)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert set(store.findings(PROBLEM, DEVICE)) == {"parent"}


DAMAGED = b"SQLite format 3\x00" + b"and then nothing that it could read" * 100


@pytest.mark.parametrize("content", [DAMAGED, b"SQLite", b"\x00" * 4096])
def test_a_corrupt_file_is_set_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with Store.open(path) as store:
        record(store)
        assert store.note is not None
        assert "was corrupt" in store.note
    aside = [other for other in path.parent.iterdir() if other.name.startswith("findings.sqlite.corrupt-")]
    assert [other.read_bytes() for other in aside] == [content]
    with Store.open(path) as store:
        assert (store.note, set(store.findings(PROBLEM, DEVICE))) == (None, {"torch/default"})


def test_damage_met_while_in_use_is_healed(path: Path) -> None:
    with Store.open(path) as store:
        for i in range(200):
            record(store, f"torch/{i}")
    intact = path.read_bytes()
    path.write_bytes(intact[:4096] + b"\xff" * (len(intact) - 4096))
    with Store.open(path) as store:
        assert store.findings(PROBLEM, DEVICE) == {}
        record(store)
        assert store.note is not None
        assert "was corrupt" in store.note
        assert set(store.findings(PROBLEM, DEVICE)) == {"torch/default"}


def test_a_file_that_is_overwritten_while_in_use_is_left_alone(path: Path) -> None:
    with Store.open(path) as store:
        record(store)
    told, content = list[str](), b"what somebody has written here, and wants to read again" * 1000
    with Store.open(path, tell=told.append) as store:
        path.write_bytes(content)
        record(store, "torch/1")
        assert set(store.findings(PROBLEM, DEVICE)) == {"torch/1"}
    assert path.read_bytes() == content
    assert [each.partition(" since ")[0] for each in told] == ["findings are kept in memory only,"]


def test_several_processes_that_meet_a_corrupt_file_replace_it_once(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(DAMAGED)
    finish(writers_at_once(path, 4, 20))
    with Store.open(path) as store:
        assert len(store.findings("problem", "device")) == 80
    assert len(list(path.parent.glob("*.corrupt-*"))) == 1


def test_a_place_that_is_no_folder_means_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_works_in_memory(tmp_path / "file" / "findings.sqlite")
    assert_works_in_memory(Path("/proc/convwright/findings.sqlite"))


def test_what_is_wrong_with_a_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    hint = "; name another path, by CONVWRIGHT_STORE, --store or `store`"
    for path, cause in (
        (tmp_path / "file" / "findings.sqlite", f"{tmp_path / 'file'} is not a folder"),
        (Path("/proc/no/findings.sqlite"), "its folder /proc/no cannot be made: No such file or directory"),
    ):
        with Store.open(path) as store:
            assert store.note == f"findings are kept in memory only, since {path} cannot be used: {cause}{hint}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "findings.sqlite"
        for cause in (f"used: permission denied in its folder{hint}", "written to: permission denied"):
            with read_only(path), Store.open(path) as store:
                assert (store.note or "").endswith(f"memory only, since {path} cannot be {cause}")
            Store.open(path).close()


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "findings.sqlite"
    said = f"a store is a file, and {tmp_path} is a folder: name a file in it, such as {file}"
    with pytest.raises(StoreError, match=f"^{re.escape(said)}$"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match=r"^a store is a file, and \. is a folder: .* such as findings\.sqlite$"):
        Store.open(".")
    notes = list[str]()
    with Store.open(tmp_path, tell=notes.append) as store:
        assert not store.in_file
    assert notes == [f"findings are kept in memory only, since {said}"]


def test_only_the_last_folder_is_made(tmp_path: Path) -> None:
    """A longer path that does not exist is more likely a typing error."""
    with Store.open(tmp_path / "new" / "findings.sqlite") as store:
        assert store.in_file
    path = tmp_path / "missing" / "dir" / "findings.sqlite"
    with Store.open(path) as store:
        assert store.note == (
            f"findings are kept in memory only, since {path} cannot be used: its folder {path.parent} cannot be made: "
            f"{tmp_path / 'missing'} does not exist; name another path, by CONVWRIGHT_STORE, --store or `store`"
        )
    assert not (tmp_path / "missing").exists()


def test_all_folders_of_the_default_place_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVWRIGHT_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "some" / "cache"))
    with Store.open(default_store()) as store:
        assert store.in_file
    assert (tmp_path / "some" / "cache" / "convwright" / "findings.sqlite").exists()


@pytest.mark.parametrize("exists", [False, True])
def test_a_read_only_folder_means_in_memory(exists: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "findings.sqlite"
        if exists:
            Store.open(path).close()
        with read_only(path):
            assert_works_in_memory(path)


@pytest.mark.parametrize("in_use", [False, True])
def test_what_a_read_only_file_holds_is_used(in_use: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "findings of 100% ?.sqlite"
        with Store.open(path) as store:
            record(store)
            store.record_search(PROBLEM, DEVICE, "quick", ["torch/default"])
        with in_use_elsewhere(path) if in_use else nullcontext(), read_only(path), Store.open(path) as store:
            assert (store.in_file, store.reads_file, store.unkept) == (False, True, store.note)
            assert (store.note or "").startswith(f"new findings are kept in memory only, since {path} cannot be ")
            assert store.findings(PROBLEM, DEVICE)["torch/default"].measurement == MEASUREMENT
            assert store.search(PROBLEM, DEVICE, "quick") == ("torch/default",)
            assert store.summary().place == str(path)
            assert set(store.findings("problem", "device")) == ({f"writer/{i}" for i in range(11)} if in_use else set())
            record(store, "cudnn/gemm")
            assert set(store.findings(PROBLEM, DEVICE)) == {"torch/default", "cudnn/gemm"}
        with Store.open(path) as store:
            assert set(store.findings(PROBLEM, DEVICE)) == {"torch/default"}


@contextmanager
def in_use_elsewhere(path: Path) -> Iterator[None]:
    """Inside, another process has the file open, whose log holds eleven findings."""
    command = [sys.executable, "-c", WRITER + "    sys.stdin.readline()\n", str(path), "writer", "11"]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
        assert [writer.stdout.readline() for _ in range(2)] == ["ready\n", "ten\n"]
        yield
        writer.stdin.write("end\n")


def test_a_read_only_file_that_is_damaged_or_no_store_gives_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "findings.sqlite"
        with Store.open(path) as store:
            for i in range(200):
                record(store, f"torch/{i}")
        intact = path.read_bytes()
        path.write_bytes(intact[:4096] + b"\xff" * (len(intact) - 4096))
        with read_only(path):
            assert_works_in_memory(path)
        path.write_bytes(b"a thesis, of which there is no other copy" * 100)
        with read_only(path), pytest.raises(StoreError, match="but a file of another kind"):
            Store.open(path)


def test_where_the_disk_is_full_what_is_known_stays_known(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    note, found = done.stdout.splitlines()
    assert note.startswith(f"new findings are kept in memory only, since {path} cannot be written to: ")
    assert found == "['late', 'soon']"


ELSEWHERE = """
import json, os, pathlib, platform, secrets, sqlite3, subprocess, sys, tempfile, threading, weakref
platform.node()
sys.modules["fcntl"] = None
del os.register_at_fork
sys.platform = "win32"
from convwright.store.store import Store
with Store.open(pathlib.Path(sys.argv[1])) as store:
    with store.trying("problem", "device", "candidate", "1"):
        store.record("problem", "device", "candidate", "1", None, "failed")
    print(store.note, len(store.findings("problem", "device")), store.quarantine())
"""


def test_neither_locks_of_folders_nor_forks_are_needed(path: Path) -> None:
    """As on Windows, which has neither."""
    path.parent.mkdir()
    path.write_bytes(DAMAGED)
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, str(path)], capture_output=True, text=True)
    assert done.stderr == ""
    assert f"{path} was corrupt and now lies at " in done.stdout
    assert done.stdout.endswith(" 1 {}\n")


def assert_works_in_memory(path: Path) -> None:
    with Store.open(path) as store:
        assert store.note is not None
        assert "in memory only" in store.note
        assert str(path) in store.note
        record(store)
        assert set(store.findings(PROBLEM, DEVICE)) == {"torch/default"}
