"""The implicit GEMM's algorithms: what they serve, and what their kernel is told about a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from convwright.backends.triton.gemm.algorithms import (
    DTYPES,
    NARROW_DTYPES,
    Algorithm,
    algorithm_of,
    algorithms_of,
    algorithms_to_be_named,
    arithmetic_constants,
    step_constants,
    why_not_named,
)
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.algorithms import KERNEL
from convwright.backends.triton.implicit_gemm.tiles import best_tiles, cycles, sums_bytes, tiled_products, tiles_of
from convwright.backends.triton.operands import (
    depth_constants,
    group_constants,
    group_reason,
    is_channels_last,
    is_in_planes,
    lying_reason,
    pixel_count,
    plane_constants,
    power_of_two,
    shape_reason,
    size_reason,
    weight_reason,
    window_constants,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.epilogue import Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

NAME = f"triton/{KERNEL}"
# Outputs of a program that adds parts: where there are many in all, a lane adds up some by itself; where there are few,
# different lanes read so many parts.
_MANY_OUTPUTS, _OUTPUTS_OF_MANY, _OUTPUTS, _PARTS_AT_ONCE = 2**17, 512, 128, 32
_TIMES_ACROSS_TAPS = 1.7  # of what is estimated, where numbers are loaded one by one (medians, H200)
_TOLD_OF_THE_OUTPUT = (
    "N", "Z", "P", "Q", "Y_N", "Y_K", "Y_Z", "Y_P", "Y_Q", "Y_PLANES",
    "SCALE", "BIAS", "RESIDUAL", "ACTIVATION", "WIDE", "PARTS", "WHOLE",
)  # fmt: skip
_OLDEST_WITH_FP8 = 89
# Of products of two int8, so many and no more can always be summed in int32.
_MOST_OF_INT8 = (2**31 - 1) // 2**14


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    refused = refusal_reason(problem) or _architecture_reason(problem, device)
    for algorithm in (*algorithms_of(KERNEL, problem.dtype), *algorithms_to_be_named(KERNEL, problem.dtype)):
        reason = refused or why_not_named(algorithm, problem.dtype, policy)
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        arithmetic, split = algorithm.arithmetic, algorithm.split
        for tile in best_tiles(problem, arithmetic, device, split=split, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    # Where no cache has the kernel it takes 0.3 to 0.6 s to build (H200, Triton 3.6).
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, sums_bytes(tile, problem), True,
        Source.RULE, tiled=tiled_products(tile, problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    problem, algorithm, tile = candidate.problem, algorithm_of(candidate, KERNEL), Tile.of(candidate)
    one_by_one = tile.runs_across_taps(problem.w.shape[1], prod(problem.taps))
    times = _TIMES_ACROSS_TAPS if one_by_one else 1.0
    return times * cycles(tile, problem, algorithm.arithmetic, device, split=algorithm.split)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    few, elsewhere = group_reason(problem), "" if problem.dtype.narrow else "; direct serves groups of few"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, (*DTYPES, *NARROW_DTYPES), groups=True, volumes=True, scaled=problem.dtype.narrow)
        or (None if few is None else few + elsewhere)
        or lying_reason(operands)
        or _narrow_reason(problem)
        or size_reason(problem, operands)
        or weight_reason(problem)
    )


def _narrow_reason(problem: ConvProblem) -> str | None:
    if problem.dtype.narrow and not is_channels_last(problem.x):
        return f"needs a channels-last `input` of {problem.dtype}, got stride {problem.x.strides[1]} along channels"
    if problem.dtype is DType.INT8 and problem.reduction > _MOST_OF_INT8:
        return f"sums at most {_MOST_OF_INT8:,} products of int8 in int32, got {problem.reduction:,}"
    return None


def _architecture_reason(problem: ConvProblem, device: DeviceFacts) -> str | None:
    if not problem.dtype.narrow or problem.dtype is DType.INT8 or device.kind != "cuda":
        return None
    number = int(device.architecture.removeprefix("sm_"))
    if number >= _OLDEST_WITH_FP8:
        return None
    return f"computes {problem.dtype} from sm_{_OLDEST_WITH_FP8} on, {device.name} is {device.architecture}"


def blocks(problem: ConvProblem, tile: Tile) -> int:
    """How many programs one launch needs."""
    return tiles_of(tile, problem) * (tile.parts or 1)


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """What the kernel is compiled for."""
    window = window_constants(problem) | depth_constants(problem) | group_constants(problem)
    multiplied = arithmetic_constants(algorithm, tile) | step_constants(algorithm)
    return window | plane_constants(problem) | multiplied | {
        "SCALE": problem.epilogue.scale, "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
        "FLAT": tile.runs_across_taps(problem.w.shape[1], prod(problem.taps)),
        "PARTS": tile.parts or 1, "WHOLE": problem.dtype is DType.INT8,
    }  # fmt: skip


def writing_sums(problem: ConvProblem) -> ConvProblem:
    """What the product of one part computes: the sums alone, one behind the other."""
    return replace(problem, y=problem.y.dense(Layout.NHWC), epilogue=Epilogue())


def output_blocks(problem: ConvProblem) -> int:
    bm, bn = _output_tile(problem)
    return -(-pixel_count(problem) // bm) * -(-problem.k // bn)


def output_constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """What the kernel that adds the parts is compiled for."""
    bm, bn = _output_tile(problem)
    told = constants(problem, algorithm, tile)
    return {name: told[name] for name in _TOLD_OF_THE_OUTPUT} | {
        "K": problem.k, "AT_ONCE": 1 if _is_many(problem) else min(_PARTS_AT_ONCE, power_of_two(tile.parts or 1)),
        "BM": bm, "BN": bn,
    }  # fmt: skip


def _output_tile(problem: ConvProblem) -> tuple[int, int]:
    """Pixels by channels: in planes, too, several pixels that lie side by side."""
    if _is_many(problem):
        outputs, widest = _OUTPUTS_OF_MANY, 16 if is_in_planes(problem.y) else 128
    else:
        outputs, widest = _OUTPUTS, 8 if is_in_planes(problem.y) else 64
    bn = min(widest, power_of_two(problem.k))
    return min(outputs // bn, power_of_two(pixel_count(problem))), bn


def _is_many(problem: ConvProblem) -> bool:
    return problem.y.numel >= _MANY_OUTPUTS
