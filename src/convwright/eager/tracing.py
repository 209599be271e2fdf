"""Convolutions as one custom op for torch.compile and strict torch.export; the choice is made when it first runs.

Its gradient is written in PyTorch's own ops, so that a compiler can optimise it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from convwright.core.epilogue import Activation, activation_named
from convwright.core.problem import per_axis
from convwright.core.window import both_sides
from convwright.eager.asking.autocast import autocasting, cast
from convwright.eager.calls.call import FORMS, Call, Request, as_batch
from convwright.eager.running.pytorchs_own import (
    check_like,
    checked,
    composite,
    computed_by_pytorch,
    foreign_dtype,
    is_transformed,
    refuse_algorithm,
)
from convwright.eager.slow_path import slow_path
from convwright.tensors import activate
from convwright.uncompiled import uncompiled

_aten: Any = torch.ops.aten
_FORMS = {(form.rank, form.transposed): form for form in FORMS}


def compiled(call: Call) -> Tensor:
    """A call under ``torch.compile``: one operator, or PyTorch's own functions."""
    if call.request.policy is not None:
        return _under_policy(call)
    if (why := foreign_dtype(checked(call))) is not None:
        return computed_by_pytorch(call, why)
    y = composite(replace(call, out=None)) if is_transformed() else traced(call)
    if call.out is None:
        return y
    check_like(y, "out", call.out)
    return call.out.copy_(y)


@uncompiled("a `policy=` is kept only outside of compiled code: set PyTorch's flags, or make the call uncompiled")
def _under_policy(call: Call) -> Tensor:
    """``slow_path`` outside of a graph, with the call's policy."""
    return slow_path(call)


def traced(call: Call) -> Tensor:
    """The same call, with its arguments as the op takes them."""
    request, x, w, bias = call.request, call.x, call.w, call.bias
    if autocasting(x):
        x, w, bias = cast(x, w, bias)
    for size in w.shape:
        range(size)  # makes the size a constant for the compiler, as with a parameter's size
    rank, activation = call.form.rank, activation_named(request.activation)
    strides, dilations = per_axis("stride", request.stride, rank), per_axis("dilation", request.dilation, rank)
    pads = both_sides(request.padding, w.shape[2:], strides, dilations)
    if x.dim() != w.dim():
        return traced(Call(call.form, x.unsqueeze(0), w, bias, as_batch(call.residual), None, request)).squeeze(0)
    why = None
    if call.residual is not None and call.residual.dtype is not x.dtype:
        why = f"its residual is {call.residual.dtype} and its input {x.dtype}"
    elif any(lo != hi for lo, hi in pads):
        why = "its padding is uneven, and compiled"
    if why is not None:  # a compiler cannot treat it as one operator
        refuse_algorithm(call.form, request, why)
        return composite(Call(call.form, x, w, bias, call.residual, None, request))
    fused = activation if activation in (Activation.NONE, Activation.RELU) else Activation.NONE
    y: Tensor = torch.ops.convwright.convolution(
        x, w, bias, call.residual, strides, [lo for lo, _ in pads], dilations, call.form.transposed,
        per_axis("output_padding", request.output_padding, rank), request.groups, str(fused), request.algorithm,
    )  # fmt: skip
    return y if fused is activation else activate(y, activation)


_SCHEMA = (
    "(Tensor x, Tensor w, Tensor? bias, Tensor? residual, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
    "bool transposed, SymInt[] output_padding, SymInt groups, str activation, str? algorithm) -> Tensor"
)


@torch.library.custom_op("convwright::convolution", mutates_args=(), schema=_SCHEMA)
def _convolution(*given: Any) -> Tensor:
    return slow_path(_call(*given))


@_convolution.register_fake
def _(*given: Any) -> Tensor:
    call = _call(*given)
    y = composite(call)
    if (call.request.activation != "none" or call.residual is not None) and 1 in y.shape and y.is_contiguous():
        return torch.empty_like(y, memory_format=torch.contiguous_format)  # the layout of eager sums and activations
    return y


def _call(
    x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None, stride: list[int], padding: list[int],
    dilation: list[int], transposed: bool, output_padding: list[int], groups: int, activation: str,
    algorithm: str | None,
) -> Call:  # fmt: skip
    """The arguments of the op as a call."""
    request = Request(
        bias is None, tuple(stride), tuple(padding), tuple(dilation), groups, activation, algorithm,
        output_padding=tuple(output_padding) if transposed else 0,
    )  # fmt: skip
    return Call(_FORMS[x.dim() - 2, transposed], x, w, bias, residual, None, request)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, bias, residual, *arguments, activation, _algorithm = inputs
    ctx.save_for_backward(x, w, output if activation == "relu" else None)
    ctx.arguments, ctx.has_residual = arguments, residual is not None
    ctx.bias_sizes = None if bias is None else list(bias.shape)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, w, y = ctx.saved_tensors
    if y is not None:
        dy = _aten.threshold_backward(dy, y, 0)
    needs = ctx.needs_input_grad
    wanted = (needs[0], needs[1], needs[2] and ctx.bias_sizes is not None)
    made = _aten.convolution_backward(dy, x, w, ctx.bias_sizes, *ctx.arguments, wanted)
    return *made, dy if ctx.has_residual else None, *[None] * 8


_convolution.register_autograd(_backward, setup_context=_setup)
