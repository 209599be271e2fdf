"""Products on a staged input: what they serve, and what their kernels are told about a problem."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.gemm.algorithms import GROUP_M, Algorithm
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.tiles import sums_bytes, tiles_of
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    depth_constants,
    group_sizes,
    lying_reason,
    offsets_are_wide,
    plane_constants,
    power_of_two,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.staged_gemm.algorithms import ALGORITHMS, KERNEL, algorithm_of
from convwright.backends.triton.staged_gemm.staging import Staging, packed_bytes
from convwright.backends.triton.staged_gemm.tiles import best_tiles, cycles, steps, tiles
from convwright.backends.triton.staging.extents import channels_reason
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

NAME = f"triton/{KERNEL}"
_LEAST_OUTPUTS = 8
# In a sum so short fp32 itself errs so little that the neglected product of low parts would show beside it.
_SHORT = 32
# Staged numbers of a program, and weights that one of those that pack them takes at a time.
_STAGED_AT_ONCE, _LEAST_WEIGHTS, _MOST_WEIGHTS = 2048, 128, 4096


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    for algorithm in ALGORITHMS:
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_tiles(problem, algorithm, device, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    workspace_bytes = Staging.of(problem, algorithm, tile).nbytes + sums_bytes(tile, problem)
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes, True, Source.RULE,
        tiled=tiles_of(tile, problem) * tile.products(steps(tile, problem)), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Tile.of(candidate), candidate.problem, algorithm_of(candidate), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``, or None where they can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, (DType.FP32,), groups=True, volumes=True)
        or channels_reason(problem, _LEAST_OUTPUTS)
        or lying_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _staged_reason(problem)
    )


def _staged_reason(problem: ConvProblem) -> str | None:
    each = [(algorithm, max(tiles(algorithm), key=lambda tile: tile.bk)) for algorithm in ALGORITHMS]
    staged = max(Staging.of(problem, *one).numbers for one in each)
    if staged >= MOST_ELEMENTS:
        return f"stages inputs as at most 2^30 numbers, got {staged:,}"
    packed = max(packed_bytes(problem, *one) for one in each)
    return None if packed < MOST_ELEMENTS else f"packs weights into at most 2^30 bytes, got {packed:,}"


def staging_blocks(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> int:
    """How many programs the launch that stages the input needs."""
    staging = Staging.of(problem, algorithm, tile)
    return -(-staging.pixels // _pixels_at_once(tile)) * staging.blocks


def staging_constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool]:
    """What the kernel that stages the input is compiled for."""
    told = window_of(problem)
    needed = ("H", "W", "D", "X_N", "X_C", "X_H", "X_W", "X_D", "X_PLANES", "TOP", "LEFT", "FRONT")
    return {name: told[name] for name in needed} | Staging.of(problem, algorithm, tile).constants | {
        "C": group_sizes(problem)[0], "WIDE": offsets_are_wide(problem.x),
        "BP": _pixels_at_once(tile), "BC": tile.bk,
    }  # fmt: skip


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """What the kernel of the products is compiled for."""
    staging = Staging.of(problem, algorithm, tile)
    return product_constants(problem, tile) | staging.constants | {
        "X_PIXEL": staging.each * staging.groups * staging.pitch, "X_LOW": staging.block,
        "FOLDED": 0, "WHOLE": False, "SCALED": True,
    }  # fmt: skip


def product_constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool | str]:
    """The same, but for how the input is staged."""
    told = window_of(problem)
    needed = (
        "R", "S", "T", "Z", "P", "Q", "Y_N", "Y_K", "Y_P", "Y_Q", "Y_Z", "Y_PLANES", "WIDE",
        "STRIDE_D", "STRIDE_H", "STRIDE_W", "DILATION_D", "DILATION_H", "DILATION_W",
    )  # fmt: skip
    return {name: told[name] for name in needed} | {
        "K": group_sizes(problem)[1], "EXACT": problem.dtype is DType.FP32 and problem.reduction <= _SHORT,
        "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value, "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
        "GROUP_M": GROUP_M, "PARTS": tile.parts or 1,
    }  # fmt: skip


def packing_constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool]:
    """What the kernel that packs the weight is compiled for; a program of it takes one row."""
    told = window_of(problem) | weight_strides(problem) | weight_depth(problem)
    staging = Staging.of(problem, algorithm, tile)
    length = prod(problem.taps) * staging.pitch
    needed = ("R", "S", "T", "W_K", "W_C", "W_T", "W_R", "W_S", "FLIP")
    return {name: told[name] for name in needed} | {
        "ROWS": problem.k, "C": group_sizes(problem)[0], "PITCH": staging.pitch, "EACH": staging.each,
        "BC": tile.bk,
        "BLOCK": min(max(power_of_two(length), _LEAST_WEIGHTS), _MOST_WEIGHTS),
    }  # fmt: skip


def window_of(problem: ConvProblem) -> dict[str, int | bool]:
    """Sizes, strides and window in up to three dimensions, and which operands lie in planes."""
    return window_constants(problem) | depth_constants(problem) | plane_constants(problem)


def _pixels_at_once(tile: Tile) -> int:
    return _STAGED_AT_ONCE // tile.bk
