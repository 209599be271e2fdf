"""Every candidate of every backend on random problems against float64: what agrees, what is refused, what is wrong.

    python benchmarks/conformance.py --out results.jsonl [--problems 200] [--workers 10]

One line per problem: for each candidate its largest relative L2 error over the finite kinds of data, and what the
error rule says of it beside PyTorch's own call under the same permission. Outputs and workspaces are filled with NaN
before every run. "wrong" is a candidate whose relative error is not below 1e-2 on any finite kind of data.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from common.few_tiles import few_tiles

from convwright import flags
from convwright.core.candidate import Candidate
from convwright.core.error_rule import error_objection
from convwright.core.finding import KindError
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput, ConvwrightError
from convwright.measuring.checking.data import FINITE_KINDS
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.find import baseline_of, resolved
from convwright.tuning.trials.trial import Bench, Trial

WRONG = 1e-2
# What is drawn from: one number for both axes, or one for each.
STRIDES: list[int | tuple[int, int]] = [1, 1, 1, 2, (2, 1)]
PADDINGS: list[int | tuple[int, int]] = [0, 1, 1, 2, 3, (2, 0)]


def problems(count: int, seed: int) -> list[ConvProblem]:
    """Random convolutions, small enough that thousands of candidates can be checked."""
    random, made = Random(seed), list[ConvProblem]()
    while len(made) < count:
        try:
            made.append(one(random))
        except BadInput:
            continue  # a filter that does not fit
    return made


def one(random: Random) -> ConvProblem:
    groups = random.choice([1, 1, 1, 1, 2, 4, 0])  # 0: depthwise
    c = random.choice([1, 3, 4, 8, 16, 17, 32, 64, 96])
    k = random.choice([1, 5, 8, 16, 24, 32, 64])
    if groups == 0:
        groups, k = c, c * random.choice([1, 1, 2])
    else:
        c, k = -(-c // groups) * groups, -(-k // groups) * groups
    taps = random.choice([(1, 1), (3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (1, 5), (2, 3), (11, 11)])
    direction = random.choice(["forward"] * 4 + ["backward_data", "backward_weight"])
    epilogue = random.choice(["none", "none", "bias", "bias+relu", "residual+bias+relu"])
    return ConvProblem.of(
        (random.choice([1, 2, 3, 8]), c, random.randint(5, 40), random.randint(5, 40)),
        (k, c // groups, *taps),
        stride=random.choice(STRIDES),
        padding=random.choice(PADDINGS),
        dilation=random.choice([1, 1, 1, 2, 3]),
        groups=groups,
        dtype=random.choice(["fp32", "fp32", "fp16", "bf16", "fp64"]),
        layout=random.choice(["nchw", "nhwc"]),
        direction=direction,
        epilogue=epilogue if direction == "forward" else "none",
    )


def check(problem: ConvProblem, device: str) -> dict[str, Any]:
    """All candidates of one problem, checked."""
    facts = device_facts(device)
    policy = resolved(Policy(), problem, facts)
    offers = [*listing.direct(problem, facts, policy), *listing.rewritten(problem, facts, policy)]
    listed = listing.candidates(offers)
    candidates = few_tiles(listed)
    bench, errors = Bench(problem, facts, Mode.FULL, seed=1), ErrorCheck(problem, device, seed=1)
    found, failed = {}, {}
    for candidate in candidates:
        try:
            found[candidate] = errors.errors(Trial(candidate, bench).run)
        except (ConvwrightError, RuntimeError) as error:
            failed[candidate.id] = str(error).splitlines()[0]
            if device == "cuda":
                torch.cuda.synchronize()
    rows = {c.id: verdict(c, mine, found, candidates, policy) for c, mine in found.items()}
    return {
        "problem": problem.key, "candidates": rows, "failed": failed, "refused": len(offers) - len(listed),
    }  # fmt: skip


def verdict(
    candidate: Candidate,
    mine: tuple[KindError, ...],
    found: dict[Candidate, tuple[KindError, ...]],
    candidates: list[Candidate],
    policy: Policy,
) -> dict[str, Any]:
    """A candidate is held to what PyTorch's call computes with the permission that the candidate needs."""
    needed = replace(policy, arithmetic=frozenset({candidate.arithmetic}))
    base = baseline_of(candidates, needed) or baseline_of(candidates, policy)
    finite = [error.relative_l2 for error in mine if error.kind in FINITE_KINDS]
    return {
        "arithmetic": candidate.arithmetic,
        "saves_products": candidate.leaf.saves_products,
        "relative_l2": max(finite),
        "objection": error_objection(candidate.problem, mine, found[base], policy) if base in found else "no baseline",
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.share:
        mine, of = map(int, options.share.split("/"))
        with flags.tf32(False), options.out.open("w") as file:
            for problem in problems(options.problems, options.seed)[mine::of]:
                file.write(json.dumps(check(problem, options.device)) + "\n")
                file.flush()
        return
    shares = [options.out.with_suffix(f".{i}") for i in range(options.workers)]
    command = [sys.executable, __file__, *sys.argv[1:]]
    started = [
        subprocess.Popen([*command, "--share", f"{i}/{options.workers}", "--out", str(path)])
        for i, path in enumerate(shares)
    ]
    codes = [process.wait() for process in started]
    lines = [line for path in shares for line in path.read_text().splitlines()]
    for path in shares:
        path.unlink()
    known = dict(conditions(device_facts(options.device)))
    head = {"benchmark": "conformance", "seed": options.seed, "conditions": known}
    options.out.write_text("\n".join([json.dumps(head), *lines]) + "\n")
    summarise([json.loads(line) for line in lines], codes)


def summarise(results: list[dict[str, Any]], codes: list[int]) -> None:
    """Per family: candidates run, within the error rule, objected to, wrong."""
    table: dict[str, Counter[str]] = {}
    for result in results:
        for name, row in result["candidates"].items():
            family = name.partition("[")[0] if "(" not in name else name.partition("(")[0]
            family = "cudnn/engine-*" if family.startswith("cudnn/engine-") else family
            counts = table.setdefault(f"{family} {row['arithmetic']}", Counter())
            counts["run"] += 1
            counts["agree"] += row["objection"] is None
            if not row["relative_l2"] < WRONG:
                counts["wrong"] += 1
                print("WRONG", result["problem"], name, row)
        for name, reason in result["failed"].items():
            table.setdefault(f"{name.partition('[')[0]} failed", Counter())["run"] += 1
            print("FAILED", result["problem"], name, reason)
    print(f"{len(results)} problems, workers ended with {codes}")
    for family, counts in sorted(table.items()):
        print(f"{family:44} run {counts['run']:5} within the error rule {counts['agree']:5} wrong {counts['wrong']:3}")


if __name__ == "__main__":
    main()
