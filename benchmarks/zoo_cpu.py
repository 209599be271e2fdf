"""Layers of well-known networks on this CPU: what cw.conv2d runs, beside F.conv2d, timed anew in a fresh process.

    OMP_NUM_THREADS=2 python benchmarks/zoo_cpu.py [--out results.jsonl] [--mode full] [--search-s 10] [--limit 3]

One process searches and keeps its findings in a store. A second one, which knows nothing but that store, takes new
inputs and times ``cw.conv2d``, which takes the stored finding at its first call and keeps it if it proves to be faster
in use, and ``F.conv2d`` interleaved in one run of the timer. The rows are those of the suite `zoo-sample`, one image
and eight.

A run that other work on the machine disturbed, so that the ratio is known to no more than ±2 %, is taken again, twice
at most, and the one with the narrowest interval counts, whatever it says. Where PyTorch's own call is chosen the two
are one function: a FAST there tells of the machine and not of convwright, and the summary says how many there are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import convwright as cw
from convwright import suites
from convwright.core.direction import Role
from convwright.core.finding import Interval
from convwright.core.problem import ConvProblem
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import Verdict, compare
from convwright.measuring.conditions import conditions
from convwright.measuring.data import Kind, operands
from convwright.measuring.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.measuring.timing import Timing
from convwright.report.bench import geometric_mean
from convwright.tuning.session import session

BATCHES = (1, 8)
# Not the seed of any search.
SEED = 20261121
NARROW, ATTEMPTS = 0.02, 3
# Calls within which a choice has proved itself, or PyTorch's own call serves.
PROVING = 30


def rows(limit: int | None) -> Iterator[tuple[str, int, ConvProblem]]:
    for batch in BATCHES:
        for row in suites.load("zoo-sample").with_(batch=batch).rows[:limit]:
            yield row.name, batch, row.problem


def search(options: argparse.Namespace) -> None:
    """The first process: find, and leave what was found in the store."""
    for name, batch, problem in rows(options.limit):
        found = cw.find(problem, device="cpu", mode=options.mode, budget_us=options.search_s * 1e6)
        choice = None if found.choice is None else found.choice.candidate.id
        print(json.dumps({"name": name, "batch": batch, "choice": choice}), flush=True)


def retime(options: argparse.Namespace) -> None:
    """The second process: new inputs, and nothing known but the store."""
    known = dict(conditions(device_facts("cpu"))) | {"cache": "hot", "clock": WallClock.__name__}
    for name, batch, problem in rows(options.limit):
        given = operands(problem, Kind.NORMAL, "cpu", seed=SEED)
        padding = problem.symmetric_padding
        assert padding is not None
        arguments = (given[Role.X], given[Role.W], None, problem.stride, padding, problem.dilation, problem.groups)
        spent_us = session().spent_us
        with torch.no_grad():
            for _ in range(PROVING):
                cw.conv2d(*arguments)
            calls = {"ours": lambda a=arguments: cw.conv2d(*a), "torch": lambda a=arguments: F.conv2d(*a)}
            attempts = [timed(calls, options.budget_s * 1e6)]
            while attempts[-1][2].ratio.relative_halfwidth > NARROW and len(attempts) < ATTEMPTS:
                attempts.append(timed(calls, options.budget_s * 1e6))
        ours, torchs, verdict = min(attempts, key=lambda attempt: attempt[2].ratio.relative_halfwidth)
        last = cw.last_choice()
        line = {
            "benchmark": "cpu zoo", "suite": "zoo-sample", "name": name, "batch": batch, "problem": problem.key,
            "choice": None if last is None else last.candidate.id, "deciding_us": session().spent_us - spent_us,
            "ours_us": asdict(ours.call_us), "torch_us": asdict(torchs.call_us), "samples": ours.samples,
            "ratio": asdict(verdict.ratio), "outcome": str(verdict.outcome),
            "unstable": ours.unstable or torchs.unstable, "attempts": [attempt[2].to_json() for attempt in attempts],
            "seed": SEED, "date": datetime.now(UTC).isoformat(timespec="seconds"), "conditions": known,
        }  # fmt: skip
        print(json.dumps(line), flush=True)


def timed(calls: dict[str, Callable[[], Tensor]], budget_us: float) -> tuple[Timing, Timing, Verdict]:
    """Both calls in one run, and how the first compares with the second."""
    ours, torchs = measure_calls(calls, clock=WallClock(), budget_us=budget_us, seed=SEED).values()
    return ours, torchs, compare(ours, torchs)


STAGES = {"search": search, "retime": retime}


def stage(name: str, store: Path) -> Iterator[dict]:
    """The lines that a process of its own prints, as they come."""
    environment = {**os.environ, "CONVWRIGHT_STORE": str(store), "CONVWRIGHT_MODE": "quick"}
    command = [sys.executable, __file__, *sys.argv[1:], "--stage", name]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
    if process.returncode:
        sys.exit(process.returncode)


def both(options: argparse.Namespace) -> None:
    """Run one process after the other, and write what the second one says."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or Path(folder) / "findings.sqlite"
        chosen = {}
        for found in stage("search", store):
            chosen[found["name"], found["batch"]] = found["choice"]
            print(f"{found['name']:20} {found['batch']} {found['choice']}", file=sys.stderr, flush=True)
        for line in stage("retime", store):
            searched = chosen[line["name"], line["batch"]]
            lines.append(line | {"searched": searched, "search_mode": options.mode, "search_s": options.search_s})
            print(told(lines[-1]), flush=True)
    print(summary(lines))
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def told(line: dict) -> str:
    other = "" if line["choice"] == line["searched"] else f", but the search chose {line['searched']}"
    ratio = line["ratio"]
    return (
        f"{line['name']:20} {line['batch']} {line['choice'] + other:44} {line['ours_us']['value']:9.2f} "
        f"{line['torch_us']['value']:9.2f} µs {line['outcome']:9} {1 / ratio['value']:.3f} times as fast "
        f"[{1 / ratio['high']:.3f}, {1 / ratio['low']:.3f}]"
    )


def summary(lines: list[dict]) -> str:
    """How many came out how, and the geometric mean."""
    counts = Counter(line["outcome"] for line in lines)
    mean = geometric_mean([faster(line) for line in lines])
    said = ", ".join(f"{counts[outcome]} {outcome.upper()}" for outcome in ("same", "fast", "slow", "ambiguous"))
    own = sum(line["outcome"] == "fast" and line["choice"] == "torch/default" for line in lines)
    said += f" ({own} FAST with PyTorch's own call: the machine was disturbed)" if own else ""
    return said if mean is None else f"{said}; {mean.value:.3f} times as fast [{mean.low:.3f}, {mean.high:.3f}]"


def faster(line: dict) -> Interval:
    ratio = line["ratio"]
    return Interval(1 / ratio["value"], 1 / ratio["high"], 1 / ratio["low"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--mode", default="full")
    parser.add_argument("--search-s", type=float, default=10.0)
    parser.add_argument("--budget-s", type=float, default=4.0)
    parser.add_argument("--limit", type=int, help="the first so many layers only")
    parser.add_argument("--store", type=Path, help="findings that are to be kept; by default they are thrown away")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    STAGES.get(options.stage, both)(options)


if __name__ == "__main__":
    main()
