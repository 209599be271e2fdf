"""The convolution written in PyTorch's own functions, for calls that only PyTorch can serve."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from convwright import flags
from convwright.core.epilogue import activation_named
from convwright.eager.asking import ambient
from convwright.eager.asking.autocast import autocasting
from convwright.eager.asking.function_modes import watched
from convwright.eager.asking.request import Request
from convwright.eager.calls.call import Call
from convwright.eager.calls.form import Form
from convwright.errors import BadInput, Refused
from convwright.tensors import activate

_C: Any = torch._C
PLAIN = {Tensor, torch.nn.Parameter}
COMPUTED_ON = ("cpu", "cuda")
_LAYOUTS = (torch.strided, torch._mkldnn)  # type: ignore[attr-defined]
EMPTY = "an operand is empty"
Around = Callable[[Call, Callable[[], Tensor]], Tensor]


def foreign(*operands: Tensor | None) -> str | None:
    """Why someone must see PyTorch's own functions, or there is nothing to tune; None where neither is so."""
    tensors = [tensor for tensor in operands if tensor is not None]
    if _C._get_tracing_state() is not None:
        return "torch.jit traces it"
    if (why := transformed()) is not None:
        return why
    if not PLAIN.issuperset(map(type, tensors)):
        return f"an operand is a {next(type(t).__name__ for t in tensors if type(t) not in PLAIN)}, and no plain tensor"
    odd = next(filter(None, map(_oddity, tensors)), None)
    if odd is not None:
        return odd
    if tensors[0].device.type not in COMPUTED_ON:
        return f"its operands are on device {tensors[0].device}"
    if tensors[0].is_cuda and flags.cuda_lost():
        return "this process was forked off one that used CUDA"
    if forward_ad._current_level >= 0:
        return "a forward-mode gradient is taken"
    return "a TorchFunctionMode watches PyTorch's functions" if watched() else None


def is_transformed() -> bool:
    """Whether this is inside a transform of torch.func, which a compiler sees as well."""
    depth: int = _C._functorch.get_dynamic_layer_stack_depth()  # which torch.compile knows as a constant
    return depth > 0


def transformed() -> str | None:
    """Inside of what transform or mode this is: tensors there may have no memory to compute on."""
    if is_transformed():
        return "it is inside a transform of torch.func, such as vmap"
    return "it is inside a dispatch mode, as in torch.export" if _C._len_torch_dispatch_stack() > 0 else None


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is PyTorch's own, and has sizes and strides: a nested one has none, but the same type."""
    return type(tensor) in PLAIN and not tensor.is_nested


def _oddity(tensor: Tensor) -> str | None:
    if tensor.is_nested:
        return "an operand is a nested tensor"
    if tensor.layout is not torch.strided:
        return f"an operand is stored as {tensor.layout}"
    if tensor.numel() == 0:
        return EMPTY
    return "an operand is stored with the other sign" if tensor.is_neg() else None


def check_tensors(form: Form, **named: object) -> None:
    """Refuse what is no tensor, and operands that have not as many dimensions as ``form`` takes."""
    for name, value in named.items():
        if value is not None and not isinstance(value, Tensor):
            raise BadInput(f"`{name}` must be a tensor, got {type(value).__name__}")
        if isinstance(value, UninitializedParameter | UninitializedBuffer):
            raise BadInput(f"`{name}` must have values, got an {type(value).__name__}")
    x, w = named["input"], named["weight"]
    if not isinstance(x, Tensor) or not isinstance(w, Tensor):
        raise BadInput(f"`{'weight' if w is None else 'input'}` must be a tensor, got NoneType")
    if w.dim() != form.rank + 2 or x.dim() not in (form.rank + 1, form.rank + 2):
        axes, taps = ", ".join(form.axes), ", ".join("TRS"[3 - form.rank :])
        weight = "(C, K / groups, " if form.transposed else "(K, C / groups, "
        raise BadInput(
            f"{form.name} takes an `input` (N, C, {axes}) or (C, {axes}) and a `weight` {weight}{taps}), "
            f"got shapes {tuple(x.shape)} and {tuple(w.shape)}"
        )
    check_storage(x, named)


def check_storage(x: Tensor, named: Mapping[str, object]) -> None:
    """Refuse operands without strides, and those that are elsewhere than ``x``, of which PyTorch reads what lies there
    by chance. Its functions take a meta tensor with any weight, for the shape of the result."""
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            continue
        if tensor.layout not in _LAYOUTS:
            raise BadInput(f"`{name}` must be a dense tensor, got one stored as {tensor.layout}")
        if tensor.device != x.device and x.device.type != "meta":
            raise BadInput(f"`{name}` must be on {x.device} like `input`, got one on {tensor.device}")


class _Around(threading.local):
    by: Around | None = None


_around = _Around()


@contextmanager
def told(around: Around) -> Iterator[None]:
    """Inside, ``around(call, compute)`` computes those calls of this thread that are more than one of PyTorch's."""
    before, _around.by = _around.by, around
    try:
        yield
    finally:
        _around.by = before


def composite(call: Call) -> Tensor:
    """``activation(F.conv2d(input, weight, bias, …) + residual)``."""
    if call.request.activation is None and call.residual is None and call.out is None:
        return call.torchs_own()
    return _composed(call) if _around.by is None else _around.by(call, lambda: _composed(call))


def _composed(call: Call) -> Tensor:
    activation = activation_named(call.request.activation)
    y = call.torchs_own()
    if call.residual is not None:
        check_like(y, "residual", call.residual, any_dtype=autocasting(call.x))
        y = y + call.residual
    y = activate(y, activation)
    if call.out is None:
        return y
    check_like(y, "out", call.out)
    return call.out.copy_(y)


def check_like(y: Tensor, name: str, given: Tensor, *, any_dtype: bool = False) -> None:
    """Refuse what PyTorch would expand or convert where a candidate cannot."""
    if given.shape != y.shape:
        raise BadInput(f"`{name}` must have the output's shape {tuple(y.shape)}, got {tuple(given.shape)}")
    if (given.dtype is not y.dtype and not any_dtype) or given.device != y.device:
        raise BadInput(f"`{name}` must be {y.dtype} on {y.device} like `input`, got {given.dtype} on {given.device}")


def refuse_algorithm(form: Form, request: Request, why: str) -> None:
    """Where only PyTorch's own functions can serve, and ``why`` they must, nothing else may be asked for. Whoever is
    told of the calls wants to see which there are, whatever computes them meanwhile."""
    if _around.by is not None:
        return
    around, policy = ambient.current(), request.policy
    asked = request.algorithm or (around.demanded(form.direction) if around is not None else None)
    if asked not in (None, ambient.AUTO, "torch/default"):
        raise Refused(f"{asked} cannot serve this call: PyTorch's own functions are wanted, since {why}")
    if policy is not None and policy.arithmetic is not None and not form.stands_in:
        raise Refused(f"a policy's `arithmetic` cannot be kept here: PyTorch's own functions are wanted, since {why}")
