"""Tensors, a module or a text → the problem."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import repr as brief
from typing import Any, cast

from torch import Tensor, nn

from convwright.api.describe_module import problem_of_module, spatial_rank
from convwright.core.direction import Direction
from convwright.core.kinds.problem import Problem
from convwright.core.kinds.text import KINDS, parse
from convwright.core.problem import ConvProblem, IntOrTuple
from convwright.core.window import AnyPadding
from convwright.eager.asking.describe import problem_of
from convwright.eager.calls.call import as_batch
from convwright.eager.running.pytorchs_own import check_storage
from convwright.errors import BadInput
from convwright.naming import one_of
from convwright.option_names import ActivationName, DirectionName
from convwright.uncompiled import uncompiled


@uncompiled()
def problem(
    what: Problem | str | Tensor | nn.Module,
    weight: Tensor | Sequence[int] | None = None,
    bias: Tensor | None = None,
    *,
    stride: IntOrTuple = 1,
    padding: AnyPadding = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    activation: ActivationName | None = None,
    residual: Tensor | None = None,
    flip: bool = False,
    direction: Direction | DirectionName | None = None,
) -> Any:
    """The problem of tensors, a module of PyTorch or a text. Nothing is computed.

    ``what`` is an input, followed by ``weight`` and the arguments of ``F.conv2d``; or an ``nn.Conv…``, followed by its
    input or the shape of its input; or the text of a problem of any kind. ``padding`` may be a pair (before, after) for
    each dimension. ``flip`` asks for a true convolution, ``direction`` for a gradient.

    >>> import torch
    >>> problem(torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3), padding=((0, 1), (1, 1))).y.shape
    (2, 4, 7, 8)
    >>> problem(nn.Conv2d(3, 4, 3), (2, 3, 8, 8), direction="backward_weight").output.shape
    (4, 3, 3, 3)
    """
    window = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    more = {"bias": bias, "activation": activation, "residual": residual, "flip": flip or None}
    if isinstance(what, Tensor):
        operand = _weight_of(what, weight, bias, residual)
        if what.dim() == operand.dim() - 1:
            what, residual = what.unsqueeze(0), as_batch(residual)
        return problem_of(
            what, operand, bias,
            stride=stride, padding=padding, dilation=dilation, groups=groups, activation=activation,
            residual=residual, flip=flip, direction=one_of(Direction, "direction", direction or Direction.FORWARD),
        )  # fmt: skip
    posed = _posed(what, weight)
    given = [name for name, value in window.items() if value != (0 if name == "padding" else 1)]
    given += [name for name, value in more.items() if value is not None]
    if given:
        said = "the module" if isinstance(what, nn.Module) else "the problem"
        raise BadInput(f"`{given[0]}` belongs to an input and its weight; {said} says it itself: {posed.key}")
    if direction is None:
        return posed
    if not isinstance(posed, ConvProblem):
        raise BadInput(f"`direction` belongs to a convolution; the problem is {posed.key}")
    return posed.asking(one_of(Direction, "direction", direction))


def _posed(what: object, second: Tensor | Sequence[int] | None) -> Problem:
    if isinstance(what, nn.Module):
        spatial_rank(what)
        if second is None:
            raise BadInput(f"a {type(what).__name__} poses a problem together with its input's shape, which is missing")
        return problem_of_module(what, second)
    if isinstance(what, Tensor) or not (isinstance(what, str) or getattr(what, "kind", None) in KINDS):
        raise BadInput(f"a problem, its text, an input tensor or an nn.Conv… was expected, got {brief(what)}")
    if second is not None:
        raise BadInput(f"a problem needs no weight, got one beside {str(what)!r}")
    return parse(what) if isinstance(what, str) else cast(Problem, what)


def _weight_of(x: Tensor, weight: object, bias: object, residual: object) -> Tensor:
    if weight is None:
        raise BadInput("an input tensor poses a problem together with its weight, which is missing")
    for name, given in (("weight", weight), ("bias", bias), ("residual", residual)):
        if given is not None and not isinstance(given, Tensor):
            raise BadInput(f"`{name}` must be a tensor, got {brief(given)}")
    check_storage(x, {"input": x, "weight": weight, "bias": bias, "residual": residual})
    assert isinstance(weight, Tensor)
    return weight
