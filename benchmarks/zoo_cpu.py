"""Layers of a suite on this CPU: what cw.conv2d runs, beside F.conv2d, timed anew in a fresh process.

    OMP_NUM_THREADS=2 python benchmarks/zoo_cpu.py [SUITE] [--batch 1,8] [--every 2] [--out results.jsonl] [--limit 3]

One process searches and keeps its findings in a store. A second one, which knows nothing but that store, takes new
inputs and times ``cw.conv2d``, which takes the stored finding at its first call and keeps it if it proves to be faster
in use, and ``F.conv2d`` interleaved in one run of the timer. By default the rows are those of `zoo-sample`, layers of
well-known networks, for one image and for eight.

A run that other work on the machine disturbed, so that the ratio is known to no more than ±2 %, is taken again, twice
at most, and the one with the narrowest interval counts, whatever it says. A call so long that ``--budget-s`` is too
short for six rounds has as much as these take. Where PyTorch's own call is chosen the two are one function: a FAST
there tells of the machine and not of convwright, and the summary says how many there are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from common.retiming import OURS, attempts, counted, mean_in_words, narrowest
from common.stages import Answer, Stage, serve
from torch.nn import functional as F

import convwright as cw
from convwright import suites
from convwright.core.direction import Role
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.clock import WallClock
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.tuning.session import session

# Not the seed of any search.
SEED = 20261121
NARROW = 0.02
# Calls within which a choice has proved itself, or PyTorch's own call serves.
PROVING = 30
# So many calls make six rounds of the timer for either side: of fewer, no interval of a ratio is one of 95 %.
FEWEST_CALLS = 100


def rows(options: argparse.Namespace) -> Iterator[tuple[str, int, ConvProblem]]:
    for batch in map(int, options.batch.split(",")):
        for row in suites.load(options.suite).with_(batch=batch).rows[: options.limit : options.every]:
            yield row.name, batch, row.problem


def search(options: argparse.Namespace, question: Answer) -> Answer:
    """The first process: find, and leave what was found in the store."""
    found = cw.find(question["problem"], device="cpu", mode=options.mode, budget_us=options.search_s * 1e6)
    return {"choice": None if found.choice is None else found.choice.candidate.id}


@torch.no_grad()
def retime(options: argparse.Namespace, question: Answer) -> Answer:
    """The second process: new inputs, and nothing known but the store."""
    problem = ConvProblem.parse(question["problem"])
    given = operands(problem, Kind.NORMAL, "cpu", seed=SEED)
    padding = problem.symmetric_padding
    assert padding is not None
    arguments = (given[Role.X], given[Role.W], None, problem.stride, padding, problem.dilation, problem.groups)
    spent_us = session().spent_us
    for _ in range(PROVING):
        begun_s = perf_counter()
        cw.conv2d(*arguments)
    budget_s = max(options.budget_s, (perf_counter() - begun_s) * FEWEST_CALLS)
    calls = {OURS: lambda: cw.conv2d(*arguments), "torch": lambda: F.conv2d(*arguments)}
    take = partial(measure_calls, calls, clock=WallClock(), budget_us=budget_s * 1e6, seed=SEED)
    taken = attempts(take, narrow=NARROW)
    best, last = narrowest(taken), cw.last_choice()
    ours, torchs = best.timings[OURS], best.timings["torch"]
    return {
        "choice": None if last is None else last.candidate.id, "deciding_us": session().spent_us - spent_us,
        "ours_us": asdict(ours.call_us), "torch_us": asdict(torchs.call_us), "samples": ours.samples,
        "ratio": asdict(best.verdict.ratio), "outcome": str(best.verdict.outcome),
        "unstable": ours.unstable or torchs.unstable, "attempts": [attempt.verdict.to_json() for attempt in taken],
        "seed": SEED, "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "conditions": dict(conditions(device_facts("cpu"))) | {"cache": "hot", "clock": WallClock.__name__},
    }  # fmt: skip


STAGES = {"search": search, "retime": retime}


def both(options: argparse.Namespace) -> None:
    """Ask one process after the other, and write what the second one says."""
    lines: list[Answer] = []
    asked = [(name, batch, {"problem": problem.key}) for name, batch, problem in rows(options)]
    with tempfile.TemporaryDirectory() as folder:
        environment = {"CONVWRIGHT_STORE": str(options.store or Path(folder) / "findings.sqlite")}
        with Stage("search", environment) as searcher:
            searched = []
            for name, batch, question in asked:
                searched.append(answered(searcher, question)["choice"])
                print(f"{name:20} {batch} {searched[-1]}", file=sys.stderr, flush=True)
        with Stage("retime", environment | {"CONVWRIGHT_MODE": "quick"}) as retimer:
            for (name, batch, question), found in zip(asked, searched, strict=True):
                line = {"benchmark": "cpu zoo", "suite": options.suite, "name": name, "batch": batch, **question}
                line |= answered(retimer, question)
                lines.append(line | {"searched": found, "search_mode": options.mode, "search_s": options.search_s})
                print(told(lines[-1]), flush=True)
    print(summary(lines))
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def answered(stage: Stage, question: Answer) -> Answer:
    """The answer, without which nothing else is worth asking."""
    answer = stage.ask(question)
    if "failure" in answer:
        sys.exit(f"{question['problem']}: {answer['failure']}")
    return answer


def told(line: Answer) -> str:
    other = "" if line["choice"] == line["searched"] else f", but the search chose {line['searched']}"
    ratio = line["ratio"]
    return (
        f"{line['name']:20} {line['batch']} {line['choice'] + other:44} {line['ours_us']['value']:9.2f} "
        f"{line['torch_us']['value']:9.2f} µs {line['outcome']:9} {1 / ratio['value']:.3f} times as fast "
        f"[{1 / ratio['high']:.3f}, {1 / ratio['low']:.3f}]"
    )


def summary(lines: list[Answer]) -> str:
    """How many came out how, and the geometric mean."""
    own = sum(line["outcome"] == "fast" and line["choice"] == "torch/default" for line in lines)
    said = counted(lines) + (f" ({own} FAST with PyTorch's own call: the machine was disturbed)" if own else "")
    mean = mean_in_words(line["ratio"] for line in lines)
    return said if mean is None else f"{said}; {mean}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", nargs="?", default="zoo-sample")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--every", type=int, default=1, help="every so many layers only")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--mode", default="full")
    parser.add_argument("--search-s", type=float, default=10.0)
    parser.add_argument("--budget-s", type=float, default=4.0)
    parser.add_argument("--limit", type=int, help="the first so many layers only")
    parser.add_argument("--store", type=Path, help="findings that are to be kept; by default they are thrown away")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        serve(partial(STAGES[options.stage], options))
    else:
        both(options)


if __name__ == "__main__":
    main()
