"""Overlap-save in one spatial dimension: a long correlation as short circular ones, one per tile of the input.

Output i is Σ w[u] · source[i + u − lead] over the filter's positions u. A tile of ``length`` elements gives ``step``
outputs; the next tile begins ``step`` elements later. Wrapped values of a circular correlation either are in outputs
that are dropped, or are zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# Transforms are fast for lengths with only these factors, and 2.
_ODD_FACTORS = (3, 5, 7)


@dataclass(frozen=True, slots=True)
class Line:
    """One dimension: ``size`` source elements ``spacing`` apart, with zeros between them and ``lead`` zeros before them
    (a negative lead drops elements), ``outputs`` results, and a filter that spans ``reach`` elements.

    ``length`` is the length of a tile, ``step`` the number of its outputs; both are 0 until ``whole`` or ``tiled`` sets
    them. ``skipped`` outputs come before the first tile.
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
        """The number of tiles."""
        return -(-self.outputs // self.step)

    def whole(self) -> Line:
        """One tile for everything, of the next length with a fast transform."""
        read = self.outputs + self.reach - 1
        # Elements after the tile's end wrap to its beginning, and must be zero in both places.
        end = self.lead + (self.size - 1) * self.spacing + 1
        least = max(min(end, read), read - max(self.lead, 0), self.outputs, self.reach)
        return replace(self, length=quick_length(least), step=self.outputs)

    def tiled(self, length: int) -> Line:
        """Tiles of ``length``, or one for everything if that is not longer."""
        whole = self.whole()
        return whole if whole.length <= length else replace(self, length=length, step=length - self.reach + 1)

    def part(self, first: int, tiles: int) -> Line:
        """At most ``tiles`` tiles, from ``first`` on."""
        skipped = first * self.step
        return replace(self, skipped=skipped, outputs=min(self.outputs - skipped, tiles * self.step))

    @property
    def source(self) -> Cut:
        """The tiles that are read. They overlap by the filter's reach minus one."""
        extent = (self.count - 1) * self.step + self.length
        return Cut.of(self.size, self.spacing, self.lead - self.skipped, extent, self.length, self.step)

    def beside(self, size: int, spacing: int) -> Cut:
        """``size`` elements at the positions of the outputs, in the tiles of these."""
        return Cut.of(size, spacing, -self.skipped, self.count * self.step, self.step, self.step)

    def filter(self, taps: int, dilation: int) -> Cut:
        """A filter, in one piece."""
        return Cut.of(taps, dilation, 0, self.reach, self.reach, self.reach)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a dimension is cut: elements ``taken`` are ``put`` into ``extent`` zeros, which are read in windows of
    ``window`` elements, ``hop`` elements apart."""

    taken: slice
    put: slice
    extent: int
    window: int
    hop: int

    @classmethod
    def of(cls, size: int, spacing: int, lead: int, extent: int, window: int, hop: int) -> Cut:
        """Of ``size`` elements, ``spacing`` apart after ``lead`` zeros, those within ``extent``."""
        first = max(0, -(lead // spacing))
        count = max(0, min(size - 1, (extent - 1 - lead) // spacing) - first + 1)
        start = lead + first * spacing
        put = slice(start, start + count * spacing, spacing) if count else slice(0, 0)
        return cls(slice(first, first + count), put, extent, window, hop)


def quick_length(least: int) -> int:
    """The next length without a prime factor above 7.

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
