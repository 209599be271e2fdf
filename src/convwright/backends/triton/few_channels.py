"""Convolutions and input gradients with few channels in each group, for `direct` and, with more conditions, for
`wide_direct`."""

from __future__ import annotations

from math import prod

from convwright.backends.triton.operands import is_channels_last, pair, shape_reason, size_reason, weight_reason
from convwright.backends.triton.sweep import Sweep, sweep_of
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.fusing import has_extended_epilogue
from convwright.core.problem import ConvProblem

# More output channels are divided, and storing them takes as long as everything else.
FEW_OUTPUTS = 16
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
# More output channels are allowed if each output sums so few products that storing it takes as long.
_MOST_PRODUCTS_OF_MANY = 64
# The taps of a column, and phases, are unrolled in the compiled kernel.
_MOST_TAPS_IN_COLUMN = 64
_MOST_PHASES = 16
_MOST_SUMS = 2**31
# The distance in memory between the inputs of adjacent lanes, in one group.
_MOST_INPUTS_IN_LANES = 8


def why_not_few(problem: ConvProblem) -> str | None:
    """Why ``problem`` is not one of these; None if it is."""
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return f"computes only convolutions and input gradients, got {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, _DTYPES, groups=True, volumes=True, ahead=True)
        or _window_reason(problem)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _few_reason(sweep_of(problem))
    )


def _window_reason(problem: ConvProblem) -> str | None:
    taps, _ = pair(problem.taps, 1)
    if taps > _MOST_TAPS_IN_COLUMN:
        return f"needs at most {_MOST_TAPS_IN_COLUMN} taps in a column, got {taps}"
    phases = prod(problem.stride)
    if problem.direction is Direction.BACKWARD_DATA and phases > _MOST_PHASES:
        return f"needs a product of the strides of at most {_MOST_PHASES}, got {phases}"
    return None


def _few_reason(sweep: Sweep) -> str | None:
    products = sweep.inputs * prod(track.most_taps for track in sweep.tracks)
    if sweep.outputs > FEW_OUTPUTS and products > _MOST_PRODUCTS_OF_MANY:
        return (
            f"needs at most {FEW_OUTPUTS} output channels per group, or more that sum at most "
            f"{_MOST_PRODUCTS_OF_MANY} products, got {sweep.outputs} that sum {products}"
        )
    if sweep.in_lanes_only and (reason := _lanes_reason(sweep)) is not None:
        return reason
    sums = sweep.written.numel // sweep.outputs
    return None if sums < _MOST_SUMS else f"needs at most 2^31 output pixels times groups, got {sums:,}"


def _lanes_reason(sweep: Sweep) -> str | None:
    """Why lanes cannot run across the groups of a pixel, if these are adjacent in memory."""
    operands = {"input": sweep.read, "output": sweep.written}
    if sweep.groups > 1 and not all(map(is_channels_last, operands.values())):
        strides = " and ".join(str(spec.strides) for spec in operands.values())
        return f"needs stride 1 along the width of `input` and `output`, or along the channels of both, got {strides}"
    for name, spec in operands.items():
        if sweep.groups == 1 and spec.shape[-1] > 1 and spec.strides[-1] != 1:
            return f"needs stride 1 along the width of `{name}`, got {spec.strides[-1]}"
    if sweep.inputs > _MOST_INPUTS_IN_LANES:
        return f"needs at most {_MOST_INPUTS_IN_LANES} input channels per group with channels last, got {sweep.inputs}"
    return None


def absent_pointers(candidate: Candidate) -> tuple[str, ...]:
    """The names of the operands that the problem does not have."""
    if candidate.problem.direction is Direction.FORWARD:
        return ("z",)
    return ("bias", "residual") if has_extended_epilogue(candidate.problem) else ("bias", "residual", "z")
