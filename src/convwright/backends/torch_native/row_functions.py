"""Expressions over rows that PyTorch has a function for: softmax and norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.row_expressions import Norm, norm_of, softmax_of

Function = Callable[[Mapping[str, Tensor]], Tensor]


def function_of(problem: PointwiseProblem) -> Function | None:
    """The function of PyTorch's that computes a problem, from operands by name; None where there is none."""
    if not problem.row or len({spec.dtype for spec in problem.operands.values()}) != 1:
        return None
    name = softmax_of(problem.expression)
    if name is not None:
        return _softmax(name, problem.row[0]) if len(problem.row) == 1 else None
    norm = norm_of(problem.expression)
    if norm is None or problem.operands[norm.a].shape != problem.y.shape:
        return None
    return _norm(norm, problem)


def _softmax(name: str, dim: int) -> Function:
    return lambda operands: torch.softmax(operands[name], dim)


def _norm(norm: Norm, problem: PointwiseProblem) -> Function:
    """Layer norm, with the row's dimensions as the last ones. It applies scale and shift where these are as long as the
    row and the same for each row."""
    shape = problem.y.shape
    order = (*(dim for dim in range(len(shape)) if dim not in problem.row), *problem.row)
    back, row = tuple(map(order.index, range(len(order)))), tuple(shape[dim] for dim in problem.row)
    alike = tuple(size if dim in problem.row else 1 for dim, size in enumerate(shape))
    names = [norm.scale, norm.shift]
    applies = all(name is None or problem.operands[name].shape == alike for name in names)

    def compute(operands: Mapping[str, Tensor]) -> Tensor:
        scale, shift = (None if name is None else operands[name] for name in names)
        x = operands[norm.a].permute(order)
        if applies:
            scale, shift = (None if each is None else each.reshape(row) for each in (scale, shift))
            return F.layer_norm(x, row, scale, shift, norm.eps).permute(back)
        made = F.layer_norm(x, row, eps=norm.eps).permute(back)
        made = made if scale is None else made * scale
        return made if shift is None else made + shift

    return compute
