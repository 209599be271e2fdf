"""A hand-written wrapper of cuDNN with the mistakes that are commonly made, and its time as they are cured in turn.

    python benchmarks/wrapper_clinic.py [--problem mb8ic64ih56oc64kh3ph1] [--out results.jsonl]

Each row is the wrapper with all cures up to that one; the times are of whole calls, from a queue that is empty to one
that is empty again, a few calls at a time, and the least of several such. PyTorch's own function is timed in between.
The last rows are what convwright runs: cuDNN's algorithm with everything kept, and its own choice.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from pathlib import Path

import torch
from torch.nn import functional as F

import convwright as cw
from convwright.backends.cudnn.classic.descriptors import ConvDescriptors, describe
from convwright.backends.cudnn.library import Library, load
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts

CURES = {
    "naive": "makes everything anew, waits and prints at each call; tensors in managed memory, which the CPU looks at",
    "device memory": "tensors lie on the device, so that no page of them moves between the CPU and the kernel",
    "handle": "the handle is made once",
    "descriptors": "so are the descriptors",
    "workspace": "the workspace comes from an allocator that keeps it, not from cudaMalloc and cudaFree",
    "queue": "nothing is printed, and nobody waits for the device at each call",
    "heuristic": "cuDNN is asked for an algorithm once",
    "math type": "tensor cores are allowed, as PyTorch allows them by default",
}
ROUNDS, CALLS = 7, 20


class Perf(ctypes.Structure):
    """What cuDNN's heuristic says of one algorithm."""

    _fields_ = (
        ("algorithm", c_int), ("status", c_int), ("time_ms", c_float), ("memory", c_size_t), ("determinism", c_int),
        ("math_type", c_int), ("reserved", c_int * 3),
    )  # fmt: skip


class Wrapper:
    """One forward convolution in fp32, with the cures that were applied so far."""

    def __init__(self, problem: ConvProblem, cures: set[str], x: torch.Tensor, w: torch.Tensor) -> None:
        library = load()
        assert isinstance(library, Library)
        self.library, self.problem, self.cures = library, problem, cures
        self.runtime = ctypes.CDLL("libcudart.so.13")
        self.device = "device memory" in cures
        self.x = x.data_ptr() if self.device else self._managed(x)
        self.w = w.data_ptr() if self.device else self._managed(w)
        self.y = torch.empty(problem.y.shape, device="cuda")
        self.out = self.y.data_ptr() if self.device else self._managed(self.y)
        self.arithmetic = Arithmetic.TF32 if "math type" in cures else Arithmetic.FP32
        self.kept: dict[str, object] = {}
        self.scratch: torch.Tensor | None = None

    def _managed(self, like: torch.Tensor) -> int:
        at = c_void_p()
        nbytes = like.numel() * like.element_size()
        self.check(self.runtime.cudaMallocManaged(byref(at), c_size_t(nbytes), 1))
        self.check(self.runtime.cudaMemcpy(at, c_void_p(like.data_ptr()), c_size_t(nbytes), 4))
        return int(at.value or 0)

    @staticmethod
    def check(status: int) -> None:
        if status:
            raise RuntimeError(f"CUDA's runtime answered {status}")

    def once(self, cure: str, make: Callable[[], object]) -> object:
        """What is made at every call until ``cure`` is applied."""
        if cure not in self.cures:
            return make()
        if cure not in self.kept:
            self.kept[cure] = make()
        return self.kept[cure]

    def __call__(self) -> None:
        handle = self.once("handle", self.new_handle)
        described = self.once("descriptors", lambda: describe(self.library, self.problem, self.arithmetic))
        assert isinstance(described, ConvDescriptors)
        best = self.once("heuristic", lambda: self.asked(handle, described))
        assert isinstance(best, Perf)
        workspace = self.workspace(best.memory)
        one, zero = c_float(1), c_float(0)
        self.library.call(
            "cudnnConvolutionForward", handle, byref(one), described.x, self.x, described.w, self.w,
            described.convolution, best.algorithm, workspace, best.memory, byref(zero), described.y, self.out,
        )  # fmt: skip
        if "queue" not in self.cures:
            self.check(self.runtime.cudaDeviceSynchronize())
            print("convolution: algorithm", best.algorithm, "workspace", best.memory, file=self.console)
        if not self.device:  # as who prints the first value, or fills in the next input, does
            ctypes.c_float.from_address(self.x).value = ctypes.c_float.from_address(self.out).value
        if "workspace" not in self.cures and best.memory:
            self.check(self.runtime.cudaFree(c_void_p(workspace)))
        if "handle" not in self.cures:
            ctypes.CDLL(self.library.path).cudnnDestroy(handle)

    console = open(os.devnull, "w")  # noqa: SIM115  a terminal would be slower

    def new_handle(self) -> c_void_p:
        made = c_void_p()
        self.library.call("cudnnCreate", byref(made))
        self.library.call("cudnnSetStream", made, torch.cuda.current_stream().cuda_stream)
        return made

    def asked(self, handle: object, described: ConvDescriptors) -> Perf:
        found, count = (Perf * 8)(), c_int()
        operands = described.x, described.w, described.convolution, described.y
        self.library.call("cudnnGetConvolutionForwardAlgorithm_v7", handle, *operands, 8, byref(count), found)
        return next(each for each in found[: count.value] if each.status == 0)

    def workspace(self, nbytes: int) -> int:
        if not nbytes:
            return 0
        if "workspace" in self.cures:
            if self.scratch is None or self.scratch.numel() < nbytes:
                self.scratch = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
            return self.scratch.data_ptr()
        at = c_void_p()
        self.check(self.runtime.cudaMalloc(byref(at), c_size_t(nbytes)))
        return int(at.value or 0)


