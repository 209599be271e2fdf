"""The order in which a kernel visits the output of pooling and its windows."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.kinds.pool import PoolProblem


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of the output: its size, its stride, the input's stride for one step, and its spatial axis (None
    for images and channels)."""

    size: int
    stride: int
    step: int
    axis: int | None = None

    def merged(self, inner: Dim) -> Dim | None:
        """This dimension and the one inside it as one; None if the strides of either operand do not allow it."""
        if (self.axis, inner.axis) != (None, None):
            return None
        if (self.stride, self.step) != (inner.size * inner.stride, inner.size * inner.step):
            return None
        return Dim(self.size * inner.size, inner.stride, inner.step)


@dataclass(frozen=True, slots=True)
class Walk:
    """The dimensions of the output, the outermost in memory first, and the strides of the input's axes."""

    problem: PoolProblem
    dims: tuple[Dim, ...]
    x_strides: tuple[int, ...]

    @classmethod
    def of(cls, problem: PoolProblem) -> Walk:
        """The walk that computes ``problem``."""
        x, y, found = problem.x, problem.y, list[Dim]()
        for place, (size, stride) in enumerate(zip(y.shape, y.strides, strict=True)):
            axis = place - 2 if place > 1 else None
            step = x.strides[place] * (1 if axis is None else problem.stride[axis])
            if size > 1 or axis is not None:
                found.append(Dim(size, stride, step, axis))
        found.sort(key=lambda each: (each.size > 1, -each.stride))
        joined: list[Dim] = []
        for each in found:
            whole = joined[-1].merged(each) if joined else None
            if whole is None:
                joined.append(each)
            else:
                joined[-1] = whole
        return cls(problem, tuple(joined), x.strides[2:])

    @property
    def is_flat(self) -> bool:
        """Whether the output has the walk's order in memory, without gaps."""
        step = 1
        for dim in reversed(self.dims):
            if dim.size > 1 and dim.stride != step:
                return False
            step *= dim.size
        return True

    @property
    def is_side_by_side(self) -> bool:
        """Whether neighbours in the output have adjacent windows, which are then read together."""
        return self.dims[-1].axis is None and self.dims[-1].step == 1

    @property
    def reach(self) -> int:
        """More than the largest absolute offset, inside or outside an operand."""
        windows = sum(
            (axis.out * axis.stride + 2 * axis.reach) * stride
            for axis, stride in zip(self.problem.axes, self.x_strides, strict=True)
        )
        outer = sum(dim.size * dim.step for dim in self.dims if dim.axis is None)
        written = sum(dim.size * dim.stride for dim in self.dims)
        return max(windows + outer, written, self.problem.y.numel)
