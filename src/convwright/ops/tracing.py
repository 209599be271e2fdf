"""The convolution as a custom op, for torch.compile and strict torch.export: it chooses when it first runs.

Its gradient is written in PyTorch's own ops, so that a compiler can see into it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convwright.core.epilogue import activation_named
from convwright.core.policy import Policy
from convwright.core.problem import IntOrTuple, per_axis
from convwright.errors import Refused
from convwright.ops.autocast import autocasting, cast
from convwright.ops.composite import composite, refuse_algorithm
from convwright.ops.describe import Padding, both_sides

_aten: Any = torch.ops.aten


def traced(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: IntOrTuple,
    padding: Padding,
    dilation: IntOrTuple,
    groups: int,
    activation: str | None,
    *,
    algorithm: str | None,
    policy: Policy | None,
    residual: Tensor | None,
) -> Tensor:
    """The same call with its arguments as the op takes them."""
    if policy is not None:
        raise Refused("a policy cannot be traced: set PyTorch's flags, or compute outside of what is compiled")
    if autocasting(x):
        x, w, bias = cast(x, w, bias)
    rank = w.dim() - 2
    strides, dilations = per_axis("stride", stride, rank), per_axis("dilation", dilation, rank)
    pads = both_sides(padding, w.shape[2:], strides, dilations)
    if x.dim() != w.dim() or any(lo != hi for lo, hi in pads):
        refuse_algorithm(algorithm, policy)
        return composite(x, w, bias, stride, padding, dilation, groups, activation, residual=residual)
    one_side = [lo for lo, _ in pads]
    name = str(activation_named(activation))
    y: Tensor = torch.ops.convwright.conv2d(x, w, bias, residual, strides, one_side, dilations, groups, name, algorithm)
    return y


@torch.library.custom_op("convwright::conv2d", mutates_args=())
def _conv2d(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    algorithm: str | None,
) -> Tensor:
    from convwright.ops.functional import conv2d

    window = tuple(stride), tuple(padding), tuple(dilation), groups
    return conv2d(x, w, bias, *window, activation=activation, residual=residual, algorithm=algorithm)


@_conv2d.register_fake
def _(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    activation: str,
    algorithm: str | None,
) -> Tensor:
    return composite(x, w, bias, stride, padding, dilation, groups, activation, residual=residual)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, bias, residual, *arguments = inputs
    ctx.save_for_backward(x, w, output if arguments[4] == "relu" else None)
    ctx.arguments, ctx.has_bias, ctx.has_residual = arguments, bias is not None, residual is not None


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, w, y = ctx.saved_tensors
    if y is not None:
        dy = _aten.threshold_backward(dy, y, 0)
    stride, padding, dilation, groups, _activation, _algorithm = ctx.arguments
    needs = ctx.needs_input_grad
    dx, dw, db = _aten.convolution_backward(
        dy, x, w, [w.shape[0]] if ctx.has_bias else None, stride, padding, dilation, False, [0, 0], groups,
        (needs[0], needs[1], needs[2] and ctx.has_bias),
    )  # fmt: skip
    return dx, dw, db, dy if ctx.has_residual else None, None, None, None, None, None, None


_conv2d.register_autograd(_backward, setup_context=_setup)
