"""The configurations of an input's gradient: those of the implicit GEMM, of which it has one for each phase."""

from __future__ import annotations

from convwright.backends.triton.gemm.tiles import Tile, shapes_first, tiles
from convwright.backends.triton.input_gradient.phases import Phase, phases
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MOST_WARPS,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import group_sizes
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem


def best_tiles(
    problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, *, split: bool, count: int
) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best of each shape first."""
    limit, nbytes, all_phases = shared_limit(device), problem.dtype.nbytes, phases(problem)

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, all_phases, arithmetic, device, split=split)

    fitting = [tile for tile in tiles(arithmetic, split=split) if tile.shared_bytes(nbytes, split=split) <= limit]
    return shapes_first(sorted(fitting, key=taken)[:count])


def blocks_of(phase: Phase, problem: ConvProblem, tile: Tile) -> int:
    """How many programs compute a phase."""
    return -(-phase.pixels // tile.bm) * -(-group_sizes(problem)[0] // tile.bn) * problem.groups


def tiled_products(tile: Tile, problem: ConvProblem) -> int:
    """How many products the blocks of all phases multiply, idle ones too."""
    channels = group_sizes(problem)[1]
    return sum(
        blocks_of(phase, problem, tile) * tile.products(tile.steps(channels, phase.taps)) for phase in phases(problem)
    )


def cycles(
    tile: Tile,
    problem: ConvProblem,
    all_phases: tuple[Phase, ...],
    arithmetic: Arithmetic,
    device: DeviceFacts,
    *,
    split: bool,
) -> float:
    """A rough time of all multiprocessors: good enough to drop the tiles that cannot win."""
    sms = sm_count(device)
    blocks = [blocks_of(phase, problem, tile) for phase in all_phases]
    fitting = max(1, shared_limit(device) // tile.shared_bytes(problem.dtype.nbytes, split=split))
    together = min(-(-sum(blocks) // sms), fitting, MOST_WARPS // tile.warps)
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(arithmetic, tile.bm)
    loads = (tile.bm + tile.bn * (1 + split)) * tile.bk * problem.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    step = max(products, loads) + STEP_CYCLES / together
    of_block = [
        tile.steps(group_sizes(problem)[1], phase.taps) * step + BLOCK_CYCLES / together for phase in all_phases
    ]

    # Blocks of the heaviest phases come first. What is lighter fills the gaps that they leave, but makes none of them
    # shorter: the busiest multiprocessor has its share of all, and of the heavy ones whole blocks.
    begun = [sum(blocks[: place + 1]) for place in range(len(blocks))]
    whole = max(-(-count // sms) * cycles for count, cycles in zip(begun, of_block, strict=True))
    return max(whole, sum(count * cycles for count, cycles in zip(blocks, of_block, strict=True)) / sms)
