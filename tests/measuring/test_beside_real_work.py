"""The timer's truths beside processes that keep every core busy, and beside nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from convwright.measuring.clock import WallClock
from convwright.measuring.compare import Outcome, compare
from convwright.measuring.regression import paired_ratio
from convwright.measuring.timer import measure_calls

RUNNING = Path("/proc/loadavg")


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def busy_already() -> int:
    """How many processes of others run or wait for a core, in the quietest moment of half a second."""
    if not RUNNING.exists():
        return 0
    seen = []
    for _ in range(10):
        time.sleep(0.05)
        seen.append(int(RUNNING.read_text().split()[3].partition("/")[0]) - 1)
    return max(0, min(seen))


def units(count: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(count):
            sum(range(60))

    return run


def test_the_truths_hold_beside_real_work() -> None:
    """f, f∘f and f∘f∘f take 1:2:3, a call takes as long as itself, and 3 % more work is found to be more."""
    calls = {"1": units(100), "2": units(200), "3": units(300), "1 again": units(100), "1.03": units(103)}
    with busy_processes(max(0, (os.cpu_count() or 1) - busy_already())):
        for budget_us in (1e6, 3e6, 9e6, 27e6, 27e6):  # Another try is a longer one.
            found = measure_calls(calls, clock=WallClock(), budget_us=budget_us)
            slopes = {name: timing.round_slopes_us for name, timing in found.items()}
            ratios = {k: paired_ratio(slopes[str(k)], slopes["1"]) for k in (2, 3)}
            right = all(abs(ratio.value / k - 1) < 0.03 for k, ratio in ratios.items())
            same = compare(found["1 again"], found["1"]).outcome in (Outcome.SAME, Outcome.AMBIGUOUS)
            more = paired_ratio(slopes["1.03"], slopes["1"])
            if right and same and more.low > 1.0 and more.value == pytest.approx(1.03, abs=0.015):
                return
    pytest.fail(f"1:2:3 is {ratios}, 1:1 {compare(found['1 again'], found['1'])}, 1:1.03 {more}")
