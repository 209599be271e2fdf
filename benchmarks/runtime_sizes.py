"""What it costs to give a kernel its sizes when it runs, instead of when it is compiled.

    python benchmarks/runtime_sizes.py --out results.jsonl [--device cuda:0] [--tiles 3] [--cache cold] [--rows 0:4]

The Triton kernels of `implicit_gemm` and `direct` know all sizes as constants, so each problem has kernels of its own.
`common/runtime_sizes` has copies whose sizes and strides are arguments: the compiler is told which of them are
multiples of 2, 4 or 8, as far as that lets it read more at once, and 0 and 1 are constants still, as are taps, strides
of windows, padding, arithmetic and tiles. Problems that are alike in all that share a kernel. For the first tiles that
are offered for each problem this compiles the kernel as it is and such copies, checks that they compute the same, and
times them side by side. The copies:

* run time: divides by sizes as the compiler writes a division;
* with reciprocals: multiplies by a reciprocal that the host gives;
* with reciprocals, C constant: the same where a step of the sum runs across taps, with channels as a constant;
* with reciprocals, hints of 16: of multiples of 16 alone, where that makes a difference. Triton's own dispatch
  gives no others.

A line is printed for each: the time as times of the kernel with constants, registers, bytes that are spilled,
instructions, and those of the innermost loop, each beside that of the kernel with constants. Then come geometric means,
and how many kernels the layers of two networks would need.

    python benchmarks/runtime_sizes.py --device cpu                        # compiles for an H200 and times nothing
    TRITON_INTERPRET=1 python benchmarks/runtime_sizes.py --device cpu     # checks small problems in the interpreter
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from math import exp, log
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from common.pace import sliced
from common.runtime_sizes import calls, layers
from common.runtime_sizes.calls import Hints, SizedCall
from common.runtime_sizes.launching import launcher
from common.runtime_sizes.listing import listing
from torch import Tensor

from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.direct import offers as direct
from convwright.backends.triton.gemm.algorithms import algorithms_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm import offers as implicit_gemm
from convwright.backends.triton.launching.kernel_call import KernelCall, interpreting
from convwright.backends.triton.packing.weight import channels_last_of
from convwright.backends.triton.sweep import sweep_of
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.measuring.cache import Cache
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.compare import compare
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timer import measure_together
from convwright.report.benchmarks.lines import Lines
from convwright.suites import load
from convwright.tensors import empty

_HALF, _SINGLE = "dt:fp16 tag:nhwc ep:bias+relu", "dt:fp32 ep:bias+relu"
GEMM_PROBLEMS = (
    f"mb32ic256ih14oc256kh3ph1 {_HALF}",
    f"mb32ic64ih56oc256kh1 {_HALF}",
    f"mb32ic1024ih14oc256kh1 {_HALF}",
    f"mb32ic24ih28oc72kh1 {_HALF}",
    f"mb32ic128ih56oc128kh3sh2ph1 {_HALF}",
    f"mb32ic3ih224oc64kh7sh2ph3 {_HALF}",
    f"mb16ic35ih56oc51kh3ph1 {_HALF}",
    f"mb32g32ic512ih28oc512kh3ph1 {_HALF}",
    f"mb8ic64id16ih28oc64kd3kh3pd1ph1 {_HALF}",
    f"mb16ic128iw4096oc128kw5pw2 {_HALF}",
    f"mb1ic512ih7oc512kh3ph1 {_HALF}",
    f"mb16ic128ih28oc128kh3ph1 {_SINGLE}",
    f"mb16ic256ih28oc64kh1 {_SINGLE}",
    f"mb16ic96ih27oc96kh3ph1 {_SINGLE}",
)
DIRECT_PROBLEMS = (
    f"mb32g96ic96ih56oc96kh3ph1 {_HALF}",
    f"mb32g240ic240ih28oc240kh3sh2ph1 {_HALF}",
    f"mb16g96ic96ih56oc96kh7ph3 {_HALF}",
    f"mb32g120ic120ih28oc120kh5ph2 {_HALF}",
    f"mb32g96ic96ih56oc96kh3ph1 {_SINGLE}",
    f"mb16g96ic96ih56oc96kh7ph3 {_SINGLE}",
    f"mb1ic1ih1024oc1kh3ph1 {_SINGLE}",
    f"mb1ic50ih512oc1kh3ph1 {_SINGLE}",
    f"mb4ic3ih256oc8kh3ph1 {_SINGLE}",
)
# For the interpreter: what each of the flags decides.
SMALL = (
    f"mb2ic32ih5iw7oc24kh1 {_HALF}",
    "mb2ic64ih6iw7oc40kh3ph1 dt:fp16 tag:nhwc ep:residual+bias+relu",
    f"mb3ic48ih9oc64kh3sh2ph1 {_HALF}",
    f"mb1ic19ih7iw9oc5kh3kw2ph1 {_SINGLE}",
    f"mb2ic40ih4iw16oc17kh1 {_SINGLE}",
    f"mb1ic3ih15iw17oc20kh7sh2ph3 {_HALF}",
    f"mb1g3ic48ih6oc36kh3ph1 {_HALF}",
    f"mb2ic20iw30oc6kw5sw2pw1 {_SINGLE}",
    f"mb2ic18id3ih3iw4oc9kd3kh3pd1ph1 {_SINGLE}",
    f"mb2ic16id5ih3iw4oc8kd2kh1 {_HALF}",
    f"mb2g24ic24ih9oc24kh3ph1 {_HALF}",
    f"mb2g6ic6ih9iw16oc6kh7ph3 {_SINGLE}",
    f"mb1g2ic10ih12iw11oc14kh3sh2ph1 {_SINGLE}",
    f"mb1g4ic4id4ih5oc8kd3kh3pd1ph1 {_SINGLE}",
    f"mb1ic9ih20oc1kh3ph1 {_SINGLE}",
)
ALGORITHMS = ("implicit-gemm", "implicit-gemm-3xtf32", "direct")
AS_IS = "constants"
_MOST_ERROR = 2e-3


def offered(problem: ConvProblem, device: DeviceFacts, count: int) -> dict[str, list[Candidate]]:
    """By algorithm, of what is a single kernel and takes the weight as it lies, the first few tiles."""
    found = defaultdict[str, list[Candidate]](list)
    for offer in TritonKernels().candidates(problem, device, Policy()):
        if isinstance(offer, Candidate) and offer.algorithm in ALGORITHMS and not dict(offer.config).get("packed"):
            known = found[offer.algorithm]
            if len(known) < count and len(kernel_calls(offer)) == 1:
                known.append(offer)
    return found


def all_rows(options: argparse.Namespace, device: DeviceFacts) -> Iterator[Candidate]:
    texts = [(text, "direct") for text in DIRECT_PROBLEMS]
    texts = [*((text, "implicit-gemm") for text in GEMM_PROBLEMS), *texts]
    for text, kernel in texts[options.rows]:
        for algorithm, candidates in offered(ConvProblem.parse(text), device, options.tiles).items():
            if algorithm.startswith(kernel):
                yield from candidates


def calls_of(candidate: Candidate) -> dict[str, KernelCall | SizedCall]:
    """The kernel as it is, and those with sizes at run time."""
    (call,) = kernel_calls(candidate)
    return {AS_IS: call, **dict(calls.variants(call))}


# Compiling.


@dataclass(frozen=True, slots=True)
class Compiled:
    seconds: float
    registers: int
    spilled_bytes: int
    instructions: int
    loop: int


def _begin() -> None:
    """In a process that compiles: load what the first kernel would wait for, and find none on disk."""
    import triton

    triton.knobs.compilation.always_compile = True
    problem = ConvProblem.parse(GEMM_PROBLEMS[0])
    (candidates,) = offered(problem, profile("h200"), 1).values()
    kernel_calls(candidates[0])[0].compile("sm_90")


def compiled(task: tuple[Candidate, str], architecture: str) -> Compiled:
    candidate, name = task
    begun_s = perf_counter()
    kernel = calls_of(candidate)[name].compile(architecture)
    seconds = perf_counter() - begun_s
    return Compiled(seconds, **asdict(listing(kernel)))


def compile_all(candidates: list[Candidate], architecture: str, processes: int) -> dict[str, dict[str, Compiled]]:
    """By a candidate's problem and id, and the name of the copy."""
    tasks = [(candidate, name) for candidate in candidates for name in calls_of(candidate)]
    found = defaultdict[str, dict[str, Compiled]](dict)
    with multiprocessing.get_context("spawn").Pool(processes, _begin) as pool:
        done = pool.imap(partial(compiled, architecture=architecture), tasks)
        for (candidate, name), each in zip(tasks, done, strict=True):
            found[_row(candidate)][name] = each
    return found


