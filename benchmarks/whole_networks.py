"""Whole networks: what an engine takes, beside PyTorch in both layouts and `torch.compile`.

    python benchmarks/whole_networks.py [--out results.jsonl] [--device cpu] [--networks resnet18 unet …]
        [--batches 1 8] [--size 128] [--dtypes fp32] [--tf32 off] [--mode quick] [--no-compile] [--autotune] [--folders]
        [--energy]

Networks of torchvision, and those of `common/networks`. All run interleaved in one run of the project's timer, on a GPU
each captured in a CUDA graph. "engine" is a call with a tensor, "run" the engine on what its own input holds; "best" is
the fastest of the others. "benchmark" is PyTorch in channels last with `torch.backends.cudnn.benchmark` on, on a GPU
alone, and "benchmark-nchw" the same in planes. "compile" is `torch.compile`, "reduce-overhead" on a GPU and frozen on a
CPU, and "autotune" its "max-autotune"; both are in channels last. The store begins empty and the engine is built with
default settings: "built_s" is what that took, "compiled_s" and "autotuned_s" what `torch.compile` took for its first
run. "bound_us" is what the device needs at least for the steps of the plan. With --folders the engine is saved and
loaded in fresh processes (`common/fresh_process`), with --energy it runs for 5 s more. Outputs are held against
float64. A file that exists is added to, and what it has is not measured again: a network of one batch, dtype, size and
--tf32.
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
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from common.fresh_process import fresh_process_s
from common.roofline import bound_us
from common.torch_calls import trying
from enable_models import network
from torch import Tensor, nn

from convwright import torch_api
from convwright.core.record import as_record
from convwright.engine.optimize import optimize
from convwright.engine.running.cuda_graph import CudaGraph, GraphPlace
from convwright.measuring.clock import WallClock
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.energy import counter_of, energy_of
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_calls
from convwright.settings import Mode
from convwright.store.store import Store

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# On a GPU; the others capture themselves.
CAPTURED = ("nchw", "nhwc", "benchmark", "benchmark-nchw")
_Run = Callable[[], Any]


class WaitingClock(WallClock):
    """Waits for the GPU after the last of several calls, which are queued."""

    def run(self, call: Callable[[], object], n: int) -> None:
        super().run(call, n)
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def rows(options: argparse.Namespace, done: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    known = dict(conditions(device_facts(options.device)))
    for name, batch, dtype in product(options.networks, options.batches, options.dtypes):
        if (name, batch, dtype, options.size, options.tf32) not in done:
            yield measured(name, batch, dtype, options) | {"conditions": known}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What is measured once. Rows of before there was "tf32" were measured with PyTorch's default for convolutions."""
    return (*(row[name] for name in ("network", "batch", "dtype", "size")), row.get("tf32", "on"))


