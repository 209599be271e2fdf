"""The convolution written in PyTorch's own functions, for calls that only PyTorch can serve."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from convwright.core.epilogue import activation_named
from convwright.core.policy import Policy
from convwright.core.problem import IntOrTuple
from convwright.errors import BadInput, Refused

_C: Any = torch._C
_PLAIN = (Tensor, torch.nn.Parameter)
_COMPUTED_ON = ("cpu", "cuda")


def foreign(*operands: Tensor | None) -> bool:
    """True where someone must see PyTorch's own functions: subclasses, functorch, dispatch modes, tracers.

    Empty and unbatched inputs go the same way, since there is nothing to tune.
    """
    tensors = [tensor for tensor in operands if tensor is not None]
    return (
        any(type(tensor) not in _PLAIN or _odd(tensor) for tensor in tensors)
        or forward_ad._current_level >= 0
        or tensors[0].dim() == tensors[1].dim() - 1
        or tensors[0].device.type not in _COMPUTED_ON
        or _C._functorch.peek_interpreter_stack() is not None
        or _C._len_torch_dispatch_stack() > 0
        or _C._get_tracing_state() is not None
    )


def _odd(tensor: Tensor) -> bool:
    """Empty, without strides, or stored with the other sign."""
    return tensor.layout is not torch.strided or tensor.numel() == 0 or tensor.is_neg()


def check_tensors(**named: object) -> None:
    """Refuse what is no tensor, and images that have not two spatial dimensions."""
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise BadInput(f"`{name}` must be a tensor, got {type(value).__name__}")
    x, w = named["input"], named["weight"]
    assert isinstance(x, Tensor)
    assert isinstance(w, Tensor)
    if w.dim() != 4 or x.dim() not in (3, 4):
        raise BadInput(
            "conv2d takes an `input` (N, C, H, W) or (C, H, W) and a `weight` (K, C / groups, R, S), "
            f"got shapes {tuple(x.shape)} and {tuple(w.shape)}"
        )


def composite(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: IntOrTuple,
    padding: IntOrTuple | str,
    dilation: IntOrTuple,
    groups: int,
    activation: str | None,
    *,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``activation(F.conv2d(x, w, bias, …) + residual)``."""
    convolve: Any = F.conv2d
    y: Tensor = convolve(x, w, bias, stride, padding, dilation, groups)
    if residual is not None:
        y = y + residual
    if activation_named(activation) != "none":
        y = getattr(torch, activation or "")(y)
    return y if out is None else out.copy_(y)


def refuse_algorithm(algorithm: str | None, policy: Policy | None) -> None:
    """Where only PyTorch's own functions can serve, nothing else may be asked for."""
    if algorithm not in (None, "torch/default"):
        raise Refused(
            f"{algorithm} cannot serve this call: PyTorch's own functions are wanted for empty or unbatched "
            "inputs, tensor subclasses, functional transforms, forward-mode gradients and tracing"
        )
    if policy is not None and policy.arithmetic is not None:
        raise Refused("a policy's `arithmetic` cannot be kept here: PyTorch's own functions are wanted for this call")
