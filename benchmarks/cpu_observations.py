"""Times of random problems of all kinds on this machine's CPU, as observations from which a model is learned.

    OMP_NUM_THREADS=1 python benchmarks/cpu_observations.py --out cpu.jsonl.gz [--minutes 5] [--budget-s 0.6] [--seed 7]

Each problem is searched for in mode full. What is unstable is left out.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from itertools import cycle
from math import exp, log
from pathlib import Path
from random import Random
from time import perf_counter

from common.random_problems import problems

import convwright as cw
from convwright import strict_json
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import parse
from convwright.errors import ConvwrightError
from convwright.measuring.hardware.machine import device_facts
from convwright.store.store import Store
from convwright.tuning.stored_observations import stored_observations

# What a call may take on one core.
_MOST_FLOPS, _FEWEST_FLOPS, _MOST_BYTES = 5e8, 2e5, 1 << 25
_SUFFIXES = ("", "tag:nhwc", "ep:bias+relu", "dir:backward_data", "dir:backward_weight")
_OTHERS = (
    "linear mb{mb}ic{ic}oc{oc}", "linear mb{mb}ic{ic}oc{oc} ep:bias+relu", 'pointwise "relu(a + b)" mb{mb}ic{ic}ih{ih}',
    'pointwise "a * sigmoid(a)" mb{mb}ic{ic}ih{ih}', 'pointwise "mean(a)" mb{mb}ic{ic}ih{ih} row:hw y:nc',
    "copy mb{mb}ic{ic}ih{ih} nchw->nhwc", "pool max mb{mb}ic{ic}ih{ih} kh3sh2ph1", "pool avg mb{mb}ic{ic}ih{ih} kh2",
    "resize nearest mb{mb}ic{ic}ih{ih} oh{oh}", "resize linear mb{mb}ic{ic}ih{ih} oh{oh}",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--budget-s", type=float, default=0.6)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    until, done = perf_counter() + 60 * options.minutes, 0
    with Store.open(None) as store:
        for problem in drawn(options.seed):
            if perf_counter() > until:
                break
            try:
                cw.find(problem, device="cpu", mode="full", budget_us=options.budget_s * 1e6, store=store)
            except ConvwrightError as error:
                print(f"{problem.key}: {error}")
            done += 1
        kept = list(stored_observations(store, device_facts("cpu")))
    with gzip.open(options.out, "wt") as file:
        file.writelines(strict_json.dumps(each.to_json()) + "\n" for each in kept)
    print(f"{len(kept):,} observations of {done} problems")


def drawn(seed: int) -> Iterator[Problem]:
    """Convolutions and other problems in turn, all of which take milliseconds at most."""
    random, streams = Random(seed), [problems(seed + place, suffix) for place, suffix in enumerate(_SUFFIXES)]
    others = cycle(_OTHERS)
    while True:
        for stream in streams:
            # Their sizes are made for GPUs: of those few are small enough.
            yield next(each for each in stream if _fits(each))
            yield _other(next(others), random)


def _other(text: str, random: Random) -> Problem:
    def size(least: int, most: int) -> int:
        return round(exp(random.uniform(log(least), log(most))))

    while True:
        sizes = {"mb": size(1, 32), "ic": size(4, 512), "oc": size(4, 512), "ih": size(6, 96), "oh": size(6, 128)}
        made = parse(text.format(**sizes))
        if made.bytes <= _MOST_BYTES and made.flops <= _MOST_FLOPS:
            return made


def _fits(problem: Problem) -> bool:
    return _FEWEST_FLOPS <= problem.flops <= _MOST_FLOPS and problem.bytes <= _MOST_BYTES


if __name__ == "__main__":
    main()
