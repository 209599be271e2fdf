"""The configurations of a weight's gradient on staged operands, and which few are worth trying on a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    parts_that_fill,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import group_sizes, pixel_count
from convwright.backends.triton.parts.choice import promising
from convwright.backends.triton.parts.sums import sum_cycles
from convwright.backends.triton.staged_weight_gradient.algorithms import SPLIT
from convwright.backends.triton.staged_weight_gradient.staging import staged_bytes
from convwright.backends.triton.staging.estimates import blocks_together, loaded_bytes, step_cycles
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem

# Tensor cores cut what they add to a running sum, at 2^-24 of it for each 16 pixels: with so many that shows less than
# that numbers are rounded to 11 bits.
_MOST_PIXELS_OF_A_PART = 2**15
_BLOCKS_EACH = (1, 2, 3, 4, 5, 6)  # for each multiprocessor: the more, the less of the last ones' time is left idle


@dataclass(frozen=True, slots=True)
class StagedTile(Configuration):
    """What one block computes: ``bm`` input channels of a tap by ``bn`` output channels, ``bk`` pixels at a step, over
    one of ``parts`` of all pixels."""

    bm: int
    bn: int
    bk: int
    parts: int
    warps: int
    stages: int

    def tiles(self, problem: ConvProblem) -> int:
        """How many blocks compute one part."""
        inputs, outputs = group_sizes(problem)
        return prod(problem.taps) * problem.groups * -(-inputs // self.bm) * -(-outputs // self.bn)

    def steps(self, problem: ConvProblem) -> int:
        """Of one part."""
        return -(-pixel_count(problem) // (self.bk * self.parts))

    def products(self, problem: ConvProblem) -> int:
        """How many all blocks multiply, idle ones too."""
        return self.tiles(problem) * self.parts * self.steps(problem) * self.bm * self.bn * self.bk

    def shared_bytes(self, algorithm: Algorithm) -> int:
        return self.stages * loaded_bytes(self.bm, self.bn, self.bk, algorithm)

    def together(self, algorithm: Algorithm, device: DeviceFacts) -> int:
        """How many blocks fit on a multiprocessor."""
        sums = (3 if algorithm is SPLIT else 1) * self.bm * self.bn
        return blocks_together(sums, self.warps, self.shared_bytes(algorithm), device)


def _tile(bm: int, bn: int, bk: int, warps: int, stages: int) -> StagedTile:
    return StagedTile(bm, bn, bk, 1, warps, stages)


_TILES = (
    _tile(128, 128, 64, 8, 3), _tile(128, 64, 64, 8, 2), _tile(128, 64, 64, 8, 3), _tile(64, 128, 64, 4, 3),
    _tile(64, 64, 64, 4, 2), _tile(64, 64, 64, 4, 3), _tile(64, 32, 64, 4, 3), _tile(64, 16, 64, 4, 3),
)  # fmt: skip
_SCALED = (
    _tile(128, 256, 64, 8, 3), _tile(128, 128, 64, 8, 4), _tile(128, 128, 64, 8, 3), _tile(256, 64, 64, 8, 4),
    _tile(128, 64, 64, 4, 4), _tile(64, 128, 64, 4, 4), _tile(64, 64, 64, 4, 4), _tile(64, 32, 64, 4, 4),
    _tile(64, 16, 64, 4, 4),
)  # fmt: skip


def tiles(algorithm: Algorithm) -> tuple[StagedTile, ...]:
    """All that there are for it, in one part."""
    return _TILES if algorithm is SPLIT else _SCALED


def best_configurations(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> tuple[StagedTile, ...]:
    """As many as ``algorithm`` offers that should be fastest, by estimate, the best first."""

    def taken(tile: StagedTile) -> float:
        return cycles(tile, problem, algorithm, device)

    fitting = [
        _parted(tile, problem, algorithm, device)
        for tile in tiles(algorithm)
        if tile.shared_bytes(algorithm) <= shared_limit(device)
    ]
    return tuple(sorted(promising(fitting, taken, algorithm.tiles), key=taken))


def _parted(tile: StagedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> Iterator[StagedTile]:
    """The tile with the numbers of parts that fill all multiprocessors."""
    pixels, blocks = pixel_count(problem), [each * sm_count(device) for each in _BLOCKS_EACH]
    least = 1 if algorithm is SPLIT else -(-pixels // _MOST_PIXELS_OF_A_PART)
    for parts in parts_that_fill(tile.tiles(problem), -(-pixels // tile.bk), blocks, least=least):
        yield replace(tile, parts=parts)


def cycles(tile: StagedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time of all kernels: good enough to drop what cannot win."""
    sms = sm_count(device)
    mine = -(-tile.tiles(problem) * tile.parts // sms)
    at_once = min(mine, tile.together(algorithm, device))
    step = step_cycles(tile.bm, tile.bn, tile.bk, algorithm, at_once)
    busy = mine * (tile.steps(problem) * step + BLOCK_CYCLES / at_once)
    moved = 2 * (problem.x.nbytes + problem.y.nbytes) + staged_bytes(problem, algorithm)
    staging = 2 * MORE_KERNEL_CYCLES + moved / (sms * CACHE_BYTES_PER_CYCLE)
    return busy + staging + sum_cycles(problem, tile.parts, device)
