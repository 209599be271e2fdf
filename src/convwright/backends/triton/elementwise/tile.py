"""How much of an output one program of a kernel computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from convwright.backends.triton.elementwise.walk import Walk
from convwright.backends.triton.operands import power_of_two
from convwright.core.candidate import Candidate, Config

_THREADS_OF_A_WARP = 32
_VECTOR_BYTES = 16
_WARPS = 4
# Elements of tiles with two dimensions, the first one the most promising.
_AREAS = (2048, 4096, 1024)
_SQUARES = ((64, 64), (32, 32), (32, 128), (128, 32))
_MOST_COLUMNS = 1024


@dataclass(frozen=True, slots=True)
class Tile:
    """``columns`` elements of the output one after the other, or of its last dimension where there are ``rows``: those
    lie along the dimension across which an operand is read, or else along the one before the last."""

    rows: int
    columns: int
    warps: int

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        """The tile of a candidate."""
        config = dict(candidate.config)
        return cls(int(config.get("rows", 0)), int(config["columns"]), int(config["warps"]))

    @property
    def config(self) -> Config:
        rows = (("rows", self.rows),) if self.rows else ()
        return (*rows, ("columns", self.columns), ("warps", self.warps))

    def programs(self, walk: Walk) -> int:
        """How many of them cover the output."""
        if not self.rows:
            return -(-walk.y.numel // self.columns)
        row_dim, count = rows_of(walk), 1
        for place, dim in enumerate(walk.dims):
            size = {row_dim: self.rows, len(walk.dims) - 1: self.columns}.get(place, 1)
            count *= -(-dim.size // size)
        return count


def rows_of(walk: Walk) -> int:
    """The dimension along which a tile has rows."""
    return len(walk.dims) - 2 if walk.across is None else walk.across


def tiles(walk: Walk) -> list[Tile]:
    """The few that are worth trying, the most promising first."""
    if len(walk.dims) < 2:
        return _flat(walk)
    return [*_crossing(walk), *_flat(walk)[:1]] if walk.across is not None else [*_flat(walk), *_in_rows(walk)]


def _flat(walk: Walk) -> list[Tile]:
    """So many elements that each thread reads 16 bytes at a time, once, twice or four times."""
    least = min(spec.dtype.nbytes for spec in (walk.y, *walk.reads))
    base = _WARPS * _THREADS_OF_A_WARP * _VECTOR_BYTES // least
    most = max(power_of_two(walk.y.numel), _THREADS_OF_A_WARP)
    sizes = [(base, _WARPS), (2 * base, _WARPS), (4 * base, 2 * _WARPS), (base // 2, _WARPS)]
    return list(dict.fromkeys(Tile(0, min(columns, most), warps) for columns, warps in sizes))


def _in_rows(walk: Walk) -> list[Tile]:
    columns = min(power_of_two(walk.dims[-1].size), _MOST_COLUMNS)
    rows = power_of_two(walk.dims[rows_of(walk)].size)
    return list(dict.fromkeys(Tile(min(rows, max(area // columns, 1)), columns, _WARPS) for area in _AREAS))


def _crossing(walk: Walk) -> list[Tile]:
    """Squares, or what is left of them where a dimension is short, with more of the other."""
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
