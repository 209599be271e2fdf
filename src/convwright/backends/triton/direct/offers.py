"""Convolutions with few channels, in each group, by sums that are no matrix product: what is served, and what is told.

Of gradients those of inputs are served whose dy is multiplied by an activation's derivative, as the forward convolution
of that product; what is a convolution of dy itself is left to `as-forward`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.direct.tiles import FEW_OUTPUTS, Strip, best_strips, in_lanes_only, spacing
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
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.core.turned import turned, turned_shape, why_not_turned

ALGORITHM = "direct"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
# Of more output channels, each of whose elements is a sum of so few products that to write it takes as long.
_MOST_PRODUCTS_OF_MANY = 64
# The taps in a plane of a channel are written out one by one in the compiled kernel.
_MOST_TAPS = 400
_MOST_SUMS = 2**31
# What one lane reads of a group lies so far from what the next one reads.
_MOST_INPUTS_IN_LANES = 8


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for strip in best_strips(as_forward(problem), device):
        yield candidate_of(problem, strip)


def candidate_of(problem: ConvProblem, strip: Strip) -> Candidate:
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    return Candidate(problem, "triton", ALGORITHM, strip.config, arithmetic, 0, True, Source.RULE, compiles=True)


def as_forward(problem: ConvProblem) -> ConvProblem:
    """The forward convolution that the kernel computes."""
    if problem.direction is Direction.FORWARD:
        return problem
    return turned(problem, TensorSpec(turned_shape(problem), problem.dtype))


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    reason = _direction_reason(problem) or shape_reason(problem, _DTYPES, groups=True, volumes=True, ahead=True)
    if reason is not None:
        return reason
    forward = as_forward(problem)
    operands = {"input": forward.x, "output": forward.y}
    return _few_reason(forward) or weight_reason(problem) or size_reason(forward, operands)


def _direction_reason(problem: ConvProblem) -> str | None:
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return f"computes convolutions and gradients of inputs, not {problem.direction}"
    if problem.direction is Direction.BACKWARD_DATA and problem.epilogue.activation is Activation.NONE:
        return "serves gradients with an activation's derivative; without one `as-forward` makes them convolutions"
    return why_not_turned(problem) if problem.direction is Direction.BACKWARD_DATA else None


def _few_reason(problem: ConvProblem) -> str | None:
    inputs, outputs = group_sizes(problem)
    products = inputs * prod(problem.taps)
    if outputs > FEW_OUTPUTS and products > _MOST_PRODUCTS_OF_MANY:
        return (
            f"serves at most {FEW_OUTPUTS} output channels in a group, or more that sum up at most "
            f"{_MOST_PRODUCTS_OF_MANY} products, got {outputs} that sum up {products}"
        )
    taps = prod(pair(problem.taps, 1))
    if taps > _MOST_TAPS:
        return f"serves at most {_MOST_TAPS} taps in a plane, got {taps}"
    if in_lanes_only(problem) and (reason := _lanes_reason(problem)) is not None:
        return reason
    sums = pixel_count(problem) * problem.groups
    return None if sums < _MOST_SUMS else f"serves at most 2^31 output pixels times groups, got {sums:,}"


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
    return strip.blocks(as_forward(problem))


def constants(problem: ConvProblem, strip: Strip) -> dict[str, int | bool | str]:
    """What the kernel is compiled for."""
    forward = as_forward(problem)
    gap, apart = spacing(forward)
    window = {name: value for name, value in window_constants(forward).items() if name != "PADDED"}
    window |= depth_constants(forward) | group_constants(forward) | channel_constants(forward)
    return window | _weight_constants(problem) | {
        "BIAS": forward.epilogue.bias, "RESIDUAL": forward.epilogue.residual,
        "ACTIVATION": forward.epilogue.activation.value,
        "DERIVATIVE": (Activation.NONE if problem is forward else problem.epilogue.activation).value,
        "GAP": gap, "APART": apart, "ROWS": strip.rows, "BQ": strip.bq, "SPLIT": strip.split,
        "ACROSS": strip.across == 1, "CHANNELS_LAST": in_lanes_only(forward), "OUTPUTS": strip.outputs,
    }  # fmt: skip


def _weight_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """Strides of the weight as it lies, along a group and along the channels that are outputs and inputs here."""
    told = weight_strides(problem) | weight_depth(problem)
    told["W_G"] = problem.k // problem.groups * told["W_K"]
    if problem.direction is Direction.BACKWARD_DATA:
        told |= {"W_K": told["W_C"], "W_C": told["W_K"], "FLIP": not problem.flip}
    return told