def call_us(call: Callable[[], object], calls: int) -> float:
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / calls * 1e6


def timed_us(call: Callable[[], object], own: Callable[[], object]) -> tuple[float, float]:
    """The least of some rounds of a call, and of PyTorch's own between them."""
    calls = 2 if call_us(call, 1) > 20_000 else CALLS
    pairs = [(call_us(call, calls), call_us(own, CALLS)) for _ in range(ROUNDS)]
    return min(ours for ours, _ in pairs), min(theirs for _, theirs in pairs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problem", default="mb8ic64ih56oc64kh3ph1")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    problem = ConvProblem.parse(options.problem)
    library = load()
    assert isinstance(library, Library)
    x, w = torch.randn(problem.x.shape, device="cuda"), torch.randn(problem.w.shape, device="cuda") / 30
    expected = F.conv2d(x, w, padding=problem.symmetric_padding or 0)

    def own() -> None:
        F.conv2d(x, w, padding=problem.symmetric_padding or 0)

    lines, cures, known = [], set[str](), dict(conditions(device_facts("cuda")))

    def row(name: str, cure: str, call: Callable[[], object], y: torch.Tensor | None) -> None:
        call()
        torch.cuda.synchronize()
        error = None if y is None else float((y - expected).norm() / expected.norm())
        ours_us, torch_us = timed_us(call, own)
        lines.append({
            "benchmark": "wrapper clinic", "problem": problem.key, "step": name, "cure": cure, "ours_us": ours_us,
            "torch_us": torch_us, "against_torch": error, "conditions": known,
        })  # fmt: skip
        print(f"{name:14} {ours_us:10.1f} µs, PyTorch {torch_us:7.1f}: {ours_us / torch_us:7.2f}   {cure}", flush=True)

    for name, cure in CURES.items():
        cures.add(name)
        wrapper = Wrapper(problem, set(cures), x, w)
        row(name, cure, wrapper, wrapper.y if wrapper.device else None)
    for name, algorithm in (("plan", "cudnn/implicit-precomp-gemm[math=tf32]"), ("chosen", None)):
        if algorithm is None:
            choice = cw.find(x, w, padding=problem.symmetric_padding or 0, budget_us=10e6).choice
            assert choice is not None
            algorithm = choice.candidate.id
        plan = cw.plan(problem, algorithm=algorithm, device="cuda")
        packed, y = plan.prepare(w), torch.empty(problem.y.shape, device="cuda")
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")

        def call(plan: cw.BoundPlan = plan, packed: torch.Tensor = packed, y: torch.Tensor = y) -> None:
            plan(x, packed, out=y, workspace=workspace)  # noqa: B023

        row(name, f"convwright's plan of {algorithm}", call, y)
    if options.out:
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
