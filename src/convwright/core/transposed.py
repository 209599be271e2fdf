"""A transposed convolution as the backward_data problem of an ordinary one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.direction import Direction
from convwright.core.geometry import Axis
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.core.window import IntOrTuple, per_axis
from convwright.errors import BadInput, NothingLeft, Refused
from convwright.naming import is_whole

if TYPE_CHECKING:
    from convwright.core.problem import ConvProblem


def transposed_of_specs(
    make: type[ConvProblem],
    x: TensorSpec,
    w: TensorSpec,
    *,
    stride: IntOrTuple = 1,
    padding: IntOrTuple = 0,
    output_padding: IntOrTuple = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    layout: Layout = Layout.NCHW,
) -> ConvProblem:
    """Use ``make`` to build the problem whose ``dy`` is the input ``x`` and whose ``dx`` is the output, dense in
    ``layout``.

    ``w`` is (in_channels, out_channels / groups, taps…) as in PyTorch, which is the ordinary convolution's weight as it
    is.
    """
    _check_shapes(x.shape, w.shape, groups)
    rank = len(x.shape) - 2
    window = [
        per_axis(name, value, rank)
        for name, value in (
            ("stride", stride), ("padding", padding), ("output_padding", output_padding), ("dilation", dilation)
        )
    ]  # fmt: skip
    axes = [_axis(*dimension) for dimension in zip(x.shape[2:], w.shape[2:], *window, strict=True)]
    for axis, pad in zip(axes, window[1], strict=True):
        if not axis.size:
            raise NothingLeft(_takes_all(pad, 2 * pad))
    out = (x.shape[0], w.shape[1] * groups, *(axis.size for axis in axes))
    return make(
        x=TensorSpec(out, x.dtype, dense_strides(out, layout)),
        w=w,
        y=x,
        stride=window[0],
        padding=tuple(axis.pad for axis in axes),
        dilation=window[3],
        groups=groups,
        direction=Direction.BACKWARD_DATA,
    )


def _check_shapes(x: tuple[int, ...], w: tuple[int, ...], groups: int) -> None:
    if not 3 <= len(x) <= 5:
        raise BadInput(f"`input` must have 3, 4 or 5 dimensions (N, C, spatial), got shape {x}")
    if len(w) != len(x):
        raise BadInput(f"`weight` must have {len(x)} dimensions like `input`, got shape {w}")
    if not is_whole(groups) or groups < 1:
        raise BadInput(f"`groups` must be a whole number of at least 1, got {groups!r}")
    for name, values in (("input", x[1:]), ("weight", w)):
        if any(value < 1 for value in values):
            raise BadInput(f"`{name}` must be at least 1 in every dimension, got {values}")
    if x[1] % groups:
        raise BadInput(f"`in_channels` (={x[1]}) must be divisible by `groups` (={groups})")
    if w[0] != x[1]:
        raise BadInput(f"a transposed `weight` must have in_channels (={x[1]}) as its first size, got {w[0]}")


def _axis(positions: int, taps: int, stride: int, padding: int, output_padding: int, dilation: int) -> Axis:
    """One dimension of the ordinary convolution: its ``size`` is the size of the transposed one's output."""
    _check_window(stride, padding, output_padding, dilation)
    reach = (taps - 1) * dilation + 1
    size = (positions - 1) * stride - 2 * padding + reach + output_padding
    if size < 0:
        raise BadInput(_takes_all(padding, size + 2 * padding))
    # Output padding beyond the stride reduces the padding at the end.
    behind = padding - max(0, output_padding - stride + 1)
    if behind < 0:
        raise Refused(
            f"`output_padding` (={output_padding}) adds elements that no input element reaches: to be a backward_data "
            f"problem it must be smaller than stride + padding (={stride + padding})"
        )
    return Axis(size, taps, stride, (padding, behind), dilation)


def _takes_all(padding: int, elements: int) -> str:
    return f"`padding` (={padding}) takes away all of the {elements} elements of an output"


def _check_window(stride: int, padding: int, output_padding: int, dilation: int) -> None:
    for name, value, least in (
        ("stride", stride, 1), ("dilation", dilation, 1), ("padding", padding, 0), ("output_padding", output_padding, 0)
    ):  # fmt: skip
        if value < least:
            raise BadInput(f"`{name}` must be at least {least} in every dimension, got {value}")
    if output_padding >= max(stride, dilation):
        raise BadInput(
            f"`output_padding` (={output_padding}) must be smaller than `stride` (={stride}) "
            f"or `dilation` (={dilation})"
        )
