"""What a repeated call costs the host: cw.conv2d, a Plan and F.conv2d, side by side with the project's own timer.

    python benchmarks/host_cost.py [--out results.jsonl] [--budget-s 2]

Each line compares two calls that were interleaved in one run of the timer. On a GPU the time is that of the host
alone: the device is idle before and after each sample and nobody waits for it in between. Which kernels a plan launches
there stands in its line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import convwright as cw
from convwright.eager.running.workspace import workspace
from convwright.measuring.clock import Clock, HostClock, WallClock
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.kernels import kernels_of
from convwright.measuring.timer import measure_calls
from convwright.tuning.compile_queue import compile_queue

Call = Callable[[], object]
# Ours or PyTorch's, called with input, weight, bias, stride and padding.
Convolve = Callable[..., Tensor]
# (name, input, weight, dtype, channels last, bias).
Case = tuple[str, tuple[int, ...], tuple[int, ...], torch.dtype, bool, bool]

# Small enough that the host decides.
CASES: list[Case] = [
    ("tiny", (1, 8, 8, 8), (8, 8, 3, 3), torch.float32, False, True),
    ("tiny, no bias", (1, 8, 8, 8), (8, 8, 3, 3), torch.float32, False, False),
    ("small", (1, 32, 14, 14), (32, 32, 3, 3), torch.float32, False, True),
    ("small half", (1, 32, 14, 14), (32, 32, 3, 3), torch.float16, True, True),
    ("layer half", (8, 64, 28, 28), (64, 64, 3, 3), torch.float16, True, True),
]
# As a network's weights do, these live on: a new one in the place of one that is gone is taken for the same layer,
# which is then fed several kinds of input.
_alive: list[tuple[Tensor | None, ...]] = []
LIMITS = {"no gradient": 1.1, "forward and backward": 1.2, "plan": 0.5}


def pairs(case: Case, device: str) -> Iterator[tuple[str, str, Call, Call]]:
    """(what, name, ours, PyTorch's) for one case; parameters on both sides alike."""
    _, x_shape, w_shape, dtype, last, has_bias = case
    memory = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(x_shape, device=device, dtype=dtype).to(memory_format=memory)
    w = torch.randn(w_shape, device=device, dtype=dtype).to(memory_format=memory)
    b = torch.randn(w_shape[0], device=device, dtype=dtype) if has_bias else None
    _alive.append((x, w, b))

    def no_gradient(function: Convolve) -> Call:
        def call() -> Tensor:
            return function(x, w, b, 1, 1)

        return call

    def with_gradient(function: Convolve) -> Call:
        operands = [None if tensor is None else tensor.detach().clone().requires_grad_() for tensor in (x, w, b)]
        _alive.append(tuple(operands))
        inputs = [tensor for tensor in operands if tensor is not None]
        with torch.no_grad():
            dy = torch.randn_like(F.conv2d(x, w, b, 1, 1))

        def call() -> tuple[Tensor, ...]:
            return torch.autograd.grad(function(*operands, 1, 1), inputs, dy)

        return call

    families = families_for(device, dtype)
    with torch.no_grad():
        yield "no gradient", "chosen", no_gradient(cw.conv2d), no_gradient(F.conv2d)
        for family in families:
            name = served(x, w, b, family)
            if name:
                yield "no gradient", name, no_gradient(by_name(name)), no_gradient(F.conv2d)
                if not name.startswith("torch/"):  # that plan is F.conv2d itself
                    yield "plan", name, planned(x, w, b, name), no_gradient(F.conv2d)
    yield "forward and backward", "chosen", with_gradient(cw.conv2d), with_gradient(F.conv2d)
    for family in families:
        name = served(x, w, b, family)
        if name:
            yield "forward and backward", name, with_gradient(by_name(name)), with_gradient(F.conv2d)


def families_for(device: str, dtype: torch.dtype) -> list[str]:
    if device == "cpu":
        return ["torch/default"]
    kernel = "triton/implicit-gemm" if dtype is torch.float16 else "triton/implicit-gemm-3xtf32"
    return ["torch/default", "cudnn/implicit-gemm", "cudnn/engine", kernel]


def served(x: Tensor, w: Tensor, b: Tensor | None, family: str) -> str | None:
    """The first candidate of a family for this problem, without a bias where it computes none."""
    found = cw.find(x, w, b, padding=1, mode="heuristic")
    ids = [verdict.finding.candidate.id for verdict in found.verdicts]
    return next((name for name in ids if name.startswith(family) and "(" not in name), None)


def by_name(name: str) -> Convolve:
    def call(x: Tensor, w: Tensor, b: Tensor | None, stride: int, padding: int) -> Tensor:
        return cw.conv2d(x, w, b, stride, padding, algorithm=name)

    return call


def planned(x: Tensor, w: Tensor, b: Tensor | None, name: str) -> Call:
    cw.conv2d(x, w, b, 1, 1, algorithm=name)
    choice = cw.last_choice()
    assert choice is not None
    plan = choice.plan()
    packed = plan.prepare(w)
    out = torch.empty_like(F.conv2d(x, w, b, 1, 1))
    scratch = workspace(plan.workspace_bytes, x.device)() if plan.workspace_bytes else None
    return lambda: plan(x, packed, b, None, out, scratch)


def write(lines: list[dict[str, Any]], path: Path | None) -> None:
    if path is not None:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget-s", type=float, default=2.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    clock: Clock = HostClock(options.device) if options.device == "cuda" else WallClock()
    known = dict(conditions(device_facts(options.device)))
    lines, plans = [], []
    for case in CASES:
        if options.device == "cpu" and case[3] is torch.float16:
            continue
        for what, name, ours, theirs in pairs(case, options.device):
            grad = what == "forward and backward"
            with torch.set_grad_enabled(grad):
                for call in (ours, theirs) * 3:
                    call()  # the first meeting tunes
                compile_queue().wait_for_all()
                ours()  # takes what was compiled meanwhile
                times = measure_calls({"ours": ours, "torch": theirs}, clock=clock, budget_us=options.budget_s * 1e6)
            verdict = compare(times["ours"], times["torch"])
            line: dict[str, Any] = {
                "benchmark": "host cost", "case": case[0], "what": what, "candidate": name,
                "ours_us": times["ours"].call_us.value, "torch_us": times["torch"].call_us.value,
                "ratio": verdict.ratio.value, "ratio_low": verdict.ratio.low, "ratio_high": verdict.ratio.high,
                "limit": LIMITS[what], "samples": times["ours"].samples, "conditions": known,
            }  # fmt: skip
            lines.append(line)
            if name == "chosen" and not grad:
                choice = cw.last_choice()
                line["choice"] = None if choice is None else choice.candidate.id
            if what == "plan":
                plans.append((line, ours))
            print(
                f"{case[0]:11} {what:21} {name:48} {line['ours_us']:8.2f} {line['torch_us']:8.2f} µs "
                f"{line['ratio']:.3f} [{line['ratio_low']:.3f}, {line['ratio_high']:.3f}] of at most {LIMITS[what]}",
                line.get("choice", ""),
                flush=True,
            )
            write(lines, options.out)
    # At the end, since launches take longer once a profiler has looked at them.
    for line, call in plans if options.device == "cuda" else ():
        line["kernels"] = [kernel.name for kernel in kernels_of(call, options.device)]
        print(f"{line['case']:11} {line['candidate']:48} launches {len(line['kernels'])} kernels")
    write(lines, options.out)


if __name__ == "__main__":
    main()