def _row(candidate: Candidate) -> str:
    return f"{candidate.problem.key} {candidate.id}"


# Running.


def named_operands(candidate: Candidate, device: torch.device | str) -> dict[str, Tensor | None]:
    given = operands(candidate.problem, Kind.NORMAL, device, seed=1)
    weight = given[Role.W]
    laid = weight if candidate.algorithm == "direct" else channels_last_of(weight)
    return {"x": given[Role.X], "w": laid, "bias": given.get(Role.BIAS), "residual": given.get(Role.RESIDUAL)}


def differs(result: Tensor, expected: Tensor) -> float:
    """By how much, as a share of the norm."""
    wanted = expected.double()
    return float((result.double() - wanted).norm() / wanted.norm())


def checked(name: str, result: Tensor, expected: Tensor) -> float:
    error = differs(result, expected)
    if not error <= _MOST_ERROR:  # NaN is none
        raise RuntimeError(f"{name} computes something else: it differs by {error:.1e} of the result")
    return error


@torch.no_grad()
def timed(candidate: Candidate, options: argparse.Namespace, device: DeviceFacts) -> dict[str, Any]:
    given = named_operands(candidate, options.device)
    launches, results = dict[str, Callable[[], None]](), dict[str, Tensor]()
    for name, call in calls_of(candidate).items():
        results[name] = empty(candidate.problem.y, options.device).fill_(float("nan"))
        sizes = call.sizes if isinstance(call, SizedCall) else {}
        kernel = call.compile(device.architecture)
        launches[name] = launcher(kernel, call.blocks, {**given, "y": results[name]}, sizes)
        launches[name]()
    torch.cuda.synchronize()
    errors = {name: checked(name, result, results[AS_IS]) for name, result in results.items()}
    budget_us = options.time_s * 1e6 * len(launches)
    timings = measure_together(
        launches, device=options.device, budget_us=budget_us, cache=options.cache, precision=0.01
    )  # fmt: skip
    ratios = {name: compare(timing, timings[AS_IS]).ratio for name, timing in timings.items()}
    return {
        "us": {name: asdict(timing.call_us) for name, timing in timings.items()},
        "ratio": {name: asdict(ratio) for name, ratio in ratios.items()}, "differs": errors,
        "conditions": dict(timings[AS_IS].conditions),
    }  # fmt: skip


