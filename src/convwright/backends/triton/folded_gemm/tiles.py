"""The configurations of products on folded rows of taps, and which few are worth trying on a problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from convwright.backends.triton.folded_gemm.folding import Folding
from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.tiles import tiles_of
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    MOST_WARPS,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.staged_gemm.tiles import shared_bytes
from convwright.backends.triton.staging.algorithms import numbers_of
from convwright.backends.triton.staging.extents import NUMBER_BYTES, SCALE_BYTES
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

# Pixels, channels, warps and stages. Few steps are taken, and what is written takes longest: many small blocks hide it.
_SHAPES = (
    (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3), (256, 32, 8, 3), (256, 64, 8, 3),
    (64, 32, 4, 3), (128, 128, 8, 3), (128, 16, 4, 3), (64, 128, 4, 3),
)  # fmt: skip
_REGISTERS = 128  # of a thread whose numbers need no scales, so that a multiprocessor has four of its warps' blocks
# Of programs that keep the weight. In one stage the rows of a tile are read through the nearest cache, in which
# windows of neighbouring pixels overlap; copies of 16 bytes ahead of time pass it by, and fetch 6 times as much (H100).
_HELD_SHAPES = (
    (128, 64, 8, 1), (64, 64, 4, 1), (128, 64, 4, 1), (64, 32, 4, 1), (128, 32, 8, 1), (256, 64, 8, 1),
    (128, 64, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3),
)  # fmt: skip
_RESERVED_BYTES = 1024  # of shared memory for each block, beyond what it asks for
# Rows of taps, all of which stand in the code.
_MOST_HELD = 11
_MOST_SCALED = 1024  # sums of a warp
_HELD_BYTES_PER_CYCLE, _TIMES_PAST_THE_CACHE = 64, 2


@dataclass(frozen=True, slots=True)
class FoldedTile(Tile):
    """``programs`` keep the weight and take one tile after another; None where each tile has a program of its own."""

    programs: int | None = None


def tiles(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> tuple[FoldedTile, ...]:
    """All that there are for it: a step is one row of taps."""
    folding = Folding.of(problem, algorithm)
    regs = None if folding.scaled else _REGISTERS
    own = [FoldedTile(bm, bn, folding.step, warps, stages, regs) for bm, bn, warps, stages in _SHAPES]
    held = [FoldedTile(bm, bn, folding.step, warps, stages, programs=1) for bm, bn, warps, stages in _HELD_SHAPES]
    # Beside scaled sums stand those of a step and of its low parts: of more than 32 a thread, they spill.
    most = _MOST_SCALED if folding.scaled else inf
    fitting = [tile for tile in held if steps(problem) <= _MOST_HELD and tile.bm * tile.bn <= most * tile.warps]
    return *own, *(held_by(device, tile, problem, algorithm) for tile in fitting)


def held_by(device: DeviceFacts, tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm) -> FoldedTile:
    """With as many programs as multiprocessors have room for, each block of channels as many as the others."""
    columns = -(-problem.k // tile.bn)
    at_once = sm_count(device) * _together(tile, problem, algorithm, device)
    each = min(max(at_once // columns, 1), tiles_of(tile, problem) // columns)
    return replace(tile, programs=each * columns)


def held_bytes(tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm) -> int:
    """Shared memory for rows of tiles, the weight, and either a tile on its way to the output or a step of one that is
    computed again, which in one stage is where the rows were; with the scales of rows."""
    rows, each = steps(problem), numbers_of(algorithm) * tile.bk * NUMBER_BYTES
    again = max(tile.bm * tile.bn * problem.y.dtype.nbytes, (tile.bm + tile.bn) * each)
    scales = rows * tile.stages * tile.bm * SCALE_BYTES if Folding.of(problem, algorithm).scaled else 0
    held, read = rows * each * tile.bn, rows * each * tile.stages * tile.bm
    return held + scales + (max(read, again) if tile.stages == 1 else read + again)


def _together(tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> int:
    """How many programs that keep the weight fit on a multiprocessor."""
    shared_bytes = held_bytes(tile, problem, algorithm) + _RESERVED_BYTES
    return max(1, min((shared_limit(device) + _RESERVED_BYTES) // shared_bytes, MOST_WARPS // tile.warps))


def steps(problem: ConvProblem) -> int:
    """Rows of taps."""
    return prod(problem.taps) // problem.taps[-1]


def best_tiles(
    problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts, *, count: int
) -> tuple[FoldedTile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best first; half of them keep the weight, where some
    can."""
    limit = shared_limit(device)

    def needed(tile: FoldedTile) -> int:
        return shared_bytes(algorithm, tile) if tile.programs is None else held_bytes(tile, problem, algorithm)

    def best(among: Sequence[FoldedTile], most: int) -> list[FoldedTile]:
        return sorted(among, key=lambda tile: cycles(tile, problem, algorithm, device))[:most]

    fitting = [tile for tile in tiles(problem, algorithm, device) if needed(tile) <= limit]
    held = best([tile for tile in fitting if tile.programs is not None], count // 2)
    own = best([tile for tile in fitting if tile.programs is None], count - len(held))
    return tuple(best([*held, *own], count))


def cycles(tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time: good enough to drop what cannot win."""
    sms, folding = sm_count(device), Folding.of(problem, algorithm)
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(algorithm.arithmetic, tile.bm)
    written = tile.bm * tile.bn * problem.y.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    staging = (problem.x.nbytes + folding.nbytes) / (sms * CACHE_BYTES_PER_CYCLE) + MORE_KERNEL_CYCLES
    each = -(-tiles_of(tile, problem) // sms)
    if tile.programs is not None:
        loads = tile.bm * tile.bk * NUMBER_BYTES * folding.each / _HELD_BYTES_PER_CYCLE
        loads *= _TIMES_PAST_THE_CACHE if tile.stages > 1 and folding.whole else 1
        return each * (steps(problem) * (products + loads) + written) + BLOCK_CYCLES + staging
    loads = (tile.bm + tile.bn) * tile.bk * NUMBER_BYTES * folding.each / CACHE_BYTES_PER_CYCLE
    together = max(1, 16 // tile.warps)
    block = steps(problem) * (max(products, loads) + STEP_CYCLES / together) + BLOCK_CYCLES / together
    return each * (block + written) + staging
