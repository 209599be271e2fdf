"""An epilogue computed by PyTorch's own functions: behind a convolution, and ahead of its gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from convwright.core.epilogue import Activation
from convwright.tensors import activate_

_aten: Any = torch.ops.aten
_DERIVED: dict[Activation, Callable[..., Tensor]] = {
    Activation.RELU: partial(_aten.threshold_backward.grad_input, threshold=0),
    Activation.SILU: _aten.silu_backward.grad_input,
    Activation.GELU: _aten.gelu_backward.grad_input,
    Activation.HARDSWISH: _aten.hardswish_backward.out,
}
# Where the derivative is written to, as each of PyTorch's functions calls it.
_TARGET = dict.fromkeys(_DERIVED, "grad_input") | {Activation.HARDSWISH: "out"}


def finish_(
    y: Tensor, activation: Activation, *, scale: Tensor | None, residual: Tensor | None, bias: Tensor | None
) -> Tensor:
    """``activation(scale · y + residual + bias)`` in place; nothing is allocated.

    >>> y, scale, bias = torch.ones(1, 1, 1), torch.tensor([3.0]), torch.tensor([-1.0])
    >>> finish_(y, Activation.RELU, scale=scale, residual=None, bias=bias)
    tensor([[[2.]]])
    """
    if scale is not None:
        y.mul_(per_channel(scale, y))
    if residual is not None:
        y.add_(residual)
    if bias is not None:
        y.add_(per_channel(bias, y))
    return activate_(y, activation)


def derive(dy: Tensor, activation: Activation, z: Tensor | None, out: Tensor) -> Tensor:
    """``out``, with ``dy`` multiplied by the derivative of ``activation`` at ``z``. ReLU's result serves as its ``z``.

    >>> derive(torch.ones(2), Activation.RELU, torch.tensor([-1.0, 3.0]), torch.empty(2))
    tensor([0., 1.])
    """
    if activation is Activation.NONE or z is None:
        return out.copy_(dy)
    return _DERIVED[activation](dy, z, **{_TARGET[activation]: out})


def ahead(
    dy: Tensor,
    activation: Activation,
    *,
    z: Tensor | None,
    scale: Tensor | None,
    db: Tensor | None,
    into: Tensor | None,
    through: Tensor | None,
) -> Tensor:
    """``dy`` as a gradient's convolution takes it: multiplied by the activation's derivative, which gives ``db``, and
    by the scale.

    It is made in ``into``, which is None where nothing changes it; ``through`` is memory where ``db`` is added to.
    """
    dz = dy if into is None else derive(dy, activation, z, into)
    if db is not None:
        bias_gradient(dz, db, through=through)
    return dz if scale is None else dz.mul_(per_channel(scale, dz))


def bias_gradient(dz: Tensor, db: Tensor, *, through: Tensor | None = None) -> Tensor:
    """``db``, with the sums of ``dz`` over images and positions in it; added to it where there is memory to go through.

    >>> bias_gradient(torch.ones(2, 1, 3), torch.tensor([1.0]), through=torch.empty(1))
    tensor([7.])
    """
    over = [0, *range(2, dz.dim())]
    return torch.sum(dz, over, out=db) if through is None else db.add_(torch.sum(dz, over, out=through))


def per_channel(values: Tensor, like: Tensor) -> Tensor:
    """One value for each channel, as it meets a tensor (N, channels, spatial…)."""
    return values.view(-1, *[1] * (like.dim() - 2))
