"""The fastest configurations that `own_kernels` found, each run once for NVIDIA's profiler.

    python benchmarks/own_kernels.py benchmarks/classes/depthwise.csv --dtype fp16,fp32 --rows 0:2 --cache cold \\
        --out kernels.jsonl
    ncu --profile-from-start off --section SpeedOfLight --section LaunchStats --section Occupancy \\
        --section WarpStateStats --section MemoryWorkloadAnalysis --section SchedulerStats --csv --page raw \\
        --log-file profile.csv python benchmarks/profiled_kernels.py kernels.jsonl
    python benchmarks/profiled_kernels.py kernels.jsonl --read profile.csv [--out profiles.jsonl]

Of each line's algorithms the best configuration, so many of them as ``--most`` says. What packs a weight runs as well,
ahead of what multiplies it. The profiler empties the caches before each kernel, and holds clocks at their base.
``--read`` makes a line of each kernel that it saw: its part in the candidate, how long it took, how busy what it keeps
busy was, and what its warps waited for, in issue slots for each instruction.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from common.retiming import interval
from own_kernels import BACKEND, bound, offered

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.hardware.machine import device_facts
from convwright.report.benchmarks.lines import Lines

_SHARE, _STALLED = ".pct_of_peak_sustained_elapsed", "smsp__average_warps_issue_stalled_"
METRICS = {
    "us": "gpu__time_duration.sum",
    "cycles": "gpc__cycles_elapsed.max",
    "dram_percent": f"gpu__dram_throughput.avg{_SHARE}",
    "l2_percent": f"lts__throughput.avg{_SHARE}",
    "l1_percent": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "issue_percent": f"sm__issue_active.avg{_SHARE}",
    "instructions_per_cycle": "sm__inst_executed.avg.per_cycle_active",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
    "waves": "launch__waves_per_multiprocessor",
}
# What packs a weight ahead of a kernel, PyTorch's copies among it, and what adds up parts behind one.
_PACKING, _ADDING = ("bands", "void "), ("sum_of_parts", "turned_sum_of_parts")
_NANOSECONDS = 1e-3
_MOST_WAITS = 4


def best(line: dict[str, Any], most: int) -> list[str]:
    """The fastest of each algorithm of ours, the fastest first."""
    us = {name: interval(each).value for name, each in line["us"].items() if "/" in name}
    of_each = {name.partition("[")[0]: name for name in sorted(us, key=us.__getitem__, reverse=True)}
    return sorted(of_each.values(), key=us.__getitem__)[:most]


def named(problem: ConvProblem, id_: str, device: DeviceFacts) -> Candidate:
    return next(candidate for candidate in offered(problem, device) if candidate.id == id_)


@torch.no_grad()
def profiled(candidate: Candidate, device: DeviceFacts) -> None:
    given = operands(candidate.problem, Kind.NORMAL, str(device.torch_name), seed=1)
    pack, call = bound(BACKEND.build(candidate, device), given)

    def run() -> None:
        call(pack())
        torch.cuda.synchronize()

    run()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    run()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def seen(profile: Path) -> Iterator[dict[str, Any]]:
    """What the profiler wrote of each kernel, in the order in which they ran."""
    with profile.open() as file:
        table = csv.DictReader(line for line in file if not line.startswith("=="))
        next(table)  # units
        for row in table:
            told: dict[str, Any] = {"kernel": row["Kernel Name"].partition("(")[0]}
            told |= {name: _number(row[metric]) for name, metric in METRICS.items()}
            told["us"] *= _NANOSECONDS
            waits = {
                metric.removeprefix(_STALLED).partition("_per")[0]: _number(value)
                for metric, value in row.items()
                if metric.startswith(_STALLED) and metric.endswith("per_issue_active.ratio")
            }
            told["waits"] = dict(sorted(waits.items(), key=lambda each: -each[1])[:_MOST_WAITS])
            yield told


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def read(lines: list[dict[str, Any]], profile: Path, most: int, out: Path | None) -> None:
    """A line of each kernel. Whose it is the order tells: a candidate's own comes behind what packs for it, and ahead
    of what adds up its parts."""
    ids = iter([(line, id_) for line in lines for id_ in best(line, most)])
    written, own = None if out is None else Lines(out), next(ids)
    is_over = False
    for kernel in seen(profile):
        name = kernel["kernel"]
        if is_over and name not in _ADDING:
            own, is_over = next(ids), False
        part = "adds" if name in _ADDING else "packs" if name.startswith(_PACKING) else "own"
        is_over = is_over or part == "own"
        line, id_ = own
        told = {"problem": line["problem"], "candidate": id_, "call_us": asdict(interval(line["us"][id_]))} | kernel
        told |= {"part": part, "device": line["conditions"]["device"]}
        print(json.dumps(told))
        if written is not None:
            written.add({"benchmark": "profiled kernels", **told})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("lines", type=Path, help="what own_kernels wrote")
    parser.add_argument("--most", type=int, default=2, help="algorithms of each line")
    parser.add_argument("--read", type=Path, help="what the profiler wrote")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines = [json.loads(line) for line in asked.lines.read_text().splitlines()]
    if asked.read is not None:
        read(lines, asked.read, asked.most, asked.out)
        return
    device = device_facts("cuda")
    for line in lines:
        for id_ in best(line, asked.most):
            print(f"{line['problem']}: {id_}", flush=True)
            profiled(named(ConvProblem.parse(line["problem"]), id_, device), device)


if __name__ == "__main__":
    main()
