"""An input's gradient as a matrix product for each phase: what it serves, and what its kernel is told of a problem."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import gcd, prod

from convwright.backends.triton.gemm.algorithms import (
    DTYPES,
    Algorithm,
    algorithm_of,
    algorithms_of,
    arithmetic_constants,
)
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.input_gradient.algorithms import KERNEL, is_turned
from convwright.backends.triton.input_gradient.phases import phases, reads_beyond
from convwright.backends.triton.input_gradient.tiles import best_tiles, blocks_of, cycles, tiled_products
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    depth_constants,
    group_constants,
    group_reason,
    group_sizes,
    lying_reason,
    plane_constants,
    shape_reason,
    size_reason,
    weight_reason,
    window_constants,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

NAME = f"triton/{KERNEL}"
# A program looks for its own among them.
_MOST_PHASES = 64


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    for algorithm in algorithms_of(KERNEL, problem.dtype):
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        arithmetic, split = algorithm.arithmetic, algorithm.split
        for tile in best_tiles(problem, arithmetic, device, split=split, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, 0, True, Source.RULE,
        tiled=tiled_products(tile, problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    problem, algorithm = candidate.problem, algorithm_of(candidate, KERNEL)
    return cycles(Tile.of(candidate), problem, phases(problem), algorithm.arithmetic, device, split=algorithm.split)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    operands = {"gradient": problem.y, "input": problem.x}
    return (
        shape_reason(problem, DTYPES, groups=True, volumes=True)
        or group_reason(problem)
        or _window_reason(problem)
        or lying_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _pixels_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    if all(stride == 1 for stride in problem.stride):
        return "serves strides above 1; with stride 1 `as-forward` makes the gradient a forward convolution"
    for axis in problem.axes:
        if gcd(axis.stride, axis.dilation) > 1:
            return f"serves no dilation with a divisor of the stride, got {axis.dilation} with stride {axis.stride}"
    if prod(problem.stride) > _MOST_PHASES:
        return f"serves at most {_MOST_PHASES} remainders by the strides, got {prod(problem.stride)}"
    return None


def _pixels_reason(problem: ConvProblem) -> str | None:
    pixels = problem.x.numel // problem.c
    return None if pixels < MOST_ELEMENTS else f"serves at most 2^30 input pixels, got {pixels:,}"


def blocks(problem: ConvProblem, tile: Tile) -> int:
    """How many programs one launch needs."""
    return sum(blocks_of(phase, problem, tile) for phase in phases(problem))


def _weight_strides(problem: ConvProblem, tile: Tile) -> dict[str, int]:
    taps, c, k = prod(problem.taps), *group_sizes(problem)
    if is_turned(problem, tile):
        return {"W_C": taps * k, "W_TAP": k, "W_K": 1}
    return {"W_K": taps * c, "W_TAP": c, "W_C": 1}


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, object]:
    """What the kernel is compiled for."""
    found = phases(problem)
    begun = accumulate((blocks_of(phase, problem, tile) for phase in found), initial=0)
    window = window_constants(problem) | depth_constants(problem) | group_constants(problem) | plane_constants(problem)
    return window | _weight_strides(problem, tile) | arithmetic_constants(algorithm, tile) | {
        "PADDED": reads_beyond(problem), "FLAT": tile.runs_across_taps(group_sizes(problem)[1], found[0].taps),
        "PHASES": tuple((first, *phase.tap) for first, phase in zip(begun, found, strict=False)),
    }  # fmt: skip
