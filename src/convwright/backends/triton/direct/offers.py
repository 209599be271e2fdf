"""Convolutions with few channels, in each group, by sums that are no matrix product: what is served, and what is told.

Of gradients those of inputs are served, whose dy may be multiplied by an activation's derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.direct.tiles import FEW_OUTPUTS, Strip, best_strips, cycles
from convwright.backends.triton.operands import (
    is_channels_last,
    offsets_are_wide,
    pair,
    shape_reason,
    size_reason,
    weight_reason,
)
from convwright.backends.triton.sweep import Sweep, sweep_of
from convwright.backends.triton.sweep_constants import lying_constants, weight_constants, weight_lying
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

ALGORITHM = "direct"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
# Of more output channels, each of whose elements is a sum of so few products that to write it takes as long.
_MOST_PRODUCTS_OF_MANY = 64
# The taps in a column are written out one by one in the compiled kernel, as are phases.
_MOST_TAPS_IN_COLUMN = 64
_MOST_PHASES = 16
_MOST_SUMS = 2**31
# What one lane reads of a group lies so far from what the next one reads.
_MOST_INPUTS_IN_LANES = 8


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for strip in best_strips(sweep_of(problem), device):
        yield candidate_of(problem, strip)


def candidate_of(problem: ConvProblem, strip: Strip) -> Candidate:
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    return Candidate(problem, "triton", ALGORITHM, strip.config, arithmetic, 0, True, Source.RULE, compiles=True)


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Strip.of(candidate), sweep_of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
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


def blocks(problem: ConvProblem, strip: Strip) -> int:
    """How many programs one launch needs."""
    return strip.blocks(sweep_of(problem))


def constants(problem: ConvProblem, strip: Strip) -> dict[str, object]:
    """What the kernel is compiled for."""
    sweep, backward = sweep_of(problem), problem.direction is Direction.BACKWARD_DATA
    gap, apart = sweep.spacing
    epilogue = Epilogue() if backward else problem.epilogue
    told: dict[str, object] = {
        "N": problem.n, "G": sweep.groups, "C": sweep.inputs, "K": sweep.outputs, "FLIP": sweep.mirrored,
        "WIDE": offsets_are_wide(sweep.read, sweep.written),
        "BIAS": epilogue.bias, "RESIDUAL": epilogue.residual, "ACTIVATION": epilogue.activation.value,
        "DERIVATIVE": (problem.epilogue.activation if backward else Activation.NONE).value,
        "GAP": gap, "APART": apart, "ROWS": strip.rows, "BQ": strip.bq, "SPLIT": strip.split,
        "ACROSS": strip.across == 1, "CHANNELS_LAST": sweep.in_lanes_only, "OUTPUTS": strip.outputs,
        "TOGETHER": sweep.columns_together, "LARGE": sweep.is_large,
    }  # fmt: skip
    lying = weight_lying(problem, packed=bool(strip.packed))
    return told | lying_constants(sweep) | weight_constants(problem, lying) | _window_constants(sweep, lying)


def _window_constants(sweep: Sweep, lying: dict[str, int]) -> dict[str, object]:
    """Of each dimension its sizes and windows, and of a phase's taps how far they lie apart in the weight."""
    told: dict[str, object] = {}
    names = ("D", "Z", "T"), ("H", "P", "R"), ("W", "Q", "S")
    for (read, written, taps), track in zip(names, sweep.tracks, strict=True):
        stride = lying[f"W_{taps}"]
        told |= {
            read: track.read, written: track.written, f"W_{taps}": stride * track.step,
            f"STRIDE_{read}": track.stride, f"DILATION_{read}": track.dilation,
            f"PHASES_{read}": tuple((phase.taps, phase.before, phase.first * stride) for phase in track.phases),
        }  # fmt: skip
    return told
