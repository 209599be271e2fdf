"""How much is lost where jobs are placed by predicted times: an H200 and this machine's CPU, which must share the work.

    OMP_NUM_THREADS=2 python benchmarks/placement_regret.py --out results.jsonl --predict --store STORE [--networks …]
    OMP_NUM_THREADS=2 python benchmarks/placement_regret.py --out results.jsonl --measure-cpu [--networks …]
    python benchmarks/placement_regret.py --out results.jsonl [--draws 12] [--seed 1]

The first command predicts the times of engines: of an H200 (fp16) by the shipped model, of the CPU (fp32) by the model
beside STORE, which `convwright sample --device cpu` and `convwright learn --device cpu` make. Neither knows an engine
that was measured. The second measures engines on the CPU, one network after another, and needs a quiet machine. The
third places random jobs twice: by the predicted times, and by the measured ones, which for the H200 are in
`results/h200-whole-networks.jsonl`. "regret" is the makespan of the first placement, had its jobs taken the measured
times, over that of the second, minus 1. "regret_measured_cpu" is the same by the H200's predicted times
and the CPU's measured ones, as somebody has them who is at that CPU. Each command adds to the file.

* "link": 12 jobs. The images lie on the CPU's machine, and a link of 50 to 200 Mbit/s leads to the H200.
* "fleet": 150 jobs with one image at a time, on an H200 and 16 or 64 machines with this CPU, all next to the images.

All jobs must be done within 1.1 times the least possible makespan, and each fifth within 0.55 times. Draws that one
kind of device alone can do in time do not count. torchvision is no dependency: see `predicted_networks.py`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import predicted_networks

from convwright import strict_json
from convwright.core.finding import Interval
from convwright.engine.optimize import optimize
from convwright.errors import Refused
from convwright.measuring.clock import WallClock
from convwright.measuring.conditions import conditions, today
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.placement import Device, Estimate, Job, Placement, place
from convwright.placement.placed import Placed, by_instance, makespan, times
from convwright.placement.predicted import Model, with_predictions
from convwright.placement.question import Question
from convwright.placement.ways import Way, all_ways
from convwright.store.store import Store

NETWORKS = ("mobilenet_v3_large", "efficientnet_b0", "resnet50", "densenet121", "convnext_tiny", "regnet_y_3_2gf")
H200, CPU = Device("h200", 141 * 10**9), Device("cpu", 16 * 10**9)
BATCHES = (1, 32)
IMAGE_BYTES = 3 * 224 * 224
LINKS = (6.25e6, 12.5e6, 25e6)  # bytes per second: 50, 100 and 200 Mbit/s
SLACK, URGENT = 1.1, 0.55  # deadlines, as shares of the least makespan
ON_CPU, PREDICTED = "engines on the CPU", "predictions"
LIMIT_S = 10.0  # of a placement
_MOST_DRAWS = 20  # for each instance


@dataclass(frozen=True, slots=True)
class Instance:
    """Jobs and devices, without times, and how far from the best a placement may be."""

    jobs: tuple[Job, ...]
    devices: tuple[Device, ...]
    gap: float = 0.0

    def placed(self, estimates: Sequence[Estimate]) -> Placement:
        return place(self.jobs, self.devices, estimates, explain=False, gap=self.gap, limit_s=LIMIT_S)

    def patient(self) -> Instance:
        """The same without deadlines."""
        return replace(self, jobs=tuple(replace(job, deadline_s=None) for job in self.jobs))


@dataclass(frozen=True, slots=True)
class Outcome:
    """``makespan_s`` and ``late`` jobs of the placement by predictions, had its jobs taken the measured times, beside
    the ``best_s`` of all placements. ``refused``: by predictions no placement meets the deadlines, so they were left
    out."""

    makespan_s: float
    best_s: float
    late: int
    refused: bool
    on_cpu: int
    best_on_cpu: int
    gap: float

    @property
    def regret(self) -> float:
        return self.makespan_s / self.best_s - 1


def outcome(asked: Instance, predicted: Sequence[Estimate], measured: Sequence[Estimate]) -> Outcome:
    """The loss by predicted times."""
    best, refused = asked.placed(measured), False
    try:
        found = asked.placed(predicted)
    except Refused:
        found, refused = asked.patient().placed(predicted), True
    placed, question = with_times(found, asked, measured)
    deadlines = {job.name: job.deadline_s or inf for job in asked.jobs}
    ends = ((way.job, end) for ways in by_instance(placed).values() for way, _, end in times(question, ways))
    late = sum(end > deadlines[job] * (1 + 1e-6) for job, end in ends)
    return Outcome(makespan(placed), best.makespan_s, late, refused, _on_cpu(found), _on_cpu(best), best.gap)


def with_times(found: Placement, asked: Instance, estimates: Sequence[Estimate]) -> tuple[tuple[Placed, ...], Question]:
    """The same decision with other times, whether or not deadlines are met, and its question."""
    question = Question(asked.patient().jobs, asked.devices, tuple(estimates))
    ways = {
        (way.job, way.device, way.batch): way
        for job in question.jobs for way in all_ways(question, job) if isinstance(way, Way)
    }  # fmt: skip
    placed = tuple(
        Placed(ways[each.job.name, each.way.device, each.way.batch], tuple(map(_number, each.instances)))
        for each in found.assigned
    )
    return placed, replace(question, jobs=asked.jobs)


def _number(instance: str) -> int:
    return int(instance.rpartition("/")[2])


def _on_cpu(found: Placement) -> int:
    return sum(each.way.device == CPU.name for each in found.assigned)


def drawn(case: str, draw: Random, measured: Sequence[Estimate]) -> Instance:
    """An instance that needs both kinds of devices."""
    for _ in range(_MOST_DRAWS):
        free = _link(draw, measured) if case == "link" else _fleet(draw, measured)
        deadline_s = SLACK * free.placed(measured).makespan_s
        jobs = tuple(
            replace(job, deadline_s=deadline_s * (URGENT / SLACK if number % 5 == 0 else 1))
            for number, job in enumerate(free.jobs)
        )
        asked = replace(free, jobs=jobs)
        alone = [replace(asked, devices=(each,)) for each in asked.devices]
        if _can(asked, measured) and not any(_can(each, measured) for each in alone):
            return asked
    raise RuntimeError(f"{_MOST_DRAWS} draws of {case!r} in a row need one device at most")


def _can(asked: Instance, measured: Sequence[Estimate]) -> bool:
    names = {each.name for each in asked.devices}
    try:
        asked.placed([each for each in measured if each.device in names])
    except Refused:
        return False
    return True


def _link(draw: Random, measured: Sequence[Estimate]) -> Instance:
    batches = tuple(sorted({each.batch for each in measured}))
    return Instance(
        tuple(
            replace(job, source=CPU.name, bytes_in=IMAGE_BYTES)
            for job in _jobs(draw, measured, 12, (100, 3000), batches)
        ),
        (replace(H200, links=((CPU.name, draw.choice(LINKS)),)), CPU),
    )


def _fleet(draw: Random, measured: Sequence[Estimate]) -> Instance:
    return Instance(
        _jobs(draw, measured, 150, (100, 1000), (1,)), (H200, replace(CPU, count=draw.choice((16, 64)))), gap=0.005
    )


def _jobs(
    draw: Random, measured: Sequence[Estimate], count: int, images: tuple[int, int], batches: tuple[int, ...]
) -> tuple[Job, ...]:
    networks = sorted({each.key for each in measured})
    few, many = map(log, images)
    return tuple(
        Job(f"j{number}", draw.choice(networks), batches, images=int(exp(draw.uniform(few, many))))
        for number in range(count)
    )


def measured_on_cpu(networks: Iterable[str], budget_s: float, limit_s: float) -> Iterator[dict[str, Any]]:
    """The times of engines on this machine's CPU, batch 1."""
    begun_s, facts = perf_counter(), device_facts("cpu")
    for network in networks:
        if perf_counter() - begun_s > limit_s:
            return
        model, x = _made(network)
        load, built_s = os.getloadavg()[0], perf_counter()
        engine = optimize(model.float(), x.float(), store=Store.open(None))
        built_s = perf_counter() - built_s
        engine.input.copy_(x)

        def run(engine: Any = engine, x: Any = x) -> Any:
            engine.run()
            return x

        timing = measure_calls({"run": run}, clock=WallClock(), budget_us=budget_s * 1e6)["run"]
        yield {
            "table": ON_CPU, "network": network, "batch": 1, "dtype": "fp32",
            "us": timing.call_us.to_json(), "unstable": timing.unstable, "built_s": built_s, "load_before": load,
            "load_after": os.getloadavg()[0], "conditions": dict(conditions(facts)) | dict(today()),
        }  # fmt: skip


