"""The gradient of a convolution whose directions are computed by chosen candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from convwright.backends.torch_native import gradients
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.ops.runner import Runner

_aten: Any = torch.ops.aten


class Training:
    """The three directions of one convolution, made ready. A backward runner of None is left to PyTorch.

    ``gradient`` is dy as the backward candidates were chosen for it.
    """

    __slots__ = ("backward_data", "backward_weight", "bias_dims", "forward", "gradient", "problem", "relu")

    def __init__(
        self,
        problem: ConvProblem,
        gradient: TensorSpec,
        forward: Runner,
        backward_data: Runner | None,
        backward_weight: Runner | None,
    ) -> None:
        self.problem = problem
        self.gradient = gradient
        self.forward = forward
        self.backward_data = backward_data
        self.backward_weight = backward_weight
        self.relu = problem.epilogue.activation is Activation.RELU
        self.bias_dims = [0, *range(2, problem.rank + 2)]

    def __call__(
        self, x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, _out: None = None
    ) -> Tensor:
        return _apply(x, w, bias, residual, self)

    def before_activation(self, dy: Tensor, y: Tensor | None) -> Tensor:
        """The gradient ahead of the activation, in the layout that the backward candidates were chosen for."""
        if y is not None:
            dy = _aten.threshold_backward(dy, y, 0)
        wanted = self.gradient.strides
        if dy.stride() != wanted:
            dense = torch.empty_strided(dy.shape, wanted, dtype=dy.dtype, device=dy.device)
            dy = dense.copy_(dy)
        return dy

    def gradients(
        self, dy: Tensor, x: Tensor, w: Tensor, needs: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """dx, dw and db, each where it is needed."""
        dx = self.backward_data(dy, w) if needs[0] and self.backward_data else None
        dw = self.backward_weight(x, dy) if needs[1] and self.backward_weight else None
        left = (needs[0] and dx is None, needs[1] and dw is None, needs[2])
        if left[0] or left[1]:
            made = gradients(self.problem, dy, x, w, left)
            return dx if dx is not None else made[0], dw if dw is not None else made[1], made[2]
        return dx, dw, dy.sum(self.bias_dims) if needs[2] else None


class Convolution(torch.autograd.Function):
    """One node for convolution, residual, bias and activation together."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None, training: Training
    ) -> Tensor:
        y = training.forward(x, w, bias, residual)
        ctx.training = training
        ctx.save_for_backward(x, w, y if training.relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w, y = ctx.saved_tensors
        training: Training = ctx.training
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():  # a second derivative is wanted: only PyTorch's formulas have one
            if y is not None:
                dy = _aten.threshold_backward(dy, y, 0)
            made = gradients(training.problem, dy, x, w, needs[:3])
        else:
            dy = training.before_activation(dy, y)
            made = training.gradients(dy, x, w, needs[:3])
        return (*made, dy if needs[3] else None, None)


_apply: Callable[..., Tensor] = Convolution.apply
