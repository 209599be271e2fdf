"""The configurations of products on a staged input, and which few are worth trying on a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.gemm.tiles import Tile, shapes_first
from convwright.backends.triton.implicit_gemm.tiles import sums_bytes, tiles_of
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    parts_that_fill,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import group_sizes
from convwright.backends.triton.staged_gemm.algorithms import SCALED, SPLIT
from convwright.backends.triton.staged_gemm.staging import Staging
from convwright.backends.triton.staging.algorithms import numbers_of
from convwright.backends.triton.staging.estimates import blocks_together, loaded_bytes, step_cycles
from convwright.backends.triton.staging.extents import padded
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

# Of parts a thread holds three tiles of sums, so larger ones spill. Of 64x64 three blocks fit on a multiprocessor with
# two stages, two with three.
_SPLIT = (
    Tile(128, 128, 64, 8, 3), Tile(128, 64, 64, 8, 2), Tile(128, 64, 64, 8, 3), Tile(64, 128, 64, 4, 3),
    Tile(64, 64, 64, 4, 2), Tile(64, 64, 64, 4, 3), Tile(64, 32, 64, 4, 3), Tile(64, 16, 64, 4, 3),
    Tile(128, 64, 32, 8, 4), Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4), Tile(64, 16, 32, 4, 4),
)  # fmt: skip
_SCALED = (
    Tile(128, 128, 128, 8, 3), Tile(128, 128, 64, 8, 4), Tile(128, 128, 64, 8, 3), Tile(256, 64, 64, 8, 4),
    Tile(128, 64, 128, 4, 3), Tile(128, 64, 64, 4, 4), Tile(64, 128, 128, 4, 3), Tile(64, 128, 64, 4, 4),
    Tile(64, 64, 128, 4, 3), Tile(64, 64, 64, 4, 4), Tile(64, 32, 64, 4, 4), Tile(64, 16, 64, 4, 4),
    Tile(128, 64, 32, 4, 4), Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4),
)  # fmt: skip
_TILES = {SPLIT: _SPLIT, SCALED: _SCALED}
_FEWEST_STEPS_OF_A_PART = 4
_ROUNDS = (1, 2, 3, 4)  # of blocks, of which parts fill the last one too
_MOST_SUMS_BYTES = 2**26


def tiles(algorithm: Algorithm) -> tuple[Tile, ...]:
    """All that there are for it."""
    return _TILES[algorithm]


def shared_bytes(algorithm: Algorithm, tile: Tile) -> int:
    return tile.stages * loaded_bytes(tile.bm, tile.bn, tile.bk, algorithm)


def best_tiles(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts, *, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best of each shape first; some in parts where
    multiprocessors would be idle."""
    limit = shared_limit(device)

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, algorithm, device)

    whole = [tile for tile in tiles(algorithm) if shared_bytes(algorithm, tile) <= limit]
    partings = [list(_parted(tile, problem, algorithm, device)) for tile in whole]
    parted = [min(each, key=taken) for each in partings if each]
    best = sorted(whole, key=taken)
    ahead = [tile for tile in sorted(parted, key=taken) if taken(tile) < taken(best[0])][: count // 2]
    return shapes_first(sorted([*best[: count - len(ahead)], *ahead], key=taken))


def _parted(tile: Tile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> Iterator[Tile]:
    """The tile in several parts that fill all multiprocessors."""
    tiles, at_once = tiles_of(tile, problem), together(algorithm, tile, device) * sm_count(device)
    blocks = [rounds * at_once for rounds in _ROUNDS]
    for parts in parts_that_fill(tiles, steps(tile, problem), blocks, fewest_steps=_FEWEST_STEPS_OF_A_PART):
        parted = replace(tile, parts=parts)
        if parts > 1 and sums_bytes(parted, problem) <= _MOST_SUMS_BYTES:
            yield parted


def steps(tile: Tile, problem: ConvProblem) -> int:
    return prod(problem.taps) * padded(group_sizes(problem)[0], tile.bk) // tile.bk


def together(algorithm: Algorithm, tile: Tile, device: DeviceFacts) -> int:
    """How many blocks fit on a multiprocessor."""
    sums = (1 + numbers_of(algorithm)) * tile.bm * tile.bn
    return blocks_together(sums, tile.warps, shared_bytes(algorithm, tile), device)


def cycles(tile: Tile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time of all kernels: good enough to drop what cannot win."""
    sms, parts = sm_count(device), tile.parts or 1
    each = -(-tiles_of(tile, problem) * parts // sms)
    at_once = min(each, together(algorithm, tile, device))
    step = step_cycles(tile.bm, tile.bn, tile.bk, algorithm, at_once)
    block = -(-steps(tile, problem) // parts) * step + BLOCK_CYCLES / at_once
    written = problem.y.nbytes / (sms * CACHE_BYTES_PER_CYCLE)
    return each * block + written + _staging_cycles(tile, problem, algorithm, sms) + _adding_cycles(tile, problem, sms)


def _staging_cycles(tile: Tile, problem: ConvProblem, algorithm: Algorithm, sms: int) -> float:
    moved = problem.x.nbytes + Staging.of(problem, algorithm, tile).nbytes
    return MORE_KERNEL_CYCLES + moved / (sms * CACHE_BYTES_PER_CYCLE)


def _adding_cycles(tile: Tile, problem: ConvProblem, sms: int) -> float:
    """Of the kernel that adds the parts, and of writing what it reads."""
    if not tile.in_parts:
        return 0
    return MORE_KERNEL_CYCLES + (2 * sums_bytes(tile, problem) + problem.y.nbytes) / (sms * CACHE_BYTES_PER_CYCLE)
