"""Sums of a weight gradient in parts, PARTS K T R S C, each followed by the sums of a bias gradient if there is one:
size, time, numbers of parts worth trying, launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import TypeVar

from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.multiprocessor import CACHE_BYTES_PER_CYCLE, MORE_KERNEL_CYCLES, sm_count
from convwright.backends.triton.operands import pair, power_of_two, weight_depth, weight_strides
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

SUM_BYTES = 4
SUM_WARPS = 4
# Parts that different lanes read, and sums of each: for few sums with many parts most lanes would be idle.
_MOST_ROWS, _TILE, _LEAST_BLOCK, _MOST_BLOCK = 256, 4096, 16, 128
# So many sums suffice for lanes that each add several by themselves, with so many loads in flight.
_MANY_SUMS, _BLOCK_OF_MANY, _MOST_AHEAD = 2**16, 512, 8
_TURNED_TILE, _MOST_TAPS = 1024, 128
_CYCLES_OF_A_PART = 4


def sums_bytes(problem: ConvProblem, parts: int) -> int:
    """Bytes of the sums in fp32; 0 if the product stores the gradient itself."""
    return _sums(problem) * parts * SUM_BYTES if is_summed(problem, parts) else 0


def sum_cycles(problem: ConvProblem, parts: int, device: DeviceFacts) -> float:
    """A rough time to store and add the parts; 0 if the product stores its single part itself."""
    return adding_cycles(problem, parts, device) if is_summed(problem, parts) else 0.0


def adding_cycles(problem: ConvProblem, parts: int, device: DeviceFacts) -> float:
    """The same if another kernel also stores a single part."""
    moved = _sums(problem) * (2 * SUM_BYTES * parts + problem.dtype.nbytes)
    return MORE_KERNEL_CYCLES + parts * _CYCLES_OF_A_PART + moved / (sm_count(device) * CACHE_BYTES_PER_CYCLE)


def sum_blocks(problem: ConvProblem, parts: int) -> int:
    """The number of programs that add the parts."""
    if is_turned(problem, parts):
        return problem.k * -(-problem.w.shape[1] // _turned_tile(problem)[1])
    return -(-_sums(problem) // _tile(problem, parts)[2])


def sum_constants(problem: ConvProblem, parts: int) -> dict[str, int | bool]:
    """Compile-time constants of the kernel that adds the parts, with or without a transpose."""
    R, S = pair(problem.taps, 1)
    sizes = {"C": problem.w.shape[1], "K": problem.k, "R": R, "S": S, "FLIP": problem.flip, "PARTS": parts}
    values = sizes | weight_strides(problem) | weight_depth(problem)
    if is_turned(problem, parts):
        taps, channels = _turned_tile(problem)
        return values | {"AHEAD": min(parts, _MOST_AHEAD), "TAPS": taps, "BC": channels}
    rows, ahead, block = _tile(problem, parts)
    return values | {"ROWS": rows, "AHEAD": ahead, "BLOCK": block, "WITH_BIAS": problem.epilogue.bias}


def is_summed(problem: ConvProblem, parts: int) -> bool:
    """Whether another kernel stores a product's sums in the gradient: for several parts, and for one whose stores would
    each need a separate cache line."""
    return parts > 1 or is_turned(problem, parts)


def is_turned(problem: ConvProblem, parts: int) -> bool:
    """Whether taps of a channel are contiguous in the weight, channels of a tap in the parts, and both are enough for
    programs that transpose."""
    taps, (_, along_c, *_) = prod(problem.taps), problem.w.strides
    return (
        1 < taps <= min(along_c, _MOST_TAPS)
        and problem.w.shape[1] >= _TURNED_TILE // _MOST_TAPS
        and not problem.epilogue.bias
        and _is_many(problem, parts)
    )


def _sums(problem: ConvProblem) -> int:
    """Of one part."""
    return problem.w.numel + problem.k * problem.epilogue.bias


def _is_many(problem: ConvProblem, parts: int) -> bool:
    return _sums(problem) >= _MANY_SUMS and parts <= 4 * _MOST_AHEAD


def _turned_tile(problem: ConvProblem) -> tuple[int, int]:
    """Taps and channels of a program."""
    taps = power_of_two(prod(problem.taps))
    return taps, min(_TURNED_TILE // taps, power_of_two(problem.w.shape[1]))


def _tile(problem: ConvProblem, parts: int) -> tuple[int, int, int]:
    """Parts read at a time, loads in flight, and sums of each."""
    if _is_many(problem, parts):
        return 1, min(parts, _MOST_AHEAD), _BLOCK_OF_MANY
    rows = min(_MOST_ROWS, power_of_two(parts))
    return rows, 1, min(max(_TILE // rows, _LEAST_BLOCK), _MOST_BLOCK)


# Tensor cores sum a part in fp16, bf16 or TF32 without rounding, but truncate at 2^-24 of the sum for each 16 pixels:
# with so many pixels that is at most a quarter of fp16's roundoff.
MOST_PIXELS_OF_A_PART = 2**15
# Blocks per multiprocessor. With numbers between these, some multiprocessors would wait for others.
BLOCKS_EACH = (1, 2, 3, 4, 6, 8)

Tile = TypeVar("Tile")


def promising(partings: Iterable[Iterable[Tile]], taken: Callable[[Tile], float], count: int) -> list[Tile]:
    """The ``count`` tiles, of tiles with several numbers of parts each, with the least time by ``taken``.

    All are different except the best one, which is included with two numbers of parts: estimates are least certain
    about how well a tile uses a multiprocessor.
    """
    ranked = sorted((sorted(each, key=taken) for each in partings), key=lambda parted: taken(parted[0]))
    return [*ranked[0][:2], *(parted[0] for parted in ranked[1:])][:count]


def sum_call(problem: ConvProblem, parts: int) -> KernelCall:
    """The launch that follows the kernel that writes ``parts`` parts."""
    from convwright.backends.triton.parts.kernel import sum_of_parts, turned_sum_of_parts

    dtype = problem.dtype
    pointers = {"sums": WORKSPACE, "dw": (dtype.value, problem.w.alignment)}
    values: dict[str, object] = {**sum_constants(problem, parts)}
    if is_turned(problem, parts):
        return KernelCall(turned_sum_of_parts, pointers, values, sum_blocks(problem, parts), SUM_WARPS, 1)
    if problem.epilogue.bias:
        pointers["db"] = (dtype.value, dtype.nbytes)
    else:
        values["db"] = None
    return KernelCall(sum_of_parts, pointers, values, sum_blocks(problem, parts), SUM_WARPS, 1)
