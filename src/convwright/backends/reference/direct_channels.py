"""The product of one tap as one matrix product per group, over all channels of the group."""

from __future__ import annotations

from math import prod

from torch import Tensor

from convwright.backends.reference.matmul import multiply, multiply_add
from convwright.backends.reference.matrices import is_matrix
from convwright.backends.reference.operands import by_group, by_tap, wide
from convwright.backends.reference.taps import Tap, all_whole, taps
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.once import once
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides

Tensors = dict[str, Tensor]


class Channels:
    """The input of a tap as a matrix (C/G × NP), with y (K/G × NP) and the tap's weights (K/G × C/G).

    A tap that reads no padding, and whose input is a matrix in memory, is multiplied in place. The input of other taps
    is copied into the window, which holds the columns of one tap at a time.
    """

    def __init__(self, problem: ConvProblem) -> None:
        self.problem = problem
        self.dtype = wide(problem.dtype)
        self.lies_as_matrix = self._lies_as_matrix()
        self.specs = self._specs()

    @once
    def taps(self) -> tuple[Tap, ...]:
        return taps(self.problem)  # there may be thousands, and an offer needs none

    def forward(self, x: Tensor, w: Tensor, sums: Tensor, buffers: Tensors) -> None:
        y = self._matrix(sums)
        for tap in self.taps:
            multiply_add(w[tap.stored], self._read(x, tap, buffers), out=y)

    def backward_data(self, dy: Tensor, w: Tensor, sums: Tensor, buffers: Tensors) -> None:
        y = self._matrix(self._y(dy, buffers))
        for tap in self.taps:
            if self._in_place(tap):
                multiply_add(w[tap.stored].mT, y, out=self._matrix(sums[tap.x]))
            else:
                multiply(w[tap.stored].mT, y, out=self._matrix(buffers["window"]))
                sums[tap.x].add_(buffers["window"][tap.y])

    def backward_weight(self, x: Tensor, dy: Tensor, sums: Tensor, buffers: Tensors) -> None:
        y, product = self._matrix(self._y(dy, buffers)), buffers["product"]
        dw = by_tap(sums, self.problem.groups)
        for tap in self.taps:
            multiply(y, self._read(x, tap, buffers).mT, out=product)
            dw[tap.stored].copy_(product)

    def _read(self, x: Tensor, tap: Tap, buffers: Tensors) -> Tensor:
        """The input of ``tap`` as a stack of matrices, with zeros for outputs whose input is padding."""
        if self._in_place(tap):
            return self._matrix(x[tap.x])
        window = buffers["window"]
        if not tap.whole:
            window.zero_()
        window[tap.y].copy_(x[tap.x])
        return self._matrix(window)

    def _y(self, dy: Tensor, buffers: Tensors) -> Tensor:
        return buffers["y"].copy_(dy) if "y" in buffers else dy

    def _matrix(self, tensor: Tensor) -> Tensor:
        """(N, channels, positions…) as a view (G, channels / G, NP)."""
        grouped = by_group(tensor, self.problem.groups).movedim(0, 2)
        return grouped.view(*grouped.shape[:2], prod(grouped.shape[2:]))

    def _in_place(self, tap: Tap) -> bool:
        return tap.whole and self.lies_as_matrix

    def _specs(self) -> dict[str, TensorSpec]:
        """Only the buffers that the problem needs."""
        problem, direction = self.problem, self.problem.direction
        needed = {}
        if not (self.lies_as_matrix and all_whole(problem)):
            windows = (problem.n, problem.c, *problem.y.shape[2:])
            needed["window"] = self._as_matrix(TensorSpec(windows, self.dtype), problem.x.layout)
        if self.dtype is not problem.y.dtype or not is_matrix(problem.y, 1, problem.k // problem.groups):
            name = "sums" if direction is Direction.FORWARD else "y"
            needed[name] = self._as_matrix(problem.y, problem.y.layout)
        if direction is not Direction.FORWARD and self.dtype is not problem.dtype:
            needed["sums"] = _dense(problem.output, self.dtype)
        if direction is Direction.BACKWARD_WEIGHT:
            shape = (problem.groups, problem.k // problem.groups, problem.c // problem.groups)
            needed["product"] = TensorSpec(shape, self.dtype)
        return needed

    def _as_matrix(self, spec: TensorSpec, layout: Layout) -> TensorSpec:
        """(N, channels, positions…) in a layout in which each group's channels by all other dimensions are a matrix."""
        images, channels, *positions = spec.shape
        strides = dense_strides(spec.shape, Layout.NHWC)
        if layout is not Layout.NHWC:
            outer, inner, *rest = dense_strides((channels, images, *positions))
            strides = (inner, outer, *rest)
        return TensorSpec(spec.shape, self.dtype, strides)

    def _lies_as_matrix(self) -> bool:
        """True if a tap of an unpadded input can be multiplied in place."""
        problem = self.problem
        read = problem.x
        if self.dtype is not read.dtype:
            if problem.direction is not Direction.BACKWARD_DATA:
                return False
            read = _dense(read, self.dtype)
        image, channel, *spatial = read.strides
        steps = (step * stride for step, stride in zip(problem.stride, spatial, strict=True))
        windows = TensorSpec((problem.n, problem.c, *problem.y.shape[2:]), self.dtype, (image, channel, *steps))
        return is_matrix(windows, 1, problem.c // problem.groups)


def _dense(spec: TensorSpec, dtype: DType) -> TensorSpec:
    """The spec without gaps, in its own layout if that has a name."""
    layout = Layout.NHWC if spec.layout is Layout.NHWC else Layout.NCHW
    return TensorSpec(spec.shape, dtype, dense_strides(spec.shape, layout))
