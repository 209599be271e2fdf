"""How the copy engine is told of images, and how a tile's pixels are laid out in them: as a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from convwright.backends.triton.launching.kernel_call import TensorMap
from convwright.backends.triton.operands import power_of_two
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
