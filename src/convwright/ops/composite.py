"""The convolution written in PyTorch's own functions, for calls that only PyTorch can serve."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from convwright.core.epilogue import activation_named
from convwright.core.policy import Policy
from convwright.errors import BadInput, Refused
from convwright.ops.call import Call
from convwright.ops.form import Form
from convwright.tensors import activate

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


def check_tensors(form: Form, **named: object) -> None:
    """Refuse what is no tensor, and operands that have not as many dimensions as ``form`` takes."""
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise BadInput(f"`{name}` must be a tensor, got {type(value).__name__}")
    x, w = named["input"], named["weight"]
    assert isinstance(x, Tensor)
    assert isinstance(w, Tensor)
    if w.dim() != form.rank + 2 or x.dim() not in (form.rank + 1, form.rank + 2):
        weight = "(C, K / groups, " if form.transposed else "(K, C / groups, "
        taps = ", ".join("TRS"[3 - form.rank :])
        raise BadInput(
            f"{form.name} takes an `input` (N, C, {form.axes}) or (C, {form.axes}) and a `weight` {weight}{taps}), "
            f"got shapes {tuple(x.shape)} and {tuple(w.shape)}"
        )


def composite(call: Call) -> Tensor:
    """``activation(F.conv2d(input, weight, bias, …) + residual)``."""
    y = call.torchs_own()
    if call.residual is not None:
        y = y + call.residual
    y = activate(y, activation_named(call.request.activation))
    return y if call.out is None else call.out.copy_(y)


def refuse_algorithm(algorithm: str | None, policy: Policy | None) -> None:
    """Where only PyTorch's own functions can serve, nothing else may be asked for."""
    if algorithm not in (None, "torch/default"):
        raise Refused(
            f"{algorithm} cannot serve this call: PyTorch's own functions are wanted for empty or unbatched "
            "inputs, tensor subclasses, functional transforms, forward-mode gradients and tracing"
        )
    if policy is not None and policy.arithmetic is not None:
        raise Refused("a policy's `arithmetic` cannot be kept here: PyTorch's own functions are wanted for this call")
