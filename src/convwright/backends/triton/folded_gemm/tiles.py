"""The configurations of products on folded rows of taps, and which few are worth trying on a problem."""

from __future__ import annotations

from math import prod

from convwright.backends.triton.folded_gemm.folding import Folding
from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.tiles import tiles_of
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.staged_gemm.tiles import shared_bytes
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

# Pixels, channels, warps and stages. Few steps are taken, and what is written takes longest: many small blocks hide it.
_SHAPES = (
    (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3), (256, 32, 8, 3), (256, 64, 8, 3),
    (64, 32, 4, 3), (128, 128, 8, 3), (128, 16, 4, 3), (64, 128, 4, 3),
)  # fmt: skip
_REGISTERS = 128  # of a thread whose numbers need no scales, so that a multiprocessor has four of its warps' blocks


def tiles(problem: ConvProblem, algorithm: Algorithm) -> tuple[Tile, ...]:
    """All that there are for it: a step is one row of taps."""
    folding = Folding.of(problem, algorithm)
    regs = None if folding.scaled else _REGISTERS
    return tuple(Tile(bm, bn, folding.step, warps, stages, regs) for bm, bn, warps, stages in _SHAPES)


def steps(problem: ConvProblem) -> int:
    """Rows of taps."""
    return prod(problem.taps) // problem.taps[-1]


def best_tiles(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts, *, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best first."""
    limit = shared_limit(device)
    fitting = [tile for tile in tiles(problem, algorithm) if shared_bytes(algorithm, tile) <= limit]
    return tuple(sorted(fitting, key=lambda tile: cycles(tile, problem, algorithm, device))[:count])


def cycles(tile: Tile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time: good enough to drop what cannot win."""
    sms, folding = sm_count(device), Folding.of(problem, algorithm)
    each = -(-tiles_of(tile, problem) // sms)
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(algorithm.arithmetic, tile.bm)
    loads = (tile.bm + tile.bn) * tile.bk * 2 * folding.each / CACHE_BYTES_PER_CYCLE
    together = max(1, 16 // tile.warps)
    block = steps(problem) * (max(products, loads) + STEP_CYCLES / together) + BLOCK_CYCLES / together
    written = tile.bm * tile.bn * problem.y.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    staging = (problem.x.nbytes + folding.nbytes) / (sms * CACHE_BYTES_PER_CYCLE) + MORE_KERNEL_CYCLES
    return each * (block + written) + staging