def _made(network: str) -> tuple[Any, Any]:
    return predicted_networks.Case("engines", network, "h200", 1, None, 0.0).made()


def h200_us(networks: Iterable[str]) -> dict[tuple[str, int], float]:
    """The measured times of engines on the H200, by network and batch."""
    return {
        (case.network, case.batch): case.us
        for case in predicted_networks.engines()
        if case.network in networks and case.batch in BATCHES and case.size is None
    }


def predictions(networks: Iterable[str], store: Path) -> Iterator[dict[str, Any]]:
    """The predicted times of engines on both devices."""
    at = today()
    for network in networks:
        for device, batches in ((H200, BATCHES), (CPU, (1,))):
            model, x = _made(network)
            given = Model(model, x, "fp16") if device is H200 else Model(model.float(), x.float())
            kept = "none" if device is H200 else store
            jobs = [Job(network, network, batches, images=1)]
            for found in with_predictions(jobs, [device], (), {network: given}, store=kept).estimates:
                us = found.time_us
                yield {
                    "table": PREDICTED, "network": network, "device": device.name, "batch": found.batch,
                    "us": {"value": us.value, "low": us.low, "high": us.high if us.high < inf else None},
                    "conditions": dict(at),
                }  # fmt: skip


def estimates_of(known: Iterable[dict[str, Any]]) -> tuple[list[Estimate], list[Estimate]]:
    """The predicted and the measured times of engines that both devices have run."""
    known = list(known)
    cpu_us = {row["network"]: row["us"]["value"] for row in known if row["table"] == ON_CPU}
    measured = {(network, "h200", batch): us for (network, batch), us in h200_us(cpu_us).items()}
    measured |= {(network, "cpu", 1): us for network, us in cpu_us.items() if (network, "h200", 1) in measured}
    predicted = {
        (row["network"], row["device"], row["batch"]): row["us"]["value"] for row in known if row["table"] == PREDICTED
    }
    both = [each for each in measured if each in predicted and (each[0], "cpu", 1) in measured]
    return [_certain(*each, predicted[each]) for each in both], [_certain(*each, measured[each]) for each in both]


