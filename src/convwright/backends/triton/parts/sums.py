"""Sums of a weight's gradient in parts, PARTS K T R S C, behind each of them perhaps those of a bias's: their size,
what adding them up takes, and is told."""

from __future__ import annotations

from convwright.backends.triton.multiprocessor import CACHE_BYTES_PER_CYCLE, MORE_KERNEL_CYCLES, sm_count
from convwright.backends.triton.operands import pair, weight_depth, weight_strides
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

SUM_BYTES = 4
SUM_WARPS = 4
# Parts that are read at a time, and sums of each: few at a time would wait for memory often, one behind the other.
_MOST_ROWS, _TILE = 256, 4096
_LEAST_BLOCK, _MOST_BLOCK, _MOST_BLOCK_OF_TAPS = 16, 128, 512
_CYCLES_OF_A_PART = 4


def sums_bytes(problem: ConvProblem, parts: int) -> int:
    """What the sums take in fp32; one part is written where the gradient belongs."""
    return _sums(problem) * parts * SUM_BYTES if parts > 1 else 0


def sum_cycles(problem: ConvProblem, parts: int, device: DeviceFacts) -> float:
    """A rough time to write the parts and add them up."""
    if parts == 1:
        return 0.0
    moved = _sums(problem) * (2 * SUM_BYTES * parts + problem.dtype.nbytes)
    return MORE_KERNEL_CYCLES + parts * _CYCLES_OF_A_PART + moved / (sm_count(device) * CACHE_BYTES_PER_CYCLE)


def sum_blocks(problem: ConvProblem, parts: int) -> int:
    """How many programs the launch that adds the parts needs."""
    return -(-_sums(problem) // _tile(problem, parts)[1])


def sum_constants(problem: ConvProblem, parts: int) -> dict[str, int | bool]:
    """What the kernel that adds the parts is compiled for."""
    R, S = pair(problem.taps, 1)
    rows, block = _tile(problem, parts)
    sizes = {"C": problem.w.shape[1], "K": problem.k, "R": R, "S": S, "FLIP": problem.flip}
    return sizes | weight_strides(problem) | weight_depth(problem) | {
        "PARTS": parts, "ROWS": rows, "BLOCK": block, "WITH_BIAS": problem.epilogue.bias,
        "TAPS_FIRST": _taps_first(problem, parts),
    }  # fmt: skip


def _sums(problem: ConvProblem) -> int:
    """Of one part."""
    return problem.w.numel + problem.k * problem.epilogue.bias


def _taps_first(problem: ConvProblem, parts: int) -> bool:
    """Whether the parts are added in the order of the weight, where the taps of a channel lie side by side, while in
    parts it is the channels of a tap. Of many parts a program has too few sums for runs that are worth reading."""
    inputs = problem.w.shape[1]
    permuted = inputs > 1 and problem.w.strides[1] > 1 and problem.w.numel > problem.k * inputs
    return permuted and parts <= _TILE // _MOST_BLOCK_OF_TAPS


def _tile(problem: ConvProblem, parts: int) -> tuple[int, int]:
    """How many parts a program reads at a time, and how many sums of each."""
    rows = min(_MOST_ROWS, 1 << (parts - 1).bit_length())
    most = _MOST_BLOCK_OF_TAPS if _taps_first(problem, parts) else _MOST_BLOCK
    return rows, min(max(_TILE // rows, _LEAST_BLOCK), most)
