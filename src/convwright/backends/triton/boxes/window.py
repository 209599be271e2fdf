"""Boxes of pixels: descriptors of images for the copy engine, the taps' input, and the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from convwright.backends.triton.launching.kernel_call import TensorMap
from convwright.backends.triton.operands import depth, pair, power_of_two
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

APART_BYTES = 16  # every stride is a multiple of this
_APART = 16  # elements: a multiple of 16 bytes for every dtype
_MOST_OF_A_SIDE = 256

# Of images, planes, rows and columns.
Sizes = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Images:
    """Sizes and strides of images, planes, rows and pixels, in elements. Two-dimensional images have one plane."""

    sizes: Sizes
    strides: Sizes
    deep: bool

    @classmethod
    def of(cls, spec: TensorSpec) -> Images:
        n, channels, *pixels = spec.shape
        missing = 3 - len(pixels)
        sizes, given = (n, *[1] * missing, *pixels), (spec.strides[0], *[0] * missing, *spec.strides[2:])
        # The stride of a dimension of size 1 is irrelevant; it gets one that the copy engine accepts.
        strides, behind = [], power_of_two(max(channels, _APART))
        for size, stride in zip(reversed(sizes), reversed(given), strict=True):
            strides.append(stride if size > 1 else behind)
            behind = size * strides[-1]
        return cls(_four(sizes), _four(strides[::-1]), missing == 0)

    @property
    def are_one_row(self) -> bool:
        """Whether all pixels are equally spaced in memory."""
        inner = zip(self.sizes[1:], self.strides[1:], strict=True)
        return self.strides[:-1] == tuple(size * stride for size, stride in inner)

    @property
    def in_one_row(self) -> Images:
        whole = self.sizes[0] * self.strides[0]
        return Images((1, 1, 1, prod(self.sizes)), (whole, whole, whole, self.strides[-1]), deep=False)

    def map(self, channels: int, box: Box, width: int, steps: tuple[int, int, int]) -> TensorMap:
        """A descriptor for boxes of so many channels, of every ``steps``-th plane, row and column."""
        rows = zip((*self.sizes, channels), (*self.strides, 1), (*box.sides, width), (1, *steps, 1), strict=True)
        kept = [each for place, each in enumerate(rows) if place != 1 or self.deep]
        return TensorMap(*zip(*kept, strict=True))


def _four(values: Sequence[int]) -> Sizes:
    n, planes, rows, columns = values
    return n, planes, rows, columns


@dataclass(frozen=True, slots=True)
class Box:
    """Images by planes by rows by columns."""

    sides: Sizes

    @classmethod
    def of(cls, written: Images, pixels: int, steps: tuple[int, int, int]) -> Box:
        """A box of ``pixels`` pixels with as few as possible outside the output, and long rows preferred. What it reads
        is ``steps`` times as deep, high and wide."""
        return _box_of(written.sizes, pixels, steps)

    def count(self, sizes: Sizes) -> int:
        """The number of boxes that cover images of these sizes."""
        return prod(-(-size // side) for size, side in zip(sizes, self.sides, strict=True))


@lru_cache(maxsize=1024)
def _box_of(sizes: Sizes, pixels: int, steps: tuple[int, int, int]) -> Box:
    fitting = [box for box in _boxes(pixels) if all(map(_fits, box.sides[1:], steps))]
    return min(fitting, key=lambda box: (box.count(sizes), [-side for side in reversed(box.sides)]))


def _fits(side: int, step: int) -> bool:
    return (side - 1) * step + 1 <= _MOST_OF_A_SIDE


@lru_cache
def _boxes(pixels: int) -> tuple[Box, ...]:
    powers = [1 << power for power in range(pixels.bit_length()) if 1 << power <= _MOST_OF_A_SIDE]
    return tuple(Box(_four(sides)) for sides in product(powers, repeat=4) if prod(sides) == pixels)


Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Taps in planes, rows and columns over the pixels of ``read``, and the offset of the first tap."""

    read: Images
    written: Images
    channels: int
    outputs: int
    taps: Triple
    stride: Triple
    ahead: Triple
    dilation: Triple
    flip: bool

    @classmethod
    def of(cls, problem: ConvProblem) -> Window:
        return _window_of(problem)

    def box(self, pixels: int) -> Box:
        return Box.of(self.written, pixels, self.stride)

    def constants(self, box: Box) -> dict[str, int | bool]:
        """Compile-time constants of the window, and of the boxes that cover the output."""
        _, Z, P, Q = self.written.sizes
        axes = {"STRIDE": self.stride, "DILATION": self.dilation}
        constants = {
            f"{name}_{axis}": each for name, values in axes.items() for axis, each in zip("DHW", values, strict=True)
        }
        T, R, S = self.taps
        front, top, left = self.ahead
        constants |= dict(zip(("IMAGES", "PLANES", "ROWS", "COLUMNS"), box.sides, strict=True))
        return constants | {
            "Z": Z, "P": P, "Q": Q, "C": self.channels, "K": self.outputs, "T": T, "R": R, "S": S,
            "FRONT": front, "TOP": top, "LEFT": left, "FLIP": self.flip, "DEEP": self.read.deep,
            "BOXES": box.count(self.written.sizes),
        }  # fmt: skip

    def maps(self, box: Box, bn: int, bk: int) -> dict[str, TensorMap]:
        """Descriptors of the operands; the weight's has taps by output channels by input channels."""
        taps, row = prod(self.taps), prod(self.taps) * self.channels
        return {
            "x": self.read.map(self.channels, box, bk, self.stride),
            "w": TensorMap((taps, self.outputs, self.channels), (self.channels, row, 1), (1, bn, bk), (1, 1, 1)),
            "y": self.written.map(self.outputs, box, bn, (1, 1, 1)),
        }


@lru_cache(maxsize=256)
def _window_of(problem: ConvProblem) -> Window:
    """If each output pixel reads just one input pixel, all pixels form one row."""
    read, written = Images.of(problem.x), Images.of(problem.y)
    padded = any(side for sides in problem.padding for side in sides)
    alone = prod(problem.taps) == prod(problem.stride) == 1 and not padded
    if alone and read.are_one_row and written.are_one_row:
        read, written = read.in_one_row, written.in_one_row
    ahead = tuple(before for before, _ in problem.padding)
    return Window(
        read, written, problem.c, problem.k, _three(problem.taps, 1), _three(problem.stride, 1), _three(ahead, 0),
        _three(problem.dilation, 1), problem.flip,
    )  # fmt: skip


def _three(values: tuple[int, ...], missing: int) -> Triple:
    return depth(values, missing), *pair(values, missing)
