"""Conditions that classic algorithms of cuDNN put on a problem. Each returns None, or the reason why the problem fails
it."""

from __future__ import annotations

from collections.abc import Callable

from convwright.backends.cudnn.classic.classic_problem import ClassicProblem
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.tensor_spec import Layout

Condition = Callable[[ClassicProblem], str | None]


def never(given: ClassicProblem) -> str | None:
    return "cuDNN lists this algorithm but computes no problem with it"


def only(*dtypes: DType) -> Condition:
    def condition(given: ClassicProblem) -> str | None:
        if given.problem.dtype in dtypes:
            return None
        return f"computes in {' and '.join(dtypes)}, got {given.problem.dtype}"

    return condition


def channels_first(given: ClassicProblem) -> str | None:
    return None if given.layout is Layout.NCHW else f"takes nchw, got {given.layout}"


def channels_first_in_fp64(given: ClassicProblem) -> str | None:
    return f"in fp64 {reason}" if given.problem.dtype is DType.FP64 and (reason := channels_first(given)) else None


def channels_first_in_3d(given: ClassicProblem) -> str | None:
    return f"in 3 dimensions {reason}" if given.rank == 3 and (reason := channels_first(given)) else None


def channels_first_in_3d_fp64(given: ClassicProblem) -> str | None:
    return channels_first_in_3d(given) if given.problem.dtype is DType.FP64 else None


def up_to_2d(given: ClassicProblem) -> str | None:
    return None if given.rank == 2 else f"takes 1 or 2 spatial dimensions, got {given.rank}"


def dense_x(given: ClassicProblem) -> str | None:
    role = "dx" if given.problem.direction is Direction.BACKWARD_DATA else "x"
    return None if given.x_is_dense else f"takes {role} dense in {given.layout}, got strides {given.problem.x.strides}"


def dense_y(given: ClassicProblem) -> str | None:
    role = "y" if given.problem.direction is Direction.FORWARD else "dy"
    return None if given.y_is_dense else f"takes {role} dense in {given.layout}, got strides {given.problem.y.strides}"


def in_2d(condition: Condition) -> Condition:
    return lambda given: condition(given) if given.rank == 2 else None


def in_3d(condition: Condition) -> Condition:
    return lambda given: condition(given) if given.rank == 3 else None


def in_nchw(condition: Condition) -> Condition:
    return lambda given: condition(given) if given.layout is Layout.NCHW else None


def stride_1(given: ClassicProblem) -> str | None:
    return None if max(given.stride) == 1 else f"takes strides of 1, got {given.problem.stride}"


def dilation_1(given: ClassicProblem) -> str | None:
    return None if max(given.dilation) == 1 else f"takes dilations of 1, got {given.problem.dilation}"


def taps_side_by_side(given: ClassicProblem) -> str | None:
    """Dilation 1 if there is more than one tap. With a single tap, dilation has no effect."""
    apart = any(taps > 1 and step > 1 for taps, step in zip(given.taps, given.dilation, strict=True))
    return f"takes dilations of 1, got {given.problem.dilation}" if apart else None


def padding_below_taps(given: ClassicProblem) -> str | None:
    if all(padding < taps for padding, taps in zip(given.padding, given.taps, strict=True)):
        return None
    return f"takes padding below the filter's size, got {_padding(given)} for {given.problem.taps} taps"


def padding_below_y(given: ClassicProblem) -> str | None:
    """In this direction dy slides over the input as the filter does in the others."""
    if all(padding < size for padding, size in zip(given.padding, given.y, strict=True)):
        return None
    return f"takes padding below the size of dy, got {_padding(given)} for {given.problem.y.shape[2:]}"


def _padding(given: ClassicProblem) -> tuple[int, ...]:
    return given.padding[-given.problem.rank :]
