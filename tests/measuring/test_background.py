"""Other work on the machine is named where a figure is not known well."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

import pytest

from convwright.measuring.disturbances.background import Background, causes
from convwright.measuring.disturbances.stability import complaints
from convwright.measuring.regression import median_interval


def test_a_few_interruptions_are_no_cause() -> None:
    assert causes(switches=4, seconds=0.01, cores=2, threads=2, load=5.0) == ()
    assert causes(switches=90, seconds=10.0, cores=2, threads=2, load=5.0) == ()


def test_who_waits_for_no_core_is_not_disturbed_however_often_it_was_interrupted() -> None:
    often = {"switches": 900, "seconds": 1.0, "cores": 2, "threads": 2, "load": 3.0}
    assert causes(**often, waiting=0.04) == ()
    assert causes(**often, waiting=0.06) == (
        "other work had the cores for 6% of the time (load average 3.0 on 2 cores)",
    )
    assert causes(**(often | {"switches": 0}), waiting=0.5) != ()


def test_more_threads_than_cores_are_the_cause_of_their_own_interruptions() -> None:
    (cause,) = causes(switches=500, seconds=1.0, cores=4, threads=64, load=30.0)
    assert "64 threads share 4 cores" in cause
    assert "`threads=4`" in cause


def test_a_load_average_that_cannot_be_known_is_left_out() -> None:
    (cause,) = causes(switches=500, seconds=1.0, cores=4, threads=4, load=None)
    assert cause.endswith("(4 cores)")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not count involuntary context switches")
def test_a_core_that_is_taken_away_shows() -> None:
    background = Background()
    count = 2 * (__import__("os").cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        end = perf_counter() + 5.0
        while not background.causes() and perf_counter() < end:
            sum(range(100_000))
        assert background.causes()
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_the_cause_stands_with_the_complaint() -> None:
    slopes = [7.0, 9.0, 8.0, 7.5, 12.0, 7.1, 7.2, 30.0]
    (complaint,) = complaints(
        slopes, median_interval(slopes), 0.01, bend=0.0, slowed_down=None, background=["others were busy"]
    )
    assert "after 8 rounds: others were busy: give a larger budget" in complaint
