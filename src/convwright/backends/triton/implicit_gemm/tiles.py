"""The configurations of the implicit GEMM: tiles, parts of the sum, and which few are worth trying on a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from convwright.backends.triton.gemm.tiles import Tile, shapes_first, tiles
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    MOST_WARPS,
    STEP_CYCLES,
    parts_that_fill,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import group_sizes, pixel_count
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem

_MOST_STAGES = 6
_FEWEST_STEPS_OF_A_PART = 4
_MOST_SUMS_BYTES = 2**26
# Blocks for each multiprocessor. Between these numbers some of them would wait for others.
_BLOCKS_EACH = (1, 2)
_CYCLES_OF_A_PART = 25  # to add one more
_DOUBT = 1.1  # about the estimates of parts, whose cost is known least
_DOUBT_WHERE_IDLE = 1.7  # beside tiles that leave multiprocessors without a block


def tiles_of(tile: Tile, problem: ConvProblem) -> int:
    """How many blocks compute the whole sum, or one part of it."""
    _, outputs = group_sizes(problem)
    return -(-pixel_count(problem) // tile.bm) * -(-outputs // tile.bn) * problem.groups


def tiled_products(tile: Tile, problem: ConvProblem) -> int:
    """How many products all blocks multiply, idle ones too."""
    return tiles_of(tile, problem) * tile.products(tile.steps(problem.w.shape[1], prod(problem.taps)))


def sums_bytes(tile: Tile, problem: ConvProblem) -> int:
    """What the sums of all parts take, in fp32."""
    return problem.y.numel * 4 * (tile.parts or 0) if tile.in_parts else 0


def best_tiles(
    problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, *, split: bool, count: int
) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best of each shape first.

    At least half of them compute their sums whole. Beside them stand those in parts that should be faster than all of
    these, one where that is in doubt or multiprocessors would be idle, and tiles with more stages, where only those
    hide latency.
    """
    limit, nbytes = shared_limit(device), problem.dtype.nbytes
    fitting = [tile for tile in tiles(arithmetic, split=split) if tile.shared_bytes(nbytes, split=split) <= limit]

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, arithmetic, device, split=split) * (_DOUBT if tile.in_parts else 1)

    whole = sorted(fitting, key=taken)
    parted = sorted((each for tile in fitting for each in _parted(tile, problem, device)), key=taken)
    idle = tiles_of(whole[0], problem) < sm_count(device)
    worth = (_DOUBT_WHERE_IDLE if idle else _DOUBT) * taken(whole[0])
    shapes = {(tile.bm, tile.bn): tile for tile in reversed(parted) if taken(tile) < worth}
    ahead = sorted(shapes.values(), key=taken)
    deeper = [*_deeper(whole[0], problem, device, split)]
    if ahead and taken(ahead[0]) < taken(whole[0]):
        more = [*ahead[:2], *_deeper(ahead[0], problem, device, split), *deeper, *ahead[2:]]
    else:
        more = [*ahead[:1], *deeper]
    more = more[: count // 2]
    return shapes_first(sorted([*whole[: count - len(more)], *more], key=taken))


def _parted(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> Iterator[Tile]:
    """The tile in several parts that fill all multiprocessors."""
    steps = tile.steps(problem.w.shape[1], prod(problem.taps))
    blocks = [each * sm_count(device) for each in _BLOCKS_EACH]
    for parts in parts_that_fill(tiles_of(tile, problem), steps, blocks, fewest_steps=_FEWEST_STEPS_OF_A_PART):
        if parts == 1:
            continue
        parted = replace(tile, parts=parts)
        if _blocks_each(parted, problem, device) == 1:
            parted = replace(parted, regs=None)  # there is no other block that would need them
        if sums_bytes(parted, problem) <= _MOST_SUMS_BYTES:
            yield parted


def _deeper(tile: Tile, problem: ConvProblem, device: DeviceFacts, split: bool) -> Iterator[Tile]:
    """The same with as many stages as fit, where no multiprocessor has a second block."""
    channels, taps = problem.w.shape[1], prod(problem.taps)
    if _blocks_each(tile, problem, device) > 1 or tile.runs_across_taps(channels, taps):
        return  # of a step across taps, numbers are loaded one by one, and no stage ahead
    most = min(_MOST_STAGES, tile.steps_each(channels, taps))
    deeper = [replace(tile, stages=stages) for stages in range(tile.stages + 1, most + 1)]
    fitting = [each for each in deeper if each.shared_bytes(problem.dtype.nbytes, split=split) <= shared_limit(device)]
    yield from fitting[-1:]


def _blocks_together(tile: Tile, problem: ConvProblem, device: DeviceFacts, split: bool) -> int:
    """How many blocks a multiprocessor has at a time."""
    fitting = max(1, shared_limit(device) // tile.shared_bytes(problem.dtype.nbytes, split=split))
    return min(_blocks_each(tile, problem, device), fitting, MOST_WARPS // tile.warps)


def _blocks_each(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> int:
    """How many blocks the busiest multiprocessor has."""
    return -(-tiles_of(tile, problem) * (tile.parts or 1) // sm_count(device))


def cycles(tile: Tile, problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, *, split: bool) -> float:
    """A rough time on the busiest multiprocessor: good enough to drop the tiles that cannot win."""
    together = _blocks_together(tile, problem, device, split)
    steps = tile.steps_each(problem.w.shape[1], prod(problem.taps))
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(arithmetic, tile.bm)
    loads = (tile.bm + tile.bn * (1 + split)) * tile.bk * problem.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    block = steps * (max(products, loads) + STEP_CYCLES / together) + BLOCK_CYCLES / together
    return _blocks_each(tile, problem, device) * block + _adding_cycles(tile, problem, device)


def _adding_cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> float:
    """Of the kernel that adds the parts, and of writing what it reads."""
    if not tile.in_parts:
        return 0
    moved = 2 * sums_bytes(tile, problem) + problem.y.nbytes
    adding = MORE_KERNEL_CYCLES + (tile.parts or 1) * _CYCLES_OF_A_PART
    return adding + moved / (sm_count(device) * CACHE_BYTES_PER_CYCLE)
