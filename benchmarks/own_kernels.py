"""Every configuration that our Triton kernels offer for the problems of a suite, beside PyTorch's own calls.

    python benchmarks/own_kernels.py benchmarks/classes/depthwise.csv --direction backward_weight --dtype fp32,fp16 \\
        [--layout nhwc] [--cache cold] [--tf32 off] [--rows 0:2] [--out results.jsonl] [--limit-s 300]

What the estimates in the kernels' `tiles` are held against: which of the configurations is fastest, and where among
those listed it stands. All kernels are compiled first, on all cores; then all calls of a problem take turns in one run
of the project's timer. A weight is packed once, ahead of that.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import torch_calls
from common.asked_rows import Asked, picked, rows
from common.choices_summary import setting
from common.pace import Pace
from common.retiming import interval

from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.cache import Cache
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_together
from convwright.report.benchmarks.lines import Lines

BACKEND = TritonKernels()
BESIDE = ("default", "benchmark")


def offered(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    return [offer for offer in BACKEND.candidates(problem, device, Policy()) if isinstance(offer, Candidate)]


def compiled(candidate: Candidate, device: DeviceFacts) -> str | None:
    """Why it cannot be; in a process beside this one."""
    try:
        BACKEND.compile(candidate, device)
    except Exception as error:  # Triton's compiler has no common error
        return f"{candidate.id}: {type(error).__name__}: {error}"
    return None


def bound(
    plan: Plan, given: dict[Role, torch.Tensor]
) -> tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
    """What packs its second operand, and what calls it with a packed one."""
    first, second = (given[role] for role in plan.candidate.problem.direction.operands)
    workspace = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device=first.device)
    rest = given.get(Role.BIAS), given.get(Role.RESIDUAL), None, workspace
    return lambda: plan.prepare(second) if Role.W in given else second, lambda packed: plan(first, packed, *rest)


def calls_of(problem: ConvProblem, device: DeviceFacts, given: dict[Role, torch.Tensor]) -> Iterator[tuple[str, Any]]:
    for candidate in offered(problem, device):
        pack, call = bound(BACKEND.build(candidate, device), given)
        yield candidate.id, partial(call, pack())


@torch.no_grad()
def timed(asked: Asked, options: argparse.Namespace, device: DeviceFacts) -> dict[str, Any]:
    problem = asked.problem
    if asked.tf32 is not None:
        torch.backends.cudnn.allow_tf32 = asked.tf32
    given = operands(problem, Kind.NORMAL, options.device, seed=1)
    calls = torch_calls.calls(BESIDE, problem, given) | dict(calls_of(problem, device, given))
    reference = sampled_reference(problem, given)
    errors = {name: errors_of(call(), reference)[0] for name, call in calls.items()}
    timings = measure_together(
        calls, device=options.device, budget_us=options.time_s * 1e6 * len(calls), cache=options.cache, precision=0.02
    )
    return {
        "us": {name: asdict(timing.call_us) for name, timing in timings.items()}, "relative_l2": errors,
        "conditions": dict(timings[BESIDE[0]].conditions),
    }  # fmt: skip


def told(line: dict[str, Any]) -> str:
    """The fastest of PyTorch's calls, then ours, the fastest first, with the place that each has in the list."""
    us = {name: interval(each).value for name, each in line["us"].items()}
    best_us = min(us[name] for name in BESIDE)
    ours = [name for name in us if name not in BESIDE]
    said = [f"{line['name']}, {line['setting']}: {', '.join(f'{name} {us[name]:.1f} µs' for name in BESIDE)}"]
    said += [
        f"  {us[name]:9.1f} µs {best_us / us[name]:6.2f}x, no. {ours.index(name) + 1} of {len(ours)}, "
        f"error {line['relative_l2'][name]:.1e}: {name}"
        for name in sorted(ours, key=us.__getitem__)
    ]
    return "\n".join(said)


def _words(text: str) -> list[str]:
    return text.split(",")


def options_given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", help="a suite's name or file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--direction", type=_words, default=[str(Direction.FORWARD)], help="several with commas")
    parser.add_argument("--dtype", type=_words, default=[str(DType.FP32)], help="or several")
    parser.add_argument("--tf32", type=lambda text: [text == "on"], default=[False], help="on or off, for fp32")
    parser.add_argument("--layout", help="nchw or nhwc")
    parser.add_argument("--batch", type=lambda text: [int(word) for word in text.split(",")], default=[None])
    parser.add_argument("--epilogue", type=_words, default=[None], help="for example bias+relu; or several")
    parser.add_argument("--cache", default=Cache.HOT.value, choices=(Cache.HOT, Cache.COLD))
    parser.add_argument("--time-s", type=float, default=0.1, help="for each configuration")
    parser.add_argument("--rows", type=picked, default=slice(None), help="from:to, from:to:step, or names")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no row after so long")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    options = options_given()
    device, pace = device_facts(options.device), Pace(options.limit_s)
    wanted = [asked for asked in rows(options) if offered(asked.problem, device)]
    kernels = [candidate for asked in wanted for candidate in offered(asked.problem, device)]
    if not kernels:
        print(f"our kernels offer nothing for these problems on {device.name}")
        return
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for failure in filter(None, pool.imap_unordered(partial(compiled, device=device), kernels)):
            print(failure)
    lines = None if options.out is None else Lines(options.out)
    for asked in pace.rows(wanted):
        line = {
            "benchmark": "own kernels", "suite": options.suite, "name": asked.name, "problem": asked.problem.key,
            "setting": setting(options.suite, asked.problem, asked.batch, asked.tf32, cache=options.cache),
            "date": datetime.now(UTC).isoformat(timespec="seconds"), **timed(asked, options, device),
        }  # fmt: skip
        if lines is not None:
            lines.add(line)
        print(told(line), flush=True)


if __name__ == "__main__":
    main()
