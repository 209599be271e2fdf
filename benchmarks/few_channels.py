"""3x3 convolutions with few channels, as in mixed-scale dense networks: `cw.conv2d` beside PyTorch's own call.

    python benchmarks/few_channels.py [--out results.jsonl] [--resume] [--budget-s 1] [--limit-s 540]

Three layers with bias and ReLU; then, with a bias, time against the image's size with one channel in and out, against
equal numbers of both, and against channels of the input with one output; forward alone, and with the gradients of
input, weight and bias. fp32 with TF32 off. What a step asks for is searched in full, for the time of the device alone,
by kernels that are compiled ahead of it in other processes; then both sides are timed by turns in one run, on other
inputs. `tables.py` draws the record and makes docs/few-channels.md of it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import kernels_ahead
from common.pace import Pace
from torch import Tensor
from torch.nn import functional as F

import convwright as cw
from convwright.core.direction import Direction
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.eager.calls.posed import Wanted, gradient_problems
from convwright.eager.gradients.fused_gradients import fused_problems
from convwright.measuring.compare import compare
from convwright.measuring.conditions import conditions
from convwright.measuring.hardware.machine import device_facts
from convwright.report.benchmarks.lines import Lines

WHATS = ("forward", "forward and backward")
# Calls are replayed from CUDA graphs, where the host's time does not count.
POLICY = Policy(objective=Objective.DEVICE_TIME)
WANTED = Wanted(x=True, w=True, bias=True)
_MEETINGS = 4  # the second call of a shape decides, by what the store knows
Call = Callable[[], Tensor | tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True)
class Point:
    """One problem of a figure, whose horizontal axis shows ``at``."""

    figure: str
    at: int
    inputs: int
    outputs: int
    size: int
    dilation: int
    activation: str | None = None

    @property
    def text(self) -> str:
        window = f"kh3ph{self.dilation}dh{self.dilation - 1}"
        behind = "bias" if self.activation is None else f"bias+{self.activation}"
        return f"ic{self.inputs}ih{self.size}oc{self.outputs}{window} dt:fp32 ep:{behind}"


POINTS = (
    Point("layers", 1, 1, 1, 512, 1, "relu"),
    Point("layers", 50, 50, 1, 512, 5, "relu"),
    Point("layers", 100, 100, 1, 1024, 10, "relu"),
    *(Point("size", size, 1, 1, size, 1) for size in (32, 64, 128, 256, 512, 1024, 2048)),
    *(Point("equal channels", count, count, count, 256, 1) for count in (1, 2, 4, 8, 16, 32, 64)),
    *(Point("input channels", count, count, 1, 512, 10) for count in (1, 2, 5, 10, 20, 50, 100, 200)),
)


def problems(point: Point, device: str) -> list[ConvProblem]:
    """What a training step asks for: the call, the gradients, and these with what stands ahead of them."""
    problem = ConvProblem.parse(point.text)
    gradients = gradient_problems(problem, WANTED)
    fused = fused_problems(problem, WANTED, POLICY, device_facts(device))
    return list(dict.fromkeys(each for each in (problem, *gradients, *fused) if each is not None))


def compile_kernels(point: Point, options: argparse.Namespace) -> None:
    device = device_facts(options.device)
    for problem in problems(point, options.device):
        kernels = kernels_ahead.kernels_of(problem, device, POLICY)
        kernels_ahead.compile_kernels(kernels[: options.kernels], device)


def searched(point: Point, options: argparse.Namespace) -> dict[str, str | None]:
    """What is chosen for each problem by a full search, which the store keeps for the calls."""
    chosen = {}
    for problem in problems(point, options.device):
        budget_us = options.budget_s * 1e6
        found = cw.find(problem, device=options.device, policy=POLICY, mode="full", budget_us=budget_us)
        name = f"{problem.direction}, {problem.epilogue}" if problem.direction is not Direction.FORWARD else "forward"
        chosen[name] = None if found.choice is None else found.choice.candidate.id
    return chosen


def operands(point: Point) -> tuple[list[Tensor], Tensor]:
    """Input, weight and bias, and what the output's gradient is."""
    x = torch.randn(1, point.inputs, point.size, point.size)
    w, b = torch.randn(point.outputs, point.inputs, 3, 3), torch.randn(point.outputs)
    return [x, w, b], torch.randn(1, point.outputs, point.size, point.size)


