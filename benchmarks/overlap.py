"""What our kernels gain where the GPU launches them before the one ahead of them has ended.

    python benchmarks/overlap.py [--time-s 0.2] [--out results.jsonl]

Each configuration is made twice of the same instructions, and launched ahead or not. Both take turns in one run of the
project's timer, with a cold cache and with a hot one; a weight of a forward direction is packed by each call. Needs a
GPU of sm_90.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch
from own_kernels import BACKEND, bound, offered

from convwright.backends.triton.launching.launch import Binary
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.measuring.cache import Cache
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_together
from convwright.report.benchmarks.lines import Lines

# Layers, and the algorithms of ours that are timed on each.
ASKED = (
    ("g240mb32ic240oc240ih14kh5ph2 dt:fp16 tag:nhwc dir:backward_weight", "few-weights"),
    ("g32mb32ic32oc32ih112kh3ph1 dt:fp16 tag:nhwc dir:backward_weight", "few-weights"),
    ("mb32ic64ih56oc64kh3ph1 dt:fp16 tag:nhwc dir:backward_weight", "weight-gradient"),
    ("mb32ic256ih14oc256kh3ph1 dt:fp16 tag:nhwc dir:backward_weight", "boxed-weight-gradient"),
    ("mb1ic512ih7oc512kh3ph1 dt:fp16 tag:nhwc ep:bias+relu", "implicit-gemm"),
    ("mb1ic1024ih1oc1000kh1 dt:fp16 ep:bias+relu", "implicit-gemm"),
    ("mb32ic256ih14oc1024kh1 dt:fp16 tag:nhwc ep:bias+relu", "boxed-gemm"),
    ("g192mb32ic192ih28oc192kh7ph3 dt:fp16", "banded-gemm"),
    ("g192mb32ic192ih28oc192kh7ph3 dt:fp16", "wide-direct"),
    ("mb32ic128ih28oc128kh3ph1", "staged-gemm-3xfp16"),
)
MOST = 2  # configurations of each


def candidates(device: DeviceFacts) -> Iterator[Candidate]:
    for text, algorithm in ASKED:
        listed = offered(ConvProblem.parse(text), device)
        yield from [each for each in listed if each.algorithm == algorithm][:MOST]


def in_turn(plan: Plan, device: DeviceFacts) -> Plan:
    """The same kernels, launched when the one ahead of them has ended."""
    text = BACKEND.written(plan)
    assert text is not None, "the interpreter launches nothing"
    kept = [replace(Binary.read(each), overlaps=False).text for each in json.loads(text)]
    return BACKEND.read(plan.candidate, device, json.dumps(kept))


def called(plan: Plan, given: dict[Role, torch.Tensor]) -> Callable[[], torch.Tensor]:
    pack, call = bound(plan, given)
    return lambda: call(pack())


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--time-s", type=float, default=0.2, help="for each configuration in each state of the cache")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device, lines = device_facts("cuda"), Lines(options.out) if options.out else None
    for candidate in candidates(device):
        given = operands(candidate.problem, Kind.NORMAL, "cuda", seed=1)
        ahead = BACKEND.build(candidate, device)
        calls = {"ahead": called(ahead, given), "in turn": called(in_turn(ahead, device), given)}
        assert torch.equal(calls["ahead"](), calls["in turn"]())
        for cache in (Cache.COLD, Cache.HOT):
            budget_us = options.time_s * 1e6 * len(calls)
            timings = measure_together(calls, device="cuda", budget_us=budget_us, cache=cache, precision=0.005)
            us = {name: timing.call_us for name, timing in timings.items()}
            told = ", ".join(f"{name} {each.value:.2f} µs" for name, each in us.items())
            print(f"{candidate.problem.key} {candidate.id}, {cache} cache: {told}", flush=True)
            if lines is not None:
                asked = {"problem": candidate.problem.key, "candidate": candidate.id, "cache": cache}
                found = {
                    "us": {name: asdict(each) for name, each in us.items()},
                    "conditions": dict(conditions(device)),
                }
                lines.add({"benchmark": "overlap", **asked, **found})


if __name__ == "__main__":
    main()
