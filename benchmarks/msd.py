"""Mixed-scale dense networks: an engine, and a step of training, beside the same network written with concatenations.

    python benchmarks/msd.py [--out results.jsonl] [--device cpu] [--depths 50 100] [--size 512] [--budget-s 5]

All run interleaved in one run of the project's timer, in fp32 with TF32 off and a batch of 1: the plain network as it
is, with `torch.compile` where asked for, and `convwright.nn.MSDNet` as an engine; then a forward and a backward pass of
both, once all choices for ours are made. Outputs and gradients are held against float64. Memory is the peak of
PyTorch's allocator during a pass.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from common.networks import DenseLayers
from common.settled import settle
from enable_models import ended, off
from torch import Tensor, nn

import convwright as cw
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.store.store import Store


def row(depth: int, options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    ours = cw.nn.MSDNet(1, 2, depth).to(options.device)
    plain = DenseLayers(depth).to(options.device)
    plain.load_state_dict(ours.state_dict())
    exact = copy.deepcopy(plain).double()
    x = torch.randn(1, 1, options.size, options.size, device=options.device)
    begun_s = perf_counter()
    engine = cw.optimize(copy.deepcopy(ours).eval(), x, store=Store.open(None))
    built_s = perf_counter() - begun_s
    runs: dict[str, Callable[[], Tensor]] = {"engine": lambda: engine(x), "plain": passing(plain, x)}
    if options.compile:
        compiled: Any = torch.compile(plain, mode="reduce-overhead" if x.is_cuda else None)
        runs["compile"] = passing(compiled, x)
    steps = {"ours, training": step_of(ours, x), "plain, training": step_of(plain, x)}
    right, right_step = passing(exact, x.double())(), step_of(exact, x.double())()
    errors = {name: off(run(), right) for name, run in runs.items()}
    errors |= {name: off(run(), right_step) for name, run in steps.items()}
    ready_s = settle(steps["ours, training"], hurried=True, calls=10)
    runs |= steps
    peaks = {name: peak_bytes(run) for name, run in runs.items()} if x.is_cuda else None
    times = measure_calls(
        {name: ended(run) for name, run in runs.items()}, clock=WallClock(), budget_us=options.budget_s * 1e6
    )
    return {
        "benchmark": "msd", "depth": depth, "size": options.size, "built_s": built_s, "ready_s": ready_s,
        "us": {name: timing.call_us.value for name, timing in times.items()},
        "inference": compare(times["plain"], times["engine"]).to_json(),
        "training": compare(times["plain, training"], times["ours, training"]).to_json(),
        "relative_l2": errors, "peak_bytes": peaks, "arena_bytes": engine.arena_bytes,
        "conditions": dict(conditions(device_facts(options.device))),
    }  # fmt: skip


def passing(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with torch.no_grad():
            y: Tensor = model(x)
        return y

    return run


def step_of(model: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """A forward and a backward pass, which gives all gradients in one."""

    def run() -> Tensor:
        loss = model(x).square().mean()
        return torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])

    return run


def peak_bytes(run: Callable[[], object]) -> int:
    """The most that a pass adds to what PyTorch's allocator holds."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--depths", nargs="+", type=int, default=[50, 100])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--budget-s", type=float, default=5.0)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    for depth in options.depths:
        made = row(depth, options)
        ratios = " and ".join(f"{made[each]['ratio']['value']:.2f}x" for each in ("inference", "training"))
        us = "  ".join(f"{name} {time_us:,.0f}" for name, time_us in made["us"].items())
        print(f"MSD-{depth}: {ratios} in inference and training; µs: {us}; built in {made['built_s']:.1f} s;", end=" ")
        print(
            f"arena {made['arena_bytes']:,} bytes; peaks {made['peak_bytes']}; errors {made['relative_l2']}", flush=True
        )
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