@torch.no_grad()
def measured(name: str, batch: int, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    made, shape, versions = network(name)
    size = options.size or shape[-1]
    model = settled(made.to(options.device), (2, shape[0], *(size for _ in shape[1:])))
    x = torch.randn(batch, shape[0], *(size for _ in shape[1:]), device=options.device)
    exact = first(copy.deepcopy(model).double()(x.double())) if options.errors else None
    model, x = model.to(DTYPES[dtype]), x.to(DTYPES[dtype])
    with TemporaryDirectory() as place:
        path = Path(place) / "findings.sqlite"
        store, begun_s = Store.open(path if options.folders else None), perf_counter()
        engine = optimize(model, x, mode=Mode(options.mode), store=store)
        built_s = perf_counter() - begun_s
        engine.input.copy_(x)
        others, compile_s = competitors(model, x, options)
        runs: dict[str, _Run] = {"engine": lambda: engine(x), "run": engine.run} | others
        errors = None if exact is None else {each: off(run(), exact) for each, run in runs.items()}
        for each in CAPTURED if x.is_cuda else ():
            runs[each] = captured(runs[each], x.device)
        times = measure_calls(
            {each: ended(run, x) for each, run in runs.items()}, clock=WallClock(), budget_us=options.budget_s * 1e6
        )
        fresh = {} if not options.folders else fresh_process_s(
            engine, model, x, Path(place), device=options.device, mode=Mode(options.mode), store=path,
            tf32=options.tf32 == "on",
        )  # fmt: skip
    energy = energy_of(engine.run, WaitingClock(), counter_of(x.device)) if options.energy else None
    us = {each: timing.call_us.value for each, timing in times.items()}
    report = engine.memory_report(model, x)
    memory = {
        "peak": report.peak, "lower_bound": report.plan.lower_bound, "eager": report.eager_peak,
        "weights": report.weights, "tensors": report.tensors, "workspace": report.workspace,
    }  # fmt: skip
    best = min(others, key=lambda each: us[each])
    return {
        "benchmark": "whole networks", "network": name, "batch": batch, "dtype": dtype, "size": options.size,
        "tf32": options.tf32, "us": us, "best": best, "ratio": compare(times["engine"], times[best]).to_json(),
        "built_s": built_s, **compile_s, **fresh, "bound_us": bound_us(engine.assignment, engine.facts),
        "modelled_us": engine.assignment.modelled_us, "greedy_us": engine.assignment.greedy_us,
        "uniform_us": engine.assignment.uniform_us, "steps_us": engine.assignment.steps_us,
        "arena_bytes": engine.arena_bytes, "bytes": memory, "energy": energy and as_record(energy),
        "relative_l2": errors, "versions": versions,
        "unstable": next((timing.unstable for timing in times.values() if timing.unstable), None),
    }  # fmt: skip


def competitors(
    model: nn.Module, x: Tensor, options: argparse.Namespace
) -> tuple[dict[str, _Run], dict[str, float | None]]:
    """PyTorch's ways to run the model, and what compilation took."""
    last, x_last = copy.deepcopy(model), x
    if x.dim() == 4:
        last = last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x_last = x.contiguous(memory_format=torch.channels_last)
    runs: dict[str, _Run] = {"nchw": lambda: model(x), "nhwc": lambda: last(x_last)}
    if x.is_cuda:
        runs |= {"benchmark": trying(last, x_last), "benchmark-nchw": trying(model, x)}
    took_s: dict[str, float | None] = {"compiled_s": None, "autotuned_s": None}
    if options.compile or options.autotune:
        torch.compiler.reset()  # what it compiled for other sizes would make it compile for sizes that vary
    if options.compile:
        mode = "reduce-overhead" if x.is_cuda else None
        runs["compile"], took_s["compiled_s"] = compiled(last, x_last, mode)
    if options.autotune:
        runs["autotune"], took_s["autotuned_s"] = compiled(last, x_last, "max-autotune")
    return runs, took_s


def compiled(model: nn.Module, x: Tensor, mode: str | None) -> tuple[_Run, float]:
    run: Any = torch.compile(model, mode=mode)
    begun_s = perf_counter()
    for _ in range(3):
        run(x)
    return lambda: run(x), perf_counter() - begun_s


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
    return CudaGraph(run, GraphPlace(device)).replay


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
    parser.add_argument("--tf32", choices=["on", "off"], default="on", help="of convolutions and matrix products")
    parser.add_argument("--mode", choices=["heuristic", "quick", "full"], default="quick")
    parser.add_argument("--budget-s", type=float, default=5.0)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--autotune", action="store_true", help="beside torch.compile's max-autotune")
    parser.add_argument("--folders", action="store_true", help="load the engine in fresh processes, and plan it again")
    parser.add_argument("--energy", action="store_true", help="measure the energy of a run")
    parser.add_argument("--no-errors", dest="errors", action="store_false")
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed(sys.argv[1:])
    if options.device == "cpu":
        os.environ["TORCHINDUCTOR_FREEZING"] = "1"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = options.tf32 == "on"
    lines = options.out.read_text().splitlines() if options.out is not None and options.out.exists() else []
    for row in rows(options, {key(json.loads(line)) for line in lines}):
        print(summary(row), flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def summary(row: dict[str, Any]) -> str:
    us = "  ".join(f"{name} {time_us:,.0f}" for name, time_us in row["us"].items())
    bound = "" if row["bound_us"] is None else f"; roofline {row['bound_us'] / row['us']['engine']:.0%}"
    seconds = "".join(
        f"; {word} in {row[name]:.1f} s"
        for name, word in (
            ("built_s", "built"), ("compiled_s", "compiled"), ("autotuned_s", "autotuned"), ("rebuilt_s", "rebuilt"),
            ("loaded_warm_s", "loaded"), ("loaded_cold_s", "loaded with cold caches"),
        )
        if row.get(name) is not None
    )  # fmt: skip
    return (
        f"{row['network']} {row['dtype']} batch {row['batch']}: {row['us'][row['best']] / row['us']['engine']:.2f}x "
        f"{row['best']}; µs: {us}{bound}; modelled {row['modelled_us']:,.0f}{seconds}; errors {row['relative_l2']}"
    )


if __name__ == "__main__":
    main()
