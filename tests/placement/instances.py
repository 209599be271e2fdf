"""Random jobs, devices and estimates, and the best placement by trying all of them."""

from __future__ import annotations

from itertools import combinations, product
from math import ceil, inf
from random import Random

from convwright.core.finding import Interval
from convwright.placement import Device, Estimate, Job

Given = tuple[list[Job], list[Device], list[Estimate]]
PERIOD_S = 3600.0


def random_instance(seed: int, *, streams: bool, once: bool, tight: bool = True) -> Given:
    """3 to 5 jobs on 2 or 3 kinds of devices, with deadlines, caps, links and memory that sometimes bind."""
    draw = Random(seed)
    devices = [
        Device(
            f"d{number}",
            draw.randint(6, 14),
            count=draw.choice((1, 1, 2)),
            power_cap_w=draw.choice((None, 300.0)) if tight else None,
            price_per_hour=draw.uniform(0.5, 4.0),
            links=(("host", draw.uniform(50.0, 500.0)),) if draw.random() < 0.8 or not tight else (),
        )
        for number in range(draw.randint(2, 3))
    ]
    jobs = []
    for number in range(draw.randint(3, 5)):
        name, batches = f"j{number}", (1, 8)
        source, moved = draw.choice((None, "host", "d0")), draw.randint(0, 2)
        if streams and (not once or draw.random() < 0.5):
            deadline = draw.choice((None, None, draw.uniform(0.5, 4.0))) if tight else None
            rate = draw.uniform(1.0, 8.0)
            jobs.append(Job(name, name, batches, None, rate, deadline, None, moved, 0))
        else:
            deadline = draw.choice((None, None, draw.uniform(20.0, 60.0))) if tight else None
            jobs.append(Job(name, name, batches, draw.randint(20, 200), None, deadline, source, moved, 1))
    estimates = []
    for job in jobs:
        for device, batch in product(devices, (1, 8)):
            if draw.random() < 0.9:
                time = draw.uniform(0.05, 0.3) * (1 if batch == 1 else draw.uniform(3.0, 6.0)) * 1e6
                interval = Interval(time, time * 0.9, time * 1.15)
                memory, power = draw.randint(2, 8), draw.uniform(100.0, 330.0)
                estimates.append(Estimate(job.name, device.name, batch, interval, memory, power))
    return jobs, devices, estimates


def brute_force(given: Given, objective: str, at_most: dict[str, float] | None = None) -> float:
    """The least objective of all placements; infinite where there is none."""
    jobs, devices, estimates = given
    found = inf
    for chosen in product(*(_options(job, devices, estimates) for job in jobs)):
        figures = _figures(jobs, devices, chosen)
        if figures is not None and all(figures[name] <= limit for name, limit in (at_most or {}).items()):
            found = min(found, figures[objective])
    return found


_Option = tuple[Estimate, tuple[tuple[str, int], ...], float]


def _options(job: Job, devices: list[Device], estimates: list[Estimate]) -> list[_Option]:
    """An estimate, the instances, and the seconds that each of them is busy: within a second for a stream."""
    found: list[_Option] = []
    for estimate in estimates:
        if estimate.key != job.key:
            continue
        device = next(each for each in devices if each.name == estimate.device)
        bandwidth = inf if job.source in (None, device.name) else dict(device.links).get(job.source or "", 0.0)
        if not bandwidth or estimate.memory_bytes > device.memory_bytes:
            continue
        if device.power_cap_w is not None and (estimate.power_w or 0.0) > device.power_cap_w:
            continue
        moving = (job.bytes_in + job.bytes_out) / bandwidth
        if job.images is not None:
            seconds, count = ceil(job.images / estimate.batch) * estimate.time_us.value / 1e6 + job.images * moving, 1
        else:
            assert job.rate_per_s is not None
            load = job.rate_per_s * (estimate.time_us.value / 1e6 / estimate.batch + moving)
            count = ceil(load)
            seconds = load / count
        for numbers in combinations(range(device.count), count):
            found += [(estimate, tuple((device.name, number) for number in numbers), seconds)]
    return found


def _figures(jobs: list[Job], devices: list[Device], chosen: tuple[_Option, ...]) -> dict[str, float] | None:
    """What a placement comes to; None where it is none."""
    on: dict[tuple[str, int], list[tuple[Job, _Option]]] = {}
    for job, option in zip(jobs, chosen, strict=True):
        for instance in option[1]:
            on.setdefault(instance, []).append((job, option))
    memory, prices = ({each.name: getattr(each, of) for each in devices} for of in ("memory_bytes", "price_per_hour"))
    cost, makespan, energy, latency, rates = 0.0, 0.0, 0.0, 0.0, 0.0
    for (name, _), its in on.items():
        if len({job.is_stream for job, _ in its}) == 2:
            return None
        if its[0][0].is_stream:
            full = sum(option[2] for _, option in its) > 1 or sum(o[0].memory_bytes for _, o in its) > memory[name]
            if full:
                return None
            cost += prices[name] * PERIOD_S / 3600
        else:
            now = 0.0
            for job, option in sorted(its, key=lambda each: each[0].deadline_s or inf):
                now += option[2]
                if now > (job.deadline_s or inf):
                    return None
            makespan = max(makespan, now)
            cost += prices[name] * now / 3600
    for job, (estimate, instances, _) in zip(jobs, chosen, strict=True):
        seconds, power = estimate.time_us.value / 1e6, estimate.power_w or 0.0
        if job.images is not None:
            energy += power * ceil(job.images / estimate.batch) * seconds
            continue
        assert job.rate_per_s is not None
        energy += power * seconds * job.rate_per_s / estimate.batch * PERIOD_S
        waited = (estimate.batch - 1) * len(instances) / job.rate_per_s + seconds
        if waited > (job.deadline_s or inf):
            return None
        latency, rates = latency + waited * job.rate_per_s, rates + job.rate_per_s
    return {"makespan": makespan, "energy": energy, "cost": cost, "latency": latency / rates if rates else inf}
