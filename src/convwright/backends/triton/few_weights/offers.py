"""Gradients of weights of which few belong to each input channel, by sums that are no matrix product: what is served,
and what is told."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from convwright.backends.triton.few_weights.tiles import Patch, best_patches, cycles, spacings, tap_block
from convwright.backends.triton.operands import (
    channel_constants,
    depth_constants,
    group_constants,
    group_sizes,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.parts.sums import sums_bytes
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

ALGORITHM = "few-weights"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
_MOST_OUTPUTS = 16
# A thread keeps a sum for each tap of a block.
_MOST_WEIGHTS = 400


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for patch in best_patches(problem, device):
        yield candidate_of(problem, patch)


def candidate_of(problem: ConvProblem, patch: Patch) -> Candidate:
    workspace_bytes = sums_bytes(problem, patch.parts) if patch.parts > 1 else 0
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    return Candidate(
        problem, "triton", ALGORITHM, patch.config, arithmetic, workspace_bytes, True, Source.RULE, compiles=True
    )


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Patch.of(candidate), candidate.problem, device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``, or None where it can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes gradients of weights, not {problem.direction}"
    reason = shape_reason(problem, _DTYPES, groups=True, volumes=True, ahead=True)
    return reason or _few_reason(problem) or size_reason(problem, {"input": problem.x, "gradient": problem.y})


def _few_reason(problem: ConvProblem) -> str | None:
    (_, outputs), taps = group_sizes(problem), prod(tap_block(problem))
    if outputs > _MOST_OUTPUTS:
        return f"serves at most {_MOST_OUTPUTS} output channels in a group, got {outputs}"
    if taps * outputs > _MOST_WEIGHTS:
        return f"serves at most {_MOST_WEIGHTS} weights for each plane of an input channel, got {taps * outputs}"
    return weight_reason(problem)


def blocks(problem: ConvProblem, patch: Patch) -> int:
    """How many programs the launch of the sums needs."""
    return patch.blocks_of_a_part(problem) * patch.parts


def constants(problem: ConvProblem, patch: Patch) -> dict[str, int | bool | str]:
    """What the kernel of the sums is compiled for."""
    (gap_h, apart_h), (gap_w, apart_w) = spacings(problem, patch)
    rows, columns = patch.taps(problem)
    window = window_constants(problem) | group_constants(problem) | channel_constants(problem)
    window |= depth_constants(problem) | weight_depth(problem)
    return window | weight_strides(problem) | {
        "GAP_H": gap_h, "GAP_W": gap_w, "APART_H": apart_h, "APART_W": apart_w,
        "TAPS_H": rows, "TAPS_W": columns,
        "ROWS": patch.rows, "COLUMNS": patch.columns, "OUTPUTS": patch.outputs, "INPUTS": patch.inputs,
        "PARTS": patch.parts, "STEPS": patch.steps(problem), "CHANNELS": patch.channels, "LANES": patch.lanes,
        "ACROSS": patch.across,
        "LEVELS": (patch.sums(problem) - 1).bit_length(),
        "DERIVATIVE": problem.epilogue.activation.value, "WITH_BIAS": problem.epilogue.bias,
        "BIAS_LEVELS": (patch.outputs - 1).bit_length(),
    }  # fmt: skip
