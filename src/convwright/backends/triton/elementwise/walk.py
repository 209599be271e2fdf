"""The order in which a kernel visits an output and its operands, for any strides."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import assert_never

from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.expression import Apply, Expression, Operand, reductions
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class Step:
    """An operand's elements along one dimension: the stride (0 if broadcast), the number of the output's elements
    before its first, and its number of elements (None if equal to the output's)."""

    stride: int
    before: int = 0
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of the walk: its size, the output's stride, and a step for each operand."""

    size: int
    stride: int
    steps: tuple[Step, ...]

    def merged(self, inner: Dim) -> Dim | None:
        """This dimension and the one inside it as one; None if an operand's strides do not allow it."""
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
    """The dimensions of an output, the outermost in memory first, merged where possible.

    ``across`` is a dimension along which some operand is contiguous that is not contiguous along the last; None if
    there is none, so that neighbours in the output are neighbours in every operand.

    If rows are reduced, the last ``row`` dimensions are inside a row, and there is at least one before them. An output
    with one element per row has strides of 0 there.
    """

    expression: Expression
    reads: tuple[TensorSpec, ...]
    y: TensorSpec
    dims: tuple[Dim, ...]
    row: int = 0

    @classmethod
    def of(cls, problem: PointwiseProblem | CopyProblem) -> Walk:
        """The walk that computes ``problem``."""
        if isinstance(problem, PointwiseProblem):
            problem = problem.ungrouped
            reads = tuple(spec for _, spec in problem.inputs)
            if problem.row:
                outer, row = _rows(problem, reads)
                return cls(problem.expression, reads, problem.y, (*outer, *row), len(row))
            margins = ((0, 0),) * len(problem.y.shape)
            return cls(problem.expression, reads, problem.y, _dims(problem.y, reads, margins))
        if isinstance(problem, CopyProblem):
            reads = (problem.x,)
            return cls(Operand("x"), reads, problem.y, _dims(problem.y, reads, problem.margins))
        assert_never(problem)

    @property
    def outer(self) -> int:
        """The innermost dimension that is not inside a row."""
        return len(self.dims) - self.row - 1

    @property
    def row_size(self) -> int:
        """Elements of a row."""
        return prod(dim.size for dim in self.dims[self.outer + 1 :])

    @property
    def is_reduced(self) -> bool:
        """Whether the output has one element per row."""
        return self.row > 0 and not any(dim.stride for dim in self.dims[self.outer + 1 :])

    @property
    def levels(self) -> tuple[tuple[Apply, ...], ...]:
        """The reductions by level: first those that need no other, then those that need these, and so on."""
        found, left = list[tuple[Apply, ...]](), reductions(self.expression)
        while left:
            found.append(tuple(step for step in left if not set(reductions(step.arguments[0])) & {*left}))
            left = tuple(step for step in left if step not in found[-1])
        return tuple(found)

    @property
    def is_side_by_side(self) -> bool:
        """Whether most operands are contiguous across rows, and not inside a row."""
        inside, between = 0, 0
        for place, spec in enumerate(self.reads):
            inside += spec.nbytes * (self.dims[-1].steps[place].stride == 1)
            between += spec.nbytes * (self.dims[self.outer].steps[place].stride == 1)
        return between > inside

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
        """Whether the operand at ``place`` (None for the output) has the walk's order in memory, without gaps."""
        step = 1
        for dim in reversed(self.dims):
            own = dim.stride if place is None else dim.steps[place].stride
            if own != step or (place is not None and dim.steps[place] != Step(own)):
                return False
            step *= dim.size
        return True


def _dims(y: TensorSpec, reads: tuple[TensorSpec, ...], margins: tuple[tuple[int, int], ...]) -> tuple[Dim, ...]:
    """Dimensions of more than one element, in the order of the output's memory, merged where possible."""
    found = []
    for dim, (size, stride) in enumerate(zip(y.shape, y.strides, strict=True)):
        if size > 1:
            found.append(Dim(size, stride, tuple(_step(spec, dim, size, margins[dim]) for spec in reads)))
        elif margins[dim] != (0, 0):
            # One element of several, or one of zeros: an operand does not begin at its first element here.
            found.append(Dim(1, 0, tuple(_step(spec, dim, size, margins[dim]) for spec in reads)))
    found.sort(key=lambda each: (each.size > 1, -each.stride))
    return _joined(found) or (Dim(1, 1, tuple(Step(0) for _ in reads)),)


def _rows(problem: PointwiseProblem, reads: tuple[TensorSpec, ...]) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Dimensions of more than one element outside rows, and those inside a row, merged where possible."""
    outer, row = list[Dim](), list[Dim]()
    for dim, size in enumerate(problem.shape):
        if size > 1:
            stride = problem.y.strides[dim] if problem.y.shape[dim] > 1 else 0
            steps = tuple(_step(spec, dim, size, (0, 0)) for spec in reads)
            (row if dim in problem.row else outer).append(Dim(size, stride, steps))
    for dims in (outer, row):
        dims.sort(key=lambda each: -(each.stride or max(step.stride for step in each.steps)))
    alone = (Dim(1, 0, tuple(Step(0) for _ in reads)),)
    return _joined(outer) or alone, _joined(row) or alone


def _joined(dims: list[Dim]) -> tuple[Dim, ...]:
    joined: list[Dim] = []
    for each in dims:
        whole = joined[-1].merged(each) if joined else None
        if whole is None:
            joined.append(each)
        else:
            joined[-1] = whole
    return tuple(joined)


def _step(spec: TensorSpec, dim: int, size: int, margin: tuple[int, int]) -> Step:
    if margin != (0, 0):
        padded = margin[0] > 0 or margin[1] > 0
        # If elements are only dropped, every element of the output has a source.
        return Step(spec.strides[dim], margin[0], spec.shape[dim] if padded else None)
    return Step(spec.strides[dim] if spec.shape[dim] > 1 else 0)
