"""Quarantine: a candidate that takes its process with it is known to all who come after, and no other is."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from convwright.process import this_process
from convwright.store import quarantine
from convwright.store.quarantine import Place
from convwright.store.store import Store

PROBLEM, DEVICE, CANDIDATE, PRINT = "ic8ih9oc8kh3", "H200", "cudnn/engine-7[k2=0]", "cudnn 9.19"
PLACE = Place(PROBLEM, DEVICE, CANDIDATE)

TRIER = """
import os, signal, sys
from pathlib import Path
from convwright.store.store import Store
path, problem, device, candidate, fingerprint, end = sys.argv[1:]
store = Store.open(Path(path))
with store.trying(problem, device, "survivor", fingerprint):
    pass
with store.trying(problem, device, candidate, fingerprint):
    print("trying", flush=True)
    if end == "wait":
        sys.stdin.read()
    elif end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif end == "crash":
        os.abort()
    elif end == "exit":
        sys.exit(0)
"""

# Tries a candidate while the files of the store may not grow, as on a full disk, and then goes on until it ends well.
FULL = """
import resource, sys
from pathlib import Path
from convwright.store.store import Store
path, problem, device, candidate, fingerprint, room, tells, between = sys.argv[1:]
path, told = Path(path), []

def fill():
    most = path.with_name(path.name + room).stat().st_size if room else 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

with Store.open(path, tell=told.append if tells == "tells" else None) as store:
    for _ in range(20):
        store.record(problem, device, candidate, fingerprint, None, "failed")
    with store.trying(problem, device, candidate, fingerprint):
        fill()
        if between == "recorded":
            store.record(problem, device, candidate, fingerprint, None, "x" * 10_000)
    print(len(told))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "findings.sqlite"


def trier(path: Path, end: str, candidate: str = CANDIDATE, device: str = DEVICE) -> subprocess.Popen[str]:
    """A process that tries a candidate and comes to some ``end`` in the middle of it."""
    command = [sys.executable, "-c", TRIER, str(path), PROBLEM, device, candidate, PRINT, end]
    process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "trying\n"
    return process


