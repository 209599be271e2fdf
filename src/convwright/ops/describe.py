"""Tensors and a caller's arguments → the problem that they pose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from convwright.core.direction import Direction
from convwright.core.epilogue import Epilogue, activation_named
from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem, IntOrTuple, per_axis
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.tensors import spec_of

Padding = IntOrTuple | str


def problem_of(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: IntOrTuple = 1,
    padding: Padding = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    activation: str | None = None,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    direction: Direction = Direction.FORWARD,
) -> ConvProblem:
    """The problem that these tensors pose; bad input is refused here, in one sentence.

    >>> problem_of(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), padding="same").y.shape
    (1, 4, 8, 8)
    """
    _check_tensors(x, w, {"weight": w, "bias": bias, "residual": residual, "out": out})
    rank = x.dim() - 2
    strides, dilations = per_axis("stride", stride, rank), per_axis("dilation", dilation, rank)
    problem = ConvProblem.of_specs(
        spec_of(x),
        spec_of(w),
        stride=strides,
        padding=both_sides(padding, w.shape[2:], strides, dilations),
        dilation=dilations,
        groups=groups,
        layout=_output_layout(x, w),
        direction=direction,
        epilogue=Epilogue(residual is not None, bias is not None, activation_named(activation)),
    )
    if bias is not None and tuple(bias.shape) != (problem.k,):
        raise BadInput(f"`bias` must have shape ({problem.k},), one entry per output channel, got {tuple(bias.shape)}")
    for name, tensor in (("residual", residual), ("out", out)):
        if tensor is not None and tuple(tensor.shape) != problem.y.shape:
            raise BadInput(f"`{name}` must have the output's shape {problem.y.shape}, got {tuple(tensor.shape)}")
    return problem if out is None else replace(problem, y=spec_of(out))


def both_sides(
    padding: Padding, taps: Sequence[int], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """The padding before and after, for each spatial dimension."""
    if not isinstance(padding, str):
        return tuple((side, side) for side in per_axis("padding", padding, len(taps)))
    if padding == "valid":
        return ((0, 0),) * len(taps)
    if padding != "same":
        raise BadInput(f"`padding` must be an int, a tuple of ints, 'valid' or 'same', got {padding!r}")
    if any(step != 1 for step in stride):
        raise BadInput(f"padding='same' needs stride 1, got {stride}")
    totals = (Axis(0, size, 1, (0, 0), step).reach - 1 for size, step in zip(taps, dilation, strict=True))
    return tuple((total // 2, total - total // 2) for total in totals)


def _check_tensors(x: Tensor, w: Tensor, named: Mapping[str, Tensor | None]) -> None:
    if not 3 <= x.dim() <= 5 or w.dim() != x.dim():
        raise BadInput(
            "`input` and `weight` must have the same 3, 4 or 5 dimensions, "
            f"got shapes {tuple(x.shape)} and {tuple(w.shape)}"
        )
    for name, tensor in named.items():
        if tensor is not None and (tensor.dtype, tensor.device) != (x.dtype, x.device):
            raise BadInput(
                f"`{name}` must be {x.dtype} on {x.device} like `input`, got {tensor.dtype} on {tensor.device}"
            )


def _output_layout(x: Tensor, w: Tensor) -> Layout:
    """The layout of PyTorch's own output: channels last where the strides of either operand suggest it."""
    if x.dim() == 3:
        return Layout.NCHW
    return Layout.NCHW if all(suggest_memory_format(t) is torch.contiguous_format for t in (x, w)) else Layout.NHWC