def _certain(key: str, device: str, batch: int, us: float) -> Estimate:
    return Estimate(key, device, batch, Interval(us, us, us), 10**9)


def placements(known: Iterable[dict[str, Any]], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """How much is lost by predictions."""
    predicted, measured = estimates_of(known)
    for found, at in zip(predicted, measured, strict=True):
        yield {
            "table": "engines", "network": at.key, "device": at.device, "batch": at.batch,
            "measured_us": at.time_us.value, "predicted_us": found.time_us.value,
            "ratio": found.time_us.value / at.time_us.value,
        }  # fmt: skip
    of_cpu_measured = [
        at if at.device == CPU.name else found for found, at in zip(predicted, measured, strict=True)
    ]  # fmt: skip
    for case in ("link", "fleet"):
        draw = Random(f"{case} {options.seed}")
        for number in range(options.draws):
            asked = drawn(case, draw, measured)
            lost = outcome(asked, predicted, measured)
            yield {
                "table": "placements", "case": case, "seed": options.seed, "draw": number, "jobs": len(asked.jobs),
                "cpus": asked.devices[1].count, "links": dict(asked.devices[0].links), "regret": lost.regret,
                "regret_measured_cpu": outcome(asked, of_cpu_measured, measured).regret,
                **{name: getattr(lost, name) for name in Outcome.__slots__}, "conditions": dict(today()),
            }  # fmt: skip


def summary(found: Iterable[dict[str, Any]]) -> str:
    placements = [row for row in found if row["table"] == "placements"]
    lines = list[str]()
    for case in dict.fromkeys(row["case"] for row in placements):
        of = [row for row in placements if row["case"] == case]
        mean, of_cpu_measured = (
            exp(sum(log(1 + row[name]) for row in of) / len(of)) - 1 for name in ("regret", "regret_measured_cpu")
        )
        late, refused = sum(row["late"] > 0 for row in of), sum(row["refused"] for row in of)
        lines.append(
            f"{case}: {len(of)} placements, regret {mean:.1%} (geometric mean), {max(row['regret'] for row in of):.1%} "
            f"at most; {late} with a late job, {refused} refused by predictions; with the CPU's times measured "
            f"{of_cpu_measured:.1%}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--store", type=Path, help="beside which the CPU's model lies")
    parser.add_argument("--measure-cpu", action="store_true")
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="to predict or to measure")
    parser.add_argument("--budget-s", type=float, default=5.0, help="to measure one engine")
    parser.add_argument("--all-s", type=float, default=300.0, help="no engine is built after so many seconds")
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    known = [json.loads(line) for line in lines]
    if options.predict:
        found = predictions(options.networks, options.store)
    elif options.measure_cpu:
        found = measured_on_cpu(options.networks, options.budget_s, options.all_s)
    else:
        found = placements([*known], options)
    for row in found:
        known.append({"benchmark": "placement regret", **row})
        print(strict_json.dumps(known[-1]), flush=True)
        with options.out.open("a") as file:
            file.write(strict_json.dumps(known[-1]) + "\n")
    print(summary(known))


if __name__ == "__main__":
    main()
