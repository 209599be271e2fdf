"""The configurations of products with band matrices, and which few are worth trying on a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MOST_WARPS,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import pair, power_of_two
from convwright.core.device import DeviceFacts
from convwright.core.dtype import native_arithmetic
from convwright.core.problem import ConvProblem

NUMBER_BYTES = 2
MOST_TILES = 8
_LEAST_PIXELS = 16  # of the sum that a product takes at a time
_MOST_TOGETHER = 8  # numbers that a thread reads at once
# Blocks, pixels of all of them, and warps.
_SHAPES = ((128, 64, 4), (128, 128, 4), (128, 256, 8), (256, 64, 8), (256, 128, 8), (64, 128, 4), (64, 64, 4))
_COLUMNS = (8, 16, 32, 64, 128)
_MOST_STAGES = 3
# Of a thread that reads numbers one by one, which go through its registers.
_MOST_SUMS, _WARP = 64, 32
_MOST_READ, _MOST_PACKED_BYTES = 256, 2**27  # pixels of a row, and what the bands of all channels take


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """What one program computes: ``bm`` blocks of ``bp`` rows by ``bq`` columns of a channel's output, which are filled
    up to ``bn`` pixels."""

    bm: int
    bn: int
    bp: int
    bq: int
    warps: int
    stages: int

    def blocks(self, problem: ConvProblem) -> int:
        """Of one channel, in all images."""
        P, Q = pair(problem.y.shape[2:], 1)
        return problem.n * -(-P // self.bp) * -(-Q // self.bq)

    def programs(self, problem: ConvProblem) -> int:
        """Of one channel."""
        return -(-self.blocks(problem) // self.bm)

    def rows(self, problem: ConvProblem) -> int:
        """Of the input, that a block reads."""
        (stride, _), (dilation, _), (R, _) = _window(problem)
        return (self.bp - 1) * stride + (R - 1) * dilation + 1

    def columns(self, problem: ConvProblem) -> int:
        """Of the input, that a block reads of a row, filled up to a power of two."""
        whole, window = _filled(pair(problem.x.shape[2:], 1)[1]), self._window_columns(problem)
        is_whole = self.bq >= pair(problem.y.shape[2:], 1)[1]
        return min(whole, window) if is_whole else window

    def before(self, problem: ConvProblem) -> int:
        """How many pixels are read ahead of the first that a tap reads: so many that a row is read from where many can
        be read at once, or as many fewer as lie outside the image."""
        left = problem.padding[-1][0]
        return -left if self.columns(problem) < self._window_columns(problem) else _aligned(problem)

    def steps(self, problem: ConvProblem) -> list[int]:
        """How many rows each program of one channel multiplies: what is outside the image for all of its blocks is left
        out."""
        (P, _), (H, _), (stride, _) = (
            pair(each, 1) for each in (problem.y.shape[2:], problem.x.shape[2:], problem.stride)
        )
        top = problem.padding[0][0] if problem.rank > 1 else 0
        blocks = self.blocks(problem)
        abreast = blocks // -(-P // self.bp)  # blocks of the same rows
        taken = []
        for first in range(0, blocks, self.bm):
            last = min(first + self.bm, blocks) - 1
            highest, lowest = (at // abreast * self.bp * stride - top for at in (first, last))
            taken.append(max(0, min(self.rows(problem), H - highest) - max(0, -lowest)))
        return taken

    def first(self, problem: ConvProblem) -> int:
        """How many bands are zeros ahead of that of the first row of taps: what the last row of a tile does not read
        of the first that the tile reads."""
        (stride, _), _, _ = _window(problem)
        return (self.bn // self.bq - 1) * stride

    def bands(self, problem: ConvProblem) -> int:
        """Of one channel."""
        return self.first(problem) + self.rows(problem)

    def products(self, problem: ConvProblem) -> int:
        """How many all programs multiply, zeros too."""
        each = self.bm * self.bn * self.columns(problem)
        return each * sum(self.steps(problem)) * problem.k

    def packed_bytes(self, problem: ConvProblem) -> int:
        """Of the bands of all channels."""
        return problem.k * self.bands(problem) * self.bq * self.columns(problem) * NUMBER_BYTES

    def shared_bytes(self, problem: ConvProblem) -> int:
        """An upper bound."""
        read = self.stages * (self.bm + self.bn) * self.columns(problem)
        return max(read, self.bm * self.bn * 2) * NUMBER_BYTES

    def _window_columns(self, problem: ConvProblem) -> int:
        """What the taps of a block reach of a row, filled up."""
        (_, stride), (_, dilation), (_, S) = _window(problem)
        return _filled(_aligned(problem) + (self.bq - 1) * stride + (S - 1) * dilation + 1)


def _filled(pixels: int) -> int:
    return max(power_of_two(pixels), _LEAST_PIXELS)


def _aligned(problem: ConvProblem) -> int:
    """How many pixels lie between one from which many can be read at once and the first that a tap reads."""
    left = problem.padding[-1][0]
    return -left % together(problem)


def together(problem: ConvProblem) -> int:
    """How many neighbours in a row can be read at once, wherever that row lies."""
    x, many = problem.x, _MOST_TOGETHER
    moved = [stride for size, stride in zip(x.shape[:-1], x.strides[:-1], strict=True) if size > 1]
    while many > 1 and (x.alignment % (many * NUMBER_BYTES) or any(each % many for each in (x.shape[-1], *moved))):
        many //= 2
    return many


def best_tiles(problem: ConvProblem, device: DeviceFacts, count: int = MOST_TILES) -> tuple[Tile, ...]:
    """The ``count`` that should be fastest, by estimate, the best first."""
    return tuple(sorted(_tiles(problem, device), key=lambda tile: cycles(tile, problem, device))[:count])


def _tiles(problem: ConvProblem, device: DeviceFacts) -> Iterator[Tile]:
    """All that a multiprocessor has room for; the rows of a tile divide those of the output as evenly as they can."""
    P, Q = pair(problem.y.shape[2:], 1)
    room, one_by_one = shared_limit(device), together(problem) == 1
    for bq in _COLUMNS:
        if bq > _COLUMNS[0] and bq >= 2 * Q:
            break
        for bm, bn, warps in _SHAPES:
            if bn < bq or (one_by_one and bm * bn > _MOST_SUMS * _WARP * warps):
                continue
            most = min(bn // bq, P)
            bp = -(-P // -(-P // most))
            if _is_idle(bn, bp * bq) or Tile(bm, bn, bp, bq, warps, 1).columns(problem) > _MOST_READ:
                continue
            fitting = (Tile(bm, bn, bp, bq, warps, stages) for stages in range(_MOST_STAGES, 0, -1))
            tile = next((each for each in fitting if each.shared_bytes(problem) <= room), None)
            if tile is not None and tile.packed_bytes(problem) <= _MOST_PACKED_BYTES:
                yield tile


def _is_idle(bn: int, pixels: int) -> bool:
    """Whether half of a tile is not filled, where there is one of half its width."""
    return 2 * pixels <= bn > _SHAPES[0][1]


def cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor: good enough to drop the tiles that cannot win."""
    sms, width = sm_count(device), tile.columns(problem)
    rate = products_per_cycle(native_arithmetic(problem.dtype, tf32=False), tile.bm)
    products = tile.bm * tile.bn * width / rate
    loads = (tile.bm + tile.bn) * width * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    together = max(1, min(MOST_WARPS // tile.warps, shared_limit(device) // tile.shared_bytes(problem)))
    written = tile.bm * tile.bp * tile.bq * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    step = max(products, loads) + STEP_CYCLES / together
    each = -(-tile.programs(problem) * problem.k // sms)
    steps = tile.steps(problem)
    return each * (sum(steps) / len(steps) * step + written + BLOCK_CYCLES / together)


def _window(problem: ConvProblem) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Strides, dilations and taps, of rows and columns."""
    return pair(problem.stride, 1), pair(problem.dilation, 1), pair(problem.taps, 1)
