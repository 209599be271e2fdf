"""A store on a server keeps what a store in a file keeps."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from convwright.store.quarantine import Place
from convwright.store.store import Store
from convwright.store.upkeep import Merged
from forked import in_child
from store.observed import MEASUREMENT

PROBLEM, DEVICE, PRINT = "ic8ih9oc8kh3", "NVIDIA H200", "torch 2.13"


def record(store: Store, candidate: str = "torch/default", fingerprint: str = PRINT, problem: str = PROBLEM) -> None:
    store.record(problem, DEVICE, candidate, fingerprint, MEASUREMENT, None)


def test_findings_and_searches_come_back_and_give_way(place: str) -> None:
    with Store.open(place) as store:
        assert (store.in_file, store.reads_file, store.note, store.unkept) == (True, True, None, None)
        record(store)
        store.record(PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.19", None, "it failed\0 badly")
        store.record_search(PROBLEM, DEVICE, "quick", ["torch/default", "µ"])
    with Store.open(place) as store:
        found = store.findings(PROBLEM, DEVICE)
        assert found["torch/default"].measurement == MEASUREMENT
        assert (found["cudnn/gemm"].failure or "").startswith("it failed")
        assert store.search(PROBLEM, DEVICE, "quick") == ("torch/default", "µ")
        assert store.knows(DEVICE)
        assert not store.knows("A100")
        assert store.latest(DEVICE, 5, condition="cache") == [("torch/default", MEASUREMENT)]
        record(store, fingerprint="torch 2.14")
        assert store.findings(PROBLEM, DEVICE)["torch/default"].fingerprint == "torch 2.14"
        assert store.search(PROBLEM, DEVICE, "quick") is None
        store.forget(PROBLEM, DEVICE, ["torch/default"])
        assert set(store.findings(PROBLEM, DEVICE)) == {"cudnn/gemm"}


def test_the_state_of_a_problem_changes_with_its_findings_and_its_quarantine(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(place) as store:
        seen = [store.state(PROBLEM, DEVICE)]
        for change in (
            lambda: record(store),
            lambda: store.record(PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.19", None, "it failed"),
            lambda: store.record(PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.20", None, "it failed"),
            lambda: store.record(PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.20", MEASUREMENT, None),
            lambda: store.forget(PROBLEM, DEVICE, ["cudnn/gemm"]),
        ):
            change()
            seen.append(store.state(PROBLEM, DEVICE))
        for problem, device in ((PROBLEM, "A100"), ("another problem", DEVICE)):
            store.record(problem, device, "torch/default", "1", None, "it failed")
        assert store.state(PROBLEM, DEVICE) == seen[-1]
        with store.trying(PROBLEM, DEVICE, "cudnn/fft", "1"):
            assert store.state(PROBLEM, DEVICE) == seen[-1], "this process still lives"
            monkeypatch.setattr("convwright.process.Process.is_alive", lambda self: False)
            seen.append(store.state(PROBLEM, DEVICE))
    assert len({*seen}) == len(seen) - 1, "the second finding is gone again"
    assert seen[1] == seen[5]


def test_plans_and_facts_come_back_and_give_way(place: str) -> None:
    with Store.open(place) as store:
        for body in ("old", "new"):
            store.keep_plan(PROBLEM, DEVICE, "triton/direct", "triton 3.6", body)
            store.record_fact(DEVICE, "host costs", body)
        assert store.note is None
    with Store.open(place) as store:
        assert store.kept_plan(PROBLEM, DEVICE, "triton/direct", "triton 3.6") == "new"
        assert store.kept_plan(PROBLEM, DEVICE, "triton/direct", "triton 3.7") is None
        assert store.fact(DEVICE, "host costs") == "new"
        assert store.fact(DEVICE, "host costs", younger_than_s=0.0) is None


def test_what_a_process_dies_of_is_quarantined_until_it_is_released(place: str) -> None:
    def die() -> None:
        with Store.open(place) as mine, mine.trying(PROBLEM, DEVICE, "cudnn/fft", "cudnn 9.19"):
            os._exit(3)

    with Store.open(place) as store:
        with store.trying(PROBLEM, DEVICE, "cudnn/gemm", "cudnn 9.19"):
            assert store.quarantined(PROBLEM, DEVICE) == {}
        in_child(die)
        assert set(store.quarantine()) == {Place(PROBLEM, DEVICE, "cudnn/fft")}
        assert set(store.quarantined(PROBLEM, DEVICE)) == {"cudnn/fft"}
        assert store.quarantined("other", DEVICE) == {}
        assert store.summary().quarantined == 1
        assert store.release(candidate_id="cudnn/fft") == 1
        assert store.quarantine() == {}


def test_pruning_takes_what_is_old_does_not_count_or_cannot_be_read(place: str) -> None:
    with Store.open(place) as store:
        for candidate in ("old", "stale", "damaged", "good"):
            record(store, candidate, "torch 2.12" if candidate == "stale" else PRINT, candidate)
            store.record_search(candidate, DEVICE, "quick", [candidate])
            store.keep_plan(candidate, DEVICE, candidate, PRINT, "a plan")
        store.keep_plan("inside", DEVICE, "alone", PRINT, "a plan")
        for sql in (
            "UPDATE finding SET created = created - 1000 WHERE candidate = 'old'",
            "UPDATE used SET last = last - 1000 WHERE problem IN ('old', 'inside')",
            "UPDATE finding SET measurement = 'none' WHERE candidate = 'damaged'",
        ):
            store.transaction(lambda connection, sql=sql: connection.execute(sql).rowcount)
        assert store.prune(500.0, keep_fingerprints={DEVICE: {PRINT}}) == 3
        assert [known.problem for known in store.problems()] == ["good"]
        searches = {name: store.search(name, DEVICE, "quick") for name in ("old", "stale", "damaged", "good")}
        assert searches == {"old": None, "stale": None, "damaged": None, "good": ("good",)}
        assert store.kept_plan("good", DEVICE, "good", PRINT) == "a plan"
        assert store.kept_plan("inside", DEVICE, "alone", PRINT) is None
        store.clear()
        assert (store.problems(), store.summary().devices) == ((), ())


def test_findings_are_carried_and_the_newer_win(place: str, tmp_path: Path) -> None:
    file = tmp_path / "findings.jsonl"
    with Store.open(place) as store, Store.open(None) as other:
        record(other)
        other.record_search(PROBLEM, DEVICE, "quick", ["torch/default"])
        other.export(file)
        assert store.load(file) == Merged(1, 1, 0)
        assert store.load(file) == Merged(0, 0, 2)
        record(store)
        assert store.load(file) == Merged(0, 0, 2)
        assert store.export(file) == 2
        assert other.load(file) == Merged(1, 0, 1)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_connection_of_its_own(place: str) -> None:
    """Both work at the same time: on one connection they would read each other's answers."""
    with Store.open(place) as store:
        record(store, "parent")
        child = os.fork()
        name = "child" if child == 0 else "parent"
        with ExitStack() as at_the_end:
            if child == 0:
                at_the_end.callback(os._exit, 1)
            for number in range(40):
                record(store, f"{name} {number}")
                assert f"{name} {number}" in store.findings(PROBLEM, DEVICE)
            if child == 0:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(store.findings(PROBLEM, DEVICE)) == 81


def test_a_long_problem_is_kept(place: str) -> None:
    """PostgreSQL has a limit on what an index holds."""
    terms = " + ".join(f"a * {number}.{number * 7919 % 1000:03d}" for number in range(200))
    with Store.open(place) as store:
        record(store, problem=f'pointwise "{terms}" mb1ic8ih9')
        assert [len(known.problem) > 2500 for known in store.problems()] == [True]