def torchs(x: Tensor, w: Tensor, b: Tensor, *, activation: str | None, padding: int, dilation: int) -> Tensor:
    y = F.conv2d(x, w, b, padding=padding, dilation=dilation)
    return y if activation is None else F.relu(y)


def call_of(side: Callable[..., Tensor], point: Point, what: str, given: Sequence[Tensor], dy: Tensor) -> Call:
    conv = partial(side, activation=point.activation)

    def forward() -> Tensor:
        return conv(*given, padding=point.dilation, dilation=point.dilation)

    if what == "forward":
        return torch.no_grad()(forward)
    for each in given:
        each.requires_grad_()
    return lambda: torch.autograd.grad(forward(), given, dy)


def relative_l2(result: Tensor | Sequence[Tensor], right: Tensor | Sequence[Tensor]) -> float:
    """The largest among what a call gives."""
    made, exact = ([each] if isinstance(each, Tensor) else each for each in (result, right))
    return max(float((y.double() - z).norm() / z.norm()) for y, z in zip(made, exact, strict=True))


def timed(point: Point, what: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both sides by turns, on operands that no search has seen, and what their errors are."""
    torch.manual_seed(point.at)
    given, dy = operands(point)
    there = [each.to(options.device) for each in given], dy.to(options.device)
    exact = call_of(torchs, point, what, [each.double() for each in there[0]], there[1].double())()
    ours = partial(cw.conv2d, policy=POLICY)
    calls = {"ours": call_of(ours, point, what, *there), "torch": call_of(torchs, point, what, *there)}
    for _ in range(_MEETINGS):
        calls["ours"]()
    errors = {name: relative_l2(call(), exact) for name, call in calls.items()}
    timings = cw.measure_together(calls, device=options.device, budget_us=options.time_s * 1e6, cache=options.cache)
    verdict = compare(timings["ours"], timings["torch"])
    return {
        "us": {name: asdict(timing.call_us) for name, timing in timings.items()}, "relative_l2": errors,
        "ratio": asdict(verdict.ratio), "outcome": str(verdict.outcome),
    }  # fmt: skip


def told(line: dict[str, Any]) -> str:
    us, ratio, errors = ({name: line[key][name] for name in line[key]} for key in ("us", "ratio", "relative_l2"))
    return (
        f"{line['figure']:15} {line['at']:5} {line['what']:21} ours {us['ours']['value']:9.2f} µs, PyTorch "
        f"{us['torch']['value']:9.2f}: {1 / ratio['value']:6.2f} times as fast, {line['outcome'].upper()}; errors "
        f"{errors['ours']:.1e} {errors['torch']:.1e}; {', '.join(str(each) for each in line['chosen'].values())}"
    )


def options_given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--budget-s", type=float, default=1.0, help="for the search of a problem")
    parser.add_argument("--kernels", type=int, default=12, help="compiled ahead of a problem's search at most")
    parser.add_argument("--time-s", type=float, default=0.5, help="for timing both sides")
    parser.add_argument("--cache", default="cold", help="what each call finds there: hot or cold")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="begin no point after so long")
    return parser.parse_args()


def main() -> None:
    options = options_given()
    torch.backends.cudnn.allow_tf32 = False
    lines = None if options.out is None else Lines(options.out)
    kept = lines.read() if lines is not None and options.resume else []
    done = {(line["figure"], line["at"]) for line in kept if line["what"] == WHATS[-1]}
    wanted, pace = [point for point in POINTS if (point.figure, point.at) not in done], Pace(options.limit_s)
    known = dict(conditions(device_facts(options.device))) | {"mode": "full", "cache": options.cache}
    left, ahead = list(wanted), ThreadPoolExecutor(1)
    compiled = {point: ahead.submit(compile_kernels, point, options) for point in wanted}
    for point in pace.rows(wanted):
        compiled[point].result()
        chosen = searched(point, options)
        for what in WHATS:
            line = {
                "benchmark": "few channels", **asdict(point), "problem": point.text, "what": what, "chosen": chosen,
                **timed(point, what, options), "budget_s": options.budget_s,
                "date": datetime.now(UTC).isoformat(timespec="seconds"), "conditions": known,
            }  # fmt: skip
            if lines is not None:
                lines.add(line)
            print(told(line), flush=True)
        left.remove(point)
    ahead.shutdown(cancel_futures=True)
    for point in left:
        print(f"no time for {point.figure} {point.at}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CONVWRIGHT_STORE"] = f"{folder}/findings.sqlite"
        main()
