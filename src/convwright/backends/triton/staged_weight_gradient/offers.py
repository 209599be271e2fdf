"""The weight's gradient on staged operands: what it serves, and what its kernels are told about a problem."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    depth_constants,
    group_constants,
    lying_reason,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.parts.sums import is_summed, sums_bytes
from convwright.backends.triton.staged_weight_gradient.algorithms import ALGORITHMS, KERNEL, algorithm_of
from convwright.backends.triton.staged_weight_gradient.staging import (
    BLOCK,
    staged_bytes,
    staged_gradient,
    staged_input,
)
from convwright.backends.triton.staged_weight_gradient.tiles import StagedTile, best_configurations, cycles
from convwright.backends.triton.staging.extents import channels_reason
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

NAME = f"triton/{KERNEL}"


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    for algorithm in ALGORITHMS:
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_configurations(problem, algorithm, device):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: StagedTile) -> Candidate:
    workspace_bytes = staged_bytes(problem, algorithm) + sums_bytes(problem, tile.parts)
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes, True, Source.RULE,
        tiled=tile.products(problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(StagedTile.of(candidate), candidate.problem, algorithm_of(candidate), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``, or None where they can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes gradients of weights, not {problem.direction}"
    operands = {"input": problem.x, "gradient": problem.y}
    return (
        shape_reason(problem, (DType.FP32,), groups=True, volumes=True)
        or channels_reason(problem)
        or lying_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _staged_reason(problem)
    )


def _staged_reason(problem: ConvProblem) -> str | None:
    split, _ = ALGORITHMS
    most = max(each(problem, split).numbers for each in (staged_input, staged_gradient))
    if most >= MOST_ELEMENTS:
        return f"stages operands as at most 2^30 numbers, got {most:,}"
    pixels = problem.n * prod(problem.x.shape[2:])
    return None if pixels < MOST_ELEMENTS else f"looks at at most 2^30 pixels of the input, got {pixels:,}"


def blocks(problem: ConvProblem, tile: StagedTile) -> int:
    """How many programs the launch of the product needs."""
    return tile.tiles(problem) * tile.parts


def constants(problem: ConvProblem, algorithm: Algorithm, tile: StagedTile) -> dict[str, int | bool]:
    """What the kernel of the product is compiled for."""
    x, y = staged_input(problem, algorithm), staged_gradient(problem, algorithm)
    told = window_constants(problem) | depth_constants(problem) | weight_strides(problem) | weight_depth(problem)
    named = (
        "N", "T", "R", "S", "Z", "P", "Q", "W_K", "W_C", "W_T", "W_R", "W_S", "FLIP", "STRIDE_D", "STRIDE_H",
        "STRIDE_W", "DILATION_D", "DILATION_H", "DILATION_W",
    )  # fmt: skip
    return {name: told[name] for name in named} | group_constants(problem) | {
        "DP": x.lying.deep, "HP": x.lying.high, "WP": x.lying.wide,
        "X_PITCH": x.channels, "X_SCALES_AT": x.scales_at,
        "Y_BEGINS": y.numbers_at, "Y_PITCH": y.channels, "Y_SCALES_AT": y.scales_at,
        "EACH": x.each, "BC": BLOCK, "PARTS": tile.parts, "SUMMED": is_summed(problem, tile.parts),
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
    }  # fmt: skip
