"""Calls that only PyTorch's own functions can serve: the reasons, the computation, and the errors."""

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
# Exceptions that PyTorch's functions raise.
FAILURES = (RuntimeError, TypeError, ValueError)
_PROMOTED = "autocast casts a convolution, but not its sum with a residual of another dtype"


def foreign(*operands: Tensor | None) -> str | None:
    """Why PyTorch's own functions must see the call, or nothing can be tuned; None if neither applies."""
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
    """Whether this is inside a transform of torch.func; a compiler can trace this function."""
    return torch_api.transform_depth() > 0


def transformed() -> str | None:
    """The transform or mode that is active, as a reason: tensors inside may have no memory."""
    if is_transformed():
        return "it is inside a transform of torch.func, such as vmap"
    return "it is inside a dispatch mode, as in torch.export" if torch_api.dispatch_modes() > 0 else None


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is PyTorch's own type with sizes and strides. A nested tensor has the type but no strides."""
    return type(tensor) in PLAIN and not tensor.is_nested


def _oddity(tensor: Tensor) -> str | None:
    if tensor.is_nested:
        return "an operand is a nested tensor"
    if tensor.layout is not torch.strided:
        return f"an operand is stored as {tensor.layout}"
    if tensor.numel() == 0:
        return EMPTY
    return "an operand has PyTorch's negative bit set" if tensor.is_neg() else None


def check_tensors(form: Form, **named: object) -> None:
    """Refuse operands that are not tensors, or have another number of dimensions than ``form`` takes."""
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
    """Refuse operands without strides, or on another device than ``x``, where PyTorch would read arbitrary memory. A
    meta input is accepted with any weight, as in PyTorch."""
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
def intercepted(around: Around) -> Iterator[None]:
    """Inside, calls of this thread that combine several of PyTorch's functions go to ``around(call, compute)``."""
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
    """Refuse operands that PyTorch would expand or convert but a candidate cannot."""
    if given.shape != y.shape:
        raise BadInput(f"`{name}` must have the output's shape {tuple(y.shape)}, got {tuple(given.shape)}")
    if (given.dtype is not y.dtype and not any_dtype) or given.device != y.device:
        raise BadInput(f"`{name}` must be {y.dtype} on {y.device} like `input`, got {given.dtype} on {given.device}")


def refuse_algorithm(form: Form, request: Request, why: str) -> None:
    """Refuse a named algorithm or arithmetic for a call that only PyTorch's own functions can serve; ``why`` says why.
    During a capture of a model nothing is refused: a capture only lists calls."""
    if _around.by is not None:
        return
    around, policy = ambient.current(), request.policy
    asked = request.algorithm or (around.demanded(form.direction) if around is not None else None)
    if asked not in (None, ambient.AUTO, "torch/default"):
        raise Refused(f"{asked} cannot serve this call, which needs PyTorch's own functions, since {why}")
    if policy is not None and policy.arithmetic is not None and not form.stands_in:
        raise Refused(f"a policy's `arithmetic` cannot be kept: this call needs PyTorch's own functions, since {why}")


def checked(call: Call) -> Call:
    """The call, if its function takes tensors of these dtypes and numbers of dimensions; otherwise an error."""
    check_tensors(call.form, input=call.x, weight=call.w, bias=call.bias, residual=call.residual, out=call.out)
    if call.x.dtype in NARROW:
        raise BadInput(
            f"{call.form.name} takes the dtypes of PyTorch's function, got {call.x.dtype}; use `cw.plan` for this dtype"
        )
    if call.out is not None and call.trains:
        raise BadInput(
            "`out` cannot be used where a gradient is needed: use torch.no_grad(), or conv2d_into for a slice"
        )
    return call


def why_pytorchs(call: Call) -> str | None:
    """Why only PyTorch's own functions can serve a call; None if others can."""
    why = foreign_dtype(call) or foreign(*call.operands)
    # Autocast casts the convolution, but not the sum with a residual of another dtype.
    promoted = call.residual is not None and autocasting(call.x) and call.residual.dtype is not lowered_dtype(call.x)
    return why or (_PROMOTED if promoted else None)


def foreign_dtype(call: Call) -> str | None:
    """The reason for complex and integer dtypes, which only PyTorch's own functions compute; None for others."""
    dtype = call.x.dtype
    return None if dtype in SERVED else f"convolutions are computed in {', '.join(IN_PYTORCH)}, got {dtype}"


def computed_by_pytorch(call: Call, why: str) -> Tensor:
    """Compute by PyTorch's own functions. An empty result is allowed even if an algorithm was named."""
    if why == EMPTY and (y := composed(call)).numel() == 0:
        return y
    refuse_algorithm(call.form, call.request, why)
    try:
        return composite(call)
    except RuntimeError as error:  # includes dtypes and devices for which PyTorch has no kernel
        if "not implemented for" not in str(error) or call.x.dtype in SERVED:
            raise
        raise BadInput(why) from error


def composed(call: Call) -> Tensor:
    """PyTorch's own functions. If they fail, one sentence says what is wrong with the input."""
    try:
        return composite(call)
    except BadInput:
        raise
    except FAILURES:
        _refuse(call)
        raise


def explain(call: Call) -> None:
    """After PyTorch's own function has refused a call: raise one sentence if its arguments are wrong."""
    call = checked(replace(call, request=call.request.kept()))
    _refuse(call if call.x.dim() == call.w.dim() else replace(call, x=call.x.unsqueeze(0)))


def _refuse(call: Call) -> None:
    """Raise one sentence if a call is wrong. A call that no candidate could serve may still be right."""
    if not any(tensor.is_nested for tensor in call.tensors):
        with suppress(Refused):
            call.problem()


def is_proxy(operand: object) -> bool:
    """Whether an operand has `__torch_function__` and is not a tensor."""
    return operand is not None and not isinstance(operand, Tensor) and hasattr(operand, "__torch_function__")


def noted(call: Call) -> Tensor:
    """Dispatch the call to such an operand, as PyTorch's functions would."""
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
