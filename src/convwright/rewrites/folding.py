"""A strided axis folded into blocks: what stands at the same place of every block becomes a channel.

With stride s an output position p reads, with tap r, the input element p·s + r − low. Counted from ``shift`` elements
before the input, and with ``lead`` zero taps before the filter, that is place b of block a of the input, where tap
a'·s + b of the longer filter meets it: a convolution of stride 1 over blocks, for each place b by itself.
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
    """Consecutive elements of an axis from ``start``, which lie in the rectangle ``place`` of the folded axis."""

    start: int
    place: Place

    @property
    def length(self) -> int:
        return self.place.blocks * self.place.width


@dataclass(frozen=True, slots=True)
class Blocks:
    """An axis of ``length`` elements that lie, after ``offset`` empty places, in ``count`` blocks of ``size``."""

    length: int
    offset: int
    size: int
    count: int

    @property
    def whole(self) -> int:
        """How many places the blocks have."""
        return self.count * self.size

    @property
    def covered(self) -> int:
        """How many elements lie in the blocks; those after them lie behind the last."""
        return min(self.length, self.count * self.size - self.offset)

    def runs(self) -> Iterator[Run]:
        """A first block that is not full, the full ones, a last one that is not, as far as there are such."""
        position, end = self.offset, self.offset + self.covered
        while position < end:
            block, place = divmod(position, self.size)
            width = min(self.size - place, end - position)
            blocks = (end - position) // self.size if width == self.size else 1
            yield Run(position - self.offset, Place(block, blocks, place, width))
            position += blocks * width

    def mirrored_runs(self) -> Iterator[Run]:
        """The same of an axis that is read backwards: one element each, since no tensor has negative strides."""
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
    """One axis of the folded problem: the blocks of the input, the blocks of the filter, and the padding in blocks."""

    input: Blocks
    filter: Blocks
    pad: tuple[int, int]

    @classmethod
    def of(cls, axis: Axis) -> Fold:
        """The folded ``axis``, whose dilation is 1. It has no input where no output position reads any.

        >>> fold = Fold.of(Axis(size=224, taps=7, stride=2, pad=(3, 3), dilation=1))
        >>> fold.input.count, fold.filter.count, fold.pad
        (112, 4, (2, 1))
        """
        block, low = axis.stride, axis.pad[0]
        taps = _blocks(axis.taps, block)
        shift, lead = 0, -low % block
        if _blocks(lead + axis.taps, block) > taps:
            # Zero taps before the filter would make it one block longer; zeros before the input do not.
            shift, lead = low % block, 0
        before = (low + lead - shift) // block
        reached = axis.out + taps - 1 - before
        count = max(min(_blocks(shift + axis.size, block), reached), 0)
        source = Blocks(axis.size, shift, block, count)
        return cls(source, Blocks(axis.taps, lead, block, taps), (before, reached - count))


def _blocks(length: int, size: int) -> int:
    """How many blocks of ``size`` hold ``length`` elements."""
    return -(-length // size)
