"""The store under several processes at once, killed writers and corrupt files."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.store.store import Store
from store.written import DAMAGED, DEVICE, MEASUREMENT, PROBLEM, finish, record, writers_at_once


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "findings.sqlite"


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
    finish(writers_at_once(path, 8, 250))
    with Store.open(path) as store:
        assert store.note is None
        expected = {f"writer-{i}/{j}" for i in range(8) for j in range(250)}
        assert set(store.findings("problem", "device")) == expected


@pytest.mark.parametrize("moment_us", [0, 137, 1_013, 5_101, 20_011])
def test_a_killed_writer_leaves_a_readable_store(path: Path, moment_us: int) -> None:
    (process,) = writers_at_once(path, 1, 1_000_000)
    process.stdout.readline()
    time.sleep(moment_us / 1e6)
    process.kill()
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
        expected = {f"writer-{i}/{j}" for i in range(4) for j in range(20)}
        assert set(store.findings("problem", "device")) == expected
    assert len(list(path.parent.glob("*.corrupt-*"))) == 1


def test_findings_whose_state_is_asked_for_are_in_use(path: Path) -> None:
    with Store.open(path) as store:
        record(store)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE finding SET created = 1")
        store.state(PROBLEM, DEVICE)
        assert store.prune(older_than_s=3600.0) == 0
