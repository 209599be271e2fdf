"""Convolutions of many input channels to few output channels, taps first: what is served, and what is told.

Of gradients those of inputs are served, whose dy may be multiplied by an activation's derivative.
"""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    offsets_are_wide,
    shape_reason,
    size_reason,
    weight_reason,
)
from convwright.backends.triton.sweep import Sweep, sweep_of
from convwright.backends.triton.sweep_constants import lying_constants, weight_constants, weight_lying
from convwright.backends.triton.taps_first.tiles import (
    MOST_SUMS,
    SUM_BYTES,
    Rows,
    Tile,
    best_tiles,
    cycles,
    keeps,
    sums_of,
    tiles,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

ALGORITHM = "taps-first"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
_LEAST_INPUTS = 8  # of fewer the sums are more than what is read


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or why the algorithm cannot serve."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for tile in best_tiles(sweep_of(problem), device):
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    arithmetic, workspace_bytes = native_arithmetic(problem.dtype, tf32=False), tile.sums_bytes(sweep_of(problem))
    return Candidate(
        problem, "triton", ALGORITHM, tile.config, arithmetic, workspace_bytes, True, Source.RULE, compiles=True
    )


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Tile.of(candidate), sweep_of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``, or None where they can."""
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return f"computes convolutions and gradients of inputs, not {problem.direction}"
    return (
        shape_reason(problem, _DTYPES, groups=True, volumes=True, ahead=True)
        or size_reason(problem, {"input": problem.x, "output": problem.y})
        or weight_reason(problem)
        or _stride_reason(problem)
        or _sweep_reason(sweep_of(problem))
    )


def _stride_reason(problem: ConvProblem) -> str | None:
    # Of an input of one pixel, too, which has one phase, but whose taps need not begin with the filter's first.
    if problem.direction is Direction.BACKWARD_DATA and any(stride > 1 for stride in problem.stride):
        return f"serves gradients of inputs with stride 1, got {problem.stride}"
    return None


def _sweep_reason(sweep: Sweep) -> str | None:
    if not sums_of(sweep):
        return "needs taps that reach some of the input"
    if sums_of(sweep) > MOST_SUMS:
        return f"serves at most {MOST_SUMS} taps times output channels in a group, got {sums_of(sweep)}"
    if sweep.inputs < _LEAST_INPUTS:
        return f"serves at least {_LEAST_INPUTS} input channels in a group, got {sweep.inputs}"
    if sweep.read.shape[-1] > 1 and sweep.read.strides[-1] != 1:
        return f"needs stride 1 along the width of what is read, got {sweep.read.strides[-1]}"
    columns = sweep.tracks[2]
    reached = (columns.most_taps - 1) * columns.dilation + 1
    return None if any(tiles(sweep)) else f"serves taps of a row that lie nearer to each other, got {reached} columns"


def constants_of_sums(problem: ConvProblem, tile: Tile) -> dict[str, object]:
    """What the kernel that sums up channels is compiled for."""
    sweep, lying, rows = sweep_of(problem), weight_lying(problem, packed=False), Rows.of(tile, sweep_of(problem))
    backward, (depth, high, columns) = problem.direction is Direction.BACKWARD_DATA, sweep.tracks
    told: dict[str, object] = {
        "N": problem.n, "G": sweep.groups, "C": sweep.inputs, "K": sweep.outputs,
        "T": depth.most_taps, "R": high.most_taps, "S": columns.most_taps,
        "D": depth.read, "H": high.read, "W": columns.read, "Q": columns.written,
        "W_T": lying["W_T"], "W_R": lying["W_R"], "W_S": lying["W_S"],
        "STRIDE_W": columns.stride, "LEFT": columns.phases[0].before, "DILATION_W": columns.dilation,
        "FLIP": sweep.mirrored, "WIDE": _is_wide(sweep, tile),
        "DERIVATIVE": (problem.epilogue.activation if backward else Activation.NONE).value,
        "PARTS": tile.parts, "AHEAD": tile.ahead, "KEPT": keeps(tile, sweep), "BLOCK": tile.block,
        "WIDTH": rows.width, "COLUMNS": rows.columns, "BEFORE": rows.before,
    }  # fmt: skip
    return told | _strides("X", sweep) | weight_constants(problem, lying)


def constants_of_outputs(problem: ConvProblem, tile: Tile, block: int) -> dict[str, object]:
    """What the kernel that adds up rows of taps, a program for each ``block`` pixels, is compiled for."""
    sweep = sweep_of(problem)
    epilogue, (depth, high, columns) = problem.epilogue, sweep.tracks
    if problem.direction is Direction.BACKWARD_DATA:
        epilogue = Epilogue()
    told: dict[str, object] = {
        "N": problem.n, "G": sweep.groups, "K": sweep.outputs, "T": depth.most_taps, "R": high.most_taps,
        "D": depth.read, "H": high.read, "Z": depth.written, "P": high.written, "Q": columns.written,
        "STRIDE_D": depth.stride, "STRIDE_H": high.stride, "FRONT": depth.phases[0].before,
        "TOP": high.phases[0].before, "DILATION_D": depth.dilation, "DILATION_H": high.dilation,
        "BIAS": epilogue.bias, "RESIDUAL": epilogue.residual, "ACTIVATION": epilogue.activation.value,
        "WIDE": _is_wide(sweep, tile), "PARTS": tile.parts, "BLOCK": block,
    }  # fmt: skip
    return told | _strides("Y", sweep)


def _strides(operand: str, sweep: Sweep) -> dict[str, int]:
    return {name: stride for name, stride in lying_constants(sweep).items() if name[0] == operand}


def _is_wide(sweep: Sweep, tile: Tile) -> bool:
    return offsets_are_wide(sweep.read, sweep.written) or tile.sums_bytes(sweep) // SUM_BYTES >= MOST_ELEMENTS
