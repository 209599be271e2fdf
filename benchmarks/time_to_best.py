"""How near the best a cold search comes within a time, compile time included.

    python benchmarks/time_to_best.py --problems 16 --within-s 2,10 --out results.jsonl
    python benchmarks/time_to_best.py --only mb27ic185oc4ih17iw248kh3kw7

For each problem and each time a fresh process with an empty store and an empty cache of kernels searches for so long.
Then all that these found, and what longer searches with warm caches find (``--reference-s``), is timed side by side:
"of the best" is the time of a search's choice beside that of the fastest. Half of the problems are fp32 without TF32,
half fp16 with channels last, bias and ReLU.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from math import exp, log
from pathlib import Path
from time import perf_counter

import torch
from common.chosen_calls import call_of_plan
from common.pace import Pace, sliced
from common.random_problems import problems
from common.stages import Answer, Stage, serve

import convwright as cw
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_together
from convwright.report.benchmarks.lines import Lines
from convwright.tuning import listing
from convwright.tuning.asked import named

SEED, PATIENCE_S, _TIMING_US = 20261128, 300.0, 500e3
SUFFIXES = ("dt:fp32", "dt:fp16 tag:nhwc ep:bias+relu")


def answered(options: argparse.Namespace, question: Answer) -> Answer:
    """One search, or the times of what several searches chose."""
    torch.backends.cudnn.allow_tf32 = False
    problem = ConvProblem.parse(question["problem"])
    if "candidates" in question:
        return _timed(problem, question["candidates"], options)
    begun_s = perf_counter()
    found = cw.find(problem, device=options.device, budget_us=question["within_s"] * 1e6, store=question["store"])
    rows = [verdict.finding for verdict in found.verdicts]
    kernels = [row for row in rows if row.candidate.compiles]
    return {
        "choice": found.choice.candidate.id if found.choice else None, "took_s": perf_counter() - begun_s,
        "candidates": len(rows), "measured": sum(row.measurement is not None for row in rows),
        "kernels": len(kernels), "kernels_measured": sum(row.measurement is not None for row in kernels),
    }  # fmt: skip


@torch.no_grad()
def _timed(problem: ConvProblem, ids: list[str], options: argparse.Namespace) -> Answer:
    device = device_facts(options.device)
    given = operands(problem, Kind.NORMAL, options.device, seed=SEED)
    policy = Policy(max_workspace_bytes=2**34)
    calls = {
        id_: call_of_plan(listing.build(named(id_, problem, device, policy), device), problem, given, policy.weights)
        for id_ in ids
    }
    for call in calls.values():
        call()
    times = measure_together(calls, device=options.device, budget_us=_TIMING_US, seed=SEED)
    return {"times_us": {id_: timing.call_us.value for id_, timing in times.items()}}


def one(problem: ConvProblem, options: argparse.Namespace) -> Answer:
    """All searches of one problem."""
    line: Answer = {"problem": problem.key, "failure": None, "searches": {}}
    names = {f"cold {within_s:g} s": within_s for within_s in options.within_s}
    with tempfile.TemporaryDirectory() as folder:
        for place, (name, within_s) in enumerate(names.items()):
            with Stage("answer", _caches(f"{folder}/{place}")) as process:
                question = {"problem": problem.key, "within_s": within_s, "store": f"{folder}/{place}.sqlite"}
                line["searches"][name] = process.ask(question, patience_s=PATIENCE_S)
        # What the last search has compiled stays compiled.
        with Stage("answer", _caches(f"{folder}/{len(names) - 1}")) as process:
            for name in ("reference", "reference again"):
                question = {
                    "problem": problem.key, "within_s": options.reference_s, "store": f"{folder}/{name}.sqlite",
                }  # fmt: skip
                line["searches"][name] = process.ask(question, patience_s=PATIENCE_S)
            failed = [found["failure"] for found in line["searches"].values() if found.get("failure")]
            if failed:
                return line | {"failure": failed[0]}
            ids = [*filter(None, dict.fromkeys(found["choice"] for found in line["searches"].values()))]
            if not ids:
                return line | {"failure": "no search chose anything"}
            timed = process.ask({"problem": problem.key, "candidates": ids}, patience_s=PATIENCE_S)
    if timed.get("failure"):
        return line | timed
    best_us = min(timed["times_us"].values())
    line["of_the_best"] = {
        name: timed["times_us"][found["choice"]] / best_us if found["choice"] else None
        for name, found in line["searches"].items()
    }
    return line | timed


def _caches(folder: str) -> dict[str, str]:
    return {
        "CONVWRIGHT_STORE": f"{folder}/store.sqlite", "TRITON_CACHE_DIR": f"{folder}/triton",
        "CUDA_CACHE_PATH": f"{folder}/cuda",
    }  # fmt: skip


def everything(options: argparse.Namespace) -> None:
    if options.only:
        drawn = [ConvProblem.parse(text) for text in options.only]
    else:
        drawn_of = [islice(problems(SEED, suffix), (options.problems + 1) // 2) for suffix in SUFFIXES]
        drawn = list(chain(*zip(*drawn_of, strict=True)))[: options.problems][options.rows]
    lines, done = None if options.out is None else Lines(options.out), list[Answer]()
    known = {"benchmark": "time to the best", "seed": SEED, "reference_s": options.reference_s}
    for problem in Pace(options.limit_s).rows(drawn):
        date = datetime.now(UTC).isoformat(timespec="seconds")
        facts = dict(conditions(device_facts(options.device)))
        line = known | {"date": date, "conditions": facts} | one(problem, options)
        done.append(line)
        if lines is not None:
            lines.add(line)
        print(_told(line), flush=True)
    print(summary(done))


def _told(line: Answer) -> str:
    if line["failure"]:
        return f"{line['problem']}\n    {line['failure']}"
    searches = [
        f"    {name}: {line['of_the_best'][name] or float('inf'):.3f} of the best, {found['took_s']:.1f} s, "
        f"{found['kernels_measured']} of {found['kernels']} kernels, {found['choice']}"
        for name, found in line["searches"].items()
    ]
    return "\n".join([f"{line['problem']}, best {min(line['times_us'].values()):.1f} µs", *searches])


def summary(lines: list[Answer]) -> str:
    right = [line["of_the_best"] for line in lines if not line["failure"]]
    said = [f"{len(lines)} problems, {len(lines) - len(right)} failed"]
    for name in right[0] if right else ():
        ratios = [each[name] for each in right if each[name] is not None]
        mean = exp(sum(map(log, ratios)) / len(ratios)) if ratios else float("nan")
        said.append(f"{name}: {mean:.3f} of the best, {len(right) - len(ratios)} without a choice")
    return "; ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--only", action="append", help="this problem instead of random ones; may be repeated")
    parser.add_argument("--rows", type=sliced, default=slice(None), help="of these problems, from:to:step")
    parser.add_argument("--within-s", type=_seconds, default=[2.0, 10.0])
    parser.add_argument("--reference-s", type=float, default=15.0)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no problem after so long")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, nargs="+", help="print the summary of these files, and run nothing")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(summary([line for path in options.read for line in Lines(path).read()]))
    elif options.stage:
        serve(partial(answered, options))
    else:
        everything(options)


def _seconds(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


if __name__ == "__main__":
    main()
