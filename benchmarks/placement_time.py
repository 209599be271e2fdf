"""How long placements of many jobs take, and how close to the best they are proven to be.

    OMP_NUM_THREADS=1 python benchmarks/placement_time.py [--out results.jsonl] [--jobs 200] [--gap 0.02] [--limit-s 30]

Random jobs on 20 devices: all different, in four kinds of five, or all equal; each objective, for jobs that are run
once and for a mixture with streams. The times and images of jobs span two orders of magnitude each, and each job has
batch sizes of 1, 8 and 32. A line says the objective, its proven bound, and the seconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from convwright.core.finding import Interval
from convwright.errors import Refused
from convwright.measuring.conditions import conditions, today
from convwright.measuring.hardware.machine import device_facts
from convwright.placement import Device, Estimate, Job, place
from convwright.placement.question import Objective

FLEETS = ((20, 1), (4, 5), (1, 20))  # kinds, and how many of each
BATCHES = (1, 8, 32)
ONCE, MIXED = ("makespan", "energy", "cost"), ("makespan", "energy", "latency", "cost")
STREAMS = 0.3  # of all jobs, where there are some


def instance(
    seed: int, jobs: int, kinds: int, count: int, streams: float
) -> tuple[list[Job], list[Device], list[Estimate]]:
    draw = Random(seed)
    devices = []
    for number in range(kinds):
        memory, price, link = int(draw.uniform(8e9, 80e9)), draw.uniform(0.5, 4.0), draw.uniform(5e9, 25e9)
        devices.append(Device(f"d{number}", memory, count=count, price_per_hour=price, links=(("host", link),)))
    speeds = {device.name: draw.uniform(0.5, 4.0) for device in devices}
    given, estimates = [], []
    for number in range(jobs):
        name, image_us = f"j{number}", 10 ** draw.uniform(2, 4)
        if draw.random() < streams:
            rate = draw.uniform(0.04, 1.0) * 1e6 / image_us
            given.append(Job(name, name, BATCHES, rate_per_s=rate, source="host", bytes_in=150_000))
        else:
            images = int(10 ** draw.uniform(3, 5))
            given.append(Job(name, name, BATCHES, images=images, source="host", bytes_in=150_000))
        for device in devices:
            speed = speeds[device.name] * draw.uniform(0.6, 1.6)
            for batch in BATCHES:
                time_us = image_us * (0.5 + batch**0.9) / speed
                interval = Interval(time_us, 0.9 * time_us, 1.1 * time_us)
                memory, power = int(1e9 + 2e8 * batch), draw.uniform(100, 400)
                estimates.append(Estimate(name, device.name, batch, interval, memory, power))
    return given, devices, estimates


def placed(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for streams, objectives in ((0.0, ONCE), (STREAMS, MIXED)):
        for kinds, count in FLEETS:
            given = instance(options.seed, options.jobs, kinds, count, streams)
            for objective in objectives:
                line = {"benchmark": "placement time", "jobs": options.jobs, "kinds": kinds, "count": count}
                line |= {"streams": streams, "objective": objective, "seed": options.seed}
                line |= {"asked_gap": options.gap, "limit_s": options.limit_s}
                begun = perf_counter()
                try:
                    found = place(*given, Objective(objective), gap=options.gap, limit_s=options.limit_s, explain=False)
                    line |= {"value": found.value, "bound": found.bound, "gap": found.gap}
                except Refused as error:
                    line |= {"refused": str(error)}
                yield line | {"seconds": perf_counter() - begun}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--gap", type=float, default=0.02)
    parser.add_argument("--limit-s", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    taken = dict(conditions(device_facts("cpu"))) | dict(today())
    for line in placed(options):
        told = f"gap {line['gap']:7.2%}" if "gap" in line else line["refused"]
        kinds = f"{line['kinds']:2} x {line['count']:2}, streams {line['streams']:.0%}, {line['objective']:8}"
        print(f"{kinds} {told} in {line['seconds']:5.1f} s", flush=True)
        if options.out:
            with options.out.open("a") as out:
                out.write(json.dumps(line | {"conditions": taken}) + "\n")


if __name__ == "__main__":
    main()
