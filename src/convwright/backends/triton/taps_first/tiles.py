"""The configurations of the kernels that sum up taps first, and which few are worth trying on a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.multiprocessor import CACHE_BYTES_PER_CYCLE, MORE_KERNEL_CYCLES, REGISTERS, sm_count
from convwright.backends.triton.operands import power_of_two
from convwright.backends.triton.sweep import AT_ONCE_BYTES, Sweep
from convwright.core.device import DeviceFacts

MOST_TILES = 8
MOST_SUMS = 32  # of a pixel
SUM_BYTES = 4
_LANES = 32
_PIXELS, _WARPS, _AHEAD, _PARTS = (2, 4, 8), (1, 2, 4, 8), (2, 3, 4, 5, 8, 16), (1, 2, 4, 8, 16)
_MOST_REGISTERS, _OTHER_REGISTERS = 168, 24
_MOST_WEIGHTS_AHEAD = 48
_MOST_WARPS, _SCHEDULERS = 64, 4  # of a multiprocessor
_LINE_BYTES, _WAITING_CYCLES, _STARTING_CYCLES = 128, 900, 500
_ENOUGH_BYTES = 32 * 2**10  # on their way to a multiprocessor keep its share of memory busy


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """A thread sums up the channels of so many ``pixels``, divided into ``parts``, and reads ``ahead`` of them before
    it needs the first."""

    pixels: int
    warps: int
    ahead: int
    parts: int

    @property
    def block(self) -> int:
        """Pixels of a program."""
        return _LANES * self.warps * self.pixels

    def blocks(self, sweep: Sweep) -> int:
        rows = Rows.of(self, sweep)
        depth, high, columns = sweep.tracks
        below = -(-depth.read * high.read // (self.block // rows.width))
        return sweep.read.shape[0] * sweep.groups * self.parts * below * -(-columns.written // rows.columns)

    def sums_bytes(self, sweep: Sweep) -> int:
        """Of the workspace: a number for each row of taps, and each output of a row of pixels."""
        depth, high, columns = sweep.tracks
        rows_of_taps = sweep.outputs * depth.most_taps * high.most_taps
        rows = sweep.read.shape[0] * sweep.groups * depth.read * high.read
        return self.parts * rows * rows_of_taps * columns.written * SUM_BYTES


@dataclass(frozen=True, slots=True)
class Rows:
    """Of a block: how ``width`` its rows are, how many ``columns`` of the output each has, and how far ``before`` the
    first of these its first pixel lies."""

    width: int
    columns: int
    before: int

    @classmethod
    def of(cls, tile: Tile, sweep: Sweep) -> Rows:
        columns = sweep.tracks[2]
        whole = power_of_two(max(columns.read, columns.written))
        if whole <= tile.block:
            return cls(whole, columns.written, 0)
        window, together = columns.phases[0], AT_ONCE_BYTES
        before = -(-window.before // together) * together
        reached = (window.taps - 1) * columns.dilation + before - window.before
        return cls(tile.block, max(tile.block - reached, 0) // columns.stride // together * together, before)


def sums_of(sweep: Sweep) -> int:
    """Of each pixel: one for each tap and each output channel of a group."""
    return sweep.outputs * prod(track.most_taps for track in sweep.tracks)


def best_tiles(sweep: Sweep, device: DeviceFacts, count: int = MOST_TILES) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best first."""
    return tuple(sorted(tiles(sweep), key=lambda tile: cycles(tile, sweep, device))[:count])


def tiles(sweep: Sweep) -> Iterator[Tile]:
    """All that serve."""
    columns = sweep.tracks[2]
    for pixels, warps, ahead, parts in product(_PIXELS, _WARPS, _AHEAD, _PARTS):
        tile = Tile(pixels, warps, ahead, parts)
        at_once = pixels * sweep.read.dtype.nbytes <= 2 * AT_ONCE_BYTES
        if not at_once or parts * ahead > sweep.inputs or _registers(tile, sweep) > _MOST_REGISTERS:
            continue
        # Where a row is wider than a block, what the taps of two blocks share is read by both.
        rows = Rows.of(tile, sweep)
        if rows.columns == columns.written or 2 * rows.columns * columns.stride >= tile.block:
            yield tile


def _registers(tile: Tile, sweep: Sweep) -> int:
    weights = tile.ahead * sums_of(sweep)
    return tile.pixels * (sums_of(sweep) + 2 * tile.ahead) + weights * keeps(tile, sweep) + _OTHER_REGISTERS


def keeps(tile: Tile, sweep: Sweep) -> bool:
    """Whether the weights of the channels that are read ahead are, too."""
    return tile.ahead * sums_of(sweep) <= _MOST_WEIGHTS_AHEAD


def cycles(tile: Tile, sweep: Sweep, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor: good enough to drop the tiles that cannot win."""
    nbytes, sums, channels = sweep.read.dtype.nbytes, sums_of(sweep), -(-sweep.inputs // tile.parts)
    warps = -(-tile.blocks(sweep) // sm_count(device)) * tile.warps
    together = min(_MOST_WARPS, REGISTERS // (_LANES * _registers(tile, sweep)), warps)
    waves, read = -(-warps // together), _LANES * tile.pixels * nbytes

    steps = -(-channels // tile.ahead)
    instructions = tile.pixels * (sums + (nbytes < SUM_BYTES)) + sums + 2
    issuing = tile.ahead * max(instructions / _SCHEDULERS, read / _LINE_BYTES + sums)
    # What all warps have asked for, against what keeps the memory busy.
    waiting = _WAITING_CYCLES * max(1.0, together * tile.ahead * read / _ENOUGH_BYTES)
    summing = waves * (steps * max(together * issuing, waiting) + _WAITING_CYCLES + _STARTING_CYCLES)
    moved = 2 * tile.sums_bytes(sweep) / (sm_count(device) * CACHE_BYTES_PER_CYCLE)
    return summing + moved + MORE_KERNEL_CYCLES
