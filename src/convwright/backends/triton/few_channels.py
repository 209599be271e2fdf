"""Convolutions and gradients of inputs with few channels in each group: what `direct`, and with more conditions
`wide_direct`, can compute."""

from __future__ import annotations

from math import prod

from convwright.backends.triton.operands import is_channels_last, pair, shape_reason, size_reason, weight_reason
from convwright.backends.triton.sweep import Sweep, sweep_of
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.fusing import has_extended_epilogue
from convwright.core.problem import ConvProblem

# Where output channels are more, they are divided, and to write them takes as long as all else.
FEW_OUTPUTS = 16
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
# Of more output channels, each of whose elements is a sum of so few products that to write it takes as long.
_MOST_PRODUCTS_OF_MANY = 64
# The taps in a column are written out one by one in the compiled kernel, as are phases.
_MOST_TAPS_IN_COLUMN = 64
_MOST_PHASES = 16
_MOST_SUMS = 2**31
# What one lane reads of a group lies so far from what the next one reads.
_MOST_INPUTS_IN_LANES = 8


def why_not_few(problem: ConvProblem) -> str | None:
    """Why ``problem`` is none of these, or None where it is."""
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return f"computes convolutions and gradients of inputs, not {problem.direction}"
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
        return f"serves at most {_MOST_TAPS_IN_COLUMN} taps in a column, got {taps}"
    phases = prod(problem.stride)
    if problem.direction is Direction.BACKWARD_DATA and phases > _MOST_PHASES:
        return f"serves at most {_MOST_PHASES} remainders by the strides, got {phases}"
    return None


def _few_reason(sweep: Sweep) -> str | None:
    products = sweep.inputs * prod(track.most_taps for track in sweep.tracks)
    if sweep.outputs > FEW_OUTPUTS and products > _MOST_PRODUCTS_OF_MANY:
        return (
            f"serves at most {FEW_OUTPUTS} output channels in a group, or more that sum up at most "
            f"{_MOST_PRODUCTS_OF_MANY} products, got {sweep.outputs} that sum up {products}"
        )
    if sweep.in_lanes_only and (reason := _lanes_reason(sweep)) is not None:
        return reason
    sums = sweep.written.numel // sweep.outputs
    return None if sums < _MOST_SUMS else f"serves at most 2^31 output pixels times groups, got {sums:,}"


def _lanes_reason(sweep: Sweep) -> str | None:
    """Why lanes cannot run across the groups of a pixel, where these lie side by side."""
    operands = {"input": sweep.read, "output": sweep.written}
    if sweep.groups > 1 and not all(map(is_channels_last, operands.values())):
        strides = " and ".join(str(spec.strides) for spec in operands.values())
        return f"needs stride 1 along the width of `input` and `output`, or along the channels of both, got {strides}"
    for name, spec in operands.items():
        if sweep.groups == 1 and spec.shape[-1] > 1 and spec.strides[-1] != 1:
            return f"needs stride 1 along the width of `{name}`, got {spec.strides[-1]}"
    if sweep.inputs > _MOST_INPUTS_IN_LANES:
        return (
            f"serves at most {_MOST_INPUTS_IN_LANES} input channels in a group with channels last, got {sweep.inputs}"
        )
    return None


def absent_pointers(candidate: Candidate) -> tuple[str, ...]:
    """Which operands there are not."""
    if candidate.problem.direction is Direction.FORWARD:
        return ("z",)
    return ("bias", "residual") if has_extended_epilogue(candidate.problem) else ("bias", "residual", "z")
