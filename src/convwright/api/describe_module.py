"""A convolution module of PyTorch and the shape of its input → their problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from convwright import torch_api
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, LayoutName, TensorSpec, dense_strides, layouts_of
from convwright.core.window import shape_of
from convwright.eager.asking.describe import problem_of, transposed_problem_of
from convwright.errors import BadInput
from convwright.tensors import core_dtype, empty, torch_dtype
from convwright.uncompiled import uncompiled

_CONVOLUTIONS: dict[type[nn.Module], int] = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}
_TRANSPOSED: dict[type[nn.Module], int] = {nn.ConvTranspose1d: 1, nn.ConvTranspose2d: 2, nn.ConvTranspose3d: 3}


@uncompiled()
def problem_of_module(
    module: nn.Module,
    input_shape: Sequence[int] | Tensor,
    *,
    dtype: DType | str | None = None,
    layout: LayoutName = Layout.NCHW,
) -> ConvProblem:
    """The problem of ``module`` for an input of ``input_shape`` in ``layout``. No memory is allocated.

    A tensor may stand for its shape and layout. ``dtype`` is the weight's by default, and the weight keeps its layout.
    A transposed module gives a backward_data problem, which has no bias. For a module that pads with values other than
    zeros, the problem is the convolution of the padded input.

    >>> problem_of_module(nn.Conv2d(3, 8, 3, padding=1), (4, 3, 32, 32)).key
    'g1mb4ic3oc8ih32iw32oh32ow32kh3kw3sh1sw1ph1pw1dh0dw0 dt:fp32 dir:forward tag:nchw ep:bias'
    """
    rank = spatial_rank(module)
    given, lies = _input(input_shape, layouts_of(layout)["x"])
    shape = (1, *given) if len(given) == rank + 1 else given  # PyTorch's modules take one image without a batch too
    if len(shape) != rank + 2:
        raise BadInput(f"`input` of a {type(module).__name__} must have {rank + 2} dimensions, got shape {shape}")
    conv: Any = module
    kind = core_dtype(conv.weight.dtype) if dtype is None else DType.parse(str(dtype))
    pose = _transposed if isinstance(module, tuple(_TRANSPOSED)) else _forward
    try:
        return pose(conv, shape, kind, lies)
    except BadInput as error:
        if shape == given:
            raise
        raise BadInput(f"{error} (the shape {given} was read as one image without a batch)") from error


def _input(given: Sequence[int] | Tensor, layout: Layout) -> tuple[tuple[int, ...], Layout]:
    """The shape and the layout of an input."""
    if not isinstance(given, Tensor):
        return shape_of("input", given), layout
    shape = tuple(given.shape)
    nhwc = given.layout is torch.strided and given.stride() == dense_strides(shape, Layout.NHWC)
    return shape, Layout.NHWC if nhwc and given.dim() > 3 and not given.is_contiguous() else Layout.NCHW


def spatial_rank(module: nn.Module) -> int:
    """The number of spatial dimensions of a convolution; other modules are refused."""
    for kind, rank in (_CONVOLUTIONS | _TRANSPOSED).items():
        if isinstance(module, kind):
            if isinstance(module.weight, UninitializedParameter):
                raise BadInput(f"a {type(module).__name__} has no weight before its first call: call it once")
            return rank
    names = ", ".join(kind.__name__ for kind in (*_CONVOLUTIONS, *_TRANSPOSED))
    raise BadInput(
        f"a module must be one of {names}, got a {type(module).__name__}: `cw.advise`, `cw.optimize` and `cw.predict` "
        "take a whole model and a tensor as an example of its input"
    )


def _forward(conv: Any, shape: tuple[int, ...], dtype: DType, layout: Layout) -> ConvProblem:
    padding = conv.padding
    if conv.padding_mode != "zeros":
        sides = torch_api.padded_sides(conv)
        totals = [before + after for before, after in zip(sides[::2], sides[1::2], strict=True)][::-1]
        shape = (*shape[:2], *(size + total for size, total in zip(shape[2:], totals, strict=True)))
        padding = 0
    x = TensorSpec(shape, dtype, dense_strides(shape, layout))
    return problem_of(
        empty(x, "meta"), _like(conv.weight, dtype), None if conv.bias is None else _like(conv.bias, dtype),
        stride=conv.stride, padding=padding, dilation=conv.dilation, groups=conv.groups,
    )  # fmt: skip


def _transposed(conv: Any, shape: tuple[int, ...], dtype: DType, layout: Layout) -> ConvProblem:
    x = TensorSpec(shape, dtype, dense_strides(shape, layout))
    return transposed_problem_of(
        empty(x, "meta"), _like(conv.weight, dtype),
        stride=conv.stride, padding=conv.padding, output_padding=conv.output_padding, dilation=conv.dilation,
        groups=conv.groups,
    )  # fmt: skip


def _like(tensor: Tensor, dtype: DType) -> Tensor:
    """A tensor without memory, with the strides of ``tensor``."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=torch_dtype(dtype), device="meta")
