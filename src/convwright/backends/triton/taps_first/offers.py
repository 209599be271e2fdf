"""Convolutions of many input channels to few output channels, taps first: supported problems, tiles, launches.

Input gradients are supported too. Their dy may be multiplied by an activation's derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.few_channels import absent_pointers
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.multiprocessor import CACHE_BYTES_PER_CYCLE, MORE_KERNEL_CYCLES, REGISTERS, sm_count
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    offsets_are_wide,
    power_of_two,
    shape_reason,
    size_reason,
    weight_reason,
)
from convwright.backends.triton.sweep import (
    AT_ONCE_BYTES,
    Sweep,
    stride_constants,
    sweep_of,
    sweep_weight_strides,
    weight_constants,
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
_LEAST_INPUTS = 8  # with fewer, there are more sums than inputs


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
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
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Tile.of(candidate), sweep_of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``; None if they can."""
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return f"computes only convolutions and input gradients, got {problem.direction}"
    return (
        shape_reason(problem, _DTYPES, groups=True, volumes=True, ahead=True)
        or size_reason(problem, {"input": problem.x, "output": problem.y})
        or weight_reason(problem)
        or _stride_reason(problem)
        or _sweep_reason(sweep_of(problem))
    )


def _stride_reason(problem: ConvProblem) -> str | None:
    # Also for an input of one pixel, which has one phase, but whose taps need not begin with the filter's first.
    if problem.direction is Direction.BACKWARD_DATA and any(stride > 1 for stride in problem.stride):
        return f"needs stride 1 for an input gradient, got {problem.stride}"
    return None


def _sweep_reason(sweep: Sweep) -> str | None:
    if not sums_of(sweep):
        return "needs a tap that reads the input, got only padding"
    if sums_of(sweep) > MOST_SUMS:
        return f"needs at most {MOST_SUMS} taps times output channels per group, got {sums_of(sweep)}"
    if sweep.inputs < _LEAST_INPUTS:
        return f"needs at least {_LEAST_INPUTS} input channels per group, got {sweep.inputs}"
    if sweep.read.shape[-1] > 1 and sweep.read.strides[-1] != 1:
        return f"needs stride 1 along the width of the operand that is read, got {sweep.read.strides[-1]}"
    columns = sweep.tracks[2]
    reached = (columns.most_taps - 1) * columns.dilation + 1
    return None if any(tiles(sweep)) else f"needs a narrower row of taps, got {reached} columns"


# Configurations and their estimated times.

