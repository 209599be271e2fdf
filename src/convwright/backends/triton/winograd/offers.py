"""Winograd's convolution: what it serves, and what its kernels are told about a problem."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.gemm.algorithms import Algorithm, algorithm_of, arithmetic_constants
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    is_in_planes,
    lying_reason,
    plane_constants,
    power_of_two,
    shape_reason,
    size_reason,
    weight_reason,
    window_constants,
)
from convwright.backends.triton.winograd.algorithms import ALGORITHMS, KERNEL
from convwright.backends.triton.winograd.patches import (
    patch_count,
    pitch,
    points_bytes,
    prepared_numbers,
    products,
    rows_and_columns,
)
from convwright.backends.triton.winograd.tiles import best_tiles, cycles, implicit_gemm_cycles, tiles_of
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

NAME = f"triton/{KERNEL}"
_MOST_TILES = 2
# Of fewer channels the transforms take as long as the products that they save.
_LEAST_CHANNELS = 16
_MOST_POINTS_BYTES = 2**30
# Times as long as what an implicit GEMM takes at its best, most of which it reaches, unless there are few channels.
_HOPELESS = 2.0
# Of a program that transforms the input: numbers of a point, and channels of these. Its warps are in proportion, and
# each thread has as many numbers.
_POINTS, _CHANNELS, _CHANNELS_OF_PLANES = 512, 64, 32
_POINTS_OF_PLANES = 1024
_POINTS_OF_A_WARP = 128


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    refused = refusal_reason(problem)
    for algorithm in ALGORITHMS:
        reason = refused or _slow_reason(problem, device, algorithm)
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_tiles(problem, device, packed=algorithm.packed, count=_MOST_TILES):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, points_bytes(problem), True, Source.RULE,
        saves_products=True, products=products(problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    packed = algorithm_of(candidate, KERNEL).packed
    return cycles(Tile.of(candidate), candidate.problem, device, packed=packed)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``, or None where they can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, (DType.FP32,))
        or _window_reason(problem)
        or lying_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _transformed_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    if problem.rank != 2:
        return f"serves 2 spatial dimensions, got {problem.rank}"
    if problem.taps != (3, 3):
        return f"serves 3x3 taps, got {'x'.join(map(str, problem.taps))}"
    for name, sizes in {"stride": problem.stride, "dilation": problem.dilation}.items():
        if any(size != 1 for size in sizes):
            return f"serves {name} 1, got {sizes}"
    if min(problem.c, problem.k) < _LEAST_CHANNELS:
        return f"serves at least {_LEAST_CHANNELS} input and output channels, got {problem.c} and {problem.k}"
    return None


def _transformed_reason(problem: ConvProblem) -> str | None:
    if points_bytes(problem) > _MOST_POINTS_BYTES:
        return f"transforms inputs into at most 2^30 bytes, got {points_bytes(problem):,}"
    if prepared_numbers(problem) >= MOST_ELEMENTS:
        return f"transforms weights into at most 2^30 numbers, got {prepared_numbers(problem):,}"
    return None


def _slow_reason(problem: ConvProblem, device: DeviceFacts, algorithm: Algorithm) -> str | None:
    """Why what the kernels can compute cannot win: the products of 16 points, one after another, in few tiles."""
    (best,) = best_tiles(problem, device, packed=algorithm.packed, count=1)
    ratio = cycles(best, problem, device, packed=algorithm.packed) / implicit_gemm_cycles(problem, device)
    if ratio <= _HOPELESS:
        return None
    return f"takes {ratio:.1f} times as long as an implicit GEMM may, by estimate, in {tiles_of(best, problem)} tiles"


def transform_blocks(problem: ConvProblem) -> int:
    """How many programs the launch that transforms the input needs."""
    bt, bc = _transform_tile(problem)
    return -(-patch_count(problem) // bt) * -(-pitch(problem) // bc)


def transform_warps(problem: ConvProblem) -> int:
    bt, bc = _transform_tile(problem)
    return bt * bc // _POINTS_OF_A_WARP


def transform_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """What the kernel that transforms the input is compiled for."""
    bt, bc = _transform_tile(problem)
    told = _common_constants(problem)
    needed = ("N", "C", "H", "W", "ROWS", "COLUMNS", "X_N", "X_C", "X_H", "X_W", "X_PLANES", "TOP", "LEFT", "WIDE")
    return {name: told[name] for name in needed} | {"PITCH": pitch(problem), "BT": bt, "BC": bc}


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """What the kernel of the products is compiled for."""
    told = _common_constants(problem) | arithmetic_constants(algorithm, tile)
    needed = (
        "N", "C", "H", "W", "K", "P", "Q", "ROWS", "COLUMNS", "X_N", "X_C", "X_H", "X_W",
        "Y_N", "Y_K", "Y_P", "Y_Q", "Y_PLANES", "TOP", "LEFT", "WIDE", "PACKED", "BM", "BN", "BK", "GROUP_M",
    )  # fmt: skip
    return {name: told[name] for name in needed} | {
        "PITCH": pitch(problem), "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
    }  # fmt: skip


def _common_constants(problem: ConvProblem) -> dict[str, int | bool]:
    rows, columns = rows_and_columns(problem)
    return window_constants(problem) | plane_constants(problem) | {"ROWS": rows, "COLUMNS": columns}


def _transform_tile(problem: ConvProblem) -> tuple[int, int]:
    """Patches by channels: in planes more patches, which are read side by side."""
    planes = is_in_planes(problem.x)
    points, most = (_POINTS_OF_PLANES, _CHANNELS_OF_PLANES) if planes else (_POINTS, _CHANNELS)
    bc = min(most, power_of_two(pitch(problem)))
    return points // bc, bc
