"""The configurations of products on a staged input, and which few are worth trying on a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from convwright.backends.triton.gemm.tiles import Tile, shapes_first
from convwright.backends.triton.implicit_gemm.tiles import sums_bytes, tiles_of
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    MOST_WARPS,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import group_sizes
from convwright.backends.triton.staged_gemm.staging import Staging, padded
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem

# A thread holds three tiles of sums, so larger ones spill. Of 64x64 three blocks fit on a multiprocessor with two
# stages, two with three.
TILES = (
    Tile(128, 128, 64, 8, 3), Tile(128, 64, 64, 8, 2), Tile(128, 64, 64, 8, 3), Tile(64, 128, 64, 4, 3),
    Tile(64, 64, 64, 4, 2), Tile(64, 64, 64, 4, 3), Tile(64, 32, 64, 4, 3), Tile(64, 16, 64, 4, 3),
    Tile(128, 64, 32, 8, 4), Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4), Tile(64, 16, 32, 4, 4),
)  # fmt: skip
_BYTES = 4  # of a number's two parts
# A 128x128 tile by itself takes 2,700 cycles for a step of 64, and three of 64x64 take as many together (H200): of
# which the loads explain 1,640 and 2,460 where they come at this rate, and this much more passes idle in each block.
_LOADED_BYTES_PER_CYCLE = 40
_IDLE_CYCLES = 700
_REGISTERS, _REGISTERS_BESIDE_SUMS = 65_536, 72
_FEWEST_STEPS_OF_A_PART = 4
_MOST_SUMS_BYTES = 2**26


def shared_bytes(tile: Tile) -> int:
    return tile.stages * (tile.bm + tile.bn) * tile.bk * _BYTES


def best_tiles(problem: ConvProblem, device: DeviceFacts, *, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best of each shape first; some in parts where
    multiprocessors would be idle."""
    limit = shared_limit(device)

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, device)

    whole = [tile for tile in TILES if shared_bytes(tile) <= limit]
    parted = [each for tile in whole for each in _parted(tile, problem, device)]
    best = sorted(whole, key=taken)
    ahead = [tile for tile in sorted(parted, key=taken) if taken(tile) < taken(best[0])][: count // 2]
    return shapes_first(sorted([*best[: count - len(ahead)], *ahead], key=taken))


def _parted(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> Iterator[Tile]:
    """The tile in as many parts as fill all multiprocessors once, none of them without a step."""
    steps = _steps(tile, problem)
    wanted = min(together(tile, device) * sm_count(device) // tiles_of(tile, problem), steps // _FEWEST_STEPS_OF_A_PART)
    if wanted > 1:
        parted = replace(tile, parts=-(-steps // -(-steps // wanted)))
        if sums_bytes(parted, problem) <= _MOST_SUMS_BYTES:
            yield parted


def _steps(tile: Tile, problem: ConvProblem) -> int:
    return prod(problem.taps) * padded(group_sizes(problem)[0], tile.bk) // tile.bk


def together(tile: Tile, device: DeviceFacts) -> int:
    """How many blocks fit on a multiprocessor."""
    registers = 3 * tile.bm * tile.bn // (32 * tile.warps) + _REGISTERS_BESIDE_SUMS
    by_registers = _REGISTERS // (32 * tile.warps * registers)
    return max(1, min(shared_limit(device) // shared_bytes(tile), by_registers, MOST_WARPS // tile.warps))


def cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> float:
    """A rough time of all kernels: good enough to drop what cannot win."""
    sms, parts = sm_count(device), tile.parts or 1
    each = -(-tiles_of(tile, problem) * parts // sms)
    at_once = min(each, together(tile, device))
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(Arithmetic.FP16X3, tile.bm)
    loads = (tile.bm + tile.bn) * tile.bk * _BYTES / _LOADED_BYTES_PER_CYCLE
    busy = max(products, loads)
    step = max(at_once * busy, busy + _IDLE_CYCLES) / at_once
    block = -(-_steps(tile, problem) // parts) * step + BLOCK_CYCLES / at_once
    written = problem.y.nbytes / (sms * CACHE_BYTES_PER_CYCLE)
    return each * block + written + _staging_cycles(tile, problem, sms) + _adding_cycles(tile, problem, sms)


def _staging_cycles(tile: Tile, problem: ConvProblem, sms: int) -> float:
    moved = problem.x.nbytes + Staging.of(problem, tile.bk).nbytes
    return MORE_KERNEL_CYCLES + moved / (sms * CACHE_BYTES_PER_CYCLE)


def _adding_cycles(tile: Tile, problem: ConvProblem, sms: int) -> float:
    """Of the kernel that adds the parts, and of writing what it reads."""
    if not tile.in_parts:
        return 0
    return MORE_KERNEL_CYCLES + (2 * sums_bytes(tile, problem) + problem.y.nbytes) / (sms * CACHE_BYTES_PER_CYCLE)
