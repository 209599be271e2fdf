"""Products of a tap where each group has one input channel: elementwise, on views, with nothing copied."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright.backends.reference.operands import by_group, by_tap, wide
from convwright.backends.reference.taps import taps
from convwright.core.direction import Direction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec

Tensors = dict[str, Tensor]


class Depthwise:
    """One multiply-add of all images and groups for each tap and each output channel of a group.

    Operands of 16 bits are first copied to fp32, in which the sums are kept.
    """

    def __init__(self, problem: ConvProblem) -> None:
        self.problem = problem
        self.taps = taps(problem)
        self.dtype = wide(problem.dtype)
        self.specs = self._specs()

    def forward(self, x: Tensor, w: Tensor, sums: Tensor, buffers: Tensors) -> None:
        x = _widened(x, buffers, "x")
        for member, y in enumerate(self._members(sums)):
            for tap in self.taps:
                y[tap.y].addcmul_(x[tap.x], self._factors(w[tap.stored], member))

    def backward_data(self, dy: Tensor, w: Tensor, sums: Tensor, buffers: Tensors) -> None:
        for member, dy_member in enumerate(self._members(_widened(dy, buffers, "y"))):
            for tap in self.taps:
                sums[tap.x].addcmul_(dy_member[tap.y], self._factors(w[tap.stored], member))

    def backward_weight(self, x: Tensor, dy: Tensor, sums: Tensor, buffers: Tensors) -> None:
        x = _widened(x, buffers, "x")
        for member, dy_member in enumerate(self._members(_widened(dy, buffers, "y"))):
            dw = by_tap(sums, self.problem.groups)[..., member, 0]
            for tap in self.taps:
                met = dy_member[tap.y]
                products = self._like(met, buffers["products"])
                torch.mul(x[tap.x], met, out=products)
                torch.sum(products, (0, *range(2, products.dim())), out=dw[tap.stored])

    def _members(self, y: Tensor) -> tuple[Tensor, ...]:
        """Views (N, G, positions…) of the first output channel of each group, of the second, …"""
        return by_group(y, self.problem.groups).unbind(2)

    def _factors(self, w: Tensor, member: int) -> Tensor:
        """Of a tap's weights (G, K / G, 1) those of one output channel of each group, beside (N, G, positions…)."""
        return w[:, member].view(-1, *[1] * self.problem.rank)

    def _like(self, met: Tensor, memory: Tensor) -> Tensor:
        """The front of ``memory`` in the shape of ``met`` and, for speed, in the order in which dy lies."""
        images, groups, *positions = met.shape
        memory = memory[: met.numel()]
        if self.problem.y.layout is Layout.NHWC:
            return memory.view(images, *positions, groups).movedim(-1, 1)
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
            members = problem.k // problem.groups
            needed["products"] = TensorSpec((problem.y.numel // members,), self.dtype)
        return needed


def _widened(operand: Tensor, buffers: Tensors, name: str) -> Tensor:
    return buffers[name].copy_(operand) if name in buffers else operand
