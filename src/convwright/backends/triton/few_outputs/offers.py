"""Convolutions with few output channels, in each group, by sums that are no matrix product: what is served, and what is
told."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.few_outputs.tiles import Strip, best_strips, in_lanes_only, spacing
from convwright.backends.triton.operands import (
    channel_constants,
    depth_constants,
    group_constants,
    group_sizes,
    is_channels_last,
    pair,
    pixel_count,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.problem import ConvProblem

ALGORITHM = "few-outputs"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
_MOST_OUTPUTS = 16
# The taps in a plane of a channel are written out one by one in the compiled kernel.
_MOST_WEIGHTS = 400
_MOST_SUMS = 2**31
# What one lane reads of a group lies so far from what the next one reads.
_MOST_INPUTS_IN_LANES = 8


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    for strip in best_strips(problem, device):
        yield Candidate(problem, "triton", ALGORITHM, strip.config, arithmetic, 0, True, Source.RULE, compiles=True)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes the forward direction, not {problem.direction}"
    reason = shape_reason(problem, _DTYPES, groups=True, volumes=True)
    return reason or _few_reason(problem) or size_reason(problem, {"input": problem.x, "output": problem.y})


def _few_reason(problem: ConvProblem) -> str | None:
    _, outputs = group_sizes(problem)
    if outputs > _MOST_OUTPUTS:
        return f"serves at most {_MOST_OUTPUTS} output channels in a group, got {outputs}"
    weights = prod(pair(problem.taps, 1)) * outputs
    if weights > _MOST_WEIGHTS:
        return f"serves at most {_MOST_WEIGHTS} weights for each plane of an input channel, got {weights}"
    if in_lanes_only(problem) and (reason := _lanes_reason(problem)) is not None:
        return reason
    sums = pixel_count(problem) * problem.groups
    if sums >= _MOST_SUMS:
        return f"serves at most 2^31 output pixels times groups, got {sums:,}"
    return weight_reason(problem)


def _lanes_reason(problem: ConvProblem) -> str | None:
    """Why lanes cannot run across the groups of a pixel, where these lie side by side."""
    operands = {"input": problem.x, "output": problem.y}
    if problem.groups > 1 and not all(map(is_channels_last, operands.values())):
        strides = " and ".join(str(spec.strides) for spec in operands.values())
        return f"needs stride 1 along the width of `input` and `output`, or along the channels of both, got {strides}"
    for name, spec in operands.items():
        if problem.groups == 1 and spec.shape[-1] > 1 and spec.strides[-1] != 1:
            return f"needs stride 1 along the width of `{name}`, got {spec.strides[-1]}"
    inputs, _ = group_sizes(problem)
    if inputs > _MOST_INPUTS_IN_LANES:
        return f"serves at most {_MOST_INPUTS_IN_LANES} input channels in a group with channels last, got {inputs}"
    return None


def blocks(problem: ConvProblem, strip: Strip) -> int:
    """How many programs one launch needs."""
    return strip.blocks(problem)


def constants(problem: ConvProblem, strip: Strip) -> dict[str, int | bool | str]:
    """What the kernel is compiled for."""
    gap, apart = spacing(problem)
    window = {name: value for name, value in window_constants(problem).items() if name != "PADDED"}
    window |= depth_constants(problem) | group_constants(problem) | channel_constants(problem)
    return window | weight_strides(problem) | weight_depth(problem) | {
        "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
        "GAP": gap, "APART": apart, "ROWS": strip.rows, "BQ": strip.bq, "SPLIT": strip.split,
        "ACROSS": strip.across == 1, "CHANNELS_LAST": in_lanes_only(problem),
    }  # fmt: skip
