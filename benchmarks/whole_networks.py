"""Whole networks: what an engine takes, beside PyTorch in both layouts and `torch.compile`.

    python benchmarks/whole_networks.py [--out results.jsonl] [--device cpu] [--networks resnet18 unet …]
        [--batches 1 8] [--size 128] [--dtypes fp32] [--mode quick] [--no-compile]

Networks of torchvision, and those of `common/networks`. All run interleaved in one run of the project's timer, on a GPU
each captured in a CUDA graph. `torch.compile` is "reduce-overhead" on a GPU, and frozen on a CPU, both in channels
last. The store begins empty and the engine is built with default settings: "built_s" is what that took, and
"compiled_s" what `torch.compile` took for its first run. Outputs are held against float64. A file that exists is added
to, and what it has is not measured again.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from enable_models import network
from torch import Tensor, nn

from convwright import torch_api
from convwright.engine.optimize import optimize
from convwright.engine.running.cuda_graph import CudaGraph
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.settings import Mode
from convwright.store.store import Store

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_Run = Callable[[], Any]


def rows(options: argparse.Namespace, done: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    known = dict(conditions(device_facts(options.device)))
    for name, batch, dtype in product(options.networks, options.batches, options.dtypes):
        if (name, batch, dtype, options.size) not in done:
            yield measured(name, batch, dtype, options) | {"conditions": known}


@torch.no_grad()
def measured(name: str, batch: int, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    made, shape, versions = network(name)
    size = options.size or shape[-1]
    model = settled(made.to(options.device), (2, shape[0], *(size for _ in shape[1:])))
    x = torch.randn(batch, shape[0], *(size for _ in shape[1:]), device=options.device)
    exact = first(copy.deepcopy(model).double()(x.double())) if options.errors else None
    model, x = model.to(DTYPES[dtype]), x.to(DTYPES[dtype])
    last, x_last = copy.deepcopy(model), x
    if x.dim() == 4:
        last = last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x_last = x.contiguous(memory_format=torch.channels_last)
    store, begun_s = Store.open(None), perf_counter()
    engine = optimize(model, x, mode=Mode(options.mode), store=store)
    built_s = perf_counter() - begun_s
    runs: dict[str, _Run] = {
        "engine": lambda: engine(x), "nchw": lambda: model(x), "nhwc": lambda: last(x_last),
    }  # fmt: skip
    compiled_s = None
    if options.compile:
        compiled: Any = torch.compile(last, mode="reduce-overhead" if x.is_cuda else None)
        begun_s = perf_counter()
        for _ in range(3):
            compiled(x_last)
        compiled_s = perf_counter() - begun_s
        runs["compile"] = lambda: compiled(x_last)
    errors = None if exact is None else {each: off(run(), exact) for each, run in runs.items()}
    for each in ("nchw", "nhwc") if x.is_cuda else ():
        runs[each] = captured(runs[each], x.device)
    times = measure_calls(
        {each: ended(run, x) for each, run in runs.items()}, clock=WallClock(), budget_us=options.budget_s * 1e6
    )
    us = {each: timing.call_us.value for each, timing in times.items()}
    best = min((each for each in us if each != "engine"), key=lambda each: us[each])
    return {
        "benchmark": "whole networks", "network": name, "batch": batch, "dtype": dtype, "size": options.size, "us": us,
        "best": best, "ratio": compare(times["engine"], times[best]).to_json(), "built_s": built_s,
        "compiled_s": compiled_s, "modelled_us": engine.assignment.modelled_us,
        "greedy_us": engine.assignment.greedy_us, "uniform_us": engine.assignment.uniform_us,
        "arena_bytes": engine.arena_bytes, "relative_l2": errors, "versions": versions,
        "unstable": next((timing.unstable for timing in times.values() if timing.unstable), None),
    }  # fmt: skip


def settled(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """In evaluation mode, with the statistics of random images in its batch norms. Otherwise the outputs of a deep
    network that was not trained vanish in fp16, and their errors say nothing."""
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    for each in norms:
        each.momentum = None  # the statistics of the images that follow, and of no others
        each.reset_running_stats()
    if norms:
        model.train()(torch.randn(shape, device=next(model.parameters()).device))
    return model.eval()


def first(outputs: Any) -> Tensor:
    """The first of the tensors that a network returns."""
    tensor: Tensor = torch_api.flatten(outputs)[0][0]
    return tensor


def off(outputs: Any, exact: Tensor) -> float:
    return float((first(outputs).double() - exact).norm() / exact.norm())


def captured(run: _Run, device: torch.device) -> _Run:
    """The run as a CUDA graph."""
    return CudaGraph(run, device).replay


def ended(run: _Run, x: Tensor) -> Callable[[], Tensor]:
    """A run that has ended when it returns."""

    def call() -> Tensor:
        run()
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        return x

    return call


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", nargs="+", default=["resnet18", "mobilenet_v3_small", "unet", "densenet121"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["fp32"])
    parser.add_argument("--size", type=int, default=None, help="of the image; by default that of the network")
    parser.add_argument("--mode", choices=["heuristic", "quick", "full"], default="quick")
    parser.add_argument("--budget-s", type=float, default=5.0)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--no-errors", dest="errors", action="store_false")
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed(sys.argv[1:])
    if options.device == "cpu":
        os.environ["TORCHINDUCTOR_FREEZING"] = "1"
    lines = options.out.read_text().splitlines() if options.out is not None and options.out.exists() else []
    done = {tuple(json.loads(line)[key] for key in ("network", "batch", "dtype", "size")) for line in lines}
    for row in rows(options, done):
        print(summary(row), flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def summary(row: dict[str, Any]) -> str:
    us = "  ".join(f"{name} {time_us:,.0f}" for name, time_us in row["us"].items())
    return (
        f"{row['network']} {row['dtype']} batch {row['batch']}: {row['us'][row['best']] / row['us']['engine']:.2f}x "
        f"{row['best']}; µs: {us}; modelled {row['modelled_us']:,.0f}; built in {row['built_s']:.1f} s; "
        f"errors {row['relative_l2']}"
    )


if __name__ == "__main__":
    main()
