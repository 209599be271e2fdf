"""How a kernel walks through an output and its operands, and how much of it one program computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, assert_never

from convwright.backends.triton.operands import power_of_two
from convwright.core.candidate import Candidate, Config
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.expression import Expression, Operand
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class Step:
    """How one operand is read along one dimension: its stride, 0 where it is broadcast; how many of the output's
    elements come before its first; and how many it has, None where it has one for each of the output's."""

    stride: int
    before: int = 0
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of the walk: its size, the output's stride, and a step for each operand that is read."""

    size: int
    stride: int
    steps: tuple[Step, ...]

    def merged(self, inner: Dim) -> Dim | None:
        """This dimension and the one inside it as one; None where an operand does not lie so."""
        pairs = [(self.stride, inner.stride)]
        for outer_step, inner_step in zip(self.steps, inner.steps, strict=True):
            if any(each.size is not None or each.before for each in (outer_step, inner_step)):
                return None
            pairs.append((outer_step.stride, inner_step.stride))
        if any(outer != inner.size * step for outer, step in pairs):
            return None
        return Dim(self.size * inner.size, inner.stride, inner.steps)


@dataclass(frozen=True, slots=True)
class Walk:
    """The dimensions of an output, the outermost in memory first, with as few of them as possible.

    ``across`` is the one along which an operand lies side by side that does not along the last; None where there is
    none, so that neighbours in the output are neighbours in every operand.
    """

    expression: Expression
    reads: tuple[TensorSpec, ...]
    y: TensorSpec
    dims: tuple[Dim, ...]

    @classmethod
    def of(cls, problem: PointwiseProblem | CopyProblem) -> Walk:
        """The walk that computes ``problem``."""
        if isinstance(problem, PointwiseProblem):
            reads = tuple(spec for _, spec in problem.inputs)
            margins = ((0, 0),) * len(problem.y.shape)
            return cls(problem.expression, reads, problem.y, _dims(problem.y, reads, margins))
        if isinstance(problem, CopyProblem):
            reads = (problem.x,)
            return cls(Operand("x"), reads, problem.y, _dims(problem.y, reads, problem.margins))
        assert_never(problem)

    @property
    def across(self) -> int | None:
        found: dict[int, int] = {}
        for place, spec in enumerate(self.reads):
            last = self.dims[-1].steps[place]
            beside = [dim for dim, each in enumerate(self.dims[:-1]) if each.steps[place].stride == 1]
            if beside and last.stride > 1:
                found[beside[-1]] = found.get(beside[-1], 0) + spec.nbytes
        return max(found, key=lambda dim: found[dim]) if found else None

    def is_flat(self, place: int | None) -> bool:
        """Whether the operand at ``place``, None for the output, lies in the order of the walk without gaps."""
        step = 1
        for dim in reversed(self.dims):
            own = dim.stride if place is None else dim.steps[place].stride
            if own != step or (place is not None and dim.steps[place] != Step(own)):
                return False
            step *= dim.size
        return True


def _dims(y: TensorSpec, reads: tuple[TensorSpec, ...], margins: tuple[tuple[int, int], ...]) -> tuple[Dim, ...]:
    """Dimensions of more than one element, in the order of the output's memory, joined where they can be."""
    found = []
    for dim, (size, stride) in enumerate(zip(y.shape, y.strides, strict=True)):
        if size > 1:
            found.append(Dim(size, stride, tuple(_step(spec, dim, size, margins[dim]) for spec in reads)))
        elif margins[dim] != (0, 0):
            # One element of several, or one of zeros: a dimension in which operands do not begin at their first.
            found.append(Dim(1, 0, tuple(_step(spec, dim, size, margins[dim]) for spec in reads)))
    found.sort(key=lambda each: (each.size > 1, -each.stride))
    joined: list[Dim] = []
    for each in found:
        whole = joined[-1].merged(each) if joined else None
        if whole is None:
            joined.append(each)
        else:
            joined[-1] = whole
    return tuple(joined) or (Dim(1, 1, tuple(Step(0) for _ in reads)),)


def _step(spec: TensorSpec, dim: int, size: int, margin: tuple[int, int]) -> Step:
    if margin != (0, 0):
        padded = margin[0] > 0 or margin[1] > 0
        # Where elements are only left out, every place of the output has one.
        return Step(spec.strides[dim], margin[0], spec.shape[dim] if padded else None)
    return Step(spec.strides[dim] if spec.shape[dim] > 1 else 0)


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
