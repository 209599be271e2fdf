"""How near the workspaces that are known of cuDNN's classic algorithms elsewhere come to what a live H200 answered.

    python benchmarks/classic_bounds.py RECORD… [--every 1]

Records are those of `benchmarks/classic_answers.py`. For each direction, and on tensor cores or without: how many
answers are served, of how many a workspace is known, how many of these are exact, less or more than four times what is
needed, and quantiles of what is known over what is needed, with 64 kB added to both. No GPU is needed, but cuDNN is.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from convwright.backends.cudnn.classic.planned import planned_bytes
from convwright.backends.cudnn.classic.rules import answer
from convwright.core.dtype import Arithmetic, native_arithmetic
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

_H200 = profile("h200")
_SLACK_BYTES = 1 << 16
_QUANTILES = (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)
_STRICT = (Arithmetic.FP32, Arithmetic.FP64)
_PRODUCTS = ("implicit-precomp-gemm", "algo-1")


def served(path: Path, every: int) -> Iterator[tuple[ConvProblem, str, Arithmetic, int]]:
    """What the live device serves, with the workspace that it needs."""
    with gzip.open(path, "rt") as lines:
        next(lines)
        for record in map(json.loads, islice(lines, None, None, every)):
            problem = ConvProblem.parse(record["problem"])
            own = native_arithmetic(problem.dtype, tf32=False)
            for name, live in record["answers"].items():
                algorithm = name.removesuffix("[math=tf32]")
                if isinstance(live, int):
                    yield problem, algorithm, own if algorithm == name else Arithmetic.TF32, live


def known(problem: ConvProblem, algorithm: str, arithmetic: Arithmetic) -> int | None:
    """The workspace as it is listed for an H200 elsewhere."""
    ruled = answer(problem, algorithm, arithmetic)
    if ruled is None:
        return planned_bytes(problem, _H200, arithmetic)
    return None if isinstance(ruled, str) else ruled


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    found = defaultdict(list)
    for path in options.records:
        for problem, algorithm, arithmetic, live in served(path, options.every):
            planned = algorithm in _PRODUCTS and arithmetic not in _STRICT
            kind = f"{problem.direction} {'matrix products on tensor cores' if planned else 'by rule'}"
            found[kind].append((live, known(problem, algorithm, arithmetic)))
    for kind, answers in sorted(found.items()):
        print(line(kind, answers))


def line(kind: str, answers: list[tuple[int, int | None]]) -> str:
    both = [(live, bound) for live, bound in answers if bound is not None]
    over = sorted((bound + _SLACK_BYTES) / (live + _SLACK_BYTES) for live, bound in both)
    shown = ", ".join(f"{share:.0%} {over[round(share * (len(over) - 1))]:.3g}" for share in _QUANTILES)
    exact, under, loose = (sum(test) for test in zip(*((b == n, b < n, b > 4 * n) for n, b in both), strict=True))
    counts = f"{len(answers)} served, {len(both)} known, {exact} exact, {under} under, {loose} above four times"
    return f"{kind}: {counts}; {shown}"


if __name__ == "__main__":
    main()
