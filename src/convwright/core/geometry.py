"""One spatial dimension of a convolution: sizes, and which elements are really read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# Above this number of taps, padding counts like input: examining each tap would take minutes.
_MOST_TAPS = 1 << 20


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension: input size, filter size, stride, padding on both sides, dilation."""

    size: int
    taps: int
    stride: int
    pad: tuple[int, int]
    dilation: int

    @property
    def reach(self) -> int:
        """Input elements from the first tap to the last, both included."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def out(self) -> int:
        """Output positions; 0 or less if the filter does not fit."""
        return (self.size + sum(self.pad) - self.reach) // self.stride + 1

    def products(self) -> int:
        """Pairs of output position and tap that read an input element, not padding."""
        if self.taps > _MOST_TAPS:
            return self.taps * max(self.out, 0)
        return sum(len(self._positions(tap)) for tap in range(self.taps))

    def touched(self) -> int:
        """Input elements that are read at least once."""
        # Positions of equal remainder modulo the stride are consecutive, and ranges end in the order of their taps.
        if self.taps > _MOST_TAPS:
            return self.size
        met = filter(None, map(self._positions, range(self.taps)))
        return _united((each.start % self.stride, each.start // self.stride, len(each)) for each in met)

    def taps_met(self) -> int:
        """Taps that read the input at least once, not only padding."""
        return self.taps if self.taps > _MOST_TAPS else sum(map(bool, map(self._positions, range(self.taps))))

    def outputs_met(self) -> int:
        """Output positions with at least one tap in the input."""
        if self.taps > _MOST_TAPS:
            return max(self.out, 0)
        # From the last tap to the first, ranges of outputs end in ascending order.
        met = ((tap, self._positions(tap)) for tap in reversed(range(self.taps)))
        return _united(
            (0, (inputs.start + self.pad[0] - tap * self.dilation) // self.stride, len(inputs))
            for tap, inputs in met if inputs
        )  # fmt: skip

    def _positions(self, tap: int) -> range:
        """Input positions that ``tap`` reads, one per output position outside the padding."""
        first = tap * self.dilation - self.pad[0]
        start = first if first >= 0 else first + -(first // self.stride) * self.stride
        stop = min(self.size, first + self.out * self.stride)
        return range(start, max(stop, start), self.stride)


def _united(ranges: Iterable[tuple[int, int, int]]) -> int:
    """How many numbers are in any of these ranges (class, first, count). In each class they must come in the order of
    their ends."""
    total, ends = 0, dict[int, int]()
    for kind, first, count in ranges:
        end, known = first + count, ends.get(kind, 0)
        total += max(0, end - max(first, known))
        ends[kind] = max(end, known)
    return total
