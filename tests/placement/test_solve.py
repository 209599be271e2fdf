"""Placements of many jobs, which are found another way: as good as the best of few, and with a bound that holds."""

from __future__ import annotations

from math import inf
from random import Random
from time import perf_counter

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


def test_a_stream_that_hardly_needs_a_device_takes_none_from_others() -> None:
    """The stream "rare" needs 8e-7 of a device. With that number in a row, the solver finds no placement."""
    jobs = [
        Job("once", "slow", (8,), images=100),
        Job("rare", "quick", (2,), rate_per_s=0.01),
        Job("often", "slow", (2, 8), rate_per_s=333.3, source="host", bytes_in=1),
    ]
    fleet = [Device("gpu", 40, count=3, price_per_hour=1.0, links=(("host", 1000.0),))]
    times = (("quick", 2, 162.0, 5), ("slow", 2, 162.0, 12), ("slow", 8, 42871.0, 9))
    estimates = [Estimate(key, "gpu", batch, Interval(us, us, us), size) for key, batch, us, size in times]
    assert place(jobs, fleet, estimates).makespan_s == pytest.approx(13 * 0.042871)


@pytest.mark.parametrize("kind", ["deadlines", "rates", "memory"])
@pytest.mark.parametrize("seed", range(8))
def test_what_fills_devices_to_the_last_is_placed(kind: str, seed: int) -> None:
    """Each device is cut into jobs without a rest, some of them into equal ones."""
    draw = Random(seed)
    cuts = [sorted(draw.sample(range(1, 840), draw.randint(1, 4))) for _ in range(2)]
    parts = [b - a for cut in cuts for a, b in zip([0, *cut], [*cut, 840], strict=True)]
    equal = draw.choice((1, 2, 3, 4))
    parts += [840 // equal] * equal
    fleet = [Device("gpu", 840 if kind == "memory" else 10**9, count=3)]
    jobs, estimates = list[Job](), list[Estimate]()
    for number, part in enumerate(parts):
        name = f"j{number}"
        if kind == "deadlines":
            jobs.append(Job(name, name, (1,), images=part, deadline_s=8.4))
        else:
            jobs.append(Job(name, name, (1,), rate_per_s=part / 8.4 if kind == "rates" else 1.0))
        memory = part if kind == "memory" else 1
        estimates.append(Estimate(name, "gpu", 1, Interval(1e4, 1e4, 1e4), memory))
    found = place(jobs, fleet, estimates, "makespan" if kind == "deadlines" else "latency", explain=False)
    assert len(found.assigned) == len(parts)


@pytest.mark.parametrize("kind", ["deadlines", "rates", "memory"])
@pytest.mark.parametrize("most", [2, 3])
def test_one_job_too_many_is_refused_before_the_time_is_over(kind: str, most: int) -> None:
    """Their sum is below what there is, but no more than ``most`` are on one device."""
    draw, devices = Random(3), 20
    fleet = [Device("gpu", 1000 if kind == "memory" else 10**9, count=devices)]
    jobs, estimates = list[Job](), list[Estimate]()
    for number in range(most * devices + 1):
        name, part = f"j{number}", draw.uniform(1.02, 1.2) / (most + 1)
        if kind == "deadlines":
            jobs.append(Job(name, name, (1,), images=round(1000 * part), deadline_s=10.0))
        else:
            jobs.append(Job(name, name, (1,), rate_per_s=100 * part if kind == "rates" else 1.0))
        memory = round(1000 * part) if kind == "memory" else 1
        estimates.append(Estimate(name, "gpu", 1, Interval(1e4, 1e4, 1e4), memory))
    objective, begun = "makespan" if kind == "deadlines" else "latency", perf_counter()
    with pytest.raises(Refused, match=f"^job 'j{most * devices}' does not fit together with the {most * devices} jobs"):
        place(jobs, fleet, estimates, objective)
    assert perf_counter() - begun < 10  # less than a search that runs out of time


def test_more_work_than_time_is_refused_though_it_is_hard_to_say_which_job_is_the_first_too_many() -> None:
    draw = Random(0)
    weights = [draw.uniform(0.3, 1.0) for _ in range(60)]
    jobs = [
        Job(f"j{number}", "net", (8,), images=int(weight / sum(weights) * 161_600), deadline_s=10.0)
        for number, weight in enumerate(weights)
    ]
    begun = perf_counter()
    with pytest.raises(Refused, match=r"^job 'j5\d' does not fit .*: their deadlines are too short for all of them$"):
        place(jobs, [Device("gpu", 10**10, count=20)], [Estimate("net", "gpu", 8, Interval(1e4, 1e4, 1e4), 10**9)])
    assert perf_counter() - begun < 10


def test_a_search_without_an_answer_says_that_more_time_may_help(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(self: object, *, gap: float, limit_s: float) -> solve.Found:
        return solve.Found(None, -inf)

    monkeypatch.setattr(solve.PlacementProgram, "found", found)
    with pytest.raises(
        Refused, match=r"^no placement of 3 jobs was found in 5 s, and there may be one: allow more time "
    ):
        place(*many(3, 2), limit_s=5.0)


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
