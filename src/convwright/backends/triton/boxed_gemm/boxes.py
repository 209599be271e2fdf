"""How the copy engine is told of images, and how a tile's pixels are laid out in them: as a box."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from convwright.backends.triton.kernel_call import TensorMap
from convwright.backends.triton.operands import pair, power_of_two
from convwright.core.tensor_spec import TensorSpec

APART_BYTES = 16  # what every stride is a multiple of
_MOST_OF_A_SIDE = 256

Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Images:
    """Sizes and strides along images, rows and pixels, in elements."""

    sizes: Sizes
    strides: Sizes

    @classmethod
    def of(cls, spec: TensorSpec) -> Images:
        n, (rows, columns) = spec.shape[0], pair(spec.shape[2:], 1)
        of_row, of_column = pair(spec.strides[2:], 0)
        # Along what has one element a stride means nothing; it gets one that the copy engine takes.
        if columns == 1:
            of_column = power_of_two(max(spec.shape[1], APART_BYTES))
        if rows == 1:
            of_row = columns * of_column
        of_image = spec.strides[0] if n > 1 else rows * of_row
        return cls((n, rows, columns), (of_image, of_row, of_column))

    @property
    def are_one_row(self) -> bool:
        """Whether each pixel lies as far behind the one before it as the next."""
        _, rows, columns = self.sizes
        of_image, of_row, of_column = self.strides
        return of_row == columns * of_column and of_image == rows * of_row

    def map(self, channels: int, box: Box, width: int, steps: tuple[int, int]) -> TensorMap:
        """What the copy engine is told to move boxes of so many channels, of every so manieth row and column."""
        sides = box.images, box.rows, box.columns, width
        return TensorMap((*self.sizes, channels), (*self.strides, 1), sides, (1, *steps, 1))

    @property
    def in_one_row(self) -> Images:
        return Images((1, 1, prod(self.sizes)), (self.sizes[0] * self.strides[0],) * 2 + self.strides[2:])


@dataclass(frozen=True, slots=True)
class Box:
    """So many images by rows by columns."""

    images: int
    rows: int
    columns: int

    @classmethod
    def of(cls, written: Images, pixels: int, steps: tuple[int, int]) -> Box:
        """Of so many pixels, of which as few as can be lie beside what is written; long rows first. What it reads is so
        many times as high and wide."""
        fitting = [box for box in _boxes(pixels) if all(map(_fits, (box.rows, box.columns), steps))]
        return min(fitting, key=lambda box: (box.count(written.sizes), -box.columns, -box.rows))

    def count(self, sizes: Sizes) -> int:
        """How many cover images of these sizes."""
        sides = self.images, self.rows, self.columns
        return prod(-(-size // side) for size, side in zip(sizes, sides, strict=True))


def _fits(side: int, step: int) -> bool:
    return (side - 1) * step + 1 <= _MOST_OF_A_SIDE


@lru_cache
def _boxes(pixels: int) -> tuple[Box, ...]:
    sides = [1 << power for power in range(pixels.bit_length()) if 1 << power <= _MOST_OF_A_SIDE]
    return tuple(Box(*each) for each in product(sides, sides, sides) if prod(each) == pixels)
