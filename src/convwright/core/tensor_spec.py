"""An operand without memory: shape, dtype, strides, alignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from math import gcd, prod

from convwright.core.dtype import DType
from convwright.core.record import Record
from convwright.core.window import whole_numbers
from convwright.errors import BadInput
from convwright.naming import one_of

ALIGNMENTS = (1, 2, 4, 8, 16)


class Layout(StrEnum):
    """The order of dimensions in memory, with the names for images whatever the rank."""

    NCHW = "nchw"
    NHWC = "nhwc"
    STRIDED = "strided"


LayoutName = Layout | str
_DENSE = (Layout.NCHW, Layout.NHWC)


def layouts_of(layout: LayoutName | Mapping[str, LayoutName]) -> dict[str, Layout]:
    """The layouts of x, w and y: one for all, or by name; the default is NCHW.

    >>> layouts_of({"y": "nhwc"})["y"]
    <Layout.NHWC: 'nhwc'>
    """
    given = layout if isinstance(layout, Mapping) else dict.fromkeys("xwy", layout)
    unknown = [name for name in given if name not in ("x", "w", "y")]
    if unknown:
        raise BadInput(f"`layout` must be given for x, w and y, got one for {unknown[0]!r}")
    if Layout.STRIDED in given.values():
        raise BadInput(f"layout must be one of {', '.join(_DENSE)}; for other strides give TensorSpecs")
    return {name: one_of(Layout, "layout", given.get(name, Layout.NCHW), but=Layout.STRIDED) for name in "xwy"}


def dense_strides(shape: tuple[int, ...], layout: Layout = Layout.NCHW) -> tuple[int, ...]:
    """Strides in elements, for logical order (N, C, spatial…), of a dense tensor in ``layout``.

    >>> dense_strides((2, 3, 4, 5), Layout.NHWC)
    (60, 1, 15, 3)
    """
    order = [*range(len(shape))]
    if layout is Layout.NHWC and len(shape) > 1:
        order = [0, *order[2:], 1]
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def same_order(shape: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether both strides address the same elements; strides along dimensions of size 1 do not matter."""
    return all(size <= 1 or a == b for size, a, b in zip(shape, first, second, strict=True))


def _meet(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether two dimensions, each a size and a stride, address a common element besides the first."""
    (a, a_step), (b, b_step) = first, second
    common = gcd(a_step, b_step)
    return b_step // common < a and a_step // common < b


@dataclass(frozen=True, slots=True)
class TensorSpec(Record):
    """One operand. Strides are in elements; alignment is the first element's, in bytes."""

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] = ()
    alignment: int = 16

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", whole_numbers("shape", self.shape))
        if any(size < 0 for size in self.shape):
            raise BadInput(f"sizes must not be negative, got shape {self.shape}")
        if self.alignment not in ALIGNMENTS:
            raise BadInput(f"`alignment` must be one of {', '.join(map(str, ALIGNMENTS))} bytes, got {self.alignment}")
        given = whole_numbers("strides", self.strides) or dense_strides(self.shape)
        if len(given) != len(self.shape):
            raise BadInput(f"strides must have one entry per dimension of {self.shape}, got {given}")
        for layout in _DENSE:
            dense = dense_strides(self.shape, layout)
            if same_order(self.shape, given, dense):
                given = dense
                break
        object.__setattr__(self, "strides", given)

    @property
    def layout(self) -> Layout:
        for layout in _DENSE:
            if self.strides == dense_strides(self.shape, layout):
                return layout
        return Layout.STRIDED

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps between them."""
        return self.numel * self.dtype.nbytes

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element to the end of the last."""
        if self.numel == 0:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.dtype.nbytes

    @property
    def overlaps_itself(self) -> bool:
        """Whether different indices address the same element in memory.

        >>> TensorSpec((1, 8, 2, 2), DType.FP32, (0, 0, 1, 1)).overlaps_itself
        True
        """
        if self.numel == 0:
            return False
        moved = [(size, abs(step)) for size, step in zip(self.shape, self.strides, strict=True) if size > 1]
        return any(step == 0 for _, step in moved) or any(_meet(a, b) for a, b in combinations(moved, 2))

    def dense(self, layout: Layout) -> TensorSpec:
        """The same operand, dense in ``layout`` and well aligned."""
        return replace(self, strides=dense_strides(self.shape, layout), alignment=16)
