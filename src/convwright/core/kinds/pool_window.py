"""Kinds of pooling, and the output shape of a pool."""

from __future__ import annotations

from enum import StrEnum

from convwright.core.geometry import Axis
from convwright.errors import BadInput


class Pooling(StrEnum):
    """How a window becomes one element."""

    MAX = "max"
    AVG = "avg"


def output_shape(
    shape: tuple[int, ...],
    taps: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    *,
    ceil: bool = False,
) -> tuple[int, ...]:
    """The output shape of pooling.

    >>> output_shape((1, 8, 6), (3,), (2,), (0,), (1,)), output_shape((1, 8, 6), (3,), (2,), (0,), (1,), ceil=True)
    ((1, 8, 2), (1, 8, 3))
    """
    made = list(shape[:2])
    for size, window, step, pad, gap in zip(shape[2:], taps, stride, padding, dilation, strict=True):
        axis = Axis(size, window, step, (pad, pad), gap)
        out = axis.out
        if ceil:
            out = -(-(size + 2 * pad - axis.reach) // step) + 1
            out -= (out - 1) * step >= size + pad  # the last window must start before the end of the image
        if out < 1:
            raise BadInput(f"a window that reaches {axis.reach} elements does not fit in {size} with padding {pad}")
        made.append(out)
    return tuple(made)
