"""Boxes of pixels: how the copy engine is told of images, what taps read, and where results are written."""

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

APART_BYTES = 16  # what every stride is a multiple of
_APART = 16  # elements, which take such a multiple whatever they are
_MOST_OF_A_SIDE = 256

# Of images, planes, rows and columns.
Sizes = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Images:
    """Sizes and strides along images, planes, rows and pixels, in elements. Images of one plane have no others."""

    sizes: Sizes
    strides: Sizes
    deep: bool

    @classmethod
    def of(cls, spec: TensorSpec) -> Images:
        n, channels, *pixels = spec.shape
        missing = 3 - len(pixels)
        sizes, given = (n, *[1] * missing, *pixels), (spec.strides[0], *[0] * missing, *spec.strides[2:])
        # Along what has one element a stride means nothing; it gets one that the copy engine takes.
        strides, behind = [], power_of_two(max(channels, _APART))
        for size, stride in zip(reversed(sizes), reversed(given), strict=True):
            strides.append(stride if size > 1 else behind)
            behind = size * strides[-1]
        return cls(_four(sizes), _four(strides[::-1]), missing == 0)

    @property
    def are_one_row(self) -> bool:
        """Whether each pixel lies as far behind the one before it as the next."""
        inner = zip(self.sizes[1:], self.strides[1:], strict=True)
        return self.strides[:-1] == tuple(size * stride for size, stride in inner)

    @property
    def in_one_row(self) -> Images:
        whole = self.sizes[0] * self.strides[0]
        return Images((1, 1, 1, prod(self.sizes)), (whole, whole, whole, self.strides[-1]), deep=False)

    def map(self, channels: int, box: Box, width: int, steps: tuple[int, int, int]) -> TensorMap:
        """What the copy engine is told to move boxes of so many channels, of every so manieth plane, row and column."""
        rows = zip((*self.sizes, channels), (*self.strides, 1), (*box.sides, width), (1, *steps, 1), strict=True)
        told = [each for place, each in enumerate(rows) if place != 1 or self.deep]
        return TensorMap(*zip(*told, strict=True))


def _four(values: Sequence[int]) -> Sizes:
    n, planes, rows, columns = values
    return n, planes, rows, columns


@dataclass(frozen=True, slots=True)
class Box:
    """So many images by planes by rows by columns."""

    sides: Sizes

    @classmethod
    def of(cls, written: Images, pixels: int, steps: tuple[int, int, int]) -> Box:
        """Of so many pixels, of which as few as can be lie beside what is written; long rows first. What it reads is so
        many times as deep, high and wide."""
        return _box_of(written.sizes, pixels, steps)

    def count(self, sizes: Sizes) -> int:
        """How many cover images of these sizes."""
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
    """Taps in planes, rows and columns, over pixels of ``read`` from so far ahead of the first one on."""

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
        """What a kernel is told of it, and of boxes that cover what is written."""
        _, Z, P, Q = self.written.sizes
        axes = {"STRIDE": self.stride, "DILATION": self.dilation}
        told = {
            f"{name}_{axis}": each for name, values in axes.items() for axis, each in zip("DHW", values, strict=True)
        }
        T, R, S = self.taps
        front, top, left = self.ahead
        told |= dict(zip(("IMAGES", "PLANES", "ROWS", "COLUMNS"), box.sides, strict=True))
        return told | {
            "Z": Z, "P": P, "Q": Q, "C": self.channels, "K": self.outputs, "T": T, "R": R, "S": S,
            "FRONT": front, "TOP": top, "LEFT": left, "FLIP": self.flip, "DEEP": self.read.deep,
            "BOXES": box.count(self.written.sizes),
        }  # fmt: skip

    def maps(self, box: Box, bn: int, bk: int) -> dict[str, TensorMap]:
        """What the copy engine is told of the operands: of the weight as taps by outputs by channels."""
        taps, row = prod(self.taps), prod(self.taps) * self.channels
        return {
            "x": self.read.map(self.channels, box, bk, self.stride),
            "w": TensorMap((taps, self.outputs, self.channels), (self.channels, row, 1), (1, bn, bk), (1, 1, 1)),
            "y": self.written.map(self.outputs, box, bn, (1, 1, 1)),
        }


@lru_cache(maxsize=256)
def _window_of(problem: ConvProblem) -> Window:
    """Where each pixel is read for itself alone, all of them are one row."""
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
