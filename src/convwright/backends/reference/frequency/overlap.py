"""Overlap-save in one spatial dimension: a long correlation as short circular ones, each of a tile of the input.

Output i is Σ w[u] · source[i + u − lead] over the filter's positions u. A tile of ``length`` elements gives ``step``
outputs; the next tile begins ``step`` elements later. What wraps around in a circular correlation either falls on
outputs that are not kept, or is zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# A transform whose length has only these factors, and 2, is quick.
_ODD_FACTORS = (3, 5, 7)


@dataclass(frozen=True, slots=True)
class Line:
    """One dimension: ``size`` source elements ``spacing`` apart, zeros between them, ``lead`` zeros ahead of them
    (elements left out where negative), ``outputs`` wanted, a filter that reaches over ``reach`` elements.

    ``length`` is a tile's, ``step`` says how many outputs it gives; both are 0 until ``whole`` or ``tiled`` sets them.
    ``skipped`` outputs come before those of the first tile.
    """

    size: int
    spacing: int
    lead: int
    outputs: int
    reach: int
    length: int = 0
    step: int = 0
    skipped: int = 0

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.outputs // self.step)

    def whole(self) -> Line:
        """One tile for everything, of the next length that transforms quickly."""
        read = self.outputs + self.reach - 1
        # What is read beyond the tile's end wraps to its front: it must be zero in both places.
        end = self.lead + (self.size - 1) * self.spacing + 1
        least = max(min(end, read), read - max(self.lead, 0), self.outputs, self.reach)
        return replace(self, length=quick_length(least), step=self.outputs)

    def tiled(self, length: int) -> Line:
        """Tiles of ``length``, or one for everything where that is not longer."""
        whole = self.whole()
        return whole if whole.length <= length else replace(self, length=length, step=length - self.reach + 1)

    def part(self, first: int, tiles: int) -> Line:
        """So many tiles from the ``first`` on, or as many as there are."""
        skipped = first * self.step
        return replace(self, skipped=skipped, outputs=min(self.outputs - skipped, tiles * self.step))

    @property
    def source(self) -> Cut:
        """The tiles that are read. They overlap by what the filter reaches beyond one element."""
        extent = (self.count - 1) * self.step + self.length
        return Cut.of(self.size, self.spacing, self.lead - self.skipped, extent, self.length, self.step)

    def beside(self, size: int, spacing: int) -> Cut:
        """``size`` elements that stand beside the outputs, in the tiles that these are in."""
        return Cut.of(size, spacing, -self.skipped, self.count * self.step, self.step, self.step)

    def filter(self, taps: int, dilation: int) -> Cut:
        """A filter, in one piece."""
        return Cut.of(taps, dilation, 0, self.reach, self.reach, self.reach)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a dimension is cut up: elements ``taken`` are ``put`` into ``extent`` zeros, which are read in windows of
    ``window`` elements, each ``hop`` elements behind the last."""

    taken: slice
    put: slice
    extent: int
    window: int
    hop: int

    @classmethod
    def of(cls, size: int, spacing: int, lead: int, extent: int, window: int, hop: int) -> Cut:
        """Of ``size`` elements, ``spacing`` apart behind ``lead`` zeros, those that fall into ``extent``."""
        first = max(0, -(lead // spacing))
        count = max(0, min(size - 1, (extent - 1 - lead) // spacing) - first + 1)
        start = lead + first * spacing
        put = slice(start, start + count * spacing, spacing) if count else slice(0, 0)
        return cls(slice(first, first + count), put, extent, window, hop)


def quick_length(least: int) -> int:
    """The next length with no prime factor above 7.

    >>> [quick_length(least) for least in (0, 11, 58, 226)]
    [1, 12, 60, 240]
    """
    least = max(least, 1)
    # Each odd product, with as few factors of 2 as reach ``least``.
    return min(odd << (-(-least // odd) - 1).bit_length() for odd in _odd_products(2 * least))


def _odd_products(below: int) -> list[int]:
    """The numbers below ``below`` that have only odd factors of quick lengths."""
    products = [1]
    for factor in _ODD_FACTORS:
        power, others = factor, tuple(products)
        while power < below:
            products += [power * other for other in others if power * other < below]
            power *= factor
    return products
