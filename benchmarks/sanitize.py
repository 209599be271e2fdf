"""A fixed set of candidates, each run once on a small problem, to be watched by NVIDIA's compute-sanitizer.

    export PYTORCH_NO_CUDA_MEMORY_CACHING=1 CONVWRIGHT_MODE=off
    compute-sanitizer --tool memcheck --error-exitcode 3 python benchmarks/sanitize.py
    compute-sanitizer --tool initcheck --kernel-name-exclude kernel_substring=nhwcToNchwKernel --error-exitcode 3 \
        python benchmarks/sanitize.py --unwritten

Without the first variable PyTorch hands out parts of large blocks, in which nothing is out of bounds; with it no search
can capture what it times, so that the second keeps to what is named. Every classic algorithm
of cuDNN that serves is run, and of the others the first few of each backend; then some inside a CUDA graph, on another
stream and as calls with gradients. It runs on a CPU as well, as a plain script, and ends with code 1 where a result is
wrong: outputs, and what rewrites keep in a workspace, hold NaN before. Initcheck does not see what Hopper's bulk copies
write, by which some kernels of cuDNN, of PyTorch's matrix products and of this project fill an output; products of
boxes, and what PyTorch's operators make of their own, are therefore left out with ``--unwritten``, and the kernel that
is named there reads such an output inside of an engine of cuDNN's.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

import convwright as cw
from convwright.api.plans import BoundPlan
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tensors import empty, spoil_
from convwright.tuning import listing
from convwright.tuning.search import resolved
from convwright.tuning.trials.quick_timing import FAILURES
from convwright.tuning.trials.trial import Bench, Trial

PLAIN, HALF = "mb2ic8ih14oc8kh3ph1", "mb2ic8ih14oc8kh3ph1 dt:fp16 tag:nhwc"
BOXED, UNBOXED = (f"mb2ic16ih14oc{channels}kh3ph1 dt:fp16 tag:nhwc" for channels in (16, 21))
FEW = "mb2ic9ih14oc2kh3ph1"
PROBLEMS = [
    PLAIN, HALF, BOXED, UNBOXED, FEW, "g8mb1ic8ih12oc8kh3ph1", "g8mb1ic8ih12oc8kh7ph3 dt:fp16", "ic8id5ih9oc8kd3kh3",
]  # fmt: skip
FUSED = [f"{PLAIN} ep:bias+relu", f"{HALF} ep:residual+bias+relu"]
# So many of each backend, but of cuDNN's classic API all, and so many rewritten ones.
MOST_OF_A_BACKEND, MOST_REWRITTEN = 4, 3
# So many of these, which allocate nothing, in a CUDA graph and on another stream as well.
CAPTURED = {"cudnn": 3, "triton": 3}
# The largest relative L2 distance from PyTorch's own result. TF32 and fp16 differ by less than 3e-3.
TOLERANCE = 2e-2
# Backends, and an algorithm of ours, by which bulk copies write an output.
UNSEEN = ("torch", "reference", "boxed-gemm")


def problems() -> Iterator[ConvProblem]:
    for text in PROBLEMS:
        yield from (ConvProblem.parse(text).asking(direction) for direction in Direction)
    yield from map(ConvProblem.parse, FUSED)


def some(problem: ConvProblem, device: cw.DeviceFacts) -> list[Candidate]:
    """PyTorch's own call first, and then what is to be run beside it."""
    policy, taken, chosen = resolved(Policy(), problem, device), Counter[str](), list[Candidate]()
    for candidate in listing.candidates(listing.direct(problem, device, policy)):
        classic = candidate.backend == "cudnn" and not candidate.algorithm.startswith("engine-")
        taken[candidate.backend] += not classic
        if classic or taken[candidate.backend] <= MOST_OF_A_BACKEND:
            chosen.append(candidate)
    return chosen + listing.candidates(listing.rewritten(problem, device, policy))[:MOST_REWRITTEN]


def distance(y: Tensor, expected: Tensor) -> float:
    y, expected = y.detach().double(), expected.detach().double()
    return float((y - expected).norm() / expected.norm())


