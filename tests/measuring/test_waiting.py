"""How long threads wait for a core, as Linux counts it and where nobody does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from time import perf_counter

import pytest

from convwright.measuring.disturbances import waiting
from convwright.measuring.disturbances.waiting import MOST_WAITING, Waiting

COUNTED = Path("/proc/self/schedstat").exists()


def test_the_thread_that_waited_longest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter([{"1": 0, "2": 500}, {"1": 300, "2": 500}, {"1": 300, "2": 600, "3": 250}, {"1": 9999}])
    moments = iter([0, 1000, 2000, 3000])
    monkeypatch.setattr(waiting, "waited_ns", lambda: next(counted))
    monkeypatch.setattr(waiting, "now_ns", lambda: next(moments))
    looked = Waiting()
    assert [looked.share() for _ in range(3)] == [0.3, 0.25, 1.0]


def test_where_nobody_counts_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path):
        (tmp_path / "1").mkdir(exist_ok=True)  # a thread without the file
        monkeypatch.setattr(waiting, "_TASKS", place)
        assert Waiting().share() is None


@pytest.mark.skipif(not COUNTED, reason="this system does not count how long threads wait")
def test_a_core_that_others_have_shows() -> None:
    count = 2 * (os.cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        looked, end_s, most = Waiting(), perf_counter() + 5.0, 0.0
        while most < MOST_WAITING and perf_counter() < end_s:
            sum(range(1_000_000))
            most = max(most, looked.share() or 0.0)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert most >= MOST_WAITING


@pytest.mark.skipif(not COUNTED, reason="this system does not count how long threads wait")
def test_no_file_of_a_thread_that_has_ended_stays_open() -> None:
    looked, done = Waiting(), threading.Event()
    before = set(waiting._files)
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert looked.share() is not None
    assert len(waiting._files) == len(before) + 1
    done.set()
    thread.join()
    end_s = perf_counter() + 5.0
    while set(waiting._files) != before and perf_counter() < end_s:  # The system lists it a moment longer.
        assert looked.share() is not None
    assert set(waiting._files) == before


@pytest.mark.skipif(not COUNTED, reason="this system does not count how long threads wait")
def test_who_was_forked_off_has_waited_for_itself() -> None:
    code = """
import os, sys
from convwright.measuring.disturbances.waiting import waited_ns
mine = waited_ns()
child = os.fork()
if not child:
    os._exit(0 if set(waited_ns()) == {str(os.getpid())} else 1)
sys.exit(os.waitpid(child, 0)[1] >> 8 or not set(mine) == set(waited_ns()))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
