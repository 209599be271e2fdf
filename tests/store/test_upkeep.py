"""What a store holds in sum, and what goes when it is pruned."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from convwright.errors import BadInput
from convwright.store.schema import SCHEMA_VERSION
from convwright.store.store import Store
from tuning.made import measurement

OLD, NEW, DEVICE = "ic8ih9oc8kh3", "ic4ih9oc4kh3", "H200"
PRINT, DAY_S = "torch 2.13", 86_400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "findings.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An old problem and a new one, with a finding and a search each."""
    with Store.open(path) as made:
        for problem in (OLD, NEW):
            made.record(problem, DEVICE, "torch/default", PRINT, measurement(10.0), None)
            made.record_search(problem, DEVICE, "quick", ["torch/default"])
        aged(path, "finding", OLD, 40 * DAY_S)
        aged(path, "search", OLD, 40 * DAY_S)
        yield made


def aged(path: Path, table: str, problem: str, age_s: float) -> None:
    column = "last" if table == "used" else "created"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE {table} SET {column} = ? WHERE problem = ?", (time.time() - age_s, problem))


def last_use(path: Path, problem: str) -> float | None:
    with closing(sqlite3.connect(path)) as database:
        row = database.execute("SELECT last FROM used WHERE problem = ?", (problem,)).fetchone()
    return row[0] if row else None


def problems(store: Store) -> set[str]:
    return {known.problem for known in store.problems()}


def test_what_is_old_goes_with_its_searches(store: Store) -> None:
    assert store.prune(50 * DAY_S) == 0
    assert store.prune(30 * DAY_S) == 1
    assert problems(store) == {NEW}
    assert store.search(OLD, DEVICE, "quick") is None
    assert store.search(NEW, DEVICE, "quick") == ("torch/default",)


def test_what_was_used_lately_stays(store: Store, path: Path) -> None:
    store.findings(OLD, DEVICE)
    assert store.prune(30 * DAY_S) == 0
    aged(path, "used", OLD, 35 * DAY_S)
    assert store.prune(30 * DAY_S) == 1
    assert last_use(path, OLD) is None


def test_the_time_of_use_is_written_once_a_day(store: Store, path: Path) -> None:
    store.findings("unknown", DEVICE)
    assert last_use(path, "unknown") is None
    store.findings(OLD, DEVICE)
    aged(path, "used", OLD, DAY_S / 2)
    first = last_use(path, OLD)
    store.findings(OLD, DEVICE)
    assert last_use(path, OLD) == first
    aged(path, "used", OLD, 2 * DAY_S)
    store.findings(OLD, DEVICE)
    assert time.time() - (last_use(path, OLD) or 0) < 60


def test_a_fingerprint_that_does_not_count_goes_on_that_device_only(store: Store) -> None:
    store.record(NEW, DEVICE, "cudnn/gemm", "cudnn 9.18", measurement(9.0), None)
    store.record(NEW, "A100", "cudnn/gemm", "cudnn 9.18", measurement(9.0), None)
    store.record_search(NEW, DEVICE, "quick", ["torch/default", "cudnn/gemm"])
    assert store.prune(keep_fingerprints={DEVICE: {PRINT, "cudnn 9.19"}}) == 1
    assert set(store.findings(NEW, DEVICE)) == {"torch/default"}
    assert store.search(NEW, DEVICE, "quick") is None
    assert store.search(OLD, DEVICE, "quick") is not None
    assert set(store.findings(NEW, "A100")) == {"cudnn/gemm"}


@pytest.mark.parametrize("age", [-1.0, inf, nan, "old", True])
def test_what_is_no_age_is_refused(age: Any, store: Store) -> None:
    with pytest.raises(BadInput, match=r"^`older_than_s` takes a finite number that is not negative, got "):
        store.prune(age)
    assert problems(store) == {OLD, NEW}


def test_nothing_asked_for_nothing_goes(store: Store) -> None:
    assert store.prune() == 0
    assert store.prune(keep_fingerprints={}) == 0
    assert problems(store) == {OLD, NEW}
    assert store.search(OLD, DEVICE, "quick") is not None


def test_an_old_search_that_found_nothing_goes_too(store: Store, path: Path) -> None:
    store.record_search("empty", DEVICE, "quick", [])
    aged(path, "search", "empty", 40 * DAY_S)
    store.prune(30 * DAY_S)
    assert store.search("empty", DEVICE, "quick") is None


