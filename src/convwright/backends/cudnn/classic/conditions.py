"""Conditions that classic algorithms of cuDNN put on a problem. Each returns None, or the reason why the problem fails
it."""

from __future__ import annotations

from collections.abc import Callable

from convwright.backends.cudnn.classic.asked import Asked
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.tensor_spec import Layout

Condition = Callable[[Asked], str | None]


def never(asked: Asked) -> str | None:
    return "cuDNN lists this algorithm but computes no problem with it"


def only(*dtypes: DType) -> Condition:
    def condition(asked: Asked) -> str | None:
        if asked.problem.dtype in dtypes:
            return None
        return f"computes in {' and '.join(dtypes)}, got {asked.problem.dtype}"

    return condition


def channels_first(asked: Asked) -> str | None:
    return None if asked.layout is Layout.NCHW else f"takes nchw, got {asked.layout}"


def channels_first_in_fp64(asked: Asked) -> str | None:
    return f"in fp64 {reason}" if asked.problem.dtype is DType.FP64 and (reason := channels_first(asked)) else None


def channels_first_in_3d(asked: Asked) -> str | None:
    return f"in 3 dimensions {reason}" if asked.rank == 3 and (reason := channels_first(asked)) else None


def channels_first_in_3d_fp64(asked: Asked) -> str | None:
    return channels_first_in_3d(asked) if asked.problem.dtype is DType.FP64 else None


def up_to_2d(asked: Asked) -> str | None:
    return None if asked.rank == 2 else f"takes 1 or 2 spatial dimensions, got {asked.rank}"


def dense_x(asked: Asked) -> str | None:
    role = "dx" if asked.problem.direction is Direction.BACKWARD_DATA else "x"
    return None if asked.x_is_dense else f"takes {role} dense in {asked.layout}, got strides {asked.problem.x.strides}"


def dense_y(asked: Asked) -> str | None:
    role = "y" if asked.problem.direction is Direction.FORWARD else "dy"
    return None if asked.y_is_dense else f"takes {role} dense in {asked.layout}, got strides {asked.problem.y.strides}"


def in_2d(condition: Condition) -> Condition:
    return lambda asked: condition(asked) if asked.rank == 2 else None


def in_3d(condition: Condition) -> Condition:
    return lambda asked: condition(asked) if asked.rank == 3 else None


def in_nchw(condition: Condition) -> Condition:
    return lambda asked: condition(asked) if asked.layout is Layout.NCHW else None


def stride_1(asked: Asked) -> str | None:
    return None if max(asked.stride) == 1 else f"takes strides of 1, got {asked.problem.stride}"


def dilation_1(asked: Asked) -> str | None:
    return None if max(asked.dilation) == 1 else f"takes dilations of 1, got {asked.problem.dilation}"


def taps_side_by_side(asked: Asked) -> str | None:
    """Dilation 1 if there is more than one tap. With a single tap, dilation has no effect."""
    apart = any(taps > 1 and step > 1 for taps, step in zip(asked.taps, asked.dilation, strict=True))
    return f"takes dilations of 1, got {asked.problem.dilation}" if apart else None


def padding_below_taps(asked: Asked) -> str | None:
    if all(padding < taps for padding, taps in zip(asked.padding, asked.taps, strict=True)):
        return None
    return f"takes padding below the filter's size, got {_padding(asked)} for {asked.problem.taps} taps"


def padding_below_y(asked: Asked) -> str | None:
    """In this direction dy slides over the input as the filter does in the others."""
    if all(padding < size for padding, size in zip(asked.padding, asked.y, strict=True)):
        return None
    return f"takes padding below the size of dy, got {_padding(asked)} for {asked.problem.y.shape[2:]}"


def _padding(asked: Asked) -> tuple[int, ...]:
    return asked.padding[-asked.problem.rank :]
