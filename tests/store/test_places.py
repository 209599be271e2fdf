"""Where a store may lie: places that are no folder or cannot be written to, read-only files and full disks."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from convwright.errors import StoreError
from convwright.settings import default_store
from convwright.store.store import Store
from forked import Program
from store.written import DAMAGED, DEVICE, MEASUREMENT, PROBLEM, WRITER, record
from unprivileged import read_only

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
    writer = Program(WRITER + "    sys.stdin.readline()\n", str(path), "writer", "11")
    writer.stdin.write("go\n")
    writer.stdin.flush()
    try:
        assert [writer.stdout.readline() for _ in range(2)] == ["ready\n", "ten\n"]
        yield
    finally:
        writer.communicate("end\n")


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
