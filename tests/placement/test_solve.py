"""Placements of many jobs, which are found another way: as good as the best of few, and with a bound that holds."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from convwright.core.finding import Interval
from convwright.errors import Refused
from convwright.placement import Device, Estimate, Job, place, solve
from placement.instances import Given, brute_force, random_instance


@pytest.mark.parametrize("objective", ["makespan", "energy", "cost"])
@pytest.mark.parametrize("streams", [False, True])
def test_the_search_for_many_jobs_finds_the_best_of_few(
    objective: str, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve, "_MANY", 0)
    for seed in range(40, 44):
        given = random_instance(seed, streams=streams, once=True)
        if objective == "makespan" and all(job.is_stream for job in given[0]):
            continue
        best = brute_force(given, objective)
        if best == inf:
            with pytest.raises(Refused):
                place(*given, objective, explain=False, limit_s=5.0)
            continue
        found = place(*given, objective, explain=False, limit_s=5.0)
        assert found.bound <= best * (1 + 1e-6)
        assert found.value == pytest.approx(best, rel=1e-5)


def many(jobs: int, devices: int) -> Given:
    draw = Random(7)
    fleet = [Device(f"d{number}", 10**10, count=2) for number in range(devices // 2)]
    given = [Job(f"j{number}", f"j{number}", (8,), images=draw.randint(100, 5000)) for number in range(jobs)]
    estimates = []
    for job in given:
        for device in fleet:
            time = draw.uniform(1e3, 2e4)
            estimates.append(Estimate(job.key, device.name, 8, Interval(time, time, time), 10**9))
    return given, fleet, estimates


def test_many_jobs_are_placed_within_a_gap() -> None:
    """More columns than are solved at once."""
    found = place(*many(90, 12), gap=0.1, limit_s=10.0, explain=False)
    assert found.gap <= 0.1
    loads: dict[str, float] = {}
    for run in found.runs:
        loads[run.instance] = loads.get(run.instance, 0.0) + run.end_s - run.start_s
    assert len(found.runs) == 90
    assert max(loads.values()) == pytest.approx(found.makespan_s)
