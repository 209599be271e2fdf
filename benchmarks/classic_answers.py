"""What cuDNN's classic API answers about random problems: the workspace of each algorithm, or why it refuses.

    python benchmarks/classic_answers.py --out answers.jsonl.gz [--problems 4000] [--seed 2026] [--suites] [--workers 8]

One line per problem: its key, and for each algorithm and arithmetic a number of bytes or a refusal. Nothing is
computed: cuDNN is only asked. The rules for devices elsewhere (`convwright.backends.cudnn.classic.rules`) are held
against such a record by the tests. ``--suites`` asks about every row of the shipped suites, too, in all dtypes and
both layouts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from convwright import suites
from convwright.backends.cudnn.classic import listing as classic
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.dtype import IN_PYTORCH, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts

SUITES = ("zoo", "deepbench", "gtc", "msd", "padding-sweep")
LAYOUTS = (Layout.NCHW, Layout.NHWC)
MOST_ELEMENTS = 2**31


def problems(count: int, seed: int) -> Iterator[ConvProblem]:
    """Random convolutions, forward: small and large ones, usual and odd ones."""
    random, made = Random(seed), 0
    while made < count:
        try:
            problem = one(random)
        except BadInput:
            continue  # a filter that does not fit
        if max(prod(spec.shape) for spec in (problem.x, problem.w, problem.y)) < MOST_ELEMENTS:
            made += 1
            yield problem


def one(random: Random) -> ConvProblem:
    def size(most: float) -> int:
        return round(2 ** random.uniform(0, most))

    def usual(value: int, share: float, *others: int) -> int:
        return value if random.random() < share else random.choice(others)

    def per_axis(draw: Callable[[], int]) -> tuple[int, ...]:
        first = draw()
        return tuple(first if random.random() < 0.85 else draw() for _ in range(rank))

    rank = random.choice([1, 2, 2, 2, 2, 2, 2, 3])
    c, k = size(10), size(10)
    if random.random() < 0.6:
        c, k = -(-c // 8) * 8, -(-k // 8) * 8
    groups = usual(1, 0.75, 2, 3, 4, 8, 32, 0)
    if groups == 0:
        groups, k = c, c * random.choice([1, 1, 1, 2])
    else:
        c, k = -(-c // groups) * groups, -(-k // groups) * groups
    taps = per_axis(lambda: random.choice([1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 6, 7, 8, 9, 11, 13, 16, 24, 31, 32, 33]))
    pad = random.choice([0, 1, 1, 2, 3, 99, 99, 99, 100])
    padding = tuple(t // 2 if pad == 99 else t + random.randint(-1, 1) if pad == 100 else pad for t in taps)
    layout = random.choice(LAYOUTS)
    mixed = {role: random.choice(LAYOUTS) for role in "xwy"}
    return ConvProblem.of(
        (size(8), c, *per_axis(lambda: size(6 if rank == 3 else 9.5))),
        (k, c // groups, *taps),
        stride=per_axis(lambda: usual(1, 0.65, 2, 2, 3, 4)),
        padding=padding,
        dilation=per_axis(lambda: usual(1, 0.85, 2, 3)),
        groups=groups,
        dtype=random.choice([DType.FP32, DType.FP32, DType.FP16, DType.BF16, DType.FP64]),
        layout=mixed if random.random() < 0.05 else layout,
        flip=random.random() < 0.1,
    )


def of_suites() -> Iterator[ConvProblem]:
    texts = {row.problem.key.partition(" ")[0] for name in SUITES for row in suites.load(name).rows}
    for text in sorted(texts):
        for dtype in IN_PYTORCH:
            for layout in ("nchw", "nhwc"):
                yield ConvProblem.parse(f"{text} dt:{dtype} tag:{layout}")


def answers(problem: ConvProblem, device: str) -> dict[str, Any]:
    """One line of the record."""
    offers = classic.candidates(problem, device_facts(device), Policy())
    found = {
        offer.id.removeprefix("cudnn/"): offer.workspace_bytes if isinstance(offer, Candidate) else offer.reason
        for offer in offers
    }
    return {"problem": problem.key, "answers": found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--suites", action="store_true")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.share is not None:
        ask(options)
        return
    with TemporaryDirectory() as folder:
        parts = [Path(folder) / f"{i}.gz" for i in range(options.workers)]
        shares = [["--share", f"{i}/{options.workers}", "--out", str(part)] for i, part in enumerate(parts)]
        running = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], *share]) for share in shares]
        if any(process.wait() for process in running):
            raise SystemExit("a worker failed")
        with gzip.open(options.out, "wt") as out:
            known = conditions(device_facts(options.device))
            header = {"benchmark": "classic answers", "seed": options.seed, "conditions": known}
            out.write(json.dumps(header) + "\n")
            for part in parts:
                with gzip.open(part, "rt") as lines:
                    out.writelines(lines)


def ask(options: argparse.Namespace) -> None:
    """One worker's share."""
    index, of = map(int, options.share.split("/"))
    everything = [*problems(options.problems, options.seed), *(of_suites() if options.suites else ())]
    with gzip.open(options.out, "wt") as out:
        for problem in everything[index::of]:
            for direction in Direction:
                out.write(json.dumps(answers(problem.asking(direction), options.device)) + "\n")


if __name__ == "__main__":
    main()
