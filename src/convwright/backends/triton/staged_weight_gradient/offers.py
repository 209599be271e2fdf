"""The weight's gradient on staged operands: what it serves, and what its kernels are told about a problem."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    depth_constants,
    group_constants,
    group_sizes,
    lying_reason,
    offsets_are_wide,
    plane_constants,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.parts.sums import sums_bytes
from convwright.backends.triton.staged_weight_gradient.algorithms import ALGORITHMS, KERNEL, algorithm_of
from convwright.backends.triton.staged_weight_gradient.staging import (
    BLOCK,
    PIXELS_AT_ONCE,
    Staged,
    gradient_constants,
    input_constants,
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
    return None if most < MOST_ELEMENTS else f"stages operands as at most 2^30 numbers, got {most:,}"


def input_call(problem: ConvProblem) -> dict[str, int | bool]:
    """What kernels are told that read the input."""
    planes, inputs = plane_constants(problem), group_sizes(problem)[0]
    return input_constants(problem) | {
        "C": inputs, "X_C": planes["X_C"], "X_PLANES": planes["X_PLANES"], "WIDE": offsets_are_wide(problem.x),
    }  # fmt: skip


def gradient_call(problem: ConvProblem) -> dict[str, int | bool]:
    """What kernels are told that read the output's gradient."""
    planes, outputs = plane_constants(problem), group_sizes(problem)[1]
    return gradient_constants(problem) | {
        "C": outputs, "X_C": planes["Y_K"], "X_PLANES": planes["Y_PLANES"], "WIDE": offsets_are_wide(problem.y),
    }  # fmt: skip


def largest_constants(read: dict[str, int | bool], staged: Staged) -> dict[str, int | bool]:
    """What the kernel that looks for the largest numbers is compiled for; a program has one chunk of some channels."""
    of_borders = ("DP", "HP", "WP", "FRONT", "TOP", "LEFT")
    told = staged.constants
    return {name: value for name, value in read.items() if name not in of_borders} | {
        "SCALES_AT": told["SCALES_AT"], "PITCH": told["PITCH"], "CHUNKS": told["CHUNKS"],
        "BP": PIXELS_AT_ONCE, "BC": BLOCK,
    }  # fmt: skip


def largest_blocks(staged: Staged) -> int:
    return staged.chunks * staged.channels // BLOCK


def staging_constants(read: dict[str, int | bool], staged: Staged) -> dict[str, int | bool]:
    """What the kernel that stages an operand is compiled for."""
    at_once = 1 << (staged.chunks - 1).bit_length()
    return read | staged.constants | {"AT_ONCE": at_once, "BP": PIXELS_AT_ONCE, "BC": BLOCK}


def staging_blocks(staged: Staged) -> int:
    return -(-staged.pixels // PIXELS_AT_ONCE) * staged.channels // BLOCK


def blocks(problem: ConvProblem, tile: StagedTile) -> int:
    """How many programs the launch of the product needs."""
    return tile.tiles(problem) * tile.parts


def constants(problem: ConvProblem, algorithm: Algorithm, tile: StagedTile) -> dict[str, int | bool]:
    """What the kernel of the product is compiled for."""
    x, y = (each(problem, algorithm).constants for each in (staged_input, staged_gradient))
    told = window_constants(problem) | depth_constants(problem) | weight_strides(problem) | weight_depth(problem)
    named = (
        "N", "T", "R", "S", "Z", "P", "Q", "W_K", "W_C", "W_T", "W_R", "W_S", "FLIP", "STRIDE_D", "STRIDE_H",
        "STRIDE_W", "DILATION_D", "DILATION_H", "DILATION_W",
    )  # fmt: skip
    lying = input_constants(problem)
    return {name: told[name] for name in named} | group_constants(problem) | {
        "DP": lying["DP"], "HP": lying["HP"], "WP": lying["WP"],
        "X_PITCH": x["PITCH"], "X_SCALES_AT": x["SCALES_AT"],
        "Y_BEGINS": y["BEGINS"], "Y_PITCH": y["PITCH"], "Y_SCALES_AT": y["SCALES_AT"],
        "EACH": x["EACH"], "BC": BLOCK, "PARTS": tile.parts, "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
    }  # fmt: skip
