"""Expressions over rows for which PyTorch has a function, softmax and norms, and operators applied to these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.backends.torch_native.pointwise_into import WRITING
from convwright.core.kinds.expression import Apply, Constant, Expression, Operand
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.row_expressions import Norm, norm_of, softmax_of

Function = Callable[[Mapping[str, Tensor]], Tensor]
_Writing = Callable[[Tensor, Mapping[str, Tensor]], None]


def function_of(problem: PointwiseProblem) -> Function | None:
    """PyTorch's function for a problem, from operands by name; None if there is none.

    Operators applied to its result overwrite it in place.
    """
    if not problem.row or len({spec.dtype for spec in problem.operands.values()}) != 1:
        return None
    after, expression = list[_Writing](), problem.expression
    while (function := _whole(expression, problem)) is None:
        place = _computed(expression)
        if place is None or not isinstance(expression, Apply) or expression.operator not in WRITING:
            return None
        after.insert(0, _writing(expression, place))
        expression = expression.arguments[place]
    return _followed(function, after) if after else function


def _computed(expression: Expression) -> int | None:
    """The index of the argument that is computed; None unless all others are operands and numbers."""
    given = expression.arguments if isinstance(expression, Apply) else ()
    others = [place for place, each in enumerate(given) if not isinstance(each, Operand | Constant)]
    return others[0] if len(others) == 1 else None


def _writing(step: Apply, place: int) -> _Writing:
    """A step that overwrites its argument at ``place``, the previous result."""
    write, others = WRITING[step.operator], step.arguments

    def call(made: Tensor, operands: Mapping[str, Tensor]) -> None:
        given = [operands[each.name] if isinstance(each, Operand) else getattr(each, "value", None) for each in others]
        given[place] = made
        write(*given, out=made)

    return call


def _followed(function: Function, after: Sequence[_Writing]) -> Function:
    def compute(operands: Mapping[str, Tensor]) -> Tensor:
        made = function(operands)
        for write in after:
            write(made, operands)
        return made

    return compute


def _whole(expression: Expression, problem: PointwiseProblem) -> Function | None:
    """The function for all of an expression, as a tensor of the problem's sizes."""
    name = softmax_of(expression)
    if name is not None:
        is_softmax = len(problem.row) == 1 and problem.groups == 1 and problem.operands[name].shape == problem.y.shape
        return _softmax(name, problem.row[0]) if is_softmax else None
    norm = norm_of(expression)
    if norm is None or problem.operands[norm.a].shape != problem.y.shape:
        return None
    return _group_norm(norm, problem) or (_layer_norm(norm, problem) if problem.groups == 1 else None)


def _softmax(name: str, dim: int) -> Function:
    return lambda operands: torch.softmax(operands[name], dim)


def _group_norm(norm: Norm, problem: PointwiseProblem) -> Function | None:
    """Group norm, if a row is a channel or a group of channels, and scale and shift have one number per channel."""
    shape = problem.y.shape
    groups, channels = _groups(problem), (1, *shape[1:2], *(1 for _ in shape[2:]))
    names = (norm.scale, norm.shift)
    if groups is None or any(name is not None and problem.operands[name].shape != channels for name in names):
        return None

    def compute(operands: Mapping[str, Tensor]) -> Tensor:
        scale, shift = (None if name is None else operands[name].flatten() for name in names)
        return torch.group_norm(operands[norm.a], groups, scale, shift, norm.eps)

    return compute


def _groups(problem: PointwiseProblem) -> int | None:
    """The number of channel groups if each is a row."""
    rank = len(problem.y.shape)
    if problem.row == tuple(range(1, rank)):
        return problem.groups
    return problem.y.shape[1] if problem.row == tuple(range(2, rank)) and problem.groups == 1 else None


def _layer_norm(norm: Norm, problem: PointwiseProblem) -> Function:
    """Layer norm, with the row's dimensions last. It applies scale and shift if they have the row's size and are the
    same for each row."""
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