def check_interpreted() -> None:
    """All copies for small problems, in Triton's interpreter."""
    device = device_facts("cpu")
    for text in SMALL:
        problem = ConvProblem.parse(text)
        for candidates in offered(problem, device, 1).values():
            (candidate,) = candidates
            given, results = named_operands(candidate, "cpu"), dict[str, Tensor]()
            for name, call in calls_of(candidate).items():
                results[name] = empty(problem.y, "cpu").fill_(float("nan"))
                there = {**given, "y": results[name], "scale": None, "z": None}
                call.interpreted(*(there[operand] for operand in call.pointers))
                checked(f"{name} of {_row(candidate)}", results[name], results[AS_IS])
            print(f"{', '.join(results)} compute the same: {_row(candidate)}", flush=True)


# Telling.


def told(candidate: Candidate, found: dict[str, Compiled], times: dict[str, Any] | None) -> str:
    said = [_row(candidate)]
    for name, each in found.items():
        us = f"{times['us'][name]['value']:9.2f} µs {times['ratio'][name]['value']:6.3f}  " if times else ""
        said.append(
            f"    {us}{each.registers:4} registers {each.spilled_bytes:5} spilled {each.instructions:5} instructions "
            f"{each.loop:5} in the loop {each.seconds:5.2f} s  {name}"
        )
    return "\n".join(said)


def means(rows: list[tuple[Candidate, dict[str, Compiled], dict[str, Any] | None]]) -> str:
    """Geometric means of ratios to the kernel with constants, by kernel and copy."""
    found = defaultdict[tuple[str, str], dict[str, list[float]]](lambda: defaultdict(list))
    for candidate, built, times in rows:
        for name, each in built.items():
            as_is, mean = built[AS_IS], found[candidate.algorithm, name]
            mean["time"] += [times["ratio"][name]["value"]] if times else []
            mean["instructions"].append(each.instructions / as_is.instructions)
            mean["loop"] += [each.loop / as_is.loop] if each.loop and as_is.loop else []
            mean["registers"].append(each.registers / as_is.registers)
            mean["compile seconds"].append(each.seconds / as_is.seconds)
    said = ["geometric means, as times of the kernel with constants:"]
    for (algorithm, name), ratios in found.items():
        if name != AS_IS:
            listed = ", ".join(f"{what} {_mean(values):.3f}" for what, values in ratios.items() if values)
            most = f" (most {max(ratios['time']):.2f})" if ratios["time"] else ""
            said.append(f"    {algorithm}, {name}, {len(ratios['registers'])} rows: {listed}{most}")
    return "\n".join(said)


