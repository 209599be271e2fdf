"""Convolution as one matrix product per group: the textbook algorithm, in one path for 1 to 3 dimensions.

The input is unfolded into columns: one row per channel and tap, one column per image and output position. This copy is
omitted where the input itself has this form in memory, for all images or for each: with one tap, or with one output
position whose taps cover the whole input. Then

    forward           y       = w · columns(x)
    backward weight   dw      = dy · columns(x)ᵀ
    backward data     columns = wᵀ · dy,  and dx is the columns folded back, where they overlap added up
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from torch import Tensor

from convwright.backends.reference.matmul import multiply
from convwright.backends.reference.matrices import Matrices
from convwright.backends.reference.operands import epilogue_, offer
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.tensors import empty

Tensors = dict[str, Tensor]


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """It computes every problem. Workspace holds the columns, and operands that must be padded or are not matrices in
    memory.

    On a GPU, products without a copy are also offered in TF32. With a copy, the copy would dominate.
    """
    matrices = Matrices(problem)
    nbytes, arithmetic = matrices.buffers.nbytes, native_arithmetic(problem.dtype, tf32=False)
    yield offer(problem, "gemm", nbytes, arithmetic=arithmetic)
    if problem.dtype is DType.FP32 and device.kind == "cuda" and not matrices.unfolds and not nbytes:
        yield offer(problem, "gemm", nbytes, config=(("tf32", "on"),), arithmetic=Arithmetic.TF32)


def plan(candidate: Candidate) -> Plan:
    return GemmPlan(candidate)


class GemmPlan:
    """Runs ``reference/gemm``."""

    writes_out = True

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.problem = candidate.problem
        self.matrices = Matrices(candidate.problem)
        self.workspace_bytes = self.matrices.buffers.nbytes
        self._multiply = partial(multiply, tf32=candidate.arithmetic is Arithmetic.TF32)

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight as a stack of matrices, mirrored if the problem is a true convolution."""
        if self.problem.flip:
            weight = weight.flip([*range(2, weight.dim())])
        return weight.reshape(self.matrices.w_shape).contiguous()

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        if out is None:
            out = empty(self.problem.output, first.device)
        buffers = self.matrices.buffers.of(workspace, first.device)
        if self.problem.direction is Direction.FORWARD:
            self._forward(first, second, out, buffers)
            return epilogue_(out, bias, residual, self.problem.epilogue.activation)
        if self.problem.direction is Direction.BACKWARD_DATA:
            return self._backward_data(first, second, out, buffers)
        return self._backward_weight(first, second, out, buffers)

    def _forward(self, x: Tensor, w: Tensor, y: Tensor, buffers: Tensors) -> None:
        w, columns = self.matrices.as_w(w), self._unfold(x, buffers)
        if "y" in buffers:
            self._multiply(w, columns, out=buffers["y"].view(self.matrices.y_shape))
            self.matrices.by_group(y).copy_(buffers["y"])
        else:
            self._multiply(w, columns, out=self.matrices.as_y(y))

    def _backward_data(self, dy: Tensor, w: Tensor, dx: Tensor, buffers: Tensors) -> Tensor:
        w = self.matrices.as_w(w)
        if not self.matrices.unfolds:
            self._multiply(w.mT, self._y_matrix(dy, buffers), out=self.matrices.as_columns(dx))
            return dx
        columns = buffers["columns"]
        self._multiply(w.mT, self._y_matrix(dy, buffers), out=columns.view(self.matrices.columns_shape))
        return self._fold(columns, dx, buffers)

    def _backward_weight(self, x: Tensor, dy: Tensor, dw: Tensor, buffers: Tensors) -> Tensor:
        columns = self._unfold(x, buffers)
        target = buffers.get("w", dw)
        self._multiply(self._y_matrix(dy, buffers), columns.mT, out=target.view(self.matrices.w_shape))
        if self.problem.flip:
            source, result, taps = self.matrices.by_tap(target), self.matrices.by_tap(dw), [*self._taps()]
            for tap, mirrored in zip(taps, reversed(taps), strict=True):
                result[tap].copy_(source[mirrored])
        elif target is not dw:
            dw.copy_(target)
        return dw

    def _unfold(self, x: Tensor, buffers: Tensors) -> Tensor:
        """The columns of ``x``, as a stack of matrices."""
        if not self.matrices.unfolds:
            return self.matrices.as_columns(x)
        if "padded" in buffers:
            padded = buffers["padded"].zero_()
            self.matrices.interior(padded).copy_(x)
            x = padded
        return buffers["columns"].copy_(self.matrices.windows(x)).view(self.matrices.columns_shape)

    def _fold(self, columns: Tensor, dx: Tensor, buffers: Tensors) -> Tensor:
        """Add every column to its input elements. One tap reads no element twice."""
        padded = buffers.get("padded", dx).zero_()
        windows, columns = self.matrices.by_tap(self.matrices.windows(padded)), self.matrices.by_tap(columns)
        for tap in self._taps():
            windows[tap].add_(columns[tap])
        return dx if padded is dx else dx.copy_(self.matrices.interior(padded))

    def _y_matrix(self, dy: Tensor, buffers: Tensors) -> Tensor:
        if "y" not in buffers:
            return self.matrices.as_y(dy)
        return buffers["y"].copy_(self.matrices.by_group(dy)).view(self.matrices.y_shape)

    def _taps(self) -> Iterator[tuple[int, ...]]:
        return product(*map(range, self.problem.taps))
