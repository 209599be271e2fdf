"""The part of an output that one program computes."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.backends.triton.by_role.tile import RoleTile
from convwright.backends.triton.operands import power_of_two
from convwright.backends.triton.pool.walk import Walk

_THREADS_OF_A_WARP = 32
_VECTOR_BYTES = 16
_WARPS = 4
_AREAS = (1024, 512, 2048)
_MOST_COLUMNS = 256


@dataclass(frozen=True, slots=True)
class Tile(RoleTile):
    """``columns`` consecutive elements of the output. With ``rows``, columns of its last dimension and rows of the one
    before."""

    def lanes(self, walk: Walk, place: int) -> int:
        """The number of elements of a dimension that a program has."""
        last = len(walk.dims) - 1
        return {last: self.columns, last - 1: self.rows}.get(place, 1) if self.rows else 1

    def programs(self, walk: Walk) -> int:
        """The number of tiles that cover the output."""
        if not self.rows:
            return -(-walk.problem.y.numel // self.columns)
        count = 1
        for place, dim in enumerate(walk.dims):
            count *= -(-dim.size // self.lanes(walk, place))
        return count


def tiles(walk: Walk) -> list[Tile]:
    """The few tiles that are worth trying, the most promising first. A thread has 16 bytes of the output if its input
    is contiguous too. If windows overlap instead, it has one element, and its neighbours are in other threads."""
    threads = _WARPS * _THREADS_OF_A_WARP
    base = threads * _VECTOR_BYTES // walk.problem.y.dtype.nbytes
    most = max(power_of_two(walk.problem.y.numel), _THREADS_OF_A_WARP)
    sizes = [(base, _WARPS), (base // 2, _WARPS), (2 * base, 2 * _WARPS)]
    if not walk.is_side_by_side:
        sizes = [(threads, _WARPS), (2 * threads, 2 * _WARPS), (base, _WARPS)]
    found = [Tile(0, min(columns, most), warps) for columns, warps in sizes]
    if len(walk.dims) > 1 and min(dim.size for dim in walk.dims[-2:]) > 1:
        columns = min(power_of_two(walk.dims[-1].size), _MOST_COLUMNS)
        rows = power_of_two(walk.dims[-2].size)
        found += [Tile(min(rows, max(area // columns, 1)), columns, _WARPS) for area in _AREAS]
    return list(dict.fromkeys(found))
