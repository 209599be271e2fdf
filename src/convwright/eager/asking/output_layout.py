"""How PyTorch's own output of a convolution lies in memory, since ours lies the same way."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

_C: Any = torch._C


def output_layout(
    problem: ConvProblem, x: Tensor, w: Tensor, bias: Tensor | None, added: tuple[int, ...] | None = None
) -> Layout:
    """The layout that PyTorch gives the output of ``problem`` on these operands, whatever strides theirs have.

    ``added`` is the output padding of a transposed convolution, None for any other.
    """
    if x.is_meta:
        return suggested(x, w)
    # A transposed convolution's own padding is the one before; PyTorch pads unevenly by itself, ahead of the others.
    padding = [before if added is not None else max(before, behind) for before, behind in problem.padding]
    backend = _C._select_conv_backend(
        x, w, bias, problem.stride, padding, problem.dilation,
        added is not None, added or (0,) * problem.rank, problem.groups,
    )  # fmt: skip
    if problem.rank == 1:  # PyTorch computes an image of one row, for which it makes the input contiguous
        contiguous = x if x.is_contiguous() else x.new_empty([min(size, 2) for size in x.shape])
        x, w = contiguous.unsqueeze(2), w.unsqueeze(2)
    shape = (problem.y if added is None else problem.x).shape
    if shape[1] == problem.groups > 1 and backend.name.startswith("Slow") and set(shape[2:]) == {1}:
        return Layout.NCHW  # groups of one element each are put together, of which nobody knows how they lay
    wanted = _C._conv_determine_backend_memory_format(x, w, backend)
    return Layout.NCHW if wanted is torch.contiguous_format else Layout.NHWC


def suggested(*tensors: Tensor) -> Layout:
    """Channels last where the strides of any of these suggest it."""
    if tensors[0].dim() == 3:
        return Layout.NCHW
    return Layout.NCHW if all(suggest_memory_format(t) is torch.contiguous_format for t in tensors) else Layout.NHWC
