"""The part of an output that one program computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Self

from convwright.backends.triton.by_role.tile import RoleTile, launches
from convwright.backends.triton.elementwise.walk import Walk
from convwright.backends.triton.operands import power_of_two
from convwright.core.candidate import Candidate, Config

_THREADS_OF_A_WARP = 32
_VECTOR_BYTES = 16
_WARPS = 4
# Elements of two-dimensional tiles, the most promising first.
_AREAS = (2048, 4096, 1024)
_SQUARES = ((64, 64), (32, 32), (32, 128), (128, 32))
_MOST_COLUMNS = 1024
# A program keeps a row of up to so many elements in registers: 64 elements of an operand in each of 512 threads.
_MOST_OF_A_ROW = 2**15
# The elements of longer rows that a program has at a time, so that each thread has several loads in flight, and its
# warps.
_PARTS_OF_ROWS = ((8192, 16), (16384, 16), (4096, 8))
# With fewer programs, multiprocessors of a large GPU are idle, so several programs share a row.
_ENOUGH_PROGRAMS = 512
# Memory transfers have this size. If fewer bytes of a row are contiguous, unused bytes are transferred too.
_SECTOR_BYTES = 32
_SIDE_BY_SIDE = (32, 64, 16)
_ELEMENTS_OF_A_WARP, _MOST_WARPS = 512, 16


@dataclass(frozen=True, slots=True)
class Tile(RoleTile):
    """``columns`` consecutive elements of the output. With ``rows``, columns of its last dimension; rows are along the
    dimension across which an operand is read, or else along the last but one.

    If rows are reduced, a program has whole rows in its columns, and ``rows`` of them. A longer row is computed piece
    by piece, or divided into ``parts``: then one kernel follows another, so that all parts are reduced before a result
    is needed.
    """

    parts: int = 1
    launches: int = 1

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        """The tile of a candidate."""
        config = dict(candidate.config)
        rows, columns, parts = int(config.get("rows", 0)), int(config["columns"]), int(config.get("parts", 1))
        return cls(rows, columns, int(config["warps"]), parts, launches(candidate))

    @property
    def config(self) -> Config:
        rows = (("rows", self.rows),) if self.rows else ()
        shared = (("parts", self.parts), ("launches", self.launches)) if self.parts > 1 else ()
        return (*rows, ("columns", self.columns), ("warps", self.warps), *shared)

    def cuts_rows(self, walk: Walk) -> bool:
        """Whether a program has only a piece of a row at a time."""
        return walk.row > 0 and walk.row_size > self.columns

    def part_size(self, walk: Walk) -> int:
        """Elements of a row in one part, in whole tiles."""
        return -(-walk.row_size // (self.parts * self.columns)) * self.columns

    def fills_rows(self, walk: Walk) -> bool:
        """Whether all elements of its parts are in a row."""
        return walk.row_size == self.parts * self.part_size(walk)

    def parts_of(self, walk: Walk, launch: int) -> int:
        """Programs that share a row in a launch. The last launch, if it has one element per row, has one program."""
        return 1 if walk.is_reduced and launch == len(walk.levels) else self.parts

    def workspace_bytes(self, walk: Walk) -> int:
        """Bytes of the parts of all reductions, in fp32."""
        rows, reductions = prod(dim.size for dim in walk.dims[: walk.outer + 1]), sum(map(len, walk.levels))
        return 4 * rows * reductions * self.parts if self.parts > 1 else 0

    def programs(self, walk: Walk) -> int:
        """The number of tiles that cover the output."""
        if not self.rows:
            return -(-walk.y.numel // self.columns)
        row_dim, count = rows_of(walk), 1
        for place, dim in enumerate(walk.dims[: walk.outer + 1] if walk.row else walk.dims):
            size = {row_dim: self.rows, len(walk.dims) - 1: self.columns}.get(place, 1)
            count *= -(-dim.size // size)
        return count


def rows_of(walk: Walk) -> int:
    """The dimension along which a tile has rows."""
    if walk.row:
        return walk.outer
    return len(walk.dims) - 2 if walk.across is None else walk.across


def tiles(walk: Walk) -> list[Tile]:
    """The few tiles that are worth trying, the most promising first."""
    if walk.row:
        return _whole_rows(walk) if walk.row_size <= _MOST_OF_A_ROW else _parts_of_rows(walk)
    if len(walk.dims) < 2:
        return _flat(walk)
    return [*_crossing(walk), *_flat(walk)[:1]] if walk.across is not None else [*_flat(walk), *_in_rows(walk)]


def _flat(walk: Walk) -> list[Tile]:
    """Sizes with which each thread reads 16 bytes at a time, once, twice or four times."""
    least = min(spec.dtype.nbytes for spec in (walk.y, *walk.reads))
    base = _WARPS * _THREADS_OF_A_WARP * _VECTOR_BYTES // least
    most = max(power_of_two(walk.y.numel), _THREADS_OF_A_WARP)
    sizes = [(base, _WARPS), (2 * base, _WARPS), (4 * base, 2 * _WARPS), (base // 2, _WARPS)]
    return list(dict.fromkeys(Tile(0, min(columns, most), warps) for columns, warps in sizes))


def _in_rows(walk: Walk) -> list[Tile]:
    columns = min(power_of_two(walk.dims[-1].size), _MOST_COLUMNS)
    rows = power_of_two(walk.dims[rows_of(walk)].size)
    return list(dict.fromkeys(Tile(min(rows, max(area // columns, 1)), columns, _WARPS) for area in _AREAS))


def _whole_rows(walk: Walk) -> list[Tile]:
    """Few rows of many elements, or many rows of few. Of rows that are adjacent in memory, enough to fill transfers."""
    columns, most = power_of_two(walk.row_size), power_of_two(walk.dims[walk.outer].size)
    counts = [max(area // columns, 1) for area in _AREAS]
    if walk.is_side_by_side:
        counts = [count for count in _SIDE_BY_SIDE if count * columns <= _MOST_OF_A_ROW] + counts[:1]
    heights = dict.fromkeys(min(count, most) for count in counts)
    return [Tile(rows, columns, min(max(rows * columns // _ELEMENTS_OF_A_WARP, 1), _MOST_WARPS)) for rows in heights]


def _parts_of_rows(walk: Walk) -> list[Tile]:
    """Parts of one row, or of more if adjacent rows share transfers. If rows are few, several programs share one."""
    run_bytes = walk.dims[-1].size * min(spec.dtype.nbytes for spec in walk.reads)
    together = walk.is_side_by_side or run_bytes < _SECTOR_BYTES
    rows = min(power_of_two(walk.dims[walk.outer].size), _SIDE_BY_SIDE[0]) if together else 1
    tiles = [Tile(rows, area // rows, warps) for area, warps in _PARTS_OF_ROWS]
    return list(dict.fromkeys([*(_shared(tile, walk) for tile in tiles), tiles[0]]))


def _shared(tile: Tile, walk: Walk) -> Tile:
    """The tile with enough parts of a row to have enough programs."""
    most = min(_ENOUGH_PROGRAMS // tile.programs(walk), walk.row_size // tile.columns)
    return replace(tile, parts=2 ** (most.bit_length() - 1), launches=len(walk.levels) + 1) if most > 1 else tile


def _crossing(walk: Walk) -> list[Tile]:
    """Squares, or, if a dimension is short, rectangles that are longer along the other."""
    columns, rows = power_of_two(walk.dims[-1].size), power_of_two(walk.dims[rows_of(walk)].size)
    found = []
    for high, wide in _SQUARES:
        width, height = min(wide, columns), min(high, rows)
        if width < wide:
            height = min(high * wide // width, rows)
        elif height < high:
            width = min(high * wide // height, columns)
        found.append(Tile(height, width, _WARPS))
    return list(dict.fromkeys(found))
