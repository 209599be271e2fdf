"""The product of one tap if each channel is convolved by itself: elementwise, on views, without copies."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright.backends.reference.operands import by_tap, wide
from convwright.backends.reference.taps import Tap, taps
from convwright.core.direction import Direction
from convwright.core.once import once
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec

Tensors = dict[str, Tensor]


class Depthwise:
    """One multiply-add of all images and channels per tap.

    16-bit operands are first copied to fp32, the dtype of the sums.
    """

    def __init__(self, problem: ConvProblem) -> None:
        self.problem = problem
        self.dtype = wide(problem.dtype)
        self.specs = self._specs()

    @once
    def taps(self) -> tuple[Tap, ...]:
        return taps(self.problem)  # there may be thousands, and an offer needs none

    def forward(self, x: Tensor, w: Tensor, sums: Tensor, buffers: Tensors) -> None:
        x = _widened(x, buffers, "x")
        for tap in self.taps:
            sums[tap.y].addcmul_(x[tap.x], self._factors(w[tap.stored]))

    def backward_data(self, dy: Tensor, w: Tensor, sums: Tensor, buffers: Tensors) -> None:
        dy = _widened(dy, buffers, "y")
        for tap in self.taps:
            sums[tap.x].addcmul_(dy[tap.y], self._factors(w[tap.stored]))

    def backward_weight(self, x: Tensor, dy: Tensor, sums: Tensor, buffers: Tensors) -> None:
        x, dy = _widened(x, buffers, "x"), _widened(dy, buffers, "y")
        dw = by_tap(sums, self.problem.groups)[..., 0, 0]
        for tap in self.taps:
            products = self._like(dy[tap.y], buffers["products"])
            torch.mul(x[tap.x], dy[tap.y], out=products)
            torch.sum(products, (0, *range(2, products.dim())), out=dw[tap.stored])

    def _factors(self, w: Tensor) -> Tensor:
        """The weights of a tap (C, 1, 1), to be broadcast to (N, C, positions…)."""
        return w.view(-1, *[1] * self.problem.rank)

    def _like(self, met: Tensor, memory: Tensor) -> Tensor:
        """The beginning of ``memory`` in the shape of ``met``, in the memory order of dy, which is faster."""
        images, channels, *positions = met.shape
        memory = memory[: met.numel()]
        if self.problem.y.layout is Layout.NHWC:
            return memory.view(images, *positions, channels).movedim(-1, 1)
        return memory.view(met.shape)

    def _specs(self) -> dict[str, TensorSpec]:
        problem, needed = self.problem, {}
        if problem.dtype is not self.dtype:
            read = {
                Direction.FORWARD: {"x": problem.x},
                Direction.BACKWARD_DATA: {"y": problem.y},
                Direction.BACKWARD_WEIGHT: {"x": problem.x, "y": problem.y},
            }[problem.direction]
            needed = {name: TensorSpec(spec.shape, self.dtype) for name, spec in read.items()}
            needed["sums"] = TensorSpec(problem.output.shape, self.dtype)
        if problem.direction is Direction.BACKWARD_WEIGHT:
            needed["products"] = TensorSpec((problem.y.numel,), self.dtype)
        return needed


def _widened(operand: Tensor, buffers: Tensors, name: str) -> Tensor:
    return buffers[name].copy_(operand) if name in buffers else operand