def written(path: Path, **changed: Any) -> None:
    """A row as this process would have written it, but for what is ``changed``."""
    me = this_process()
    row = {
        "problem": PROBLEM, "device": DEVICE, "candidate": CANDIDATE, "token": "made", "fingerprint": PRINT,
        "host": me.host, "boot": me.boot, "pid": me.pid, "started": me.started, "since": time.time(),
    } | changed  # fmt: skip
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as database, database:
        marks = ", ".join("?" * len(row))
        database.execute(f"INSERT INTO trying ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


def rows(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT candidate, fingerprint, pid FROM trying").fetchall()


def test_the_row_stands_while_the_body_runs_and_quarantines_nothing(path: Path) -> None:
    with Store.open(path) as store, Store.open(path) as other:
        with store.trying(*PLACE, PRINT):
            assert rows(path) == [(CANDIDATE, PRINT, os.getpid())]
            assert other.quarantined(PROBLEM, DEVICE) == {}
            assert other.release() == 0
            assert len(rows(path)) == 1
        assert rows(path) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_is_no_crash(path: Path, error: type[BaseException]) -> None:
    with Store.open(path) as store:
        with pytest.raises(error), store.trying(*PLACE, PRINT):
            raise error
        assert rows(path) == []


@pytest.mark.parametrize("end", ["killed", "crash"])
def test_a_crash_in_the_middle_quarantines_the_candidate_and_no_other(path: Path, end: str) -> None:
    before = time.time()
    crashed = trier(path, end)
    os.waitid(os.P_PID, crashed.pid, os.WEXITED | os.WNOWAIT)
    with Store.open(path) as store:
        found = store.quarantined(PROBLEM, DEVICE)
        assert set(found) == {CANDIDATE}
        assert found[CANDIDATE].fingerprint == PRINT
        assert before <= found[CANDIDATE].since <= time.time()
        assert f"process {crashed.pid} on " in found[CANDIDATE].why
        assert "ended in the middle of this candidate's first run" in found[CANDIDATE].why
        assert store.quarantine() == {PLACE: found[CANDIDATE]}
        assert store.quarantined(PROBLEM, "A100") == store.quarantined("other", DEVICE) == {}
        assert crashed.wait() in (-signal.SIGKILL, -signal.SIGABRT)
        assert set(store.quarantined(PROBLEM, DEVICE)) == {CANDIDATE}


def test_a_process_that_leaves_in_order_quarantines_nothing(path: Path) -> None:
    assert trier(path, "exit").wait() == 0
    assert rows(path) == []


def test_a_running_process_quarantines_nothing_until_it_is_killed(path: Path) -> None:
    process = trier(path, "wait")
    with Store.open(path) as store:
        assert store.quarantined(PROBLEM, DEVICE) == {}
        process.kill()
        process.communicate()
        assert set(store.quarantined(PROBLEM, DEVICE)) == {CANDIDATE}


def test_of_two_processes_at_the_same_candidate_each_has_its_own_row(path: Path) -> None:
    first, second = trier(path, "wait"), trier(path, "wait")
    first.kill()
    first.communicate()
    second.communicate("go on\n")
    with Store.open(path) as store:
        assert f"process {first.pid} " in store.quarantined(PROBLEM, DEVICE)[CANDIDATE].why


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_crashes_leaves_its_own_row(path: Path) -> None:
    with Store.open(path) as store:
        child = os.fork()
        if child == 0:
            with store.trying(*PLACE, PRINT):
                os._exit(3)
        os.waitpid(child, 0)
        assert f"process {child} " in store.quarantined(PROBLEM, DEVICE)[CANDIDATE].why


def test_a_number_given_again_and_a_reboot_do_not_hide_a_crash(path: Path) -> None:
    written(path, candidate="number given again", started="1")
    written(path, candidate="rebooted", boot="an earlier one")
    written(path, candidate="still at it")
    with Store.open(path) as store:
        assert set(store.quarantined(PROBLEM, DEVICE)) == {"number given again", "rebooted"}


def test_another_machine_is_given_time(path: Path) -> None:
    now = time.time()
    written(path, candidate="lately", host="elsewhere", since=now - quarantine.UNHEARD_S / 2)
    written(path, candidate="long ago", host="elsewhere", since=now - 3 * quarantine.UNHEARD_S)
    with Store.open(path) as store:
        found = store.quarantined(PROBLEM, DEVICE)
        assert set(found) == {"long ago"}
        assert "on elsewhere began this candidate's first run 3 h ago and never finished" in found["long ago"].why


def test_the_latest_crash_speaks_for_a_candidate(path: Path) -> None:
    for age_s, version in ((20, "cudnn 9.18"), (10, "cudnn 9.20"), (30, "cudnn 9.17")):
        written(path, token=version, fingerprint=version, started="1", since=time.time() - age_s)
    with Store.open(path) as store:
        assert store.quarantined(PROBLEM, DEVICE)[CANDIDATE].fingerprint == "cudnn 9.20"
        assert store.release() == 1
        assert rows(path) == []


def test_release_takes_out_what_is_named_and_no_more(path: Path) -> None:
    for device in (DEVICE, "A100"):
        for candidate in ("a", "b"):
            written(path, candidate=candidate, device=device, token=device + candidate, started="1")
    with Store.open(path) as store:
        assert store.release(candidate_id="c") == 0
        assert store.release(PROBLEM, DEVICE, "a") == 1
        assert [tuple(place) for place in store.quarantine()] == [
            (PROBLEM, DEVICE, "b"),
            (PROBLEM, "A100", "a"),
            (PROBLEM, "A100", "b"),
        ]
        assert store.release(candidate_id="b") == 2
        assert store.release(device_key="A100") == 1
        assert store.quarantine() == {}


def test_what_is_released_is_searched_for_again(path: Path) -> None:
    written(path, started="1")
    with Store.open(path) as store:
        for device in (DEVICE, "A100"):
            store.record_search(PROBLEM, device, "quick", ["torch/default", CANDIDATE])
        assert store.release(candidate_id="another") == 0
        assert store.search(PROBLEM, DEVICE, "quick") is not None
        assert store.release(candidate_id=CANDIDATE) == 1
        assert store.search(PROBLEM, DEVICE, "quick") is None
        assert store.search(PROBLEM, "A100", "quick") is not None


def test_a_store_that_cannot_be_written_to_stops_no_work_and_says_so(path: Path) -> None:
    with Store.open(path) as store:
        store._database.execute("DROP TABLE trying")
        done = []
        with store.trying(*PLACE, PRINT):
            done.append(True)
        assert done
        assert store.note is not None
        assert "trying" in store.note


@pytest.mark.parametrize(("tells", "between"), [("", ""), ("tells", ""), ("tells", "recorded")])
@pytest.mark.parametrize("room", ["", "-wal"])
def test_a_full_disk_is_no_crash(path: Path, room: str, tells: str, between: str) -> None:
    keeper = Store.open(path)
    keeper.record(PROBLEM, DEVICE, "torch/default", PRINT, None, "failed")
    command = [sys.executable, "-c", FULL, str(path), *PLACE, PRINT, room, tells, between]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("1\n" if tells else "0\n")
    left = rows(path), list(path.parent.glob("*-done-*"))
    assert keeper.quarantine() == {}
    assert (rows(path), list(path.parent.glob("*-done-*"))) == left, "who reads deletes nothing"
    keeper.record_search(PROBLEM, DEVICE, "quick", [CANDIDATE])
    assert rows(path) == []
    assert list(path.parent.glob("*-done-*")) == []
    assert set(keeper.findings(PROBLEM, DEVICE)) == {"torch/default", CANDIDATE}
    keeper.close()


def test_where_only_the_log_has_no_room_nothing_is_left_beside_the_store(path: Path) -> None:
    Store.open(path).close()
    command = [sys.executable, "-c", FULL, str(path), *PLACE, PRINT, "-wal", "tells", ""]
    assert subprocess.run(command, capture_output=True, text=True).returncode == 0
    assert rows(path) == []
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_in_memory_it_costs_nothing_to_know() -> None:
    with Store.open(None) as store:
        with store.trying(*PLACE, PRINT):
            assert store.quarantined(PROBLEM, DEVICE) == {}
        assert store.note is None
