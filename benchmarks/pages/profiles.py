"""The table of what keeps kernels busy, of the record that `profiled_kernels.py` leaves."""

from __future__ import annotations

from typing import Any

from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile

HEAD = (
    "| problem | kernel | µs | bytes, µs | FMA, µs | limit reached | DRAM | L2 | issue slots | instructions a cycle | "
    "warps wait for |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def table(lines: list[dict[str, Any]]) -> str:
    """A row for the main kernel of the fastest candidate for each problem."""
    fastest: dict[str, dict[str, Any]] = {}
    for line in lines:
        known = fastest.get(line["problem"])
        if line["part"] == "own" and (known is None or line["call_us"]["value"] < known["call_us"]["value"]):
            fastest[line["problem"]] = line
    about = (
        f"{lines[0]['device']}. µs: a call by the project's timer, with a cold cache, with what adds up parts, without "
        "packing weights. The limits: what must be moved at the memory's bandwidth, and the multiplications in fp32 at "
        "the peak of fused multiply-adds. The rest is of NVIDIA's profiler, at the clocks that it sets: percent of "
        "what each could do, instructions of at most four that a multiprocessor issues in a cycle, and what a warp "
        "waits for most, in cycles for each instruction."
    )
    return "\n".join([HEAD, *map(_row, fastest.values()), "", about])


def _row(line: dict[str, Any]) -> str:
    problem, device = ConvProblem.parse(line["problem"]), profile("h100")
    bytes_us = problem.bytes / (device.bandwidth_bytes_per_us or 1.0)
    fma_us = problem.flops / (device.peak(Arithmetic.FP32) or 1.0)
    us = line["call_us"]["value"]
    wait, cycles = next(iter(line["waits"].items()))
    return (
        f"| {_told(problem)} | `{line['candidate'].partition('[')[0]}` | {us:.1f} | {bytes_us:.1f} | {fma_us:.1f} | "
        f"{100 * max(bytes_us, fma_us) / us:.0f} % | {line['dram_percent']:.0f} % | {line['l2_percent']:.0f} % | "
        f"{line['issue_percent']:.0f} % | {line['instructions_per_cycle']:.1f} | "
        f"{wait.replace('_', ' ')}, {cycles:.1f} |"
    )


def _told(problem: ConvProblem) -> str:
    """In few words: taps, images, channels and size."""
    taps, size = ("x".join(map(str, each)) for each in (problem.taps, problem.x.shape[2:]))
    layout = "nhwc" if "nhwc" in problem.key else "nchw"
    direction = "" if problem.direction is Direction.FORWARD else f", {problem.direction}"
    return f"{taps}, {problem.n} x {problem.c} x {size}, {problem.dtype}, {layout}{direction}"
