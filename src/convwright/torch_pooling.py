"""Pooling by PyTorch's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling

_MAX: tuple[Callable[..., Tensor], ...] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_AVG: tuple[Callable[..., Tensor], ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


def pooled(problem: PoolProblem, x: Tensor) -> Tensor:
    """The result in the precision of ``x``, which lies as PyTorch lays it.

    >>> import torch
    >>> pooled(PoolProblem.parse("pool max ic1iw4 kw2"), torch.tensor([[[1.0, 2.0, 4.0, 3.0]]]))
    tensor([[[2., 4.]]])
    """
    if problem.pooling is Pooling.MAX:
        return _MAX[problem.rank - 1](x, **arguments(problem))
    if problem.divisor is not None and problem.rank == 1:  # which has no such argument
        return F.avg_pool2d(x.unsqueeze(2), **in_2d(problem)).squeeze(2)
    return _AVG[problem.rank - 1](x, **arguments(problem))


def arguments(problem: PoolProblem) -> dict[str, Any]:
    """Those of PyTorch's function, but for the input."""
    given: dict[str, Any] = {"kernel_size": problem.taps, "stride": problem.stride, "padding": problem.padding}
    given["ceil_mode"] = problem.ceil
    if problem.pooling is Pooling.MAX:
        return given | {"dilation": problem.dilation}
    given["count_include_pad"] = problem.includes_padding
    return given | ({"divisor_override": problem.divisor} if problem.rank > 1 else {})


def in_2d(problem: PoolProblem) -> dict[str, Any]:
    """Those of the function for images, of a line that is an image with a height of 1."""
    given, first = arguments(problem), {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
    given |= {name: (first[name], *each) for name, each in given.items() if name in first}
    return given if problem.pooling is Pooling.MAX else given | {"divisor_override": problem.divisor}
