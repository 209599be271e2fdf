"""Fold a strided axis into blocks: elements at the same place of every block become a channel.

With stride s, output position p reads with tap r the input element p·s + r − low. Count input elements from ``shift``
before the input, and put ``lead`` zero taps before the filter: element a·s + b is place b of block a, and tap a'·s + b
of the longer filter reads it. For each place b this is a convolution of stride 1 over blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from convwright.core.geometry import Axis


class Place(NamedTuple):
    """A rectangle of a folded axis: ``width`` places from ``place`` in each of ``blocks`` blocks from ``block``."""

    block: int
    blocks: int
    place: int
    width: int


class Run(NamedTuple):
    """Consecutive elements of an axis from ``start``, which fill the rectangle ``place`` of the folded axis."""

    start: int
    place: Place

    @property
    def length(self) -> int:
        return self.place.blocks * self.place.width


@dataclass(frozen=True, slots=True)
class Blocks:
    """An axis of ``length`` elements, which start after ``offset`` empty places in ``count`` blocks of ``size``."""

    length: int
    offset: int
    size: int
    count: int

    @property
    def whole(self) -> int:
        """The number of places in the blocks."""
        return self.count * self.size

    @property
    def covered(self) -> int:
        """The number of elements in the blocks; later ones are beyond the last block."""
        return min(self.length, self.count * self.size - self.offset)

    def runs(self) -> Iterator[Run]:
        """A partial first block, the full blocks, and a partial last block, as far as they exist."""
        position, end = self.offset, self.offset + self.covered
        while position < end:
            block, place = divmod(position, self.size)
            width = min(self.size - place, end - position)
            blocks = (end - position) // self.size if width == self.size else 1
            yield Run(position - self.offset, Place(block, blocks, place, width))
            position += blocks * width

    def mirrored_runs(self) -> Iterator[Run]:
        """The same for an axis read backwards: one element each, since tensors have no negative strides."""
        for start in range(self.covered):
            block, place = divmod(self.offset + self.length - 1 - start, self.size)
            yield Run(start, Place(block, 1, place, 1))

    def gaps(self) -> Iterator[Place]:
        """The places before the first element and after the last."""
        if self.offset:
            yield Place(0, 1, 0, self.offset)
        block, place = divmod(self.offset + self.covered, self.size)
        if place:
            yield Place(block, 1, place, self.size - place)


@dataclass(frozen=True, slots=True)
class Fold:
    """One axis of the folded problem: the blocks of input and filter, and the padding in blocks."""

    input: Blocks
    filter: Blocks
    pad: tuple[int, int]

    @classmethod
    def of(cls, axis: Axis) -> Fold:
        """The folded ``axis``, whose dilation is 1. Its input is empty if no output position reads any.

        >>> fold = Fold.of(Axis(size=224, taps=7, stride=2, pad=(3, 3), dilation=1))
        >>> fold.input.count, fold.filter.count, fold.pad
        (112, 4, (2, 1))
        """
        block, low = axis.stride, axis.pad[0]
        taps = _blocks(axis.taps, block)
        shift, lead = 0, -low % block
        if _blocks(lead + axis.taps, block) > taps:
            # Zero taps before the filter would add a block to it; zeros before the input do not.
            shift, lead = low % block, 0
        before = (low + lead - shift) // block
        reached = axis.out + taps - 1 - before
        count = max(min(_blocks(shift + axis.size, block), reached), 0)
        source = Blocks(axis.size, shift, block, count)
        return cls(source, Blocks(axis.taps, lead, block, taps), (before, reached - count))


def _blocks(length: int, size: int) -> int:
    """The number of blocks of ``size`` that hold ``length`` elements."""
    return -(-length // size)
