"""An input's gradient as the forward convolution of dy with the rotated weight."""

from __future__ import annotations

from dataclasses import replace

from convwright.core.direction import Direction
from convwright.core.epilogue import Epilogue
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec


def turned_shape(problem: ConvProblem) -> tuple[int, ...]:
    """The shape of the rotated weight: input and output channels are swapped within each group."""
    return (problem.c, problem.k // problem.groups, *problem.taps)


def turned(problem: ConvProblem, weight: TensorSpec) -> ConvProblem:
    """The forward convolution, without an epilogue, of dy with a rotated ``weight``.

    >>> problem = ConvProblem.parse("ic8ih10oc4kh3ph1 dir:backward_data")
    >>> forward = turned(problem, TensorSpec(turned_shape(problem), problem.dtype))
    >>> forward.x.shape, forward.w.shape, forward.padding
    ((1, 4, 10, 10), (8, 4, 3, 3), ((1, 1), (1, 1)))
    """
    return replace(
        problem,
        x=problem.y,
        w=weight,
        y=problem.x,
        padding=_padding(problem),
        direction=Direction.FORWARD,
        epilogue=Epilogue(),
        flip=False,
    )


def why_not_turned(problem: ConvProblem) -> str | None:
    """Why there is no such convolution; None if there is one."""
    if problem.direction is not Direction.BACKWARD_DATA:
        return f"turns an input's gradient around, not {problem.direction}"
    if any(stride > 1 for stride in problem.stride):
        return f"stride {problem.stride}: between the elements of dy there would have to be zeros"
    if any(side < 0 for pair in _padding(problem) for side in pair):
        return f"padding {problem.padding} reaches further than the filter, so dy would have to be cut"
    return None


def _padding(problem: ConvProblem) -> tuple[tuple[int, int], ...]:
    """The filter's reach beyond each border, minus the padding; negative if the padding reaches further."""
    return tuple((axis.reach - 1 - axis.pad[0], axis.reach - 1 - axis.pad[1]) for axis in problem.axes)
