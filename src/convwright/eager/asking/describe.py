"""Tensors and a caller's arguments → the problem that they describe."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from convwright import torch_api
from convwright.core.direction import Direction
from convwright.core.epilogue import Epilogue, activation_named
from convwright.core.problem import ConvProblem, IntOrTuple, per_axis
from convwright.core.tensor_spec import Layout
from convwright.core.transposed import transposed_of_specs
from convwright.core.window import AnyPadding, Padding, all_sides
from convwright.errors import BadInput
from convwright.tensors import core_dtype, spec_of, torch_dtype

_BEYOND_ADDRESSES = 1 << 63


def problem_of(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: IntOrTuple = 1,
    padding: AnyPadding = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    activation: str | None = None,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    direction: Direction = Direction.FORWARD,
    flip: bool = False,
) -> ConvProblem:
    """The problem of these tensors. Bad input raises one sentence.

    >>> import torch
    >>> problem_of(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), padding="same").y.shape
    (1, 4, 8, 8)
    """
    _check_tensors(x, w, bias, residual, out)
    rank, stored = x.dim() - 2, next((tensor for tensor in (out, residual) if tensor is not None), None)
    strides, dilations = per_axis("stride", stride, rank), per_axis("dilation", dilation, rank)
    problem = ConvProblem.of_specs(
        spec_of(x),
        spec_of(w),
        stride=strides,
        padding=all_sides(padding, w.shape[2:], strides, dilations),
        dilation=dilations,
        groups=groups,
        direction=direction,
        epilogue=Epilogue(residual is not None, bias is not None, activation_named(activation)),
        flip=flip,
        out_dtype=None if stored is None else core_dtype(stored.dtype),
    )
    _check_behind(problem.k, problem.y.shape, bias, residual, out)
    y = spec_of(out) if out is not None else problem.y.dense(output_layout(problem, x, w, bias))
    return replace(problem, y=y)


def transposed_problem_of(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: IntOrTuple = 1,
    padding: Padding = 0,
    output_padding: IntOrTuple = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> ConvProblem:
    """The ``backward_data`` problem of a transposed convolution: its input is dy, its output dx.

    It does not include bias, residual and activation.

    >>> import torch
    >>> transposed_problem_of(torch.ones(1, 4, 8, 8), torch.ones(4, 3, 3, 3), stride=2, output_padding=1).x.shape
    (1, 3, 18, 18)
    """
    _check_tensors(x, w, bias, residual, out)
    if isinstance(padding, str):
        raise BadInput(f"`padding` of a transposed convolution must be an int or a tuple of ints, got {padding!r}")
    problem = transposed_of_specs(
        ConvProblem,
        spec_of(x), spec_of(w),
        stride=stride, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups,
    )  # fmt: skip
    _check_behind(problem.c, problem.x.shape, bias, residual, out)
    added = per_axis("output_padding", output_padding, problem.rank)
    dx = spec_of(out) if out is not None else problem.x.dense(output_layout(problem, x, w, bias, added))
    return replace(problem, x=dx)


def output_layout(
    problem: ConvProblem, x: Tensor, w: Tensor, bias: Tensor | None, added: tuple[int, ...] | None = None
) -> Layout:
    """The layout that PyTorch gives the output of ``problem`` for these operands.

    ``added`` is the output padding of a transposed convolution, None for any other.
    """
    if x.is_meta:
        return suggested(x, w)
    # For a transposed convolution the padding before counts; PyTorch pads unevenly in a separate step before others.
    padding = [before if added is not None else max(before, behind) for before, behind in problem.padding]
    backend = torch_api.select_conv_backend(
        x, w, bias, problem.stride, padding, problem.dilation,
        added is not None, added or (0,) * problem.rank, problem.groups,
    )  # fmt: skip
    if problem.rank == 1:  # PyTorch computes it as an image of one row, and makes the input contiguous for that
        contiguous = x if x.is_contiguous() else x.new_empty([min(size, 2) for size in x.shape])
        x, w = contiguous.unsqueeze(2), w.unsqueeze(2)
    shape = (problem.y if added is None else problem.x).shape
    if shape[1] == problem.groups > 1 and backend.name.startswith("Slow") and set(shape[2:]) == {1}:
        return Layout.NCHW  # PyTorch concatenates groups of one element each; their layout does not matter
    wanted = torch_api.conv_memory_format(x, w, backend)
    return Layout.NCHW if wanted is torch.contiguous_format else Layout.NHWC


def suggested(*tensors: Tensor) -> Layout:
    """Channels last if the strides of any of these tensors suggest it."""
    if tensors[0].dim() == 3:
        return Layout.NCHW
    formats = set(map(torch_api.suggest_memory_format, tensors))
    return Layout.NCHW if formats == {torch.contiguous_format} else Layout.NHWC


def _check_behind(
    channels: int, shape: tuple[int, ...], bias: Tensor | None, residual: Tensor | None, out: Tensor | None
) -> None:
    if prod(shape) >= _BEYOND_ADDRESSES:
        raise BadInput(f"the output would have more elements than a tensor can hold: shape {shape}")
    if bias is not None and tuple(bias.shape) != (channels,):
        raise BadInput(f"`bias` must have shape ({channels},), one entry per output channel, got {tuple(bias.shape)}")
    for name, tensor in (("residual", residual), ("out", out)):
        if tensor is not None and tuple(tensor.shape) != shape:
            raise BadInput(f"`{name}` must have the output's shape {shape}, got {tuple(tensor.shape)}")


def _check_tensors(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None, out: Tensor | None) -> None:
    if not 3 <= x.dim() <= 5 or w.dim() != x.dim():
        raise BadInput(
            "`input` and `weight` must have the same 3, 4 or 5 dimensions, "
            f"got shapes {tuple(x.shape)} and {tuple(w.shape)}"
        )
    for name, tensor in {"input": x, "weight": w, "bias": bias, "residual": residual, "out": out}.items():
        if tensor is None:
            continue
        if tensor.layout is not torch.strided:
            raise BadInput(f"`{name}` must be a dense tensor, got one stored as {tensor.layout}")
        dtype = core_dtype(x.dtype)
        dtypes = {"bias": (dtype.added,), "residual": dtype.outputs, "out": dtype.outputs}.get(name, (dtype,))
        allowed = tuple(map(torch_dtype, dtypes))
        if tensor.dtype not in allowed or tensor.device != x.device:
            beside = "like `input`" if allowed == (x.dtype,) else f"beside an `input` of {x.dtype}"
            wanted = f"{' or '.join(map(str, allowed))} on {x.device} {beside}"
            raise BadInput(f"`{name}` must be {wanted}, got {tensor.dtype} on {tensor.device}")
