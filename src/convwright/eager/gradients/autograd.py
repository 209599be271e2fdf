"""The autograd node of a convolution whose directions are computed by chosen candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

import torch
from torch import Tensor

from convwright import torch_api
from convwright.backends.torch_native.own import gradients
from convwright.core.direction import Direction
from convwright.core.epilogue import Activation, activation_named
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.eager.calls.call import Request
from convwright.eager.running.pytorchs_own import transformed
from convwright.eager.running.runner import Runner
from convwright.tensors import lies_as

_aten: Any = torch.ops.aten
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
# Takes dy, x, w, y and the needed gradients; returns None if it cannot compute them.
Fused = Callable[..., Gradients | None]


@dataclass(slots=True, eq=False)
class Training:
    """The three directions of one convolution, ready to run. A gradient's runner of None means PyTorch. ``fused``
    computes gradients together with the activation's derivative; the runners serve the calls that it does not.

    ``gradient`` describes the output gradient that the candidates were chosen for. ``torchs_gradients`` are PyTorch's
    own formulas; only these can be differentiated again.
    """

    problem: InitVar[ConvProblem]
    gradient: TensorSpec
    request: InitVar[Request]
    forward: Runner
    to_input: Runner | None = None
    to_weight: Runner | None = None
    fused: Fused | None = None
    relu: bool = field(init=False)
    torchs_gradients: Callable[..., Gradients] = field(init=False)
    _transposed: bool = field(init=False)
    _sum_dims: list[int] = field(init=False)

    def __post_init__(self, problem: ConvProblem, request: Request) -> None:
        self.relu = activation_named(request.activation) is Activation.RELU
        self.torchs_gradients = gradients_of(problem, request)
        self._transposed = problem.direction is Direction.BACKWARD_DATA
        self._sum_dims = [0, *range(2, problem.rank + 2)]

    def __call__(
        self, x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, _out: None = None
    ) -> Tensor:
        return _apply(x, w, bias, residual, self)

    def before_activation(self, dy: Tensor, y: Tensor | None) -> Tensor:
        """The gradient before the activation, in the layout that the candidates were chosen for."""
        return self.laid(dy if y is None else _aten.threshold_backward(dy, y, 0))

    def laid(self, dy: Tensor) -> Tensor:
        """A gradient in the layout that the candidates were chosen for."""
        wanted = self.gradient.strides
        if dy.stride() == wanted or lies_as(dy, self.gradient):
            return dy
        return torch.empty_strided(dy.shape, wanted, dtype=dy.dtype, device=dy.device).copy_(dy)

    def gradients(self, dy: Tensor, x: Tensor, w: Tensor, needs: tuple[bool, bool, bool]) -> Gradients:
        """The gradients of input, weight and bias that are needed."""
        dx = self.to_input(dy, w) if needs[0] and self.to_input else None
        dw = None
        if needs[1] and self.to_weight:
            dw = self.to_weight(dy, x) if self._transposed else self.to_weight(x, dy)
        left = (needs[0] and dx is None, needs[1] and dw is None, needs[2])
        if left[0] or left[1]:
            made = self.torchs_gradients(dy, x, w, left)
            return dx if dx is not None else made[0], dw if dw is not None else made[1], made[2]
        return dx, dw, dy.sum(self._sum_dims) if needs[2] else None


def gradients_of(problem: ConvProblem, request: Request) -> Callable[..., Gradients]:
    """PyTorch's own gradients ``(dy, x, w, needs)`` of input, weight and bias."""
    if problem.direction is Direction.FORWARD:
        return lambda dy, x, w, needs: gradients(problem, dy, x, w, needs)

    def transposed(dy: Tensor, x: Tensor, w: Tensor, needs: tuple[bool, bool, bool]) -> Gradients:
        rank = problem.rank
        padding = [low for low, _ in problem.padding]
        added = [request.output_padding] * rank if isinstance(request.output_padding, int) else request.output_padding
        made: Gradients = _aten.convolution_backward(
            dy, x, w, [problem.c] if needs[2] else None,
            problem.stride, padding, problem.dilation, True, added, problem.groups, needs,
        )  # fmt: skip
        return made

    return transposed


class Convolution(torch.autograd.Function):
    """One node for convolution, residual, bias and activation together."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None, training: Training
    ) -> Tensor:
        y = training.forward(x, w, bias, residual)
        ctx.set_materialize_grads(False)
        ctx.training = training
        ctx.save_for_backward(x, w, y if training.relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None) -> tuple[Tensor | None, ...]:
        if dy is None:
            return (None,) * 5
        x, w, y = ctx.saved_tensors
        training: Training = ctx.training
        needs = ctx.needs_input_grad
        # Only PyTorch's formulas support second derivatives, forward mode, and vmap over gradients.
        if is_differentiated() or transformed() is not None or not _is_in_memory(dy):
            if y is not None:
                dy = _aten.threshold_backward(dy, y, 0)
            made = training.torchs_gradients(dy, x, w, needs[:3])
        else:
            fused = None if training.fused is None else training.fused(training.laid(dy), x, w, y, needs[:3])
            if fused is not None:
                return (*fused, None, None)
            dy = training.before_activation(dy, y)
            made = training.gradients(dy, x, w, needs[:3])
        return (*made, dy if needs[3] else None, None)


def is_differentiated() -> bool:
    """Whether the current computation is differentiated, in forward or reverse mode."""
    return torch.is_grad_enabled() or torch_api.forward_gradient_level() >= 0


def _is_in_memory(dy: Tensor) -> bool:
    """False for tensor subclasses and batched gradients, which have no address."""
    try:
        return type(dy) is Tensor and torch_api.address_of(dy) >= 0
    except RuntimeError:
        return False


_apply: Callable[..., Tensor] = Convolution.apply