MOST_TILES = 8
MOST_SUMS = 32  # of a pixel
SUM_BYTES = 4
_LANES = 32
_PIXELS, _WARPS, _AHEAD, _PARTS = (2, 4, 8), (1, 2, 4, 8), (2, 3, 4, 5, 8, 16), (1, 2, 4, 8, 16)
_MOST_REGISTERS, _OTHER_REGISTERS = 168, 24
_MOST_WEIGHTS_AHEAD = 48
_MOST_WARPS, _SCHEDULERS = 64, 4  # of a multiprocessor
_LINE_BYTES, _WAITING_CYCLES, _STARTING_CYCLES = 128, 900, 500
_ENOUGH_BYTES = 32 * 2**10  # in flight per multiprocessor keep memory busy


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """A thread sums the channels of ``pixels`` pixels, divided into ``parts``, with ``ahead`` loads in flight."""

    pixels: int
    warps: int
    ahead: int
    parts: int

    @property
    def block(self) -> int:
        """Pixels of a program."""
        return _LANES * self.warps * self.pixels

    def blocks(self, sweep: Sweep) -> int:
        rows = Rows.of(self, sweep)
        depth, high, columns = sweep.tracks
        below = -(-depth.read * high.read // (self.block // rows.width))
        return sweep.read.shape[0] * sweep.groups * self.parts * below * -(-columns.written // rows.columns)

    def sums_bytes(self, sweep: Sweep) -> int:
        """Bytes of the workspace: a number for each row of taps, and each output of a row of pixels."""
        depth, high, columns = sweep.tracks
        rows_of_taps = sweep.outputs * depth.most_taps * high.most_taps
        rows = sweep.read.shape[0] * sweep.groups * depth.read * high.read
        return self.parts * rows * rows_of_taps * columns.written * SUM_BYTES


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a block: their ``width``, the ``columns`` of the output in each, and the distance of their first
    pixel ``before`` the first of these."""

    width: int
    columns: int
    before: int

    @classmethod
    def of(cls, tile: Tile, sweep: Sweep) -> Rows:
        columns = sweep.tracks[2]
        whole = power_of_two(max(columns.read, columns.written))
        if whole <= tile.block:
            return cls(whole, columns.written, 0)
        window, together = columns.phases[0], AT_ONCE_BYTES
        before = -(-window.before // together) * together
        reached = (window.taps - 1) * columns.dilation + before - window.before
        return cls(tile.block, max(tile.block - reached, 0) // columns.stride // together * together, before)


def sums_of(sweep: Sweep) -> int:
    """Sums per pixel: one for each tap and each output channel of a group."""
    return sweep.outputs * prod(track.most_taps for track in sweep.tracks)


def best_tiles(sweep: Sweep, device: DeviceFacts, count: int = MOST_TILES) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates, best first."""
    return tuple(sorted(tiles(sweep), key=lambda tile: cycles(tile, sweep, device))[:count])


def tiles(sweep: Sweep) -> Iterator[Tile]:
    """All possible tiles."""
    columns = sweep.tracks[2]
    for pixels, warps, ahead, parts in product(_PIXELS, _WARPS, _AHEAD, _PARTS):
        tile = Tile(pixels, warps, ahead, parts)
        at_once = pixels * sweep.read.dtype.nbytes <= 2 * AT_ONCE_BYTES
        if not at_once or parts * ahead > sweep.inputs or _registers(tile, sweep) > _MOST_REGISTERS:
            continue
        # If a row is wider than a block, two adjacent blocks both read the pixels that their taps share.
        rows = Rows.of(tile, sweep)
        if rows.columns == columns.written or 2 * rows.columns * columns.stride >= tile.block:
            yield tile


def _registers(tile: Tile, sweep: Sweep) -> int:
    weights = tile.ahead * sums_of(sweep)
    return tile.pixels * (sums_of(sweep) + 2 * tile.ahead) + weights * keeps(tile, sweep) + _OTHER_REGISTERS


def keeps(tile: Tile, sweep: Sweep) -> bool:
    """Whether weights are also loaded ahead."""
    return tile.ahead * sums_of(sweep) <= _MOST_WEIGHTS_AHEAD


def cycles(tile: Tile, sweep: Sweep, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop tiles that cannot win."""
    nbytes, sums, channels = sweep.read.dtype.nbytes, sums_of(sweep), -(-sweep.inputs // tile.parts)
    warps = -(-tile.blocks(sweep) // sm_count(device)) * tile.warps
    together = min(_MOST_WARPS, REGISTERS // (_LANES * _registers(tile, sweep)), warps)
    waves, read = -(-warps // together), _LANES * tile.pixels * nbytes

    steps = -(-channels // tile.ahead)
    instructions = tile.pixels * (sums + (nbytes < SUM_BYTES)) + sums + 2
    issuing = tile.ahead * max(instructions / _SCHEDULERS, read / _LINE_BYTES + sums)
    # The bytes in flight of all warps, compared with what keeps memory busy.
    waiting = _WAITING_CYCLES * max(1.0, together * tile.ahead * read / _ENOUGH_BYTES)
    summing = waves * (steps * max(together * issuing, waiting) + _WAITING_CYCLES + _STARTING_CYCLES)
    moved = 2 * tile.sums_bytes(sweep) / (sm_count(device) * CACHE_BYTES_PER_CYCLE)
    return summing + moved + MORE_KERNEL_CYCLES


# Launches.


def constants_of_sums(problem: ConvProblem, tile: Tile) -> dict[str, object]:
    """Compile-time constants of the kernel that sums channels."""
    sweep, lying, rows = (
        sweep_of(problem),
        sweep_weight_strides(problem, packed=False),
        Rows.of(tile, sweep_of(problem)),
    )
    backward, (depth, high, columns) = problem.direction is Direction.BACKWARD_DATA, sweep.tracks
    values: dict[str, object] = {
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
    return values | _strides("X", sweep) | weight_constants(problem, lying)


def constants_of_outputs(problem: ConvProblem, tile: Tile, block: int) -> dict[str, object]:
    """Compile-time constants of the kernel that adds rows of taps, with ``block`` pixels per program."""
    sweep = sweep_of(problem)
    epilogue, (depth, high, columns) = problem.epilogue, sweep.tracks
    if problem.direction is Direction.BACKWARD_DATA:
        epilogue = Epilogue()
    values: dict[str, object] = {
        "N": problem.n, "G": sweep.groups, "K": sweep.outputs, "T": depth.most_taps, "R": high.most_taps,
        "D": depth.read, "H": high.read, "Z": depth.written, "P": high.written, "Q": columns.written,
        "STRIDE_D": depth.stride, "STRIDE_H": high.stride, "FRONT": depth.phases[0].before,
        "TOP": high.phases[0].before, "DILATION_D": depth.dilation, "DILATION_H": high.dilation,
        "BIAS": epilogue.bias, "RESIDUAL": epilogue.residual, "ACTIVATION": epilogue.activation.value,
        "WIDE": _is_wide(sweep, tile), "PARTS": tile.parts, "BLOCK": block,
    }  # fmt: skip
    return values | _strides("Y", sweep)


def _strides(operand: str, sweep: Sweep) -> dict[str, int]:
    return {name: stride for name, stride in stride_constants(sweep).items() if name[0] == operand}


def _is_wide(sweep: Sweep, tile: Tile) -> bool:
    return offsets_are_wide(sweep.read, sweep.written) or tile.sums_bytes(sweep) // SUM_BYTES >= MOST_ELEMENTS


_OUTPUT_BLOCK, _OUTPUT_WARPS = 256, 4  # of the kernel that adds taps


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """The kernels to launch: the sums of each tap, and the outputs."""
    from convwright.backends.triton.taps_first.kernel import outputs_of_taps, sums_of_taps

    problem, tile = candidate.problem, Tile.of(candidate)
    sweep, dtype, absent = sweep_of(problem), problem.dtype, absent_pointers(candidate)
    read, single = (dtype.value, sweep.read.alignment), (dtype.value, dtype.nbytes)
    written = (dtype.value, sweep.written.alignment)

    pointers = {"x": read, "w": single, "sums": WORKSPACE, "z": read}
    values = constants_of_sums(problem, tile) | {name: None for name in absent if name in pointers}
    sums = KernelCall(sums_of_taps, _there(pointers, absent), values, tile.blocks(sweep), tile.warps, 1)

    pointers = {"sums": WORKSPACE, "bias": single, "residual": written, "y": written}
    values = constants_of_outputs(problem, tile, _OUTPUT_BLOCK) | {name: None for name in absent if name in pointers}
    blocks = problem.n * sweep.written.shape[1] * -(-prod(sweep.written.shape[2:]) // _OUTPUT_BLOCK)
    return sums, KernelCall(outputs_of_taps, _there(pointers, absent), values, blocks, _OUTPUT_WARPS, 1)


def _there(pointers: dict[str, tuple[str, int]], absent: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    return {name: pointer for name, pointer in pointers.items() if name not in absent}
