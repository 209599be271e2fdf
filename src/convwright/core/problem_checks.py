"""Validation of convolutions, with one sentence for each error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.direction import Direction
from convwright.core.epilogue import Epilogue
from convwright.core.tensor_spec import Layout
from convwright.core.window import Sides, whole_numbers
from convwright.errors import BadInput
from convwright.naming import is_whole

if TYPE_CHECKING:
    from convwright.core.problem import ConvProblem


def check(problem: ConvProblem) -> None:
    """Refuse a problem whose parts do not fit together."""
    rank = len(problem.x.shape) - 2
    if not 1 <= rank <= 3:
        raise BadInput(f"`input` must have 3, 4 or 5 dimensions (N, C, spatial), got shape {problem.x.shape}")
    if len(problem.w.shape) != rank + 2:
        raise BadInput(f"`weight` must have {rank + 2} dimensions like `input`, got shape {problem.w.shape}")
    _check_window(problem, rank)
    _check_positive(problem)
    _check_channels(problem)
    _check_dtypes(problem)
    _check_output(problem)
    if not isinstance(problem.epilogue, Epilogue):
        raise BadInput(f"`epilogue` must be an Epilogue or its text, for example 'bias+relu', got {problem.epilogue!r}")
    _check_backward_epilogue(problem)


def _check_backward_epilogue(problem: ConvProblem) -> None:
    direction, epilogue = problem.direction, problem.epilogue
    if epilogue.residual and direction is not Direction.FORWARD:
        raise BadInput(f"a residual belongs to the forward direction, got {epilogue} on {direction}")
    if epilogue.bias and direction is Direction.BACKWARD_DATA:
        raise BadInput(f"a bias has no part in the input's gradient, got {epilogue} on {direction}")


def _check_window(problem: ConvProblem, rank: int) -> None:
    per_dimension: dict[str, tuple[object, ...]] = {
        "stride": problem.stride, "padding": problem.padding, "dilation": problem.dilation,
    }  # fmt: skip
    for name, values in per_dimension.items():
        if len(values) != rank:
            raise BadInput(f"`{name}` must have one entry per spatial dimension ({rank}), got {values}")
    if not is_whole(problem.groups):
        raise BadInput(f"`groups` must be a whole number, got {problem.groups!r}")
    whole_numbers("stride", problem.stride)
    whole_numbers("dilation", problem.dilation)
    for sides in problem.padding:
        if len(whole_numbers("padding", sides)) != 2:
            raise BadInput(f"`padding` must have a pair (before, after) per spatial dimension, got {problem.padding}")


def _check_positive(problem: ConvProblem) -> None:
    for name, least, values in (
        ("stride", 1, problem.stride),
        ("dilation", 1, problem.dilation),
        ("weight", 1, problem.w.shape),
        ("input", 1, problem.x.shape[1:]),
    ):
        if any(value < least for value in values):
            raise BadInput(f"`{name}` must be at least {least} in every dimension, got {values}")
    if any(side < 0 for sides in problem.padding for side in sides):
        raise BadInput(f"`padding` must be at least 0 in every dimension, got {_as_given(problem.padding)}")
    if problem.groups < 1:
        raise BadInput(f"`groups` must be at least 1, got {problem.groups}")


def _as_given(padding: Sides) -> object:
    """Padding in the shortest form: pairs only if the sides differ, one number if all dimensions agree."""
    each = tuple(before if before == behind else (before, behind) for before, behind in padding)
    return each[0] if len(set(each)) == 1 else each


def _check_channels(problem: ConvProblem) -> None:
    groups, channels = problem.groups, problem.c
    if channels % groups:
        raise BadInput(f"`in_channels` (={channels}) must be divisible by `groups` (={groups})")
    if problem.k % groups:
        raise BadInput(f"`out_channels` (={problem.k}) must be divisible by `groups` (={groups})")
    if problem.w.shape[1] != channels // groups:
        raise BadInput(
            f"`weight` must have in_channels / groups (={channels // groups}) channels for an input of {channels}, "
            f"got {problem.w.shape[1]}"
        )


def _check_dtypes(problem: ConvProblem) -> None:
    if problem.x.dtype is not problem.w.dtype:
        raise BadInput(f"`input` and `weight` must have the same dtype, got {problem.x.dtype} and {problem.w.dtype}")
    outputs = problem.dtype.outputs
    if problem.y.dtype not in outputs:
        raise BadInput(f"the output of {problem.dtype} operands must be {' or '.join(outputs)}, got {problem.y.dtype}")
    if problem.dtype.narrow and problem.direction is not Direction.FORWARD:
        raise BadInput(f"{problem.dtype} is computed in the forward direction only, got {problem.direction}")


def _check_output(problem: ConvProblem) -> None:
    for axis in problem.axes:
        if axis.out < 1:
            raise BadInput(
                f"the filter reaches over {axis.reach} elements, "
                f"but the padded `input` has only {axis.size + sum(axis.pad)} in that dimension"
            )
    out = (problem.n, problem.k, *(axis.out for axis in problem.axes))
    if problem.y.shape != out:
        raise BadInput(f"`output` must have shape {out}, got {problem.y.shape}")
    written = problem.output
    if written.layout is Layout.STRIDED and written.overlaps_itself:
        name = problem.direction.output.removeprefix("d")
        raise BadInput(
            f"`{name}` is written in direction {problem.direction}, so it must not overlap itself in memory, "
            f"got shape {written.shape} in strides {written.strides}"
        )
