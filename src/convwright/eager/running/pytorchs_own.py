"""Calls that PyTorch's own functions serve: why only these can, what they compute, and what they refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.overrides import handle_torch_function

from convwright import flags, torch_api
from convwright.core.dtype import IN_PYTORCH
from convwright.core.epilogue import activation_named
from convwright.eager.asking import ambient
from convwright.eager.asking.autocast import autocasting, lowered_dtype
from convwright.eager.calls.call import PUBLIC, Call, Form, Request
from convwright.errors import BadInput, Refused
from convwright.tensors import NARROW, SERVED, activate

PLAIN = {Tensor, torch.nn.Parameter}
COMPUTED_ON = ("cpu", "cuda")
_LAYOUTS = (torch.strided, torch_api.mkldnn_layout)
EMPTY = "an operand is empty"
Around = Callable[[Call, Callable[[], Tensor]], Tensor]
# What PyTorch's functions raise.
FAILURES = (RuntimeError, TypeError, ValueError)
_PROMOTED = "autocast casts a convolution, but not its sum with a residual of another dtype"


def foreign(*operands: Tensor | None) -> str | None:
    """Why someone must see PyTorch's own functions, or there is nothing to tune; None where neither is so."""
    tensors = [tensor for tensor in operands if tensor is not None]
    if torch_api.tracing_state() is not None:
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
    if torch_api.forward_gradient_level() >= 0:
        return "a forward-mode gradient is taken"
    return "a TorchFunctionMode watches PyTorch's functions" if torch_api.is_watched() else None


def is_transformed() -> bool:
    """Whether this is inside a transform of torch.func, which a compiler sees as well."""
    return torch_api.transform_depth() > 0


def transformed() -> str | None:
    """Inside of what transform or mode this is: tensors there may have no memory to compute on."""
    if is_transformed():
        return "it is inside a transform of torch.func, such as vmap"
    return "it is inside a dispatch mode, as in torch.export" if torch_api.dispatch_modes() > 0 else None


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
    """Where only PyTorch's own functions can serve, and ``why`` they must, nothing else may be asked for. While a model
    is captured nothing is refused: a capture lists calls, whatever computes them."""
    if _around.by is not None:
        return
    around, policy = ambient.current(), request.policy
    asked = request.algorithm or (around.demanded(form.direction) if around is not None else None)
    if asked not in (None, ambient.AUTO, "torch/default"):
        raise Refused(f"{asked} cannot serve this call: PyTorch's own functions are wanted, since {why}")
    if policy is not None and policy.arithmetic is not None and not form.stands_in:
        raise Refused(f"a policy's `arithmetic` cannot be kept here: PyTorch's own functions are wanted, since {why}")


def checked(call: Call) -> Call:
    """The call, if its operands are tensors of a number of dimensions and a dtype that its function takes."""
    check_tensors(call.form, input=call.x, weight=call.w, bias=call.bias, residual=call.residual, out=call.out)
    if call.x.dtype in NARROW:
        raise BadInput(
            f"{call.form.name} computes what PyTorch computes, got {call.x.dtype}; "
            "`cw.plan` makes ready what computes that"
        )
    if call.out is not None and call.trains:
        raise BadInput(
            "`out` needs torch.no_grad(), since a gradient is wanted here; conv2d_into writes into a slice with one"
        )
    return call


def why_pytorchs(call: Call) -> str | None:
    """Why only PyTorch's own functions can serve a call; None where others can."""
    why = foreign_dtype(call) or foreign(*call.operands)
    # Autocast lowers a convolution, not the sum with a residual of another dtype.
    promoted = call.residual is not None and autocasting(call.x) and call.residual.dtype is not lowered_dtype(call.x)
    return why or (_PROMOTED if promoted else None)


def foreign_dtype(call: Call) -> str | None:
    """What is said of complex and whole numbers, which nothing but PyTorch's own functions computes here."""
    return (
        None if call.x.dtype in SERVED else f"convolutions are computed in {', '.join(IN_PYTORCH)}, got {call.x.dtype}"
    )


def computed_by_pytorch(call: Call, why: str) -> Tensor:
    """PyTorch's own functions. A result without elements is nobody's work, whatever was asked for."""
    if why == EMPTY and (y := composed(call)).numel() == 0:
        return y
    refuse_algorithm(call.form, call.request, why)
    try:
        return composite(call)
    except RuntimeError as error:  # what PyTorch has no kernel for is one of these, too
        if "not implemented for" not in str(error) or call.x.dtype in SERVED:
            raise
        raise BadInput(why) from error


def composed(call: Call) -> Tensor:
    """PyTorch's own functions, and one sentence about what is wrong with their input."""
    try:
        return composite(call)
    except BadInput:
        raise
    except FAILURES:
        _refuse(call)
        raise


def explain(call: Call) -> None:
    """Refuse in one sentence what PyTorch's own function has refused, where what it was given is wrong."""
    call = checked(replace(call, request=call.request.kept()))
    _refuse(call if call.x.dim() == call.w.dim() else replace(call, x=call.x.unsqueeze(0)))


def _refuse(call: Call) -> None:
    """One sentence about what is wrong with a call, if something is; what no candidate could serve may be right."""
    if not any(tensor.is_nested for tensor in call.tensors):
        with suppress(Refused):
            call.problem()


def is_proxy(operand: object) -> bool:
    """True for an object that has `__torch_function__` and is no tensor."""
    return operand is not None and not isinstance(operand, Tensor) and hasattr(operand, "__torch_function__")


def noted(call: Call) -> Tensor:
    """Let such an operand do with the call what it does with those of PyTorch's functions."""
    form, request = call.form, call.request
    given: dict[str, Any] = {
        "activation": request.activation, "algorithm": request.algorithm, "policy": request.policy,
        "residual": call.residual, "out": call.out,
    }  # fmt: skip
    named = {name: value for name, value in given.items() if value is not None}
    made: Tensor = handle_torch_function(
        PUBLIC[form.name], call.tensors, call.x, call.w, call.bias, *form.window(request), **named
    )
    return made