def test_quarantine_outlives_pruning_but_not_clearing(store: Store, path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        row = (OLD, DEVICE, "cudnn/fft", "token", "cudnn 9.19", "elsewhere", None, 7, None, time.time() - 90 * DAY_S)
        database.execute("INSERT INTO trying VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    store.prune(1.0, keep_fingerprints={DEVICE: set()})
    assert set(store.quarantined(OLD, DEVICE)) == {"cudnn/fft"}
    store.clear()
    assert store.quarantine() == {}
    assert store.problems() == ()


def test_the_summary_counts_by_device(store: Store, path: Path) -> None:
    store.record(NEW, "A100", "cudnn/gemm", "cudnn 9.19", None, "ran out of memory")
    found = store.summary()
    assert (found.place, found.schema, found.note) == (str(path), SCHEMA_VERSION, None)
    assert found.nbytes >= path.stat().st_size > 0
    assert (found.searches, found.quarantined) == (2, 0)
    a100, h200 = found.devices
    assert (a100.device, a100.problems, a100.findings, a100.failures) == ("A100", 1, 1, 1)
    assert (h200.device, h200.problems, h200.findings, h200.failures) == (DEVICE, 2, 2, 0)
    assert h200.newest - h200.oldest == pytest.approx(40 * DAY_S, abs=60)


def test_the_summary_of_what_is_in_memory_has_no_path(tmp_path: Path) -> None:
    with Store.open(None) as store:
        assert not store.in_file
        assert (store.summary().place, store.summary().nbytes, store.summary().devices) == (None, 0, ())
    (tmp_path / "file").touch()
    with Store.open(tmp_path / "file" / "findings.sqlite") as store:
        assert not store.in_file
        assert store.summary().place is None
        assert "in memory only" in (store.summary().note or "")


def test_problems_are_listed_with_their_device(store: Store) -> None:
    store.record(NEW, "A100", "cudnn/gemm", "cudnn 9.19", None, "ran out of memory")
    store.record(NEW, "A100", "cudnn/fft", "cudnn 9.19", measurement(1.0), None)
    listed = [(known.problem, known.device, known.findings, known.failures) for known in store.problems()]
    assert listed == [(NEW, "A100", 2, 1), (NEW, DEVICE, 1, 0), (OLD, DEVICE, 1, 0)]


def test_a_plan_that_does_not_count_goes_also_where_it_has_no_finding(store: Store) -> None:
    """Those inside of rewrites have none: they are looked at and not measured."""
    for inner, made_by in (("old inside", "triton 1"), ("new inside", "triton 2")):
        store.keep_plan(inner, DEVICE, "triton/direct", made_by, "compiled")
    store.keep_plan("old inside", "A100", "triton/direct", "triton 1", "compiled")
    store.prune(keep_fingerprints={DEVICE: {PRINT, "triton 2"}})
    assert store.kept_plan("old inside", DEVICE, "triton/direct", "triton 1") is None
    assert store.kept_plan("new inside", DEVICE, "triton/direct", "triton 2") == "compiled"
    assert store.kept_plan("old inside", "A100", "triton/direct", "triton 1") == "compiled"


def test_a_plan_without_a_finding_goes_where_nobody_has_used_it_for_so_long(store: Store, path: Path) -> None:
    """What stands inside of a rewrite, or was asked for by name, has none."""
    for problem in ("unused", "read", "new"):
        store.keep_plan(problem, DEVICE, "triton/direct", "triton 1", "compiled")
    for problem in ("unused", "read"):
        aged(path, "used", problem, 40 * DAY_S)
    assert store.kept_plan("read", DEVICE, "triton/direct", "triton 1") == "compiled"
    assert store.prune(50 * DAY_S) == 0
    assert plans(path) == {"unused", "read", "new"}
    assert store.prune(30 * DAY_S) == 1
    assert plans(path) == {"read", "new"}
    assert last_use(path, "unused") is None
    assert last_use(path, "read") is not None
    store.prune()
    assert plans(path) == {"read", "new"}


def test_a_plan_stays_as_long_as_its_finding(store: Store, path: Path) -> None:
    store.record(NEW, DEVICE, "triton/direct", "triton 1", measurement(9.0), None)
    store.keep_plan(NEW, DEVICE, "triton/direct", "triton 1", "compiled")
    store.keep_plan(NEW, DEVICE, "triton/other", "triton 1", "compiled")
    aged(path, "used", NEW, 40 * DAY_S)
    store.prune(30 * DAY_S)
    assert store.kept_plan(NEW, DEVICE, "triton/direct", "triton 1") == "compiled"
    assert store.kept_plan(NEW, DEVICE, "triton/other", "triton 1") is None
    aged(path, "used", NEW, 40 * DAY_S)
    aged(path, "finding", NEW, 40 * DAY_S)
    assert store.prune(30 * DAY_S) == 2
    assert plans(path) == set()


def test_a_plan_that_an_earlier_version_kept_is_as_old_as_the_first_pruning(store: Store, path: Path) -> None:
    store.keep_plan("inside", DEVICE, "triton/direct", "triton 1", "compiled")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM used")
    store.prune(30 * DAY_S)
    assert plans(path) == {"inside"}
    aged(path, "used", "inside", 40 * DAY_S)
    store.prune(30 * DAY_S)
    assert plans(path) == set()


def plans(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        return {problem for (problem,) in database.execute("SELECT problem FROM plan")}
