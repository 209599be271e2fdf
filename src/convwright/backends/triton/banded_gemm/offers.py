"""Depthwise convolutions with large filters, by products with band matrices: what is served, and what is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from convwright.backends.triton.banded_gemm.forward import forward_of
from convwright.backends.triton.banded_gemm.tiles import Tile, best_tiles, cycles
from convwright.backends.triton.operands import (
    channel_constants,
    group_sizes,
    shape_reason,
    size_reason,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.core.turned import why_not_turned

ALGORITHM = "banded-gemm"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16)
# Of fewer taps the kernels that multiply no matrices are faster: of 25 by half, of 49 neither is (H100).
_LEAST_TAPS = 36
_FEW = 8  # pixels of each block that a program takes at a time where it takes them one by one


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    tiles = best_tiles(forward_of(problem), device)
    if not tiles:
        yield Refusal(NAME, f"serves windows of fewer columns and channels, got {problem.taps} and {problem.k}")
    for tile in tiles:
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", ALGORITHM, tile.config, native_arithmetic(problem.dtype, tf32=False), 0, True, Source.RULE,
        tiled=tile.products(forward_of(problem)), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Tile.of(candidate), forward_of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return f"computes the forward direction and gradients of inputs, not {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, _DTYPES, groups=True)
        or _window_reason(problem)
        or _gradient_reason(problem)
        or _lying_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    inputs, _ = group_sizes(problem)
    if inputs != 1:
        return f"serves one input channel in a group, got {inputs}"
    taps = prod(problem.taps)
    return None if taps >= _LEAST_TAPS else f"serves filters of at least {_LEAST_TAPS} taps, got {taps}"


def _gradient_reason(problem: ConvProblem) -> str | None:
    if problem.direction is Direction.FORWARD:
        return None
    _, outputs = group_sizes(problem)
    return why_not_turned(problem) or (
        None if outputs == 1 else f"serves gradients of one output channel in a group, got {outputs}"
    )


def _lying_reason(named: Mapping[str, TensorSpec]) -> str | None:
    for name, spec in named.items():
        if spec.shape[-1] > 1 and spec.strides[-1] != 1:
            return f"needs stride 1 along the width of `{name}`, got {spec.strides[-1]}"
    return None


def constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool | str]:
    """What the kernel of the products is compiled for, of a forward convolution."""
    told = window_constants(problem) | channel_constants(problem) | _lying(problem, tile)
    _, outputs = group_sizes(problem)
    told |= {
        "EACH": outputs, "READ": tile.rows(problem), "BM": tile.bm, "BN": tile.bn, "BP": tile.bp,
        "STAGES": tile.stages, "FEW": _FEW, "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
    }  # fmt: skip
    unknown = ("C", "K", "FLIP", "PADDED")
    kept = {name: value for name, value in told.items() if name not in unknown}
    return kept | {"ACTIVATION": problem.epilogue.activation.value}


def band_constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool]:
    """What the kernel that lays the bands is compiled for, of the same."""
    told = window_constants(problem) | weight_strides(problem) | _lying(problem, tile)
    needed = (
        "R", "S", "W_K", "W_R", "W_S", "STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "FLIP",
        "BEFORE", "FIRST", "BANDS", "BQ", "XW",
    )  # fmt: skip
    return {name: told[name] for name in needed}


def _lying(problem: ConvProblem, tile: Tile) -> dict[str, int | bool]:
    """Where the taps lie in the bands, which both kernels are told."""
    return {
        "BEFORE": tile.before(problem), "FIRST": tile.first(problem), "BANDS": tile.bands(problem),
        "BQ": tile.bq, "XW": tile.columns(problem),
    }  # fmt: skip
