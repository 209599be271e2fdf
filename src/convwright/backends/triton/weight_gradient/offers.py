"""The weight's gradient as an implicit GEMM: what it serves, and what its kernels are told about a problem."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    depth_constants,
    group_constants,
    group_reason,
    operand_reason,
    shape_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.parts.sums import SUM_BYTES, sums_bytes
from convwright.backends.triton.weight_gradient.algorithms import (
    DTYPES,
    Algorithm,
    algorithm_named,
    algorithms,
    packed_bytes,
    pitch,
)
from convwright.backends.triton.weight_gradient.tiles import PartedTile, best_configurations, cycles
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

NAME = "triton/weight-gradient"
_PACK_TILE = {"PIXELS": 64, "CHANNELS": 32}


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    for algorithm in algorithms(problem.dtype):
        reason = refusal_reason(problem, algorithm)
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_configurations(problem, algorithm, device):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: PartedTile) -> Candidate:
    sums = 0 if tile.scattered else sums_bytes(problem, tile.parts)
    workspace_bytes = packed_bytes(problem, algorithm) + sums
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes, True, Source.RULE,
        tiled=tile.products(problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    problem = candidate.problem
    return cycles(PartedTile.of(candidate), problem, algorithm_named(candidate.algorithm, problem.dtype), device)


def refusal_reason(problem: ConvProblem, algorithm: Algorithm) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes gradients of weights, not {problem.direction}"
    operands = {"input": problem.x, "gradient": problem.y}
    reason = shape_reason(problem, DTYPES, groups=True, volumes=True) or group_reason(problem)
    return reason or operand_reason(problem, operands) or _size_reason(problem, algorithm)


def _size_reason(problem: ConvProblem, algorithm: Algorithm) -> str | None:
    packed = packed_bytes(problem, algorithm) // SUM_BYTES
    if packed >= MOST_ELEMENTS:
        return f"packs gradients into at most 2^30 numbers, got {packed:,}"
    return weight_reason(problem)


def blocks(problem: ConvProblem, tile: PartedTile) -> int:
    """How many programs the launch of the product needs."""
    return tile.tiles(problem) * tile.parts


def constants(problem: ConvProblem, algorithm: Algorithm, tile: PartedTile) -> dict[str, int | bool]:
    """What the kernel of the product is compiled for."""
    window = window_constants(problem) | depth_constants(problem) | group_constants(problem)
    return window | weight_strides(problem) | weight_depth(problem) | {
        "SPLIT": algorithm.split, "PITCH": pitch(problem) if algorithm.packed else 0,
        "FLAT": tile.runs_across_taps(problem.w.shape[1], prod(problem.taps)),
        "PARTS": tile.parts, "SUMMED": tile.summed(problem),
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP": tile.group(algorithm),
    }  # fmt: skip


def pack_blocks(problem: ConvProblem) -> int:
    return pitch(problem) // _PACK_TILE["PIXELS"] * -(-problem.k // _PACK_TILE["CHANNELS"])


def pack_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """What the kernel that packs dy is compiled for."""
    needed = ("N", "K", "Z", "P", "Q", "Y_N", "Y_Z", "Y_P", "Y_Q", "WIDE")
    window = window_constants(problem) | depth_constants(problem)
    return {name: window[name] for name in needed} | {"PITCH": pitch(problem)} | _PACK_TILE