def _mean(values: list[float]) -> float:
    return exp(sum(map(log, values)) / len(values))


# How many kernels networks need.


_TILE, _STRIP = Tile(64, 64, 64, 4, 4), direct.Strip(4, 128, 1, 1, 1)


def one_tile(problem: ConvProblem) -> KernelCall:
    """The kernel for the layers of networks in one tile, whatever their sizes."""
    if problem.groups > 1:
        strip = direct.filled_strip(_STRIP, sweep_of(problem))
        assert strip is not None
        return kernel_calls(direct.candidate_of(problem, strip))[0]
    (algorithm,) = algorithms_of(implicit_gemm.KERNEL, problem.dtype)
    return kernel_calls(implicit_gemm.candidate_of(problem, algorithm, _TILE))[0]


def constant_key(call: KernelCall) -> object:
    told = sorted((name, repr(value)) for name, value in call.constants.items())
    return call.kernel, tuple(call.pointers.items()), call.warps, call.stages, call.registers, *told


def counts() -> str:
    said = ["kernels to be compiled for all layers, in one tile each (fp16, channels last, bias and ReLU):"]
    zoo = [
        ConvProblem.parse(f"{each.problem.key.split()[0]} {_HALF}")
        for each in load("zoo").rows
        if min(each.problem.c, each.problem.k) >= 8 or each.problem.groups == 1
    ]
    for batches in (1,), (32,), (1, 8, 32):
        listed = {name: list[ConvProblem]() for name, _ in layers.networks(1)}
        for images in batches:
            for name, problems in layers.networks(images):
                listed[name] += problems
        if batches == (1,):
            listed["the suite zoo"] = zoo
        for name, problems in listed.items():
            kernels = [one_tile(problem) for problem in problems]
            keys = {
                "constants": {constant_key(each) for each in kernels},
                "run time": {calls.sized(each, reciprocals=False).key for each in kernels},
                "with reciprocals": {calls.sized(each).key for each in kernels},
                "run time as Triton dispatches": {
                    calls.sized(each, reciprocals=False, hints=Hints.ALL_OF_16).key for each in kernels
                },
            }
            counted = ", ".join(f"{what} {len(found)}" for what, found in keys.items())
            said.append(f"    {name}, {' and '.join(map(str, batches))} images, {len(problems)} layers: {counted}")
    return "\n".join(said)


def options_given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiles", type=int, default=2, help="of each algorithm of a problem")
    parser.add_argument("--cache", default=Cache.HOT.value, choices=(Cache.HOT, Cache.COLD))
    parser.add_argument("--time-s", type=float, default=0.1, help="for each kernel")
    parser.add_argument("--rows", type=sliced, default=slice(None), help="of the problems, from:to or from:to:step")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that compile")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    options = options_given()
    if interpreting():
        check_interpreted()
        return
    runs = torch.device(options.device).type == "cuda"
    device = device_facts(options.device) if runs else profile("h200")
    candidates = list(all_rows(options, device))
    begun_s = perf_counter()
    built = compile_all(candidates, device.architecture, options.processes)
    print(f"compiled {sum(map(len, built.values()))} kernels in {perf_counter() - begun_s:.0f} s", flush=True)
    lines, done = None if options.out is None else Lines(options.out), []
    for candidate in candidates:
        found = built[_row(candidate)]
        times = timed(candidate, options, device) if runs else None
        done.append((candidate, found, times))
        print(told(candidate, found, times), flush=True)
        if lines is not None:
            lines.add(
                {
                    "benchmark": "runtime sizes", "problem": candidate.problem.key, "id": candidate.id,
                    "device": device.name, "cache": options.cache,
                    "date": datetime.now(UTC).isoformat(timespec="seconds"),
                    "compiled": {name: asdict(each) for name, each in found.items()}, **(times or {}),
                }
            )  # fmt: skip
    print(means(done))
    print(counts())


if __name__ == "__main__":
    main()
