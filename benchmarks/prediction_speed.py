"""How long predictions take on one core, for a GPU that is not in the machine.

    OMP_NUM_THREADS=1 python benchmarks/prediction_speed.py [--device h200] [--problems 1000] [--out results.jsonl]

Random convolutions, half in fp16 and half in fp32. "given_s" is what all predictions of one given candidate of each
take, "listed_s" what it takes to list cuDNN's engines for each and to predict them, and "whole_s" that of `cw.predict`
in full, with our kernels and rewrites. The process has predicted one problem before.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path
from time import perf_counter

import torch
from common.random_problems import problems

import convwright as cw
from convwright.backends.registry import backend
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.conditions import conditions, today
from convwright.measuring.hardware.machine import device_facts


def drawn(seed: int, count: int) -> list[ConvProblem]:
    half = count // 2
    return [*islice(problems(seed, "dt:fp16"), half), *islice(problems(seed, "dt:fp32"), count - half)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="h200")
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device, policy, cudnn = device_facts(options.device), Policy(), backend("cudnn", "conv")
    first, second = drawn(1, options.problems), drawn(2, options.problems)  # lists of engines are kept for a while
    predictor = cw.predict("mb2ic8ih8oc8kh3", device=device, store="none").model.predictor

    begun_s = perf_counter()
    listed = [[o for o in cudnn.candidates(each, device, policy) if isinstance(o, Candidate)] for each in first]
    for some in listed:
        predictor.predict_all(some, device)
    listed_s = perf_counter() - begun_s

    given = [some[0] for some in listed if some]
    begun_s = perf_counter()
    predictor.predict_all(given, device)
    given_s = perf_counter() - begun_s

    begun_s = perf_counter()
    candidates = sum(len(cw.predict(each, device=device, store="none").verdicts) for each in second)
    whole_s = perf_counter() - begun_s

    row = {
        "benchmark": "prediction speed", "on": device.name, "problems": len(first),
        "given": len(given), "given_s": given_s, "engines": sum(map(len, listed)), "listed_s": listed_s,
        "candidates": candidates, "whole_s": whole_s,
        "conditions": dict(conditions(device_facts("cpu"))) | dict(today()),
    }  # fmt: skip
    print(
        f"{len(given)} given candidates {given_s:.2f} s; {len(first)} problems with cuDNN's "
        f"{row['engines']:,} engines {listed_s:.1f} s; {len(second)} problems with all of {candidates:,} candidates "
        f"{whole_s:.1f} s"
    )
    if options.out is not None:
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