def captured(trial: Trial) -> Tensor:
    """The result of a replay, into memory that held something else. Nothing is allocated inside, which a process whose
    memory is not PyTorch's to keep could not capture."""
    plan, given = BoundPlan(trial.plan, trial.bench.facts), dict(trial.bench.operands)
    if Role.W in given:
        given[Role.W] = plan.prepare(given[Role.W])
    first, second = (given[role] for role in trial.bench.problem.direction.operands)
    y = empty(trial.bench.problem.output, trial.bench.device)
    workspace = trial.bench.workspace(plan.workspace_bytes)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL), out=y, workspace=workspace)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return y


def result(trial: Trial) -> Tensor:
    """One result, over an output filled with NaN; and so is the workspace where a rewrite keeps tensors in it."""
    given, bench = trial.bench.operands, trial.bench
    first, second = (given[role] for role in bench.problem.direction.operands)
    if Role.W in given:
        second = trial.plan.prepare(second)
    out = spoil_(empty(bench.problem.output, bench.device)) if trial.plan.writes_out else None
    workspace = bench.workspace(trial.plan.workspace_bytes)
    if workspace is not None and trial.candidate.depth:
        workspace.fill_(0xFF)
    return trial.plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL), out, workspace)


def on_another_stream(trial: Trial) -> Tensor:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = result(trial)
    torch.cuda.current_stream().wait_stream(stream)
    return y


class Report:
    """What was run, and what of it was wrong."""

    def __init__(self) -> None:
        self.ran, self.wrong = 0, 0

    def tell(self, what: str, y: Tensor, expected: Tensor) -> None:
        far = distance(y, expected)
        self.ran += 1
        self.wrong += not far <= TOLERANCE
        print(f"{far:8.1e}  {what}{'' if far <= TOLERANCE else '  WRONG'}", flush=True)


def run(problem: ConvProblem, device: cw.DeviceFacts, report: Report, *, without: tuple[str, ...] = ()) -> None:
    bench, expected, taken = Bench(problem, device, Mode.FULL, seed=1), None, Counter[str]()
    for candidate in some(problem, device):
        if candidate.leaf.backend in without or candidate.leaf.algorithm in without:
            continue
        try:
            trial = Trial(candidate, bench)
            y = result(trial)
        except FAILURES as refused:
            print(f"refused   {candidate.id} for {problem.key}: {refused}", flush=True)
            continue
        expected = y if expected is None else expected
        report.tell(f"{candidate.id} for {problem.key}", y, expected)
        if bench.device.type == "cuda" and taken[candidate.backend] < CAPTURED.get(candidate.backend, 0):
            taken[candidate.backend] += 1
            report.tell(f"{candidate.id} captured", captured(trial), expected)
            report.tell(f"{candidate.id} on another stream", on_another_stream(trial), expected)


def call(device: cw.DeviceFacts, report: Report) -> None:
    """The functions, with their packing, workspaces and gradients."""
    where = torch.device(str(device.torch_name))
    x, w = (torch.randn(*shape, device=where, requires_grad=True) for shape in ((2, 8, 14, 14), (8, 8, 3, 3)))
    own = torch.nn.functional.conv2d(x, w, padding=1)
    expected = torch.autograd.grad(own.square().sum(), (x, w))
    for name in ["cudnn/implicit-precomp-gemm", "cudnn/fft"] if where.type == "cuda" else ["reference/gemm"]:
        for _ in range(2):
            y = cw.conv2d(x, w, padding=1, algorithm=name)
            report.tell(f"conv2d by {name}", y, own)
            for made, right in zip(torch.autograd.grad(y.square().sum(), (x, w)), expected, strict=True):
                report.tell(f"a gradient behind {name}", made, right)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--unwritten", action="store_true", help="nothing whose writing initcheck does not see")
    asked = parser.parse_args()
    device, report = device_facts(asked.device), Report()
    torch.manual_seed(1)
    for problem in problems():
        run(problem, device, report, without=UNSEEN if asked.unwritten else ())
    call(device, report)
    print(f"{report.ran} runs, {report.wrong} wrong, on {device.key}")
    raise SystemExit(report.wrong > 0)


if __name__ == "__main__":
    main()
